package proxy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hookonce/hookonce/proxy"
	"github.com/hookonce/hookonce/proxy/webhook"
	"github.com/hookonce/hookonce/store"
)

func TestOutcomesAreTheContracts(t *testing.T) {
	want := []string{
		"forwarded", "released", "kept", "unknown", "unreachable", "not_ready", "held", "duplicate", "in_flight", "invalid_signature", "no_event_id",
		"unkeyed", "unclaimed", "handshake", "observed", "too_large", "bad_request", "overloaded", "store_unavailable", "client_gone",
	}
	if diff := cmp.Diff(want, proxy.Outcomes()); diff != "" {
		t.Error(diff)
	}
}

// TestAnswersAreTheContracts pins for each outcome that hookonce answers by
// itself: status, Retry-After, and the shape of the answer.
func TestAnswersAreTheContracts(t *testing.T) {
	for _, c := range []struct {
		outcome    proxy.Outcome
		status     int
		retryAfter bool
		empty      bool
		level      string
		setup      func(*setup)
		deliver    func(*harness) answer
	}{
		{outcome: proxy.Unreachable, status: 502, level: "ERROR", setup: func(s *setup) { s.address = deadAddress(s.tb) }},
		{outcome: proxy.Unknown, status: 504, level: "ERROR", setup: func(s *setup) { s.UpstreamTimeout = 50 * time.Millisecond },
			deliver: func(h *harness) answer { h.upstream.held(newGate(h.t), 200); return h.deliver("evt_1") }},
		{outcome: proxy.NotReady, status: 503, retryAfter: true, level: "WARN", setup: func(s *setup) { s.Webhooks[0].NotAccepted = []string{"text/x"} },
			deliver: func(h *harness) answer {
				h.upstream.answers(func(w http.ResponseWriter, _ *seen) { w.Header().Set("Content-Type", "text/x") })
				return h.deliver("evt_1")
			}},
		{outcome: proxy.Held, status: 503, retryAfter: true, level: "WARN", setup: func(s *setup) { s.options.Hold = true },
			deliver: func(h *harness) answer {
				if _, err := h.store.real.Claim(h.t.Context(), "evt:evt_1", store.NewToken()); err != nil {
					h.t.Fatal(err)
				}
				h.expire("evt:evt_1")
				return h.deliver("evt_1")
			}},
		{outcome: proxy.Duplicate, status: 200, empty: true, level: "INFO", deliver: func(h *harness) answer { h.deliver("evt_1"); return h.deliver("evt_1") }},
		{outcome: proxy.InFlight, status: 503, retryAfter: true, level: "INFO", setup: func(s *setup) { s.InFlightWait = time.Millisecond },
			deliver: func(h *harness) answer {
				if _, err := h.store.real.Claim(h.t.Context(), "evt:evt_1", store.NewToken()); err != nil {
					h.t.Fatal(err)
				}
				return h.deliver("evt_1")
			}},
		{outcome: proxy.InvalidSignature, status: 401, empty: true, level: "WARN",
			deliver: func(h *harness) answer { return h.deliver("evt_1", "X-Signature", "00") }},
		{outcome: proxy.NoEventID, status: 400, level: "WARN", setup: func(s *setup) { s.Webhooks[0].MissingID = proxy.MissingReject },
			deliver: func(h *harness) answer { return h.do(h.request("POST", path, "{}")) }},
		{outcome: proxy.TooLarge, status: 413, level: "WARN", setup: func(s *setup) { s.MaxBody = 5 }},
		{outcome: proxy.BadRequest, status: 400, level: "WARN", deliver: func(h *harness) answer { return h.do(h.request("POST", "/webhook//pay", "{}")) }},
		{outcome: proxy.Overloaded, status: 503, retryAfter: true, level: "WARN", setup: func(s *setup) { s.MaxBuffered = 5 }},
		{outcome: proxy.StoreUnavailable, status: 503, retryAfter: true, level: "ERROR",
			deliver: func(h *harness) answer { h.store.fails(); return h.deliver("evt_1") }},
	} {
		t.Run(string(c.outcome), func(t *testing.T) {
			h := start(t, func(s *setup) {
				if c.setup != nil {
					c.setup(s)
				}
			})
			var a answer
			if c.deliver == nil {
				a = h.deliver("evt_1")
			} else {
				a = c.deliver(h)
			}
			a.want(t, c.status, c.outcome)
			if got := a.header.Get("Retry-After"); (got == "5") != c.retryAfter {
				t.Errorf("Retry-After %q", got)
			}
			if c.empty {
				if a.body != "" || a.header.Get("Content-Type") != "" {
					t.Errorf("the answer is not empty: %q, %q", a.body, a.header.Get("Content-Type"))
				}
			} else {
				problem(t, a)
			}
			if line := h.logged(c.outcome); line["status"] != float64(c.status) || line["level"] != c.level {
				t.Errorf("log line %v", line)
			}
			h.inFlight(0)
			if n := h.outcomes(c.outcome); n != 1 {
				t.Errorf("counted %v times", n)
			}
		})
	}
}

// problem checks a problem document (RFC 9457) and that it names no internals.
func problem(t *testing.T, a answer) {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal([]byte(a.body), &doc); err != nil {
		t.Fatalf("%v: %q", err, a.body)
	}
	if got := slices.Sorted(maps.Keys(doc)); !cmp.Equal(got, []string{"detail", "status", "title", "type"}) || doc["status"] != float64(a.status) || doc["detail"] == "" {
		t.Errorf("problem %v", doc)
	}
	if a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("type %q", a.header.Get("Content-Type"))
	}
	for _, internal := range []string{"127.0.0.1", "dial", "sqlite", "injected", "evt_1", "postgres", "goroutine"} {
		if strings.Contains(a.body, internal) {
			t.Errorf("the answer names %s: %s", internal, a.body)
		}
	}
}

func TestInvalidSignatureSaysWhyInLogAndMetricOnly(t *testing.T) {
	for reason, r := range map[string]func(*harness) *http.Request{
		"missing": func(h *harness) *http.Request {
			r := h.request("POST", path, "{}")
			r.Header.Del("Stripe-Signature")
			return r
		},
		"malformed": func(h *harness) *http.Request { return h.request("POST", path, "{}", "Stripe-Signature", "nonsense") },
		"mismatch":  func(h *harness) *http.Request { return stripe(h, "{}", time.Now(), "other") },
		"too_old":   func(h *harness) *http.Request { return stripe(h, "{}", time.Now().Add(-time.Hour), secret) },
		"too_new":   func(h *harness) *http.Request { return stripe(h, "{}", time.Now().Add(time.Hour), secret) },
	} {
		t.Run(reason, func(t *testing.T) {
			h := start(t, func(s *setup) { s.Webhooks[0] = provided(t, "default", path, "stripe", secret) })
			a := h.do(r(h))
			a.want(t, http.StatusUnauthorized, proxy.InvalidSignature)
			if strings.Contains(fmt.Sprint(a), reason) {
				t.Errorf("the answer says why: %v", a)
			}
			if line := h.logged(proxy.InvalidSignature); line["reason"] != reason {
				t.Errorf("the log says %v", line)
			}
			if n := h.metric("hookonce_signature_failures_total", "reason", reason); n != 1 {
				t.Errorf("counted %v times", n)
			}
			h.runs(0)
			if n := h.store.count("claim"); n != 0 {
				t.Errorf("%d claims", n)
			}
		})
	}
}

// stripe is a delivery as Stripe signs it.
func stripe(h *harness, body string, at time.Time, secret string) *http.Request {
	p, _ := webhook.Lookup("stripe")
	v, err := p.NewVerifier([]string{secret}, webhook.Options{})
	if err != nil {
		h.t.Fatal(err)
	}
	signed := webhook.Request{Method: "POST", Target: path, Header: http.Header{}, Body: []byte(body)}
	if err := v.Sign(&signed, "", at); err != nil {
		h.t.Fatal(err)
	}
	r := h.request("POST", path, body)
	maps.Copy(r.Header, signed.Header)
	return r
}

func TestInvalidStatusIsTheWebhooks(t *testing.T) {
	h := start(t, func(s *setup) { s.Webhooks[0].InvalidStatus = http.StatusServiceUnavailable })
	h.deliver("evt_1", "X-Signature", "00").want(t, http.StatusServiceUnavailable, proxy.InvalidSignature)
}

func TestPublicURLIsWhatTheSignatureIsCheckedAgainst(t *testing.T) {
	p, _ := webhook.Lookup("hmac")
	v, err := p.NewVerifier([]string{secret}, webhook.Options{HMAC: webhook.HMACOptions{Signed: "{url}{body}"}})
	if err != nil {
		t.Fatal(err)
	}
	h := start(t, func(s *setup) {
		s.Webhooks[0].PublicURL, s.Webhooks[0].Verifier = "https://hook.example/prefix", func() *webhook.Verifier { return v }
	})
	body := event("evt_1")
	for _, target := range []string{path, path + "?", path + "?a=%2F"} {
		r := h.request("POST", target, body, "X-Signature", signature("https://hook.example/prefix"+target+body))
		if target == path+"?" {
			r.URL.ForceQuery = true
		}
		if a := h.do(r); a.status != http.StatusOK {
			t.Errorf("%s: %d", target, a.status)
		}
	}
}

func TestHandshakes(t *testing.T) {
	type answered struct {
		status  int
		outcome proxy.Outcome
		runs    int
	}
	asana := func(h *harness) *http.Request { return h.request("POST", path, "{}", "X-Hook-Secret", "abc") }
	ping := func(h *harness) *http.Request {
		return h.request("POST", path, "webhook_id=1", "Content-Type", "application/x-www-form-urlencoded")
	}
	slack := func(secret string) func(h *harness) *http.Request {
		return func(h *harness) *http.Request {
			p, _ := webhook.Lookup("slack")
			v, err := p.NewVerifier([]string{secret}, webhook.Options{})
			if err != nil {
				h.t.Fatal(err)
			}
			body := `{"type":"url_verification","challenge":"x"}`
			signed := webhook.Request{Method: "POST", Target: path, Header: http.Header{}, Body: []byte(body)}
			if err := v.Sign(&signed, "", time.Now()); err != nil {
				h.t.Fatal(err)
			}
			r := h.request("POST", path, body)
			maps.Copy(r.Header, signed.Header)
			return r
		}
	}
	for name, c := range map[string]struct {
		provider string
		secret   string
		open     bool
		request  func(*harness) *http.Request
		want     answered
	}{
		"open":                     {"asana", "", true, asana, answered{200, proxy.Handshake, 1}},
		"not open":                 {"asana", secret, false, asana, answered{401, proxy.InvalidSignature, 0}},
		"answered":                 {"woocommerce", secret, false, ping, answered{200, proxy.Handshake, 0}},
		"answered, open":           {"woocommerce", secret, true, ping, answered{200, proxy.Handshake, 1}},
		"signed":                   {"slack", secret, false, slack(secret), answered{200, proxy.Handshake, 1}},
		"signed, wrongly":          {"slack", secret, true, slack("other"), answered{401, proxy.InvalidSignature, 0}},
		"no secret, no handshake":  {"asana", "", true, func(h *harness) *http.Request { return h.request("POST", path, event("evt_1")) }, answered{401, proxy.InvalidSignature, 0}},
		"of another provider":      {"hmac", secret, true, func(h *harness) *http.Request { r := asana(h); r.Header.Del("X-Signature"); return r }, answered{401, proxy.InvalidSignature, 0}},
		"with more than its shape": {"asana", secret, true, func(h *harness) *http.Request { return h.request("POST", path, event("evt_1"), "X-Hook-Secret", "abc") }, answered{401, proxy.InvalidSignature, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, func(s *setup) {
				s.Webhooks[0] = provided(t, "default", path, c.provider, c.secret)
				s.Webhooks[0].OpenHandshake = c.open
			})
			for range 2 { // the application must answer each one
				a := h.do(c.request(h))
				a.want(t, c.want.status, c.want.outcome)
				if a.body != "" {
					t.Errorf("body %q", a.body)
				}
			}
			h.runs(2 * c.want.runs)
			if n := h.store.count("claim"); n != 0 {
				t.Errorf("%d claims", n)
			}
		})
	}
}

func TestLogLineHasTheseFieldsAndNoOther(t *testing.T) {
	h := start(t)
	h.deliver("evt_1")
	h.deliver("evt_1")
	h.deliver("evt_2", "X-Signature", "00")
	h.settled()
	for outcome, want := range map[proxy.Outcome][]string{
		proxy.Forwarded:        {"attempt", "duration", "key", "level", "msg", "outcome", "status", "time", "webhook"},
		proxy.Duplicate:        {"duration", "key", "level", "msg", "outcome", "status", "time", "webhook"},
		proxy.InvalidSignature: {"duration", "error", "level", "msg", "outcome", "reason", "status", "time", "webhook"},
	} {
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(h.logged(outcome)))); diff != "" {
			t.Errorf("%s: %s", outcome, diff)
		}
	}
	if n := strings.Count(h.logs.text(), `"msg":"delivery"`); n != 3 {
		t.Errorf("%d lines for 3 deliveries", n)
	}
}

func TestQuietLogLevelIsKept(t *testing.T) {
	h := start(t, func(s *setup) { s.level = slog.LevelError })
	h.deliver("evt_1")
	h.deliver("evt_1", "X-Signature", "00")
	h.settled()
	if h.logs.text() != "" {
		t.Error(h.logs.text())
	}
}

func TestNothingConfidentialIsLoggedAtDebugLevel(t *testing.T) {
	h := start(t, func(s *setup) {
		s.Webhooks = append(s.Webhooks, provided(t, "stripe", "/webhook/stripe", "stripe", secret))
	})
	const private = "4200-private"
	body := `{"id":"evt_1","card":"` + private + `"}`
	sign := signature(body)
	for _, target := range []string{path, "/webhook/stripe", "/Webhook/pay", "/elsewhere"} {
		query := "?token=" + private
		h.do(h.request("POST", target+query, body, "X-Private", private))
		h.do(h.request("POST", target+query, body, "X-Signature", sign[:60]+"beef", "Stripe-Signature", "t=1,v1="+sign))
		h.do(h.request("POST", target+query, body, "X-Signature", private, "Stripe-Signature", private))
	}
	h.upstream.answers(func(http.ResponseWriter, *seen) { panic(http.ErrAbortHandler) })
	h.do(h.request("POST", path+"?token="+private, `{"id":"evt_2","card":"`+private+`"}`))
	h.do(h.request("POST", "/elsewhere?token="+private, body))
	h.settled()
	text := h.logs.text()
	for _, s := range []string{private, secret, sign, sign[:32], "token="} {
		if strings.Contains(text, s) {
			t.Errorf("%q is in the log:\n%s", s, text)
		}
	}
	if !strings.Contains(text, "passing through failed") {
		t.Error("the failure is not in the log")
	}
}

// TestEveryDeliveryEndsInOneOutcome lets chance choose events, faults and
// answers, and counts.
func TestEveryDeliveryEndsInOneOutcome(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	roll := func(n int) int { mu.Lock(); defer mu.Unlock(); return dice.IntN(n) }

	h := start(t, func(s *setup) { s.InFlightWait, s.UpstreamTimeout = 20*time.Millisecond, 40*time.Millisecond })
	var completed sync.Map // ids that the upstream has answered 2xx
	h.upstream.answers(func(w http.ResponseWriter, s *seen) {
		id := s.Header.Get("Hookonce-Key")
		if id == "" { // not claimed, so it may run as often as it comes
			return
		}
		switch roll(6) {
		case 0:
			w.WriteHeader(http.StatusInternalServerError)
		case 1:
			panic(http.ErrAbortHandler)
		case 2:
			select {
			case <-time.After(60 * time.Millisecond): // late
			case <-s.Context().Done():
			}
			fallthrough
		default:
			if _, before := completed.LoadOrStore(id, true); before {
				// Late and cut off by the second timeout is unknown, and may
				// rightly run again; anything else may not.
				if s.Header.Get("Hookonce-Prior-Outcome") != "unknown" {
					t.Errorf("%s ran again, and was told %q", id, s.Header.Get("Hookonce-Prior-Outcome"))
				}
			}
			w.WriteHeader(http.StatusNoContent)
		}
	})
	for _, operation := range []string{"claim", "complete", "release", "end_lease"} {
		h.store.set(operation, func(string) error {
			if roll(8) == 0 {
				return errDown
			}
			return nil
		}, func(string) error {
			if operation == "claim" && roll(16) == 0 {
				return fmt.Errorf("%w: injected", store.ErrUncertain)
			}
			return nil
		})
	}
	const senders, each = 16, 40
	var wg sync.WaitGroup
	for range senders {
		wg.Go(func() {
			for range each {
				id := fmt.Sprintf("evt_%d", roll(60))
				switch roll(8) {
				case 0:
					h.deliver(id, "X-Signature", "00")
				case 1:
					h.do(h.request("POST", path, "{}"))
				default:
					if a := h.deliver(id); a.status/100 == 2 {
						if _, ran := completed.Load("evt:" + id); !ran {
							t.Errorf("%s was answered %d %s, and never ran", id, a.status, a.outcome())
						}
					}
				}
			}
		})
	}
	wg.Wait()
	h.store.setAll(nil)
	h.settled()
	if got := h.metric("hookonce_deliveries_total"); got != senders*each {
		t.Errorf("%v outcomes of %d deliveries", got, senders*each)
	}
	if got := h.metric("hookonce_delivery_duration_seconds"); got != senders*each {
		t.Errorf("%v durations of %d deliveries", got, senders*each)
	}
	if n := strings.Count(h.logs.text(), `"msg":"delivery"`); n != senders*each {
		t.Errorf("%d log lines of %d deliveries", n, senders*each)
	}
	if n := h.metric("hookonce_deliveries_in_flight"); n != 0 {
		t.Errorf("%v in flight", n)
	}
	// Each key is free again: whatever was not settled would block.
	h.upstream.answers(nil)
	for i := range 60 {
		if a := h.deliver(fmt.Sprintf("evt_%d", i)); a.status/100 != 2 {
			t.Errorf("evt_%d is blocked: %d %s", i, a.status, a.outcome())
		}
	}
}

func TestDrainWaitsForWhatIsOpen(t *testing.T) {
	h := start(t)
	g := newGate(t)
	h.upstream.held(g, http.StatusOK)
	a := h.begin("evt_1")
	await(t, h.upstream.arrived, "the delivery")
	if d, s := h.handler.Drain(cancelled()); d != 1 || s != 0 {
		t.Errorf("%d deliveries and %d settlements are open, want 1 and 0", d, s)
	}
	h.store.fails("complete")
	g.open()
	await(t, a, "the answer")
	h.inFlight(0)
	h.store.await(t, "complete", 2)
	if d, s := h.handler.Drain(cancelled()); d != 0 || s != 1 {
		t.Errorf("%d deliveries and %d settlements are open, want 0 and 1", d, s)
	}
	h.store.set("complete", nil, nil)
	h.settled()
}

func TestPanicInTheStoreLeavesNoFlightBehind(t *testing.T) {
	h := start(t)
	h.store.set("complete", func(string) error { panic(errors.New("injected")) }, nil)
	h.deliver("evt_1")
	h.inFlight(0)
	if n := h.outcomes(proxy.Unknown); n != 1 {
		t.Errorf("%v unknown", n)
	}
}
