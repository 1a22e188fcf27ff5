package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/hookonce/hookonce/proxy/metrics"
	"github.com/hookonce/hookonce/proxy/webhook"
	"github.com/hookonce/hookonce/store"
)

// Store is what a delivery asks of the store. Each call is bounded in time by
// the store itself.
type Store interface {
	Claim(ctx context.Context, key string, t store.Token) (store.Claim, error)
	Renew(ctx context.Context, key string, t store.Token) error
	Complete(ctx context.Context, key string, t store.Token, status int) error
	Release(ctx context.Context, key string, t store.Token) error
	EndLease(ctx context.Context, key string, t store.Token) error
	KeepAnswer(ctx context.Context, key string, t store.Token, a store.Answer) error
	Answer(ctx context.Context, key string) (store.Answer, error)
}

// Webhook is one configured entry point.
type Webhook struct {
	Name     string // the metric label; the unnamed webhook is "default"
	Path     string // exact, or a subtree if it ends in "/"
	Provider webhook.Provider
	Verifier func() *webhook.Verifier // nil while there is no secret yet: every delivery is refused
	Key      webhook.KeyRule

	Namespace string // what stands before the keys; without a slash
	MissingID MissingID
	PublicURL string // scheme, host and prefix, for providers that sign the URL

	ReleaseOn   func(status int) bool // of the upstream's non-2xx answers
	NotAccepted []string              // media types that no accepted event is answered with

	DuplicateStatus      int
	DuplicateBody        string
	DuplicateContentType string
	Replay               bool // duplicates get the first answer again
	InvalidStatus        int

	OpenHandshake bool // unsigned handshakes go to the application
	RejectReads   bool // GET, HEAD and OPTIONS are answered 405

	folded string
}

// MissingID says what to do with a delivery that has no event id.
type MissingID string

// The ways to treat a delivery without an event id.
const (
	MissingSHA256  MissingID = "sha256"  // its body's hash is the key
	MissingForward MissingID = "forward" // it goes through unclaimed
	MissingReject  MissingID = "reject"  // 400
)

// Config is what a Handler is made of. All durations and sizes are as
// contract and README name them.
type Config struct {
	Upstream  *url.URL // scheme, host and base path
	N8N       bool     // the upstream is n8n: its start-up page is no acceptance
	Webhooks  []*Webhook
	Store     Store
	Metrics   *metrics.Metrics
	Log       *slog.Logger
	Now       func() time.Time // for the age of signatures
	Transport http.RoundTripper

	Lease           time.Duration
	InFlightWait    time.Duration
	UpstreamTimeout time.Duration
	ReadTimeout     time.Duration
	MaxBody         int64 // bytes of one delivery
	MaxBuffered     int64 // bytes of all deliveries together

	Observe             bool   // report only, forward everything
	Hold                bool   // what has an unknown outcome waits for a person
	ForwardOnStoreError bool   // forward unclaimed while the store is down
	RejectUnmatched     bool   // 404 instead of passing through
	Forwarded           string // preserve, append or replace
}

// Handler is hookonce in front of one upstream. See the package comment.
type Handler struct {
	Config
	buffered    budget
	flights     flights
	settler     *settler
	open        tally // deliveries and what runs on after their answer
	deliveries  *httputil.ReverseProxy
	passthrough *httputil.ReverseProxy
}

// New returns the handler; Run has to run beside it.
func New(c Config) *Handler {
	h := &Handler{
		Config:   c,
		buffered: budget{limit: c.MaxBuffered},
		flights:  flights{running: make(map[string]*flight)},
	}
	for _, w := range h.Webhooks {
		w.folded = fold(w.Path)
	}
	h.Store = measured{c.Store, c.Metrics}
	h.settler = newSettler(h)
	h.deliveries = h.reverseProxy(attemptTransport{}, h.answered, h.failed)
	h.passthrough = h.reverseProxy(c.Transport, h.passed, h.passFailed)
	return h
}

// delivery is one HTTP request from a provider, on its way through the steps.
type delivery struct {
	w        http.ResponseWriter
	r        *http.Request
	hook     *Webhook
	rest     string // of the path, below a subtree
	misspelt bool   // the path is another spelling of the webhook's
	started  time.Time

	body     []byte // until the upstream has taken it
	size     int    // of the body, in bytes
	unread   bool   // the body, or a part of it, could not be read
	buffered *reservation

	request   webhook.Request
	handshake webhook.Handshake
	key       string
	attempt   *attempt // once there is a key to settle

	ending ending  // how it ended
	would  Outcome // in MODE=observe: how enforcing would have ended it
	status int     // what the sender was told
}

// ServeHTTP takes a delivery through its steps, and lets everything else pass.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	hook, rest, misspelt := h.match(r)
	read := readOnly(r.Method)
	switch {
	case hook == nil && h.RejectUnmatched && !h.Observe:
		h.refuse(w, http.StatusNotFound, "No webhook has this path.")
	case hook == nil, read && h.Observe:
		h.passThrough(w, r)
	case read && misspelt:
		h.refuse(w, http.StatusBadRequest, misspeltPath)
	case read && !hook.RejectReads:
		dropMethodOverrides(r.Header)
		h.passThrough(w, r)
	default:
		h.open.begin()
		defer h.open.end()
		d := &delivery{w: w, r: r, hook: hook, rest: rest, misspelt: misspelt, unread: true, started: time.Now()}
		h.Metrics.Begin(hook.Name)
		defer h.finish(d) // also when the answer breaks off: httputil panics then
		if read {
			w.Header().Set("Allow", "POST")
			h.answer(d, end(BadRequest).with(http.StatusMethodNotAllowed, "This webhook takes deliveries only.").why("method"))
			return
		}
		h.deliver(d)
	}
}

const misspeltPath = "This path is another spelling of a webhook's path. Use the webhook's path as it is configured."

func readOnly(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

func dropMethodOverrides(header http.Header) {
	for name := range header {
		switch strings.ToLower(strings.ReplaceAll(name, "_", "-")) { // CGI takes one for the other
		case "x-http-method-override", "x-http-method", "x-method-override":
			delete(header, name)
		}
	}
}

// deliver is one delivery, in order. Each step goes on (nil), or says how the
// delivery ends.
func (h *Handler) deliver(d *delivery) {
	defer d.clear()
	verdict := h.read(d)
	if verdict == nil {
		verdict = h.recognise(d)
	}
	if verdict == nil {
		verdict = h.verify(d)
	}
	if verdict == nil {
		verdict = h.identify(d)
	}
	if verdict == nil {
		verdict = h.claim(d)
	}
	for verdict == nil { // claimed
		if h.forward(d, "") {
			return
		}
		d.attempt = nil
		verdict = h.claim(d) // the lease may have run out before anything was sent
	}
	switch {
	case h.Observe && !d.unread:
		d.ending, d.would = *verdict, verdict.outcome
		h.forward(d, Observed)
	case verdict.outcome.meaning().relayed && verdict.status == 0:
		d.ending = *verdict
		h.forward(d, verdict.outcome)
	default:
		h.answer(d, verdict)
	}
}

// clear gives back what the delivery held.
func (d *delivery) clear() {
	d.buffered.release()
	if d.attempt != nil && !d.attempt.runsOn {
		d.attempt.abandon()
	}
}

// recognise sets apart what is not to be verified: another spelling of the
// path, and the few handshakes that a provider cannot sign.
func (h *Handler) recognise(d *delivery) *ending {
	if d.misspelt {
		return end(BadRequest).with(0, misspeltPath).why("misspelt_path")
	}
	d.request = webhook.Request{
		Method: d.r.Method,
		Target: d.r.RequestURI,
		Header: d.r.Header,
		Body:   d.body,
	}
	if d.hook.PublicURL != "" {
		rawPath, rawQuery := splitTarget(d.r.RequestURI)
		d.request.URL = d.hook.PublicURL + rawPath
		if strings.Contains(d.r.RequestURI, "?") {
			d.request.URL += "?" + rawQuery
		}
	}
	d.handshake = d.hook.Provider.Handshake(&d.request)
	switch {
	case d.handshake == webhook.AnsweredHandshake && !d.hook.OpenHandshake:
		return end(Handshake).with(http.StatusOK, "")
	case d.handshake == webhook.AnsweredHandshake,
		d.handshake == webhook.OpenHandshake && d.hook.OpenHandshake:
		return end(Handshake)
	}
	return nil
}

// verify checks the signature over the raw bytes. A handshake that is signed
// goes to the application unclaimed.
func (h *Handler) verify(d *delivery) *ending {
	verifier := d.hook.Verifier()
	if verifier == nil {
		return &ending{outcome: InvalidSignature, reason: string(webhook.Missing),
			err: errors.New("this webhook has no secret yet: it waits for the provider's handshake")}
	}
	if failure := verifier.Verify(&d.request, h.Now()); failure != nil {
		return &ending{outcome: InvalidSignature, reason: string(failure.Reason), err: failure}
	}
	if d.handshake == webhook.SignedHandshake {
		return end(Handshake)
	}
	return nil
}

// identify finds the event's key.
func (h *Handler) identify(d *delivery) *ending {
	rule := d.hook.Key
	if rule.None() {
		return end(Unkeyed)
	}
	id, ok := rule.EventID(&d.request)
	switch {
	case ok:
		d.key = webhook.EventKey(id)
	case d.hook.MissingID == MissingReject && (!rule.Body() || webhook.Nothing(d.body)):
		return end(NoEventID).why("no_id_at_" + rule.String())
	case d.hook.MissingID == MissingForward && !rule.Body() || webhook.Nothing(d.body):
		return end(Unkeyed)
	default:
		d.key = webhook.BodyKey(d.body)
	}
	d.key = webhook.ScopedKey(d.hook.Namespace, d.rest, d.key)
	return nil
}

// claim asks for the right to forward the event, and waits up to InFlightWait
// while another delivery of it is on its way. In this process one delivery
// leads for each key and asks the store; the others wait for what it finds.
func (h *Handler) claim(d *delivery) *ending {
	wait := time.NewTimer(h.InFlightWait)
	defer wait.Stop()
	for {
		f, leads := h.flights.join(d.key)
		if leads {
			return h.ask(d, f, wait)
		}
		if h.Observe && !f.landed() {
			return end(InFlight)
		}
		select {
		case <-f.ended:
			if f.completed {
				return end(Duplicate)
			}
		case <-wait.C:
			return end(InFlight)
		case <-d.r.Context().Done():
			return end(ClientGone)
		}
	}
}

// How often the store is asked again while another process holds the claim.
const (
	firstPoll = 50 * time.Millisecond
	lastPoll  = 500 * time.Millisecond
)

// ask asks the store for the claim, again and again while it is in flight in
// another process.
func (h *Handler) ask(d *delivery, f *flight, wait *time.Timer) *ending {
	token := store.NewToken()
	for poll := firstPoll; ; poll = min(2*poll, lastPoll) {
		asked := time.Now()
		// The event is whole and verified: a sender that leaves now changes nothing.
		claim, err := h.Store.Claim(context.WithoutCancel(d.r.Context()), d.key, token)
		switch {
		case err != nil:
			return h.storeDown(d, f, token, err)
		case claim.Won:
			if claim.TakenOver {
				h.Metrics.LeaseExpired(d.hook.Name)
			}
			d.attempt = h.newAttempt(d, f, token, claim, asked)
			return nil
		case claim.State == store.Done:
			h.flights.land(d.key, f, true)
			return end(Duplicate)
		case claim.State == store.Held:
			h.flights.land(d.key, f, false)
			return end(Held).why("decide with: hookonce events release|complete KEY")
		case h.Observe:
			h.flights.land(d.key, f, false)
			return end(InFlight)
		}
		again := time.NewTimer(min(poll, max(claim.LeaseLeft, firstPoll)))
		select {
		case <-again.C:
			continue
		case <-wait.C:
			h.flights.land(d.key, f, false)
			return end(InFlight)
		case <-d.r.Context().Done():
			h.flights.land(d.key, f, false)
			return end(ClientGone)
		}
	}
}

// storeDown ends a delivery whose claim failed. A claim that may have been
// committed all the same is released in the background.
func (h *Handler) storeDown(d *delivery, f *flight, token store.Token, err error) *ending {
	uncertain := errors.Is(err, store.ErrUncertain)
	if h.ForwardOnStoreError && !h.Observe {
		d.attempt = h.newAttempt(d, f, token, store.Claim{Prior: store.PriorUnknown}, time.Now())
		d.attempt.uncertain = uncertain
		return end(Unclaimed).because(err)
	}
	if uncertain {
		h.releaseLater(d.key, token)
	}
	h.flights.land(d.key, f, false)
	return end(StoreUnavailable).because(err)
}
