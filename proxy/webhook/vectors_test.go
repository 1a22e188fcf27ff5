package webhook

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
)

// vector is a published request with the verdict of the vendor's own library, named in source.
type vector struct {
	ID, Provider, Scheme, Source string
	Secret                       string
	PublicKey                    string `json:"public_key"`
	CertPEM                      string `json:"cert_pem"`
	Method, URL                  string
	Headers                      map[string]string
	Body                         string
	Now, Tolerance               int64
	Valid                        bool
	Why                          string
	SDKSpecific                  bool `json:"sdk_specific"`
}

func readVectors(t testing.TB) []vector {
	t.Helper()
	b, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(b, &vectors); err != nil {
		t.Fatal(err)
	}
	return vectors
}

// preset is the provider that a vector's scheme belongs to.
func (v vector) preset() string {
	switch {
	case v.Scheme == "hubspot-v1" || v.Scheme == "hubspot-v2":
		return "hubspot-legacy"
	case v.Scheme == "adyen-platform":
		return "adyen-platform"
	case v.Provider == "gitlab":
		return "gitlab-signed"
	case v.Provider == "atlassian":
		return "jira"
	case v.Provider == "buildkite" && v.Headers["X-Buildkite-Token"] != "":
		return "buildkite-token"
	}
	return v.Provider
}

func (v vector) request() *Request {
	r := &Request{Method: v.Method, URL: v.URL, Header: http.Header{}, Body: []byte(v.Body)}
	if u, err := url.Parse(v.URL); err == nil {
		r.Target = u.RequestURI()
	}
	for name, value := range v.Headers {
		r.Header.Set(name, value)
	}
	return r
}

func (v vector) verifier(t testing.TB, p Provider) *Verifier {
	t.Helper()
	var secrets []string
	if s := v.Secret + v.PublicKey; s != "" {
		secrets = append(secrets, s)
	}
	verifier, err := p.NewVerifier(secrets, Options{
		Tolerance: time.Duration(v.Tolerance) * time.Second,
		Certificates: func(string) (*x509.Certificate, error) {
			block, _ := pem.Decode([]byte(v.CertPEM))
			return x509.ParseCertificate(block.Bytes)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return verifier
}

func TestVectorsGetTheVerdictOfTheVendorsLibrary(t *testing.T) {
	for _, vec := range readVectors(t) {
		t.Run(vec.ID, func(t *testing.T) {
			p, ok := Lookup(vec.preset())
			if !ok {
				t.Fatalf("no preset %s", vec.preset())
			}
			f := vec.verifier(t, p).Verify(vec.request(), time.Unix(vec.Now, 0))
			if vec.SDKSpecific {
				if want, ok := choices[vec.ID]; !ok || want != (f == nil) {
					t.Errorf("the libraries differ here (%s); we say %v", vec.Why, f)
				}
				return
			}
			if vec.Valid != (f == nil) {
				t.Fatalf("got %v, want valid=%v: %s", f, vec.Valid, vec.Why)
			}
			if f == nil {
				return
			}
			if want := vec.reason(); f.Reason != want {
				t.Errorf("reason %s (%s), want %s: %s", f.Reason, f.Detail, want, vec.Why)
			}
			if s := vec.Secret + vec.PublicKey; len(s) > 8 && strings.Contains(f.Detail, s) {
				t.Errorf("the detail shows the secret: %s", f.Detail)
			}
		})
	}
}

// choices are our verdicts where the vendors' libraries differ among each other.
var choices = map[string]bool{
	"stripe-future":                   false, // the window has two sides
	"stripe-empty-body":               true,
	"stripe-uppercase-hex":            true,
	"github-sha1-value-in-256-header": false, // no downgrade
	"github-uppercase-hex":            true,
	"openai-secret-without-whsec":     true,
	"twilio-repeated-param":           true,
	"paddle-two-h1-first-matches":     true, // any signature may match
	"pagerduty-empty-body":            true,
}

// reason is what an operator should be told about an invalid vector.
func (v vector) reason() Reason {
	for _, rule := range []struct {
		reason Reason
		words  []string
	}{
		{Missing, []string{"missing-header", "missing-id", "no-signature"}},
		{Malformed, []string{"not-hex", "-hex", "garbage", "truncated", "short", "only-v", "no-v1", "no-version", "bad-timestamp", "no-timestamp",
			"comma-joined", "missing-h1", "unknown-version", "unknown-algorithm", "sharedkey-sha1-digest", "docs-5", "only-v2"}},
		{TooOld, []string{"expired", "too-old", "timestamp-seconds"}},
		{TooNew, []string{"too-new"}},
	} {
		for _, word := range rule.words {
			if strings.Contains(v.ID, word) {
				return rule.reason
			}
		}
	}
	return Mismatch
}
