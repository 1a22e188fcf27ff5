package proxy

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// forward sends the delivery to the upstream and relays the answer; fixed is
// the outcome of one that is not claimed. It returns false if the lease may
// have run out before anything was sent: then the claim is to be asked for
// again.
func (h *Handler) forward(d *delivery, fixed Outcome) (sent bool) {
	a := d.attempt
	if a == nil {
		a = &attempt{h: h, d: d, hook: d.hook}
	}
	a.fixed = fixed
	// Never cancelled by the sender's leaving; yet cancellable, because
	// httputil falls back to the connection's own notice otherwise.
	ctx, cancel := context.WithCancel(context.WithValue(context.WithoutCancel(d.r.Context()), attemptKey{}, a))
	a.cancel = cancel
	defer func() {
		if !a.runsOn {
			cancel()
		}
	}()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: a.gotConn, WroteRequest: a.taken})
	keepContentType(d.w)
	defer flushBroken(d.w)
	h.deliveries.ServeHTTP(d.w, d.r.WithContext(ctx))
	return !a.notRenewed.Load()
}

// prepare makes the delivery's outgoing request: the body as it was read, and
// the headers that tell the application about the claim.
func (a *attempt) prepare(out *http.Request) {
	d := a.d
	out.Header.Del("Expect") // the body is here already
	out.Header.Del("Upgrade")
	out.Header.Del("Connection")
	out.Header.Del("Http2-Settings")
	out.TransferEncoding, out.Trailer = nil, nil
	out.ContentLength = int64(len(d.body))
	out.Body = http.NoBody
	if len(d.body) > 0 {
		a.body = bytes.NewReader(d.body)
		out.Body = io.NopCloser(a.body)
	}
	out.GetBody = nil // else net/http would send it again by itself
	if d.would == Overloaded {
		out.ContentLength = d.r.ContentLength
		out.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(d.body), d.r.Body), d.r.Body}
	}
	if a.h.Observe {
		return
	}
	if a.hook.Replay {
		out.Header.Del("Accept-Encoding") // what is kept has to suit every repeat
	}
	for name := range out.Header {
		if folded := strings.ReplaceAll(name, "_", "-"); len(folded) > 9 && strings.EqualFold(folded[:9], "Hookonce-") {
			delete(out.Header, name)
		}
	}
	if a.key == "" {
		return
	}
	key := headerValue(a.key)
	out.Header.Set("Hookonce-Key", key)
	out.Header.Set("Hookonce-Prior-Outcome", string(a.claim.Prior))
	if a.claim.Won {
		out.Header.Set("Hookonce-Attempt", strconv.Itoa(a.claim.Attempt))
	}
	if out.Header.Get("Idempotency-Key") == "" {
		out.Header.Set("Idempotency-Key", key)
	}
}

// headerValue percent-encodes the bytes that a header cannot carry.
func headerValue(key string) string {
	var b strings.Builder
	for i := range len(key) {
		c := key[i]
		if c < ' ' || c > '~' || c == ' ' && (i == 0 || i == len(key)-1) {
			b.WriteString("%" + strings.ToUpper(string("0123456789abcdef"[c>>4])+string("0123456789abcdef"[c&15])))
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

var (
	errNotRenewed = errors.New("the lease could not be renewed in time, so nothing was sent")
	errSentBefore = errors.New("the request was sent before, and is not sent again")
)

// mayWrite is asked when a connection is there and nothing has been written
// yet: the last moment to find out that the lease may be gone.
func (a *attempt) mayWrite() error {
	if a.notRenewed.Load() || !a.mayStart() {
		a.notRenewed.Store(true)
		return errNotRenewed
	}
	return nil
}

// attemptTransport hands a delivery's request to its attempt.
type attemptTransport struct{}

func (attemptTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	return attemptOf(r).roundTrip(r)
}

type upstreamAnswer struct {
	response *http.Response
	err      error
}

var errUpstreamTimeout = errors.New("the application did not answer within UPSTREAM_TIMEOUT")

// roundTrip is the upstream call. It lives on its own; the delivery waits for
// it up to UpstreamTimeout.
func (a *attempt) roundTrip(r *http.Request) (*http.Response, error) {
	answers := make(chan upstreamAnswer, 1)
	begun := time.Now()
	go func() {
		response, err := a.h.Transport.RoundTrip(r)
		a.h.Metrics.UpstreamAnswered(a.hook.Name, response, time.Since(begun))
		answers <- upstreamAnswer{response, err}.final()
	}()
	timeout := time.NewTimer(a.h.UpstreamTimeout)
	defer timeout.Stop()
	select {
	case got := <-answers:
		return got.response, got.err
	case <-timeout.C:
	}
	if a.key == "" || !a.sent() {
		a.cancel()
		if got := <-answers; got.err == nil {
			return got.response, nil
		}
		return nil, errUpstreamTimeout
	}
	a.runsOn = true
	a.h.open.begin()
	go a.runOn(answers)
	return nil, errUpstreamTimeout
}

// A 1xx is no answer; 101 would be one only if protocols could be switched.
var errNoAnswer = errors.New("the application sent a status below 200, which is no answer")

// final turns what is no answer into an error.
func (got upstreamAnswer) final() upstreamAnswer {
	if got.err == nil && got.response.StatusCode < http.StatusOK {
		got.response.Body.Close()
		got = upstreamAnswer{nil, errNoAnswer}
	}
	return got
}

// runOn waits for the late answer of a delivery that was answered 504, for one
// more UpstreamTimeout; the lease is renewed meanwhile, so a retry is in
// flight and no second run.
func (a *attempt) runOn(answers <-chan upstreamAnswer) {
	defer a.h.open.end()
	defer a.cancel()
	patience := time.AfterFunc(a.h.UpstreamTimeout, a.cancel)
	defer patience.Stop()
	got := <-answers
	log := a.h.Log.With("webhook", a.hook.Name, "key", a.key)
	kind, status := endLease, 0
	if got.err == nil {
		var outcome Outcome
		outcome, kind = a.judge(got.response)
		status = got.response.StatusCode
		got.response.Body.Close()
		log.Warn("the application answered after UPSTREAM_TIMEOUT", "status", status, "as", string(outcome))
	} else {
		log.Warn("the application never answered", "error", withoutQuotes(got.err).Error())
	}
	a.settle(kind, status)
}

// taken lets go of the body once the upstream has it: the answer may take its
// time. It runs where the body was read, after the last read. A request so
// small that net/http has not begun to write it keeps its body: it may still be
// refused.
func (a *attempt) taken(info httptrace.WroteRequestInfo) {
	if info.Err != nil || !a.sent() {
		return
	}
	if a.body != nil {
		a.body.Reset(nil)
	}
	a.d.body, a.d.request.Body = nil, nil
	a.d.buffered.release()
}

// gotConn is told which connection the request goes out on. net/http may come
// with another one by itself: where the first was stale, and the request has no
// body. Then nothing is written unless nothing was before.
func (a *attempt) gotConn(info httptrace.GotConnInfo) {
	counted := countedBelow(info.Conn)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case counted == nil:
	case a.connected && a.conn != nil && a.conn.writes.Load() > a.before:
		counted.askFirst(func() error { return errSentBefore })
		return
	default:
		a.before = counted.writes.Load()
		counted.askFirst(a.mayWrite)
	}
	a.conn, a.connected = counted, true
}

// sent says whether anything of the request may have reached the upstream.
func (a *attempt) sent() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.connected {
		return false
	}
	return a.conn == nil || a.conn.writes.Load() > a.before
}

// answered settles the claim when the upstream's status is known and nothing
// has been sent to the provider yet (httputil's ModifyResponse).
func (h *Handler) answered(response *http.Response) error {
	a := attemptOf(response.Request)
	d := a.d
	d.status = response.StatusCode
	outcome, kind := a.judge(response)
	if outcome == Forwarded && a.hook.Replay && a.claim.Won && !h.Observe {
		a.keepAnswer(response)
	}
	a.settle(kind, response.StatusCode)
	d.ending.outcome = cmp.Or(a.fixed, outcome)
	if h.Observe {
		return nil
	}
	if outcome == NotReady {
		d.ending = *end(NotReady)
		return errNotAccepted
	}
	response.Header.Set("Hookonce-Outcome", string(d.ending.outcome))
	return nil
}

var errNotAccepted = errors.New("the application answered 2xx, but with a type that says it has not accepted the event")

// judge says what an answer of the upstream means for the event.
func (a *attempt) judge(response *http.Response) (Outcome, settlementKind) {
	switch status := response.StatusCode; {
	case status/100 == 2 && a.notAccepted(response):
		return NotReady, release
	case status/100 == 2:
		return Forwarded, complete
	case a.hook.ReleaseOn(status):
		return Released, release
	default:
		return Kept, complete
	}
}

// n8nStarting is what n8n answers, 200 and text/html, on every path while it
// starts (n8n 2.x, packages/cli, abstract-server).
const n8nStarting = "n8n is starting up"

// impatient closes a body that is read before the claim is settled and does not
// come: a settlement cannot wait for ever.
func (a *attempt) impatient(body io.Closer) *time.Timer {
	return time.AfterFunc(a.h.UpstreamTimeout, func() { body.Close() })
}

// notAccepted says whether a 2xx is no acceptance of the event.
func (a *attempt) notAccepted(response *http.Response) bool {
	if len(a.hook.NotAccepted) == 0 && !a.h.N8N {
		return false
	}
	mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	for _, refused := range a.hook.NotAccepted {
		if strings.EqualFold(mediaType, refused) {
			return true
		}
	}
	if !a.h.N8N || mediaType != "text/html" {
		return false
	}
	defer a.impatient(response.Body).Stop()
	page := bufio.NewReaderSize(response.Body, 512)
	start, _ := page.Peek(512)
	response.Body = struct {
		io.Reader
		io.Closer
	}{page, response.Body}
	return bytes.Contains(start, []byte(n8nStarting))
}

var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// withoutQuotes is an error of net/http without what it quotes: those may be
// bytes of the application's answer, which no log is to have.
func withoutQuotes(err error) error {
	return errors.New(quoted.ReplaceAllString(err.Error(), "…"))
}

// failed ends a delivery that got no answer from the upstream (httputil's
// ErrorHandler). What was sent decides, not what the error says.
func (h *Handler) failed(_ http.ResponseWriter, r *http.Request, err error) {
	a := attemptOf(r)
	d := a.d
	switch {
	case errors.Is(err, errNotAccepted):
		h.answer(d, end(NotReady))
	case a.notRenewed.Load():
		a.settle(release, 0)
	case !a.sent():
		a.settle(release, 0)
		h.answer(d, end(Unreachable).because(withoutQuotes(err)))
	default:
		if !a.runsOn {
			a.settle(endLease, 0)
		}
		ending := end(Unknown).because(withoutQuotes(err))
		if errors.Is(err, errUpstreamTimeout) {
			ending.with(http.StatusGatewayTimeout, "The application took the event, but did not answer in time. Send it again.")
		}
		if h.Hold && a.claim.Won {
			ending.detail = "The application took the event and gave no answer. A person has to decide whether it may run again."
		}
		h.answer(d, ending)
	}
}
