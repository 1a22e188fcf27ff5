package proxy_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hookonce/hookonce/proxy"
	"github.com/hookonce/hookonce/store"
)

func observing(s *setup) { s.Observe = true }

func (h *harness) would(outcome proxy.Outcome, want float64) {
	h.t.Helper()
	h.settled()
	if got := h.metric("hookonce_observed_total", "outcome", string(outcome)); got != want {
		h.t.Errorf("%v would have been %s, want %v", got, outcome, want)
	}
	if n := h.outcomes(proxy.Observed); n < want {
		h.t.Errorf("%v observed", n)
	}
}

func TestObservingForwardsEverythingAndSaysWhatEnforcingWouldHaveDone(t *testing.T) {
	for _, c := range []struct {
		would   proxy.Outcome
		request func(*harness) *http.Request
		before  func(*harness)
		setup   func(*setup)
	}{
		{would: proxy.Forwarded},
		{would: proxy.Duplicate, before: func(h *harness) { h.deliver("evt_1") }},
		{would: proxy.InvalidSignature, request: func(h *harness) *http.Request { return h.request("POST", path, event("evt_1"), "X-Signature", "00") }},
		{would: proxy.BadRequest, request: func(h *harness) *http.Request { return h.request("POST", "/Webhook/pay", event("evt_1")) }},
		{would: proxy.NoEventID, request: func(h *harness) *http.Request { return h.request("POST", path, "{}") },
			setup: func(s *setup) { s.Webhooks[0].MissingID = proxy.MissingReject }},
		{would: proxy.Unkeyed, request: func(h *harness) *http.Request { return h.request("POST", path, "{}") }},
		{would: proxy.StoreUnavailable, before: func(h *harness) { h.store.fails() }},
		{would: proxy.Overloaded, setup: func(s *setup) { s.MaxBuffered = 5 }},
		{would: proxy.Handshake, request: func(h *harness) *http.Request {
			return h.request("POST", path, "webhook_id=1", "Content-Type", "application/x-www-form-urlencoded")
		}, setup: func(s *setup) { s.Webhooks[0] = provided(s.tb, "default", path, "woocommerce", secret) }},
	} {
		t.Run(string(c.would), func(t *testing.T) {
			h := start(t, observing, func(s *setup) {
				if c.setup != nil {
					c.setup(s)
				}
			})
			if c.before != nil {
				c.before(h)
			}
			runs := len(h.upstream.requests())
			r := h.request("POST", path, event("evt_1"))
			if c.request != nil {
				r = c.request(h)
			}
			body := readAll(t, r)
			r.Header.Set("Hookonce-Key", "from outside")
			a := h.do(r)
			if a.status != http.StatusOK || a.outcome() != "" {
				t.Errorf("answer %d, outcome %q: observing adds no header", a.status, a.outcome())
			}
			h.runs(runs + 1)
			got := h.upstream.requests()[runs]
			if string(got.body) != body {
				t.Errorf("the upstream got %q, want %q", got.body, body)
			}
			if got.Header.Get("Hookonce-Key") != "from outside" || got.Header.Get("Hookonce-Attempt") != "" || got.Header.Get("Idempotency-Key") != "" {
				t.Errorf("headers were changed: %v", got.Header)
			}
			h.would(c.would, 1)
		})
	}
}

func TestObservingSettlesAsEnforcingDoes(t *testing.T) {
	h := start(t, observing)
	h.upstream.status(http.StatusInternalServerError)
	h.deliver("evt_1")
	h.known("evt:evt_1", "")
	h.would(proxy.Released, 1)
	h.upstream.status(http.StatusOK)
	h.deliver("evt_1")
	h.known("evt:evt_1", store.Done)
}

func TestObservingNeverWaits(t *testing.T) {
	patient := func(s *setup) { s.InFlightWait = time.Hour }
	h := start(t, observing, patient)
	g := newGate(t)
	h.upstream.held(g, http.StatusOK)
	first := h.begin("evt_1")
	await(t, h.upstream.arrived, "the first delivery")
	h.upstream.answers(nil)
	await(t, h.begin("evt_1"), "the second answer")
	other := replica(t, h, observing, patient)
	await(t, other.begin("evt_1"), "the other replica's answer")
	other.would(proxy.InFlight, 1)
	g.open()
	await(t, first, "the first answer")
	h.would(proxy.InFlight, 1)
	h.runs(3)
}

func TestObservingRefusesOnlyWhatIsTooLarge(t *testing.T) {
	h := start(t, observing, func(s *setup) { s.MaxBody = 10 })
	h.deliver("evt_1").want(t, http.StatusRequestEntityTooLarge, proxy.TooLarge)
	h.runs(0)
}

func TestObservingPassesReadsThroughHoweverConfigured(t *testing.T) {
	h := start(t, observing, func(s *setup) { s.Webhooks[0].RejectReads, s.RejectUnmatched = true, true })
	for _, target := range []string{path, "/Webhook/pay", "/elsewhere"} {
		if a := h.do(h.request("GET", target, "", "X-HTTP-Method-Override", "POST")); a.status != http.StatusOK {
			t.Errorf("%s: %d", target, a.status)
		}
	}
	if h.upstream.requests()[0].Header.Get("X-HTTP-Method-Override") == "" {
		t.Error("observing changed a request")
	}
}

func TestObservingLetsAStartUpPageThrough(t *testing.T) {
	h := start(t, observing, func(s *setup) { s.N8N = true })
	h.upstream.answers(func(w http.ResponseWriter, _ *seen) {
		w.Header().Set("Content-Type", "text/html")
		w.Write([]byte("n8n is starting up"))
	})
	if a := h.deliver("evt_1"); a.status != http.StatusOK || !strings.Contains(a.body, "n8n is starting up") {
		t.Errorf("%d %q", a.status, a.body)
	}
	h.known("evt:evt_1", "")
	h.would(proxy.NotReady, 1)
}

func TestObservingCountsAnUnansweredDelivery(t *testing.T) {
	h := start(t, observing, func(s *setup) { s.UpstreamTimeout = 100 * time.Millisecond })
	g := newGate(t)
	h.upstream.held(g, http.StatusOK)
	if a := h.deliver("evt_1"); a.status != http.StatusGatewayTimeout {
		t.Errorf("%d", a.status)
	}
	g.open()
	h.would(proxy.Unknown, 1)
}

func TestObservedStreamIsNotCutByTheReadTimeout(t *testing.T) {
	h := start(t, observing, func(s *setup) { s.MaxBuffered, s.ReadTimeout = 5, 100*time.Millisecond })
	text := headOf(path, event("evt_1"), "Connection: close")
	conn := h.dial()
	defer conn.Close()
	io.WriteString(conn, text[:len(text)-1])
	await(t, time.After(200*time.Millisecond), "the end of the read timeout")
	io.WriteString(conn, text[len(text)-1:])
	conn.SetReadDeadline(time.Now().Add(patience))
	if got, _ := io.ReadAll(conn); !strings.HasPrefix(string(got), "HTTP/1.1 200 ") {
		t.Errorf("%q", got)
	}
	h.would(proxy.Overloaded, 1)
}
