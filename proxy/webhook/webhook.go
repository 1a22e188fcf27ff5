// Package webhook knows the providers: how each signs its deliveries, where the identity of an event is, and which of
// its requests are handshakes. It is pure: headers and bytes in; nil or a reason, a key, a handshake out.
package webhook

import (
	"crypto/x509"
	"net/http"
	"strings"
	"time"
)

// Request is one delivery as verification and key see it.
type Request struct {
	Method string
	URL    string // as the provider requested it: public URL + raw request target; "" where no public URL is configured
	Target string // raw path?query as received
	Header http.Header
	Body   []byte // raw bytes, never changed
}

// RawQuery is the raw query of Target, without the question mark.
func (r *Request) RawQuery() string {
	_, query, _ := strings.Cut(r.Target, "?")
	return query
}

// Reason says in one word why a signature was refused.
type Reason string

// The reasons of a Failure.
const (
	Missing   Reason = "missing"
	Malformed Reason = "malformed"
	Mismatch  Reason = "mismatch"
	TooOld    Reason = "too_old"
	TooNew    Reason = "too_new"
)

// Failure is why Verify refused a delivery.
type Failure struct {
	Reason Reason
	Detail string
}

func (f *Failure) Error() string { return string(f.Reason) + ": " + f.Detail }

// Provider is one preset.
type Provider struct {
	Name                                 string
	Scheme                               Scheme
	EventID                              string
	MissingID                            string
	Tolerance                            time.Duration
	InvalidStatus                        int
	DuplicateStatus                      int
	DuplicateBody                        string
	DuplicateContentType                 string
	Replay                               bool
	NeedsURL                             bool
	NeedsSecret                          bool
	Waits                                time.Duration
	RetryWindow                          time.Duration
	NoRetry                              bool
	Verifies, KeyNote, Special, Evidence string
}

// Scheme is how a provider signs.
type Scheme struct{}

// Options are what a webhook's configuration adds to its preset.
type Options struct {
	Tolerance    time.Duration
	HMAC         HMACOptions
	TokenHeader  string
	Certificates func(url string) (*x509.Certificate, error)
}

// HMACOptions describe the scheme of provider hmac.
type HMACOptions struct {
	Header, Algorithm, Encoding, Prefix, Signed, TimestampHeader, IDHeader string
}

// Verifier checks the signatures of one webhook.
type Verifier struct{}

// Providers returns all presets, sorted by name.
func Providers() []Provider { return nil }

// Lookup finds a preset by its name.
func Lookup(name string) (Provider, bool) { return Provider{}, false }

// NewVerifier parses and checks the secrets once.
func (p Provider) NewVerifier(secrets []string, o Options) (*Verifier, error) { return nil, nil }

// Verify returns nil where the signature is right.
func (v *Verifier) Verify(r *Request, now time.Time) *Failure { return nil }

// Sign adds what the provider would send.
func (v *Verifier) Sign(r *Request, id string, now time.Time) error { return nil }

// Handshake says whether a request is a provider's handshake instead of an event.
type Handshake int

// The kinds of handshakes.
const (
	NoHandshake Handshake = iota
	SignedHandshake
	OpenHandshake
	AnsweredHandshake
)

// Handshake tells what kind of request r is.
func (p Provider) Handshake(r *Request) Handshake { return NoHandshake }

// ProviderTable is the README's provider table.
func ProviderTable() string { return "" }
