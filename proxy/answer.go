package proxy

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"time"
)

// retryAfter is when a sender should come back, in seconds (contract, 6).
const retryAfter = "5"

// answer is hookonce's own answer to a delivery.
func (h *Handler) answer(d *delivery, e *ending) {
	m := e.outcome.meaning()
	status, detail := m.status, m.detail
	if e.status != 0 {
		status = e.status
	}
	if e.detail != "" {
		detail = e.detail
	}
	if e.outcome == TooLarge || e.outcome == Overloaded {
		h.discard(d)
	}
	header := d.w.Header()
	header.Set("Hookonce-Outcome", string(e.outcome))
	if m.retryAfter || e.outcome == InvalidSignature && d.hook.InvalidStatus == http.StatusServiceUnavailable {
		header.Set("Retry-After", retryAfter)
	}
	d.ending, d.status = *e, status
	var body []byte
	switch e.outcome {
	case Duplicate:
		if h.replay(d) {
			return
		}
		status, body = d.hook.DuplicateStatus, []byte(d.hook.DuplicateBody)
		if d.hook.DuplicateContentType != "" {
			header.Set("Content-Type", d.hook.DuplicateContentType)
		}
	case InvalidSignature:
		status = d.hook.InvalidStatus
	}
	d.status = status
	if detail == "" { // an answer of its own shape, or an empty one
		header.Set("Content-Length", strconv.Itoa(len(body)))
		d.w.WriteHeader(status)
		d.w.Write(body)
		return
	}
	problem(d.w, status, detail)
}

// refuse is hookonce's own answer to what is no delivery.
func (h *Handler) refuse(w http.ResponseWriter, status int, detail string) {
	h.Metrics.PassedThrough(status)
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(discardFor)) // for a body that nobody reads
	problem(w, status, detail)
}

// problem writes a problem document (RFC 9457) that names no internals.
func problem(w http.ResponseWriter, status int, detail string) {
	document, _ := json.Marshal(struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{"about:blank", http.StatusText(status), status, detail}) // cannot fail
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Content-Length", strconv.Itoa(len(document)))
	w.WriteHeader(status)
	w.Write(document)
}

// finish counts the delivery and writes its log line: one place, once for
// each delivery, however it ended.
func (h *Handler) finish(d *delivery) {
	e := d.ending
	if e.outcome == "" { // a fault of ours, on its way up as a panic
		e = ending{outcome: Unknown, reason: "internal_error"}
	}
	if h.Observe && !d.unread {
		if d.would == "" {
			d.would = e.outcome
		}
		h.Metrics.WouldHave(d.hook.Name, string(d.would))
		e.outcome = Observed
	}
	took := time.Since(d.started)
	h.Metrics.End(d.hook.Name, string(e.outcome), took)
	if !d.unread {
		h.Metrics.BodyRead(d.hook.Name, d.size)
	}
	if e.outcome == InvalidSignature || d.would == InvalidSignature {
		h.Metrics.SignatureFailed(d.hook.Name, e.reason)
	}

	level := e.outcome.meaning().level
	ctx := d.r.Context()
	if !h.Log.Enabled(ctx, level) {
		return
	}
	fields := []slog.Attr{
		slog.String("webhook", d.hook.Name),
		slog.String("outcome", string(e.outcome)),
		slog.Int("status", d.status),
		slog.Float64("duration", took.Seconds()),
	}
	if d.key != "" {
		fields = append(fields, slog.String("key", d.key))
	}
	if d.attempt != nil && d.attempt.claim.Won {
		fields = append(fields, slog.Int("attempt", d.attempt.claim.Attempt))
	}
	if e.reason != "" {
		fields = append(fields, slog.String("reason", e.reason))
	}
	if d.would != "" {
		fields = append(fields, slog.String("would_have", string(d.would)))
	}
	if e.err != nil {
		fields = append(fields, slog.String("error", e.err.Error()))
	}
	if d.hook.Provider.NoRetry && e.outcome.meaning().undone {
		fields = append(fields, slog.String("advice", "this provider does not send again by itself: redeliver the event from its settings"))
	}
	h.Log.LogAttrs(ctx, level, "delivery", fields...)
}
