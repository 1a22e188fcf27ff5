package webhook

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Scheme is how a provider signs, as data: one engine (Verify and Sign) reads it for all providers. Places are written
// like the parts of a KeyRule, alternatives separated by |.
type Scheme struct {
	algorithm string // hmac-sha256 and the like, sha256 (no HMAC), ed25519, ecdsa, rsa-sha256, equal (a shared secret), none
	keys      string // how secrets are written: text (""), hex, whsec, openai, html, login, ed25519-hex, ed25519-base64, ecdsa
	keyLength int    // of a text secret in bytes, if it is always the same
	at        string // place of the signature
	numbered  bool   // at names a header that ends in 1: 2, 3, … carry more signatures
	prefix    string // what stands before the signature
	bare      bool   // the prefix may be missing
	list      list   // where the value has several entries
	encoding  string // hex, base64, base64url (unpadded), text
	signed    string // template over {body}, {timestamp}, {id}, {url}, {method}, {secret} and the scheme's own tokens
	time      string // place of the signed timestamp, unless it is an entry of list
	unit      string // of the timestamp: s, ms, rfc3339, any
	id        string // place of the signed id
	cert      string // place of the URL of the signing certificate
	certHost  func(*url.URL) bool

	// What a few providers need beyond a template:
	tokens  map[string]func(*Request) string                 // further tokens of signed
	choose  func(*Request) (algorithm string, f *Failure)    // where the request names the algorithm
	items   func(*Request) (items []*Request, f *Failure)    // where a delivery holds several signed things, all of which must verify
	similar func(*Request) []*Request                        // other forms of the request that the provider may have signed
	prepare func(r *Request, id string, now time.Time) error // for Sign: adds what else the scheme reads
}

// list describes a value such as t=1,v1=ab,v1=cd.
type list struct {
	between string // entries
	is      string // name and value of an entry
	version string // name of the entries that are signatures; others are ignored
	time    string // name of the entry that is the timestamp
}

// place is one or more parts, the first of which that is in the request counts.
type place []part

func parsePlace(s string) (place, error) {
	var p place
	if s == "" {
		return nil, nil
	}
	for text := range strings.SplitSeq(s, "|") {
		parsed, err := parsePart(text)
		if err != nil {
			return nil, err
		}
		p = append(p, parsed)
	}
	return p, nil
}

// value reads one value. A header that comes twice is refused even if both are the same: whoever joins or picks them
// behind us may not pick the one that was verified.
func (p place) value(r *Request) (string, *Failure) {
	for _, at := range p {
		if at.source == "header" {
			switch values := r.Header[at.name]; {
			case len(values) > 1:
				return "", failf(Malformed, "the header %s came %d times: exactly one is expected", at.name, len(values))
			case len(values) == 1 && strings.TrimSpace(values[0]) != "":
				return strings.TrimSpace(values[0]), nil
			}
		} else if v, ok := at.one(r); ok {
			return v, nil
		}
	}
	return "", failf(Missing, "the %s is missing: the request is not from this provider, signing is not switched on there, or something in front removed it", p)
}

// String names the places in a message: "header Stripe-Signature".
func (p place) String() string {
	words := make([]string, len(p))
	for i, at := range p {
		words[i] = strings.Replace(at.text, ":", " ", 1)
	}
	return strings.Join(words, " or ")
}

// segment is a piece of a compiled template: text, or the token whose value goes there.
type segment struct{ text, token string }

func (s *Scheme) template() ([]segment, error) {
	var segments []segment
	for rest := s.signed; rest != ""; {
		text, after, found := strings.Cut(rest, "{")
		if text != "" {
			segments = append(segments, segment{text: text})
		}
		if !found {
			break
		}
		token, after, closed := strings.Cut(after, "}")
		switch known := s.tokens[token] != nil; {
		case !closed:
			return nil, fmt.Errorf("the template of what is signed, %q, has a { without }", s.signed)
		case token == "timestamp" && s.time == "" && s.list.time == "":
			return nil, fmt.Errorf("%q signs {timestamp}, but no header is named that has it", s.signed)
		case token == "id" && s.id == "":
			return nil, fmt.Errorf("%q signs {id}, but no header is named that has it", s.signed)
		case token != "body" && token != "timestamp" && token != "id" && token != "url" && token != "method" && token != "secret" && !known:
			return nil, fmt.Errorf("%q has the unknown token {%s}: there are {body}, {timestamp}, {id}, {url} and {method}", s.signed, token)
		}
		segments = append(segments, segment{token: token})
		rest = after
	}
	return segments, nil
}

// claim is what a request says about itself: its signatures, and the time and id that they cover.
type claim struct {
	algorithm  string
	signatures []signature
	time, id   string
	cert       *x509.Certificate
}

type signature struct {
	version string
	bytes   []byte
}

// read finds the claim in a request, without checking it.
func (v *Verifier) read(r *Request) (c claim, f *Failure) {
	s := &v.scheme
	c.algorithm = s.algorithm
	text, f := v.at.value(r)
	if f == nil && s.choose != nil {
		c.algorithm, f = s.choose(r)
	}
	if f != nil {
		return c, f
	}
	entries, f := v.entries(r, text, &c)
	if f != nil {
		return c, f
	}
	if len(entries) > maxSignatures {
		return c, failf(Malformed, "the %s has more than %d signatures", v.at, maxSignatures)
	}
	for _, e := range entries {
		if e.bytes, f = v.decode(c.algorithm, e); f == nil {
			c.signatures = append(c.signatures, e)
		}
	}
	if len(c.signatures) == 0 {
		if f == nil {
			f = failf(Malformed, "the %s has no signature of the version %s", v.at, v.keys[0].version)
		}
		return c, f
	}
	if s.list.time != "" && c.time == "" {
		return c, failf(Malformed, "the %s has no timestamp", v.at)
	}
	if v.signsTime && s.list.time == "" {
		if c.time, f = v.time.value(r); f != nil {
			return c, f
		}
	}
	if c.time != "" {
		if _, f = v.parseTime(c.time); f != nil {
			return c, f
		}
	}
	if s.id != "" {
		if c.id, f = v.id.value(r); f != nil {
			return c, f
		}
	}
	if s.cert != "" {
		c.cert, f = v.certificate(r)
	}
	return c, f
}

// maxSignatures bounds what one request can make us check: providers send one for each secret in use.
const maxSignatures = 16

// entries splits the text in which the signatures are into those of a known version, and puts the time, if it is there
// too, into the claim.
func (v *Verifier) entries(r *Request, text string, c *claim) (entries []signature, f *Failure) {
	l := v.scheme.list
	if l.between == "" {
		entries = append(entries, signature{"", []byte(text)})
		for n := 2; v.scheme.numbered && n <= maxSignatures+1; n++ {
			next := place{{source: "header", name: strings.TrimSuffix(v.at[0].name, "1") + strconv.Itoa(n)}}
			if text, f = next.value(r); f != nil {
				break
			}
			entries = append(entries, signature{"", []byte(text)})
		}
		if f != nil && f.Reason == Missing {
			f = nil
		}
		return entries, f
	}
	for entry := range strings.SplitSeq(text, l.between) {
		name, value, _ := strings.Cut(strings.TrimSpace(entry), l.is)
		switch {
		case name == l.time && l.time != "":
			if c.time != "" {
				return nil, failf(Malformed, "the %s has more than one timestamp", v.at)
			}
			c.time = value
		case slices.ContainsFunc(v.keys, func(k key) bool { return k.version == name }):
			entries = append(entries, signature{name, []byte(value)})
		}
	}
	return entries, nil
}

// decode turns a signature's text into bytes. A length that the algorithm cannot have is told as malformed: it is what
// hex given for base64 looks like.
func (v *Verifier) decode(algorithm string, e signature) (b []byte, f *Failure) {
	text := string(e.bytes)
	if p := v.scheme.prefix; len(text) >= len(p) && strings.EqualFold(text[:len(p)], p) {
		text = text[len(p):]
	} else if !v.scheme.bare {
		return nil, failf(Malformed, "the %s does not begin with %q", v.at, p)
	}
	if text == "" {
		return nil, failf(Malformed, "the %s has no signature", v.at)
	}
	var err error
	switch v.scheme.encoding {
	case "hex":
		b, err = hex.DecodeString(text)
	case "base64":
		b, err = base64.StdEncoding.Strict().DecodeString(text)
	case "base64url":
		b, err = base64.RawURLEncoding.Strict().DecodeString(strings.TrimRight(text, "="))
	default:
		b = []byte(text)
	}
	if err != nil {
		return nil, failf(Malformed, "the signature in the %s is not written in %s", v.at, v.scheme.encoding)
	}
	if e.version == "v1a" {
		algorithm = "ed25519"
	}
	if size := signatureSize(algorithm); size > 0 && len(b) != size {
		return nil, failf(Malformed, "the signature in the %s has %d bytes where %s has %d: it is cut off, or another encoding than %s", v.at, len(b), algorithm, size, v.scheme.encoding)
	}
	return b, nil
}

// write writes what the provider signed.
func (v *Verifier) write(w io.Writer, r *Request, c *claim, k *key) {
	var buffer [256]byte
	text := buffer[:0]
	for _, s := range v.message {
		switch s.token {
		case "":
			text = append(text, s.text...)
		case "body":
			w.Write(text)
			w.Write(r.Body)
			text = text[:0]
		case "timestamp":
			text = append(text, c.time...)
		case "id":
			text = append(text, c.id...)
		case "url":
			text = append(text, r.URL...)
		case "method":
			text = append(text, r.Method...)
		case "secret":
			text = append(text, k.text...)
		default:
			text = append(text, v.scheme.tokens[s.token](r)...)
		}
	}
	w.Write(text)
}

// parseTime reads a timestamp in the scheme's unit.
func (v *Verifier) parseTime(text string) (time.Time, *Failure) {
	const year9999 = 253402300799
	n, err := strconv.ParseInt(text, 10, 64)
	switch unit := v.scheme.unit; {
	case unit == "rfc3339" || unit == "any" && err != nil:
		if t, err := time.Parse(time.RFC3339, text); err == nil {
			return t, nil
		}
	case err != nil:
	case unit == "ms" || unit == "any" && n > year9999:
		if n >= 0 && n/1000 <= year9999 {
			return time.UnixMilli(n), nil
		}
	case n >= 0 && n <= year9999:
		return time.Unix(n, 0), nil
	}
	return time.Time{}, failf(Malformed, "the signed timestamp is no time in the unit that is expected (%s)", v.scheme.unit)
}

func (v *Verifier) age(c claim, r *Request, now time.Time) *Failure {
	if v.tolerance <= 0 || v.scheme.time == "" && v.scheme.list.time == "" {
		return nil
	}
	text := c.time
	if text == "" { // it is in the signed body
		var f *Failure
		if text, f = v.time.value(r); f != nil {
			f.Reason = Malformed
			return f
		}
	}
	t, f := v.parseTime(text)
	if f != nil {
		return f
	}
	switch age := now.Sub(t); {
	case age > v.tolerance:
		return failf(TooOld, "the signature is right, but %d s old and only %d s are allowed: it was replayed or held up, or a clock is wrong", int64(age.Seconds()), int64(v.tolerance.Seconds()))
	case age < -v.tolerance:
		return failf(TooNew, "the signature is right, but from %d s in the future and only %d s are allowed: a clock is wrong", int64(-age.Seconds()), int64(v.tolerance.Seconds()))
	}
	return nil
}

func failf(reason Reason, format string, args ...any) *Failure {
	return &Failure{reason, fmt.Sprintf(format, args...)}
}
