package proxy

import (
	"log/slog"
	"net/http"
)

// Outcome is how a delivery ended; every delivery ends in exactly one. It is
// the metric label, the log field and the value of the Hookonce-Outcome header.
type Outcome string

// The outcomes. The table below says what each of them means.
const (
	Forwarded        Outcome = "forwarded"
	Released         Outcome = "released"
	Kept             Outcome = "kept"
	Unknown          Outcome = "unknown"
	Unreachable      Outcome = "unreachable"
	NotReady         Outcome = "not_ready"
	Held             Outcome = "held"
	Duplicate        Outcome = "duplicate"
	InFlight         Outcome = "in_flight"
	InvalidSignature Outcome = "invalid_signature"
	NoEventID        Outcome = "no_event_id"
	Unkeyed          Outcome = "unkeyed"
	Unclaimed        Outcome = "unclaimed"
	Handshake        Outcome = "handshake"
	Observed         Outcome = "observed"
	TooLarge         Outcome = "too_large"
	BadRequest       Outcome = "bad_request"
	Overloaded       Outcome = "overloaded"
	StoreUnavailable Outcome = "store_unavailable"
	ClientGone       Outcome = "client_gone"
)

// statusClientGone is what the log and the metrics say of a sender that left;
// nobody is there to read it. nginx has made the number customary.
const statusClientGone = 499

// meaning is what an outcome means to those outside.
type meaning struct {
	outcome    Outcome
	status     int        // of hookonce's own answer; 0: the upstream's answer stands
	level      slog.Level // of the delivery's log line
	retryAfter bool       // the answer says when to come back
	relayed    bool       // such a delivery goes to the upstream without a claim
	undone     bool       // the event waits for another delivery
	detail     string     // of the problem document; "": the answer has no body
}

// meanings is the one table of what outcomes mean.
var meanings = []meaning{
	{outcome: Forwarded, level: slog.LevelInfo},
	{outcome: Released, undone: true, level: slog.LevelWarn},
	{outcome: Kept, level: slog.LevelWarn},
	{outcome: Unknown, undone: true, status: http.StatusBadGateway, level: slog.LevelError,
		detail: "The application took the event, but gave no answer. Send it again."},
	{outcome: Unreachable, undone: true, status: http.StatusBadGateway, level: slog.LevelError,
		detail: "The application could not be reached. Send the event again."},
	{outcome: NotReady, undone: true, status: http.StatusServiceUnavailable, level: slog.LevelWarn, retryAfter: true,
		detail: "The application is starting. Send the event again."},
	{outcome: Held, status: http.StatusServiceUnavailable, level: slog.LevelWarn, retryAfter: true,
		detail: "Whether this event has run is unknown. A person has to decide before it can run again."},
	{outcome: Duplicate, status: http.StatusOK, level: slog.LevelInfo},
	{outcome: InFlight, undone: true, status: http.StatusServiceUnavailable, level: slog.LevelInfo, retryAfter: true,
		detail: "An earlier delivery of this event is still being processed. Send it again."},
	{outcome: InvalidSignature, status: http.StatusUnauthorized, level: slog.LevelWarn},
	{outcome: NoEventID, status: http.StatusBadRequest, level: slog.LevelWarn,
		detail: "The request has no event id where this webhook expects one."},
	{outcome: Unkeyed, relayed: true, level: slog.LevelInfo},
	{outcome: Unclaimed, relayed: true, level: slog.LevelError},
	{outcome: Handshake, relayed: true, level: slog.LevelInfo},
	{outcome: Observed, relayed: true, level: slog.LevelInfo},
	{outcome: TooLarge, status: http.StatusRequestEntityTooLarge, level: slog.LevelWarn,
		detail: "The body is larger than this webhook accepts."},
	{outcome: BadRequest, status: http.StatusBadRequest, level: slog.LevelWarn,
		detail: "The request could not be read."},
	{outcome: Overloaded, undone: true, status: http.StatusServiceUnavailable, level: slog.LevelWarn, retryAfter: true,
		detail: "Too many deliveries are being read at this moment. Send the event again."},
	{outcome: StoreUnavailable, undone: true, status: http.StatusServiceUnavailable, level: slog.LevelError, retryAfter: true,
		detail: "The store of events cannot be reached. Send the event again."},
	{outcome: ClientGone, status: statusClientGone, level: slog.LevelInfo},
}

// Outcomes lists every outcome, for metrics that have to show them all from
// the start.
func Outcomes() []string {
	names := make([]string, len(meanings))
	for i, m := range meanings {
		names[i] = string(m.outcome)
	}
	return names
}

func (o Outcome) meaning() meaning {
	for _, m := range meanings {
		if m.outcome == o {
			return m
		}
	}
	panic("proxy: outcome without a meaning: " + string(o))
}

// ending says how a delivery ends: the outcome, and whatever differs from
// what the table says of it.
type ending struct {
	outcome Outcome
	status  int    // 0: as the table says
	reason  string // for log and metrics: why, in a word
	detail  string // "": as the table says
	err     error  // for the log
}

func end(o Outcome) *ending { return &ending{outcome: o} }

func (e *ending) because(err error) *ending {
	e.err = err
	return e
}

func (e *ending) why(reason string) *ending {
	e.reason = reason
	return e
}

func (e *ending) with(status int, detail string) *ending {
	e.status, e.detail = status, detail
	return e
}
