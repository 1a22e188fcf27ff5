package webhook

import (
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestHandshakes(t *testing.T) {
	for _, tt := range []struct {
		provider string
		sample
		want Handshake
	}{
		{"slack", sample{"", `{"token":"x","challenge":"c","type":"url_verification"}`}, SignedHandshake},
		{"slack", sample{"", `{"type":"event_callback","event_id":"Ev1"}`}, NoHandshake},
		{"slack", sample{"", `{"event":{"type":"url_verification"}}`}, NoHandshake},
		{"slack", sample{form, `type=url_verification`}, NoHandshake},
		{"zoom", sample{"", `{"event":"endpoint.url_validation","payload":{"plainToken":"p"}}`}, SignedHandshake},
		{"zoom", sample{"", `{"event":"meeting.started"}`}, NoHandshake},
		{"discord", sample{"", `{"type":1}`}, SignedHandshake},
		{"discord", sample{"", `{"type":2,"id":"1"}`}, NoHandshake},
		{"discord-events", sample{"", `{"version":1,"type":0}`}, SignedHandshake},
		{"discord-events", sample{"", `{"version":1,"type":1,"event":{}}`}, NoHandshake},
		{"twitch", sample{"Twitch-Eventsub-Message-Type: webhook_callback_verification", `{"challenge":"c"}`}, SignedHandshake},
		{"twitch", sample{"Twitch-Eventsub-Message-Type: revocation", `{}`}, SignedHandshake},
		{"twitch", sample{"Twitch-Eventsub-Message-Type: notification", `{}`}, NoHandshake},
		{"aws-sns", sample{"", `{"Type":"SubscriptionConfirmation"}`}, SignedHandshake},
		{"aws-sns", sample{"", `{"Type":"UnsubscribeConfirmation"}`}, SignedHandshake},
		{"aws-sns", sample{"x-amz-sns-message-type: SubscriptionConfirmation", `{"Type":"Notification"}`}, NoHandshake},
		{"line", sample{"", `{"destination":"U","events":[ ]}`}, SignedHandshake},
		{"line", sample{"", `{"events":[{"webhookEventId":"1"}]}`}, NoHandshake},
		{"line", sample{"", `{"events":{}}`}, NoHandshake},
		{"asana", sample{"X-Hook-Secret: s", `{}`}, OpenHandshake},
		{"asana", sample{"X-Hook-Secret: s", ``}, OpenHandshake},
		{"asana", sample{"X-Hook-Secret: s", `{"events":[]}`}, NoHandshake},
		{"asana", sample{"X-Hook-Secret: s\nX-Hook-Signature: x", `{}`}, NoHandshake},
		{"asana", sample{"X-Hook-Secret: ", `{}`}, NoHandshake},
		{"asana", sample{"", `{}`}, NoHandshake},
		{"notion", sample{"", `{"verification_token":"secret_1"}`}, OpenHandshake},
		{"notion", sample{"", `{"verification_token":"secret_1","id":"x"}`}, NoHandshake},
		{"notion", sample{"", `{"verification_token":{"a":"b"}}`}, NoHandshake},
		{"notion", sample{"", `{"id":"x"}`}, NoHandshake},
		{"woocommerce", sample{form, `webhook_id=12`}, AnsweredHandshake},
		{"woocommerce", sample{form, `webhook_id=12&a=b`}, NoHandshake},
		{"woocommerce", sample{form, `webhook_id=x`}, NoHandshake},
		{"woocommerce", sample{"", `webhook_id=12`}, NoHandshake},
		{"woocommerce", sample{form + "\nX-WC-Webhook-Signature: x", `webhook_id=12`}, NoHandshake},
		{"github", sample{"X-GitHub-Event: ping", `{}`}, NoHandshake},
		{"none", sample{"X-Hook-Secret: s", `{}`}, NoHandshake},
	} {
		p, ok := Lookup(tt.provider)
		if got := p.Handshake(tt.request("", "")); !ok || got != tt.want {
			t.Errorf("%s %v: got %v, want %v", tt.provider, tt.sample, got, tt.want)
		}
	}
}

func TestSecretsAreParsedStrictly(t *testing.T) {
	key := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 24))
	seed := make([]byte, 32)
	for _, tt := range []struct {
		provider, secret string
		fault            string
	}{
		{"standard-webhooks", "whsec_" + key, ""},
		{"standard-webhooks", "v1,whsec_" + key, ""},
		{"standard-webhooks", key, ""},
		{"standard-webhooks", "whsec_YQ", ""},
		{"standard-webhooks", "whsec_", "base64"},
		{"standard-webhooks", "whsec_not base64", "base64"},
		{"standard-webhooks", "whpk_" + base64.StdEncoding.EncodeToString(seed), ""},
		{"standard-webhooks", "whpk_" + key, "24 bytes"},
		{"openai", "plain text", ""},
		{"adyen", "zz", "hexadecimal"},
		{"discord", "zz", "hexadecimal"},
		{"discord", "aabb", "2 bytes"},
		{"telnyx", "!", "base64"},
		{"sendgrid", "!", "base64"},
		{"sendgrid", key, "public key"},
		{"sendgrid", base64.StdEncoding.EncodeToString(publicDER(t)), "another kind"},
		{"discord", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: publicDER(t)})), "another kind"},
		{"sendgrid", "-----BEGIN PUBLIC KEY-----", "PEM"},
		{"contentful", "short", "64 characters"},
		{"basic", "nocolon", "colon"},
		{"basic", "user:pass:word", ""},
		{"aws-sns", "-----BEGIN CERTIFICATE-----", "PEM"},
		{"aws-sns", "something", "certificate"},
		{"stripe", "", "empty"},
	} {
		p, _ := Lookup(tt.provider)
		_, err := p.NewVerifier([]string{tt.secret}, Options{})
		if (err == nil) != (tt.fault == "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
			t.Errorf("%s %q: got %v, want …%s…", tt.provider, tt.secret, err, tt.fault)
		}
		if err != nil && (!strings.Contains(err.Error(), "secret 1") || len(tt.secret) > 8 && strings.Contains(err.Error(), tt.secret)) {
			t.Errorf("%s: %v: it must say which secret is meant and not show it", tt.provider, err)
		}
	}
	paypal, _ := Lookup("paypal")
	if _, err := paypal.NewVerifier([]string{string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: publicDER(t)}))}, Options{}); err == nil {
		t.Error("paypal starts without the id of the webhook")
	}
	token, _ := Lookup("token")
	if _, err := token.NewVerifier([]string{"x"}, Options{}); err == nil || !strings.Contains(err.Error(), "WEBHOOK_TOKEN_HEADER") {
		t.Errorf("token without a header: %v", err)
	}
}

func publicDER(t *testing.T) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(&rsaKey().PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func TestHMACOptions(t *testing.T) {
	p, _ := Lookup("hmac")
	for _, tt := range []struct {
		name  string
		o     HMACOptions
		fault string
	}{
		{"defaults", HMACOptions{}, ""},
		{"everything", HMACOptions{Header: "X-Sig", Algorithm: "sha512", Encoding: "base64url", Prefix: "v1=", Signed: "{method} {url} {id}.{timestamp}.{body}",
			TimestampHeader: "X-Time", IDHeader: "X-Id"}, ""},
		{"sha1", HMACOptions{Algorithm: "sha1", Encoding: "base64"}, ""},
		{"md5", HMACOptions{Algorithm: "md5"}, ""},
		{"unknown algorithm", HMACOptions{Algorithm: "sha3"}, "sha3"},
		{"unknown encoding", HMACOptions{Encoding: "base32"}, "base32"},
		{"no body", HMACOptions{Signed: "{timestamp}", TimestampHeader: "X-Time"}, "lacks {body}"},
		{"unsigned time", HMACOptions{TimestampHeader: "X-Time"}, "lacks {timestamp}"},
		{"unsigned id", HMACOptions{IDHeader: "X-Id"}, "lacks {id}"},
		{"time without header", HMACOptions{Signed: "{timestamp}.{body}"}, "no header"},
		{"id without header", HMACOptions{Signed: "{id}.{body}"}, "no header"},
		{"unknown token", HMACOptions{Signed: "{body}{path}"}, "{path}"},
		{"open brace", HMACOptions{Signed: "{body}{"}, "without }"},
		{"bad header", HMACOptions{Header: "X Sig"}, "names no header"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, err := p.NewVerifier([]string{"s3cr3t"}, Options{HMAC: tt.o, Tolerance: time.Minute})
			if tt.fault != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fault) {
					t.Fatalf("got %v, want …%s…", err, tt.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			r := unsigned(p)
			if err := v.Sign(r, "id_1", signedAt); err != nil {
				t.Fatal(err)
			}
			if f := v.Verify(r, signedAt); f != nil {
				t.Error(f)
			}
			if tt.o.TimestampHeader == "" {
				return
			}
			for _, text := range []string{strconv.FormatInt(signedAt.UnixMilli(), 10), signedAt.UTC().Format(time.RFC3339)} {
				r.Header.Set("X-Time", text)
				mac := hmac.New(sha512.New, []byte("s3cr3t"))
				mac.Write([]byte("POST " + r.URL + " id_1." + text + "." + string(r.Body)))
				r.Header.Set("X-Sig", "v1="+base64.RawURLEncoding.EncodeToString(mac.Sum(nil)))
				if f := v.Verify(r, signedAt); f != nil && tt.o.Algorithm != "sha512" {
					t.Errorf("time written as %s: %v", text, f)
				}
			}
		})
	}
}

func TestEmptyBodyWithARightSignatureIsFine(t *testing.T) {
	for _, name := range []string{"stripe", "github", "standard-webhooks", "discord", "pagerduty"} {
		p, _ := Lookup(name)
		sign, verify := newSecrets(t, p)
		r := &Request{Method: "POST"}
		if err := newVerifier(t, p, sign, options(p)).Sign(r, "id", signedAt); err != nil {
			t.Fatal(err)
		}
		if f := newVerifier(t, p, verify, options(p)).Verify(r, signedAt); f != nil {
			t.Errorf("%s: %v", name, f)
		}
	}
}

func TestStandardWebhooksWithAPublicKey(t *testing.T) {
	p, _ := Lookup("standard-webhooks")
	public, private, _ := ed25519.GenerateKey(rand.Reader)
	encode := base64.StdEncoding.EncodeToString
	r := &Request{Header: http.Header{}, Body: []byte(`{}`)}
	if err := newVerifier(t, p, []string{"whsk_" + encode(private)}, options(p)).Sign(r, "msg_1", signedAt); err != nil {
		t.Fatal(err)
	}
	if got := r.Header.Get("webhook-signature"); !strings.HasPrefix(got, "v1a,") {
		t.Fatalf("signed with %s", got)
	}
	whsec := "whsec_" + encode(private[:24])
	for _, secrets := range [][]string{{"whpk_" + encode(public)}, {whsec, "whpk_" + encode(public)}} {
		if f := newVerifier(t, p, secrets, options(p)).Verify(r, signedAt); f != nil {
			t.Error(f)
		}
	}
	if f := newVerifier(t, p, []string{whsec}, options(p)).Verify(r, signedAt); f == nil || f.Reason != Malformed {
		t.Errorf("an asymmetric signature with a symmetric secret: %v", f)
	}
	// the public key is no secret: as the key of an HMAC it must not count
	mac := hmac.New(sha256.New, public)
	mac.Write([]byte("msg_1.1767225600.{}"))
	r.Header.Set("webhook-signature", "v1,"+encode(mac.Sum(nil)))
	if f := newVerifier(t, p, []string{"whpk_" + encode(public)}, options(p)).Verify(r, signedAt); f == nil {
		t.Error("an HMAC made with the public key was accepted")
	}
}

func TestTheVerifiedIDIsTheKey(t *testing.T) {
	for _, name := range []string{"standard-webhooks", "svix", "clerk", "resend"} {
		p, _ := Lookup(name)
		rule, _ := ParseKeyRule(p.EventID)
		_, secrets := newSecrets(t, p)
		v := newVerifier(t, p, secrets, options(p))
		for _, header := range []string{"svix-id", "webhook-id"} {
			r := unsigned(p)
			if err := v.Sign(r, "msg_1", signedAt); err != nil {
				t.Fatal(err)
			}
			r.Header.Set(header, "msg_2")
			id, _ := rule.EventID(r)
			if f := v.Verify(r, signedAt); f == nil && id != "msg_1" {
				t.Errorf("%s: a second id in %s becomes the key %q of a delivery signed as msg_1", name, header, id)
			}
		}
	}
}

func TestCertificatesAreFetchedFromTheProviderOnly(t *testing.T) {
	for _, tt := range []struct {
		provider, url string
		fetched       bool
	}{
		{"aws-sns", "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-1.pem", true},
		{"aws-sns", "https://sns.cn-north-1.amazonaws.com.cn/x.pem", true},
		{"aws-sns", "http://sns.eu-west-1.amazonaws.com/x.pem", false},
		{"aws-sns", "https://sns.eu-west-1.amazonaws.com/x.txt", false},
		{"aws-sns", "https://sns.eu-west-1.amazonaws.com/x?a=.pem", false},
		{"aws-sns", "https://sns.eu-west-1.amazonaws.com.evil.test/x.pem", false},
		{"aws-sns", "https://evil.test/sns.eu-west-1.amazonaws.com/x.pem", false},
		{"aws-sns", "https://evil.test\\@sns.eu-west-1.amazonaws.com/x.pem", false},
		{"aws-sns", "https://user@sns.eu-west-1.amazonaws.com/x.pem", false},
		{"aws-sns", "https://sns.eu-west-1.amazonaws.com:444/x.pem", false},
		{"aws-sns", "https://s3.eu-west-1.amazonaws.com/x.pem", false},
		{"aws-sns", "https://sns.a/b.amazonaws.com/x.pem", false},
		{"aws-sns", "//sns.eu-west-1.amazonaws.com/x.pem", false},
		{"aws-sns", "https://sns.eu-west-1.amazonaws.com\n.evil.test/x.pem", false},
		{"paypal", "https://api.paypal.com/v1/notifications/certs/CERT-1", true},
		{"paypal", "https://api.sandbox.paypal.com/v1/notifications/certs/CERT-1", true},
		{"paypal", "https://api.paypal.com.evil.test/v1/notifications/certs/CERT-1", false},
		{"paypal", "https://evilpaypal.com/v1/notifications/certs/CERT-1", false},
		{"paypal", "http://api.paypal.com/v1/notifications/certs/CERT-1", false},
	} {
		p, _ := Lookup(tt.provider)
		asked, secrets := "", []string{"WEBHOOK-ID"}[:map[bool]int{true: 1}[p.NeedsSecret]]
		v := newVerifier(t, p, secrets, Options{Certificates: func(url string) (*x509.Certificate, error) {
			asked = url
			return nil, errors.New("no network")
		}})
		sign, _ := newSecrets(t, p)
		r := unsigned(p)
		if err := newVerifier(t, p, sign, Options{}).Sign(r, "id", signedAt); err != nil {
			t.Fatal(err)
		}
		v.cert.set(r, tt.url)
		f := v.Verify(r, signedAt)
		if f == nil || f.Reason != Mismatch || (asked != "") != tt.fetched || tt.fetched && asked != tt.url {
			t.Errorf("%s %s: %v, asked for %q", tt.provider, tt.url, f, asked)
		}
		if f := newVerifier(t, p, secrets, Options{}).Verify(r, signedAt); f == nil {
			t.Error("accepted without a certificate")
		}
	}
}

func TestStreamSignsTheUncompressedBody(t *testing.T) {
	p, _ := Lookup("stream")
	v := newVerifier(t, p, []string{"s3cr3t"}, Options{})
	for _, tt := range []struct {
		name   string
		length int
		ok     bool
	}{{"small", 100, true}, {"a bomb", maxInflated + 1, false}} {
		plain := bytes.Repeat([]byte(" "), tt.length)
		mac := hmac.New(sha256.New, []byte("s3cr3t"))
		mac.Write(plain)
		var body bytes.Buffer
		w := gzip.NewWriter(&body)
		w.Write(plain)
		w.Close()
		r := &Request{Header: http.Header{}, Body: body.Bytes()}
		r.Header.Set("Content-Encoding", "gzip")
		r.Header.Set("X-Signature", hex.EncodeToString(mac.Sum(nil)))
		if f := v.Verify(r, signedAt); (f == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, f)
		}
		r.Body = body.Bytes()[:body.Len()/2]
		if f := v.Verify(r, signedAt); f == nil {
			t.Errorf("%s, cut off: accepted", tt.name)
		}
		mac.Reset()
		mac.Write(body.Bytes())
		r.Body = body.Bytes()
		r.Header.Set("X-Signature", hex.EncodeToString(mac.Sum(nil)))
		if f := v.Verify(r, signedAt); f != nil {
			t.Errorf("%s, signed as compressed: %v", tt.name, f)
		}
	}
}

func TestTwilioWithoutAnythingThatProtectsTheBody(t *testing.T) {
	p, _ := Lookup("twilio")
	v := newVerifier(t, p, []string{"s3cr3t"}, Options{})
	r := unsigned(p)
	r.Body = nil
	if err := v.Sign(r, "", signedAt); err != nil {
		t.Fatal(err)
	}
	if f := v.Verify(r, signedAt); f != nil {
		t.Fatal(f)
	}
	r.Body = []byte(`{"any":"thing"}`)
	r.Header.Set("Content-Type", "application/json")
	if f := v.Verify(r, signedAt); f == nil || f.Reason != Malformed {
		t.Errorf("a JSON body under a signature of the URL alone: %v", f)
	}
	if err := v.Sign(r, "", signedAt); err != nil || !strings.Contains(r.Target, "bodySHA256=") {
		t.Fatal(err, r.Target)
	}
	if f := v.Verify(r, signedAt); f != nil {
		t.Fatal(f)
	}
	r.Body[2] ^= 1
	if f := v.Verify(r, signedAt); f == nil || f.Reason != Mismatch {
		t.Errorf("a changed JSON body: %v", f)
	}
	// a broken form must not look like an empty one
	r = unsigned(p)
	r.Body = nil
	if err := v.Sign(r, "", signedAt); err != nil {
		t.Fatal(err)
	}
	r.Body = []byte("%zz=1&MessageSid=SM1")
	if f := v.Verify(r, signedAt); f == nil {
		t.Error("a form that cannot be read was accepted under the signature of an empty one")
	}
}

func TestContentfulMustSignItsTime(t *testing.T) {
	p, _ := Lookup("contentful")
	v := newVerifier(t, p, []string{strings.Repeat("s", 64)}, options(p))
	r := unsigned(p)
	if err := v.Sign(r, "", signedAt); err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Contentful-Signed-Headers", "x-contentful-signed-headers")
	if f := v.Verify(r, signedAt); f == nil || f.Reason != Malformed {
		t.Errorf("the timestamp is not among the signed headers: %v", f)
	}
}

// FuzzVerify sends anything to every preset: nothing may panic, and nothing may be accepted that was not made with the
// secret, which is new in every run.
func FuzzVerify(f *testing.F) {
	all := Providers()
	type target struct {
		p Provider
		v *Verifier
	}
	var targets []target
	for _, p := range all {
		if p.Scheme.algorithm == "none" {
			continue
		}
		_, secrets := newSecrets(f, p)
		targets = append(targets, target{p, newVerifier(f, p, secrets, options(p))})
	}
	for _, vec := range readVectors(f) {
		for i, t := range targets {
			if t.p.Name == vec.preset() {
				var headers strings.Builder
				for name, value := range vec.Headers {
					headers.WriteString(name + ": " + value + "\n")
				}
				f.Add(uint8(i), headers.String(), []byte(vec.Body), vec.Method, vec.URL)
			}
		}
	}
	for i, t := range targets {
		sign, _ := newSecrets(f, t.p)
		r := unsigned(t.p)
		if err := newVerifier(f, t.p, sign, options(t.p)).Sign(r, "id_1", signedAt); err != nil {
			f.Fatal(err)
		}
		var headers strings.Builder
		r.Header.Write(&headers)
		f.Add(uint8(i), headers.String(), r.Body, r.Method, r.URL)
	}
	f.Fuzz(func(t *testing.T, which uint8, headers string, body []byte, method, url string) {
		target := targets[int(which)%len(targets)]
		r := &Request{Method: method, URL: url, Header: http.Header{}, Body: body}
		if _, rest, ok := strings.Cut(url, "//"); ok {
			_, r.Target, _ = strings.Cut(rest, "/")
		}
		for line := range strings.Lines(headers) {
			if name, value, ok := strings.Cut(line, ":"); ok {
				r.Header.Add(name, strings.Trim(value, " \r\n"))
			}
		}
		before := bytes.Clone(body)
		if f := target.v.Verify(r, signedAt); f == nil {
			t.Fatalf("%s accepted a request that was not signed with its secret", target.p.Name)
		} else if f.Reason != Missing && f.Reason != Malformed && f.Reason != Mismatch {
			t.Fatalf("%s: %v of a request that was not signed", target.p.Name, f)
		}
		target.p.Handshake(r)
		if rule, err := ParseKeyRule(target.p.EventID); err == nil {
			if id, ok := rule.EventID(r); ok && id == "" {
				t.Fatal("an empty id")
			}
		}
		if !bytes.Equal(before, body) {
			t.Fatal("the body was changed")
		}
	})
}
