// Package webhook knows the providers: how each signs its deliveries, where the identity of an event is, and which of
// its requests are handshakes. It is pure: headers and bytes in; nil or a reason, a key, a handshake out.
package webhook

import (
	"net/http"
	"strings"
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
