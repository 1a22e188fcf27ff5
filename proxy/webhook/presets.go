package webhook

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Provider is one preset: how a provider signs, where the identity of its events is, which of its requests are
// handshakes, and what its ways demand of whoever stands in front. What is not set has the product's default.
type Provider struct {
	Name      string
	Scheme    Scheme
	EventID   string // key rule in the syntax of WEBHOOK_EVENT_ID; "": it has no id that is safe to use
	MissingID string // what to do without an id: "sha256" (the body's hash is the key) or "forward" (unclaimed)

	Tolerance            time.Duration // of the signed timestamp, both ways; 0: its age is not checked
	InvalidStatus        int           // the answer to a wrong signature, where it must be another than 401
	DuplicateStatus      int           // the answer to a duplicate, where it must be another than 200
	DuplicateBody        string
	DuplicateContentType string
	Replay               bool // a duplicate needs the first answer again

	NeedsURL    bool // it signs the URL that it called: a public URL must be configured
	NeedsSecret bool

	Waits       time.Duration // how long it waits for an answer; 0: unknown
	RetryWindow time.Duration // how long after the first attempt it may retry by itself; 0: unknown
	NoRetry     bool          // it never retries by itself

	Verifies string // words for the README's table
	KeyNote  string
	Special  string
	Evidence string

	handshakes []handshake
}

// Options are what a webhook's configuration adds to its preset.
type Options struct {
	Tolerance   time.Duration // 0: the age of a signature is not checked
	HMAC        HMACOptions   // for provider hmac
	TokenHeader string        // for provider token: the header whose whole value is the secret
	// Certificates gets the certificate at a URL, which has been found to be on the provider's own host. It does the
	// I/O and caches; that host's own certificate vouches for what it serves. Without it such deliveries fail, unless a certificate is given as a secret.
	Certificates func(url string) (*x509.Certificate, error)
}

// HMACOptions describe the signature of any sender for provider hmac. The zero value is the hexadecimal HMAC-SHA256 of
// the body in X-Signature.
type HMACOptions struct {
	Header          string // that has the signature
	Algorithm       string // sha256, sha1, sha512, md5
	Encoding        string // hex, base64, base64url
	Prefix          string // in front of the signature, as in sha256=
	Signed          string // template over {body}, {timestamp}, {id}, {url}, {method}
	TimestampHeader string // seconds or milliseconds since 1970, or RFC 3339
	IDHeader        string
}

func (o HMACOptions) apply(s *Scheme) error {
	s.at = "header:" + cmp.Or(o.Header, "X-Signature")
	s.algorithm = "hmac-" + cmp.Or(o.Algorithm, "sha256")
	s.encoding = cmp.Or(o.Encoding, "hex")
	s.prefix = o.Prefix
	s.signed = cmp.Or(o.Signed, "{body}")
	var faults []error
	if !slices.Contains([]string{"hmac-sha256", "hmac-sha1", "hmac-sha512", "hmac-md5"}, s.algorithm) {
		faults = append(faults, fmt.Errorf("the HMAC algorithm %q is unknown: write sha256, sha1, sha512 or md5", o.Algorithm))
	}
	if !slices.Contains([]string{"hex", "base64", "base64url"}, s.encoding) {
		faults = append(faults, fmt.Errorf("the HMAC encoding %q is unknown: write hex, base64 or base64url", o.Encoding))
	}
	if !strings.Contains(s.signed, "{body}") {
		faults = append(faults, fmt.Errorf("the template of what is signed, %q, lacks {body}: anybody could change the body", s.signed))
	}
	if o.TimestampHeader != "" {
		s.time = "header:" + o.TimestampHeader
		if !strings.Contains(s.signed, "{timestamp}") {
			faults = append(faults, fmt.Errorf("the template of what is signed, %q, lacks {timestamp}: the time in %s could be changed by anybody", s.signed, o.TimestampHeader))
		}
	}
	if o.IDHeader != "" {
		s.id = "header:" + o.IDHeader
		if !strings.Contains(s.signed, "{id}") {
			faults = append(faults, fmt.Errorf("the template of what is signed, %q, lacks {id}: the id in %s could be changed by anybody", s.signed, o.IDHeader))
		}
	}
	return errors.Join(faults...)
}

// Providers returns all presets, sorted by name.
func Providers() []Provider {
	all := slices.Concat(general(), payments(), shops(), code(), messages(), platforms())
	for i := range all {
		p := &all[i]
		p.MissingID = cmp.Or(p.MissingID, "sha256")
		p.NeedsURL = strings.Contains(p.Scheme.signed, "{url}")
		p.NeedsSecret = p.Scheme.algorithm != "none" && (p.Scheme.cert == "" || strings.Contains(p.Scheme.signed, "{secret}"))
		p.Verifies = cmp.Or(p.Verifies, p.Scheme.describe())
		p.KeyNote = cmp.Or(p.KeyNote, p.describeKey())
	}
	slices.SortFunc(all, func(a, b Provider) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Lookup returns the preset of a name.
func Lookup(name string) (Provider, bool) {
	for _, p := range Providers() {
		if p.Name == name {
			return p, true
		}
	}
	return Provider{}, false
}

// Words for how sure a fact is.
const (
	inSource    = "read in the vendor's own source"
	inDocs      = "vendor documentation"
	thirdParty  = "third parties only"
	unconfirmed = "not confirmed"
)

// evidence says how sure the signature and the key of a preset are.
func evidence(signature, key string) string {
	if signature == key {
		return signature
	}
	return "signature: " + signature + "; key: " + key
}

// bodyHMAC is the commonest scheme: the HMAC-SHA256 of the body in a header of its own.
func bodyHMAC(header, encoding, prefix string) Scheme {
	return Scheme{algorithm: "hmac-sha256", at: "header:" + header, encoding: encoding, prefix: prefix, signed: "{body}"}
}

// timedHMAC is Stripe's scheme, which others took over: time and signatures in one header.
func timedHMAC(header string) Scheme {
	return Scheme{algorithm: "hmac-sha256", at: "header:" + header, encoding: "hex", signed: "{timestamp}.{body}", unit: "s",
		list: list{between: ",", is: "=", version: "v1", time: "t"}}
}

// standardWebhooks is the scheme of the Standard Webhooks specification. Svix's libraries, from which it came, take both
// names of each header. With two in a request the first named here counts, for the signature and for the key.
func standardWebhooks(keys, first, second string) Scheme {
	both := func(name string) string {
		if first == second {
			return "header:" + first + name
		}
		return "header:" + first + name + "|header:" + second + name
	}
	return Scheme{algorithm: "hmac-sha256", keys: keys, at: both("signature"), encoding: "base64",
		signed: "{id}.{timestamp}.{body}", time: both("timestamp"), unit: "s", id: both("id"),
		list: list{between: " ", is: ",", version: "v1"}}
}

func shared(at string) Scheme { return Scheme{algorithm: "equal", encoding: "text", at: at} }

func login() Scheme {
	return Scheme{algorithm: "equal", keys: "login", encoding: "base64", prefix: "Basic ", at: "header:Authorization"}
}

const fiveMinutes = 5 * time.Minute

// general are the presets that are nobody's own.
func general() []Provider {
	return []Provider{
		{Name: "none", Scheme: Scheme{algorithm: "none"}, EventID: "json:id", Verifies: "nothing",
			Special: "whoever knows the URL can send", Evidence: "—"},
		{Name: "hmac", Scheme: Scheme{algorithm: "hmac-sha256", at: "header:X-Signature", encoding: "hex", signed: "{body}", unit: "any"},
			EventID: "json:id", Tolerance: fiveMinutes, Special: "describes any other HMAC scheme by `WEBHOOK_HMAC_…`", Evidence: "—"},
		{Name: "token", Scheme: shared("header:Authorization"), EventID: "json:id", Verifies: "a shared secret in `WEBHOOK_TOKEN_HEADER`", Evidence: "—"},
		{Name: "basic", Scheme: login(), EventID: "json:id", Verifies: "Basic auth (secret: `user:password`)", Evidence: "RFC 7617"},
		{Name: "standard-webhooks", Scheme: standardWebhooks("whsec", "webhook-", "svix-"),
			EventID: "header:webhook-id|header:svix-id", Tolerance: fiveMinutes, Waits: 15 * time.Second, RetryWindow: 76 * time.Hour,
			Special: "also `v1a` with a `whpk_` public key", Evidence: inSource},
		{Name: "svix", Scheme: standardWebhooks("whsec", "svix-", "webhook-"),
			EventID: "header:svix-id|header:webhook-id", Tolerance: fiveMinutes, Waits: 15 * time.Second, RetryWindow: 28 * time.Hour,
			Evidence: evidence(inSource, inDocs)},
	}
}
