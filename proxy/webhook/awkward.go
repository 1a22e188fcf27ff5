package webhook

import (
	"bytes"
	"compress/gzip"
	"crypto/subtle"
	"encoding/hex"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The schemes that need more than a template. Source of the facts, where nothing else is said: the vendors' own
// libraries.

// twilio signs the URL with the form's fields, or, for other bodies, the URL with the body's hash in its query. The
// algorithm is SHA-1 unless the request names another (webhooks that are made with a shared key).
func twilio() Scheme {
	return Scheme{algorithm: "hmac-sha1", at: "header:X-Twilio-Signature", encoding: "base64", signed: "{url}{form}",
		tokens: map[string]func(*Request) string{"form": twilioForm},
		choose: func(r *Request) (string, *Failure) {
			algorithm := "hmac-sha1"
			if settings := r.Header.Get("X-Twilio-Webhooks-Signature-Settings"); settings != "" {
				_, name, _ := strings.Cut(settings, "algorithm=")
				switch name, _, _ = strings.Cut(name, ","); name {
				case "HMAC_SHA1":
				case "HMAC_SHA256":
					algorithm = "hmac-sha256"
				default:
					return "", failf(Malformed, "the header X-Twilio-Webhooks-Signature-Settings names an unknown algorithm")
				}
			}
			if want := bodySHA256(r); want != "" {
				if subtle.ConstantTimeCompare([]byte(strings.ToLower(want)), []byte(hexSHA256(r.Body))) != 1 {
					return "", failf(Mismatch, "the body does not have the hash that is in the signed URL: something in front changed it")
				}
			} else if len(r.Body) > maxTwilioForm {
				return "", failf(Malformed, "the body is larger than any form of Twilio's")
			} else if _, err := url.ParseQuery(string(r.Body)); len(r.Body) > 0 && (!isForm(r) || err != nil) {
				return "", failf(Malformed, "the body is no form and the URL has no bodySHA256: nothing protects the body")
			}
			return algorithm, nil
		},
		similar: func(r *Request) (forms []*Request) {
			for _, u := range twilioURLs(r.URL) {
				form := *r
				form.URL = u
				forms = append(forms, &form)
			}
			return forms
		},
		prepare: func(r *Request, _ string, _ time.Time) error {
			if isForm(r) || bodySHA256(r) != "" {
				return nil
			}
			r.URL, r.Target = withQuery(r.URL, "bodySHA256="+hexSHA256(r.Body)), withQuery(r.Target, "bodySHA256="+hexSHA256(r.Body))
			return nil
		}}
}

// maxTwilioForm bounds what is parsed, several times, before anything is verified. Twilio's forms have a few kilobytes.
const maxTwilioForm = 1 << 20

func bodySHA256(r *Request) string {
	_, query, _ := strings.Cut(r.URL, "?")
	if values := pairs([]byte(query), "bodySHA256"); len(values) > 0 {
		return values[0]
	}
	return ""
}

func withQuery(u, query string) string {
	if strings.Contains(u, "?") {
		return u + "&" + query
	}
	return u + "?" + query
}

// twilioForm is the decoded fields, sorted by name, name and value joined. Of a repeated name each value counts once,
// sorted, as in twilio-node (twilio-go takes only the first, which would leave the others unprotected).
func twilioForm(r *Request) string {
	if bodySHA256(r) != "" {
		return ""
	}
	fields, err := url.ParseQuery(string(r.Body))
	if err != nil {
		return ""
	}
	var text strings.Builder
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		values := fields[name]
		slices.Sort(values)
		for _, value := range slices.Compact(values) {
			text.WriteString(name + value)
		}
	}
	return text.String()
}

// twilioURLs are other forms in which Twilio may have signed a URL: without its port, with the default port, and all of
// these normalised.
func twilioURLs(text string) (forms []string) {
	u, err := url.Parse(text)
	if err != nil {
		return nil
	}
	port := ":443"
	if u.Scheme == "http" {
		port = ":80"
	}
	from := strings.Index(text, u.Host)
	if from < 0 || u.Host == "" {
		return nil
	}
	given := u.Host
	host := strings.TrimSuffix(given, ":"+u.Port())
	for _, h := range []string{host, host + port} {
		u.Host = h
		forms = append(forms, text[:from]+h+text[from+len(given):], u.String())
	}
	return forms
}

// hubspot signs the URL, in which the documentation wants some characters decoded; its library does not do it.
func hubspot() Scheme {
	decode := strings.NewReplacer("%3A", ":", "%2F", "/", "%3F", "?", "%40", "@", "%21", "!", "%24", "$", "%27", "'", "%28", "(", "%29", ")", "%2A", "*", "%2C", ",", "%3B", ";")
	return Scheme{algorithm: "hmac-sha256", at: "header:X-HubSpot-Signature-v3", encoding: "base64", signed: "{method}{url}{body}{timestamp}",
		time: "header:X-HubSpot-Request-Timestamp", unit: "ms",
		similar: func(r *Request) []*Request {
			form := *r
			form.URL = decode.Replace(r.URL)
			return []*Request{&form}
		}}
}

// hubspotLegacy is a hash of secret and body (v1), or of secret, method, URL and body (v2).
func hubspotLegacy() Scheme {
	const version = "X-HubSpot-Signature-Version"
	return Scheme{algorithm: "sha256", at: "header:X-HubSpot-Signature", encoding: "hex", signed: "{secret}{target}{body}",
		tokens: map[string]func(*Request) string{"target": func(r *Request) string {
			if r.Header.Get(version) == "v2" {
				return r.Method + r.URL
			}
			return ""
		}},
		choose: func(r *Request) (string, *Failure) {
			if v := r.Header.Get(version); v != "v1" && v != "v2" {
				return "", failf(Malformed, "the header %s says neither v1 nor v2", version)
			}
			return "sha256", nil
		},
		prepare: func(r *Request, _ string, _ time.Time) error {
			r.Header.Set(version, "v2")
			if r.URL == "" {
				r.Header.Set(version, "v1")
			}
			return nil
		}}
}

// contentful signs method, path, the headers that a header lists, and the body.
func contentful() Scheme {
	const listed, timestamp = "X-Contentful-Signed-Headers", "X-Contentful-Timestamp"
	names := func(r *Request) []string {
		names := strings.Split(strings.ToLower(r.Header.Get(listed)), ",")
		for i := range names {
			names[i] = strings.TrimSpace(names[i])
		}
		slices.Sort(names)
		return names
	}
	return Scheme{algorithm: "hmac-sha256", keyLength: 64, at: "header:X-Contentful-Signature", encoding: "hex", signed: "{method}\n{path}\n{headers}\n{body}",
		time: "header:" + timestamp, unit: "ms",
		tokens: map[string]func(*Request) string{
			"path": func(r *Request) string {
				target := r.Target
				if _, rest, ok := strings.Cut(r.URL, "://"); ok { // a proxy in front may have cut off the beginning
					target = rest[max(strings.IndexByte(rest, '/'), 0):]
				}
				path, query, found := strings.Cut(target, "?")
				if path = escapeURI(path, ";,/?:@&=+$-_.!~*'()#"); found {
					path += "?" + escapeURI(escapeURI(query, "-_.!~*'()"), ";,/?:@&=+$-_.!~*'()#")
				}
				return path
			},
			"headers": func(r *Request) string {
				var pairs []string
				for _, name := range names(r) {
					pairs = append(pairs, name+":"+strings.TrimSpace(strings.Join(r.Header[http.CanonicalHeaderKey(name)], ", ")))
				}
				return strings.Join(pairs, ";")
			},
		},
		choose: func(r *Request) (string, *Failure) {
			if !slices.Contains(names(r), strings.ToLower(timestamp)) {
				return "", failf(Malformed, "the header %s does not list the timestamp, so anybody could change it", listed)
			}
			return "hmac-sha256", nil
		},
		prepare: func(r *Request, _ string, _ time.Time) error {
			r.Header.Set(listed, strings.ToLower(listed+","+timestamp))
			return nil
		}}
}

// escapeURI percent-encodes all but letters, digits and the characters in safe, as JavaScript's encodeURI and
// encodeURIComponent do.
func escapeURI(text, safe string) string {
	var out strings.Builder
	for _, c := range []byte(text) {
		if c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || strings.IndexByte(safe, c) >= 0 {
			out.WriteByte(c)
		} else {
			out.WriteString("%" + strings.ToUpper(hex.EncodeToString([]byte{c})))
		}
	}
	return out.String()
}

// adyen signs eight fields of each item; values are not escaped, empty ones stay.
func adyen() Scheme {
	fields := [][]step{{{name: "pspReference"}}, {{name: "originalReference"}}, {{name: "merchantAccountCode"}}, {{name: "merchantReference"}},
		{{name: "amount"}, {name: "value"}}, {{name: "amount"}, {name: "currency"}}, {{name: "eventCode"}}, {{name: "success"}}}
	return Scheme{algorithm: "hmac-sha256", keys: "hex", at: "json:additionalData.hmacSignature", encoding: "base64", signed: "{fields}",
		tokens: map[string]func(*Request) string{"fields": func(r *Request) string {
			values := make([]string, len(fields))
			for i, path := range fields {
				values[i], _ = member(r.Body, path...)
			}
			return strings.Join(values, ":")
		}},
		items: func(r *Request) ([]*Request, *Failure) {
			found, valid := find(r.Body, []step{{name: "notificationItems"}, {each: true}, {name: "NotificationRequestItem"}})
			if !valid || len(found) == 0 {
				return nil, failf(Malformed, "the body is no JSON with notificationItems")
			}
			var items []*Request
			for _, v := range found {
				if v.kind != '{' {
					return nil, failf(Malformed, "one of the notificationItems has no NotificationRequestItem")
				}
				item := *r
				item.Body = v.text
				items = append(items, &item)
			}
			return items, nil
		}}
}

// member is the text of a JSON value that is no object or array; "" if there is none.
func member(doc []byte, path ...step) (text string, ok bool) {
	found, valid := find(doc, path)
	if !valid || len(found) != 1 {
		return "", false
	}
	switch found[0].kind {
	case '"':
		return unescape(found[0].text), true
	case '0':
		return string(found[0].text), true
	case 't':
		return strings.TrimPrefix(string(found[0].text), "null"), true
	}
	return "", false
}

// sns signs some of the message's members as lines; which ones depends on its type (AWS documentation, "Verifying the
// signatures of Amazon SNS messages").
func sns() Scheme {
	// the host pattern is that of Amazon's own validator
	host := regexp.MustCompile(`^sns\.[a-zA-Z0-9-]{3,}\.amazonaws\.com(\.cn)?$`)
	return Scheme{algorithm: "rsa-sha256", at: "json:Signature", encoding: "base64", signed: "{lines}", cert: "json:SigningCertURL",
		certHost: func(u *url.URL) bool { return host.MatchString(u.Host) && strings.HasSuffix(u.Path, ".pem") },
		tokens: map[string]func(*Request) string{"lines": func(r *Request) string {
			names := []string{"Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"}
			if kind, _ := member(r.Body, step{name: "Type"}); kind != "Notification" {
				names = []string{"Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"}
			}
			var lines strings.Builder
			for _, name := range names {
				if value, ok := member(r.Body, step{name: name}); ok || name != "Subject" {
					lines.WriteString(name + "\n" + value + "\n")
				}
			}
			return lines.String()
		}},
		choose: func(r *Request) (string, *Failure) {
			switch version, _ := member(r.Body, step{name: "SignatureVersion"}); version {
			case "1":
				return "rsa-sha1", nil
			case "2":
				return "rsa-sha256", nil
			}
			return "", failf(Malformed, "the body's SignatureVersion is neither 1 nor 2: is raw message delivery on?")
		},
		prepare: func(r *Request, id string, now time.Time) error {
			for _, m := range [][2]string{{"Type", "Notification"}, {"MessageId", id}, {"TopicArn", "arn:aws:sns:us-east-1:000000000000:test"}, {"Message", ""},
				{"Timestamp", now.UTC().Format("2006-01-02T15:04:05.000Z")}, {"SignatureVersion", "2"},
				{"SigningCertURL", "https://sns.us-east-1.amazonaws.com/SimpleNotificationService.pem"}} {
				if _, ok := member(r.Body, step{name: m[0]}); !ok {
					r.Body = setMember(r.Body, []step{{name: m[0]}}, strconv.Quote(m[1]))
				}
			}
			return nil
		}}
}

// paypal signs the checksum of the body with the id of the webhook, which is in no request.
func paypal() Scheme {
	return Scheme{algorithm: "rsa-sha256", at: "header:Paypal-Transmission-Sig", encoding: "base64", signed: "{id}|{timestamp}|{secret}|{crc32}",
		time: "header:Paypal-Transmission-Time", unit: "rfc3339", id: "header:Paypal-Transmission-Id", cert: "header:Paypal-Cert-Url",
		certHost: func(u *url.URL) bool { return strings.HasSuffix(u.Host, ".paypal.com") },
		tokens: map[string]func(*Request) string{"crc32": func(r *Request) string {
			return strconv.FormatUint(uint64(crc32.ChecksumIEEE(r.Body)), 10)
		}},
		choose: func(r *Request) (string, *Failure) {
			if r.Header.Get("Paypal-Auth-Algo") != "SHA256withRSA" {
				return "", failf(Malformed, "the header Paypal-Auth-Algo is not SHA256withRSA")
			}
			return "rsa-sha256", nil
		},
		prepare: func(r *Request, _ string, _ time.Time) error {
			r.Header.Set("Paypal-Auth-Algo", "SHA256withRSA")
			r.Header.Set("Paypal-Cert-Url", "https://api.paypal.com/v1/notifications/certs/CERT-test")
			return nil
		}}
}

// maxInflated bounds what a compressed body may become: it comes from anybody.
const maxInflated = 4 << 20

// stream signs the body as it was before compression.
func stream() Scheme {
	s := bodyHMAC("X-Signature", "hex", "")
	s.similar = func(r *Request) []*Request {
		if !strings.EqualFold(r.Header.Get("Content-Encoding"), "gzip") {
			return nil
		}
		in, err := gzip.NewReader(bytes.NewReader(r.Body))
		if err != nil {
			return nil
		}
		form := *r
		if form.Body, err = io.ReadAll(io.LimitReader(in, maxInflated+1)); err != nil || len(form.Body) > maxInflated {
			return nil
		}
		return []*Request{&form}
	}
	return s
}
