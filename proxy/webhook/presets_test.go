package webhook

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

var signedAt = time.Unix(1767225600, 0)

// newSecrets makes secrets as the preset's users have them: to sign with and to verify with.
func newSecrets(t testing.TB, p Provider) (sign, verify []string) {
	t.Helper()
	seed := make([]byte, 32)
	rand.Read(seed)
	text := hex.EncodeToString(seed)
	switch p.Scheme.keys {
	case "whsec":
		text = "whsec_" + base64.StdEncoding.EncodeToString(seed)
	case "login":
		text = "user:" + text
	case "ed25519-hex", "ed25519-base64":
		private := ed25519.NewKeyFromSeed(seed)
		encode := hex.EncodeToString
		if p.Scheme.keys == "ed25519-base64" {
			encode = base64.StdEncoding.EncodeToString
		}
		return []string{encode(private)}, []string{encode(private[32:])}
	case "ecdsa":
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		public, _ := x509.MarshalPKIXPublicKey(&private.PublicKey)
		return []string{privatePEM(t, private)}, []string{base64.StdEncoding.EncodeToString(public)}
	}
	if p.Scheme.cert != "" {
		private := rsaKey()
		if p.NeedsSecret {
			sign, verify = []string{text}, []string{text}
		}
		public, _ := x509.MarshalPKIXPublicKey(&private.PublicKey)
		return append(sign, privatePEM(t, private)), append(verify, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})))
	}
	return []string{text}, []string{text}
}

// rsaKey makes a key that is short, because making one takes long.
func rsaKey() *rsa.PrivateKey {
	private, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		panic(err)
	}
	return private
}

func privatePEM(t testing.TB, key crypto.Signer) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func options(p Provider) Options {
	o := Options{Tolerance: p.Tolerance}
	if o.Tolerance == 0 {
		o.Tolerance = fiveMinutes
	}
	if p.Name == "token" {
		o.TokenHeader = "X-Token"
	}
	return o
}

func newVerifier(t testing.TB, p Provider, secrets []string, o Options) *Verifier {
	t.Helper()
	v, err := p.NewVerifier(secrets, o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// unsigned is a request before signing.
func unsigned(p Provider) *Request {
	body := `{"id":"evt_1","data":{"name":"Zoë"}}`
	kind := "application/json"
	switch p.Name {
	case "adyen":
		body = `{"notificationItems":[{"NotificationRequestItem":{"pspReference":"P1","amount":{"value":100,"currency":"EUR"},"eventCode":"AUTHORISATION","success":"true"}},` +
			`{"NotificationRequestItem":{"pspReference":"P2","amount":{"value":200,"currency":"EUR"},"eventCode":"REFUND","success":"true"}}]}`
	case "twilio":
		body, kind = "MessageSid=SM1&MessageStatus=sent&Body=a+b%26c", "application/x-www-form-urlencoded"
	}
	return &Request{Method: "POST", URL: "https://hooks.example.test/in/1?a=b", Target: "/in/1?a=b", Body: []byte(body),
		Header: http.Header{"Content-Type": {kind}}}
}

func clone(r *Request) *Request {
	c := *r
	c.Header = r.Header.Clone()
	c.Body = slices.Clone(r.Body)
	return &c
}

func replaceBody(old, new string) func(*Request) {
	return func(r *Request) { r.Body = bytes.Replace(r.Body, []byte(old), []byte(new), 1) }
}

// signedByTokens are changes to what a scheme signs by tokens of its own.
var signedByTokens = map[string]map[string]func(*Request){
	"twilio": {
		"a field's value": replaceBody("SM1", "SM2"),
		"a field's name":  replaceBody("Body", "Bodi"),
		"another field":   func(r *Request) { r.Body = append(r.Body, "&x=y"...) },
	},
	"adyen": {
		"an item's reference":   replaceBody(`"P1"`, `"P3"`),
		"the last item's value": replaceBody(`200`, `2000`),
		"the code":              replaceBody(`REFUND`, `REFUND2`),
	},
	"aws-sns": {
		"the id":   replaceBody(`"MessageId":"`, `"MessageId":"x`),
		"the time": replaceBody(`"Timestamp":"2`, `"Timestamp":"3`),
	},
	"paypal": {"the body": replaceBody("evt_1", "evt_2")},
	"contentful": {
		"the path":          func(r *Request) { r.URL = "https://hooks.example.test/in/2?a=b" },
		"the query":         func(r *Request) { r.URL, r.Target = "", "/in/1?a=c" },
		"a signed header":   func(r *Request) { r.Header.Set("X-Contentful-Timestamp", "1767225600001") },
		"the list of names": func(r *Request) { r.Header.Set("X-Contentful-Signed-Headers", "x-contentful-timestamp") },
	},
	"hubspot-legacy": {
		"the method": func(r *Request) { r.Method = "PUT" },
		"the URL":    func(r *Request) { r.URL += "x" },
	},
}

func TestEveryPresetVerifiesWhatItSigns(t *testing.T) {
	for _, p := range Providers() {
		t.Run(p.Name, func(t *testing.T) {
			if p.Scheme.algorithm == "none" {
				v := newVerifier(t, p, nil, options(p))
				if f := v.Verify(unsigned(p), signedAt); f != nil {
					t.Error(f)
				}
				if _, err := p.NewVerifier([]string{"x"}, Options{}); err == nil {
					t.Error("a secret that protects nothing was accepted")
				}
				return
			}
			o := options(p)
			signWith, verifyWith := newSecrets(t, p)
			_, wrong := newSecrets(t, p)
			r := unsigned(p)
			if err := newVerifier(t, p, signWith, o).Sign(r, "id_1", signedAt); err != nil {
				t.Fatal(err)
			}
			v := newVerifier(t, p, verifyWith, o)
			verdict := func(name string, want Reason, v *Verifier, at time.Time, change func(*Request)) {
				t.Helper()
				c := clone(r)
				if change != nil {
					change(c)
				}
				f := v.Verify(c, at)
				got := Reason("")
				if f != nil {
					got = f.Reason
					for _, secret := range append(verifyWith, signWith...) {
						if strings.Contains(f.Error(), secret) {
							t.Errorf("%s: the detail shows the secret", name)
						}
					}
				}
				if got != want {
					t.Errorf("%s: got %q (%v), want %q", name, got, f, want)
				}
			}
			verdict("as signed", "", v, signedAt, nil)
			verdict("wrong secret", Mismatch, newVerifier(t, p, wrong, o), signedAt, nil)
			if p.Scheme.cert == "" {
				verdict("several secrets", "", newVerifier(t, p, append(slices.Clone(wrong), verifyWith...), o), signedAt, nil)
			}

			s := p.Scheme
			if len(v.message) > 0 && strings.Contains(s.signed, "{body}") {
				for _, at := range []int{0, len(r.Body) / 2, len(r.Body) - 1} {
					if s.time == "json:webhookTimestamp" || s.at == "json:Signature" {
						continue
					}
					verdict("body changed", Mismatch, v, signedAt, func(r *Request) { r.Body[at] ^= 1 })
				}
				verdict("body longer", Mismatch, v, signedAt, func(r *Request) { r.Body = append(r.Body, '\n') })
			}
			if strings.Contains(s.signed, "{url}") {
				verdict("another URL", Mismatch, v, signedAt, func(r *Request) { r.URL = strings.Replace(r.URL, "/in/", "/out/", 1) })
				verdict("no URL", Mismatch, v, signedAt, func(r *Request) { r.URL = "" })
			}
			if strings.Contains(s.signed, "{method}") {
				verdict("another method", Mismatch, v, signedAt, func(r *Request) { r.Method = "PUT" })
			}
			if s.id != "" {
				verdict("another id", Mismatch, v, signedAt, func(r *Request) { v.id.set(r, "id_2") })
			}
			if len(s.tokens) > 0 && len(signedByTokens[p.Name]) == 0 {
				t.Error("this scheme signs by tokens of its own: add changes to signedByTokens that must be found")
			}
			for name, change := range signedByTokens[p.Name] {
				verdict(name, Mismatch, v, signedAt, change)
			}
			if s.time != "" || s.list.time != "" {
				verdict("at the edge of too old", "", v, signedAt.Add(o.Tolerance), nil)
				verdict("too old", TooOld, v, signedAt.Add(o.Tolerance+time.Second), nil)
				verdict("at the edge of too new", "", v, signedAt.Add(-o.Tolerance), nil)
				verdict("too new", TooNew, v, signedAt.Add(-o.Tolerance-time.Second), nil)
				verdict("too old with a wrong secret", Mismatch, newVerifier(t, p, wrong, o), signedAt.Add(time.Hour), nil)
				unchecked := o
				unchecked.Tolerance = 0
				verdict("age not checked", "", newVerifier(t, p, verifyWith, unchecked), signedAt.Add(time.Hour), nil)
			}
			if s.time != "" && v.signsTime {
				other := map[string]string{"s": "1767225601", "any": "1767225601", "ms": "1767225600001", "rfc3339": "2026-01-01T00:00:01Z"}[s.unit]
				verdict("another time", Mismatch, v, signedAt, func(r *Request) { v.time.set(r, other) })
				verdict("no time", Malformed, v, signedAt, func(r *Request) { v.time.set(r, "yesterday") })
			}

			at := v.at[0]
			if at.source != "header" {
				if s.items == nil {
					verdict("no signature", Missing, v, signedAt, func(r *Request) { r.Body = nil })
				}
				return
			}
			value := r.Header.Get(at.name)
			set := func(value string) func(*Request) { return func(r *Request) { r.Header.Set(at.name, value) } }
			verdict("no header", Missing, v, signedAt, func(r *Request) { r.Header.Del(at.name) })
			verdict("blank header", Missing, v, signedAt, set("  "))
			verdict("header twice", Malformed, v, signedAt, func(r *Request) { r.Header.Add(at.name, value) })
			for i := range value {
				changed := []byte(value)
				changed[i] ^= 1
				if f := v.Verify(func() *Request { c := clone(r); set(string(changed))(c); return c }(), signedAt); f == nil && !strings.EqualFold(string(changed), value) {
					t.Errorf("accepted with byte %d of the signature changed", i)
				}
			}
			if s.algorithm == "equal" && s.encoding == "text" {
				verdict("another secret", Mismatch, v, signedAt, set(value+"x"))
				return
			}
			verdict("not a signature", Malformed, v, signedAt, set("not a signature"))
			if s.prefix != "" {
				verdict("the prefix alone", Malformed, v, signedAt, set(s.prefix))
			}
			if size := signatureSize(s.algorithm); size > 0 && s.list.between == "" && p.Name != "twilio" {
				other := hex.EncodeToString(make([]byte, size))
				if s.encoding == "hex" {
					other = base64.StdEncoding.EncodeToString(make([]byte, size))
				}
				verdict("another encoding", Malformed, v, signedAt, set(s.prefix+other))
				verdict("cut off", Malformed, v, signedAt, set(value[:len(value)-4]))
			}
			if s.numbered {
				verdict("second of two", "", v, signedAt, func(r *Request) {
					r.Header.Set(strings.TrimSuffix(at.name, "1")+"2", value)
					r.Header.Set(at.name, base64.StdEncoding.EncodeToString(make([]byte, 32)))
				})
			}
			if s.list.between != "" {
				severalSignatures(t, s, value, func(name string, want Reason, value string) { verdict(name, want, v, signedAt, set(value)) })
			}
		})
	}
}

// severalSignatures tries headers that carry a list.
func severalSignatures(t *testing.T, s Scheme, value string, verdict func(name string, want Reason, value string)) {
	t.Helper()
	entries := strings.Split(value, s.list.between)
	right := entries[len(entries)-1]
	time := strings.Join(entries[:len(entries)-1], s.list.between)
	list := func(entries ...string) string {
		if time != "" {
			entries = append([]string{time}, entries...)
		}
		return strings.Join(entries, s.list.between)
	}
	wrong := s.list.version + s.list.is + hex.EncodeToString(make([]byte, 32))
	if s.encoding != "hex" {
		wrong = s.list.version + s.list.is + base64.RawURLEncoding.EncodeToString(make([]byte, 32))
		if s.encoding == "base64" {
			wrong += "="
		}
	}
	other := "v9" + s.list.is + strings.TrimPrefix(right, s.list.version+s.list.is)
	verdict("wrong, then right", "", list(wrong, right))
	verdict("right, then wrong", "", list(right, wrong))
	verdict("unreadable, then right", "", list(s.list.version+s.list.is+"?", right))
	verdict("unknown version, then right", "", list(other, right))
	verdict("as many as there may be", "", list(append(slices.Repeat([]string{wrong}, maxSignatures-1), right)...))
	verdict("too many", Malformed, list(append(slices.Repeat([]string{wrong}, maxSignatures), right)...))
	verdict("two wrong ones", Mismatch, list(wrong, wrong))
	verdict("unknown version alone", Malformed, list(other))
	if time != "" {
		verdict("no time", Malformed, right)
		verdict("two times", Malformed, time+s.list.between+value)
		verdict("no time in the time", Malformed, s.list.time+s.list.is+"x"+s.list.between+right)
		verdict("a huge time", Malformed, s.list.time+s.list.is+"99999999999999999999"+s.list.between+right)
	}
}

func TestPresetsAreComplete(t *testing.T) {
	names := map[string]bool{}
	for _, p := range Providers() {
		if names[p.Name] || strings.Trim(p.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			t.Errorf("%s: names are unique and have lower-case letters, digits and hyphens", p.Name)
		}
		names[p.Name] = true
		if got, ok := Lookup(p.Name); !ok || got.Name != p.Name {
			t.Errorf("%s is not found", p.Name)
		}
		if _, err := ParseKeyRule(p.EventID); p.EventID != "" && err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		if p.MissingID != "sha256" && p.MissingID != "forward" {
			t.Errorf("%s: MissingID %q", p.Name, p.MissingID)
		}
		if p.Verifies == "" || p.KeyNote == "" || p.Evidence == "" {
			t.Errorf("%s: Verifies, KeyNote and Evidence belong into the README's table", p.Name)
		}
		if p.NeedsSecret {
			for _, secrets := range [][]string{nil, {""}, {" \n"}} {
				if _, err := p.NewVerifier(secrets, options(p)); err == nil {
					t.Errorf("%s starts with the secrets %q", p.Name, secrets)
				}
			}
		}
		if (p.DuplicateStatus != 0 && p.DuplicateStatus/100 != 2) || (p.InvalidStatus != 0 && p.InvalidStatus/100 != 4 && p.InvalidStatus/100 != 5) {
			t.Errorf("%s: statuses that would lose events", p.Name)
		}
	}
	if _, ok := Lookup("nobody"); ok {
		t.Error("an unknown name was found")
	}
	if !slices.IsSortedFunc(Providers(), func(a, b Provider) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the presets are not sorted")
	}
	table := ProviderTable()
	for name := range maps.Keys(names) {
		if !strings.Contains(table, "| `"+name+"` |") {
			t.Errorf("%s is not in the table", name)
		}
	}
	for row := range strings.Lines(table) {
		if n := strings.Count(strings.ReplaceAll(row, `\|`, ""), "|"); n != 6 {
			t.Errorf("a row of the table has %d bars: %s", n, row)
		}
	}
}
