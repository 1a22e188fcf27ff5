package proxy_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/hookonce/hookonce/proxy"
	"github.com/hookonce/hookonce/store"
)

func TestNewEventIsForwardedAndCompleted(t *testing.T) {
	h := start(t)
	h.upstream.answers(func(w http.ResponseWriter, _ *seen) {
		w.Header().Set("X-App", "yes")
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, "taken")
	})
	a := h.deliver("evt_1")
	a.want(t, http.StatusAccepted, proxy.Forwarded)
	if a.body != "taken" || a.header.Get("X-App") != "yes" {
		t.Errorf("the upstream's answer did not come through: %q %v", a.body, a.header)
	}
	h.known("evt:evt_1", store.Done)
	if e := h.event("evt:evt_1"); e.Status == nil || *e.Status != http.StatusAccepted {
		t.Errorf("recorded status %v, want 202", e.Status)
	}
	if got := string(h.upstream.requests()[0].body); got != event("evt_1") {
		t.Errorf("the upstream got %q", got)
	}
}

func TestDuplicateIsNotForwarded(t *testing.T) {
	h := start(t)
	h.deliver("evt_1")
	a := h.deliver("evt_1")
	a.want(t, http.StatusOK, proxy.Duplicate)
	if a.body != "" || a.header.Get("Content-Type") != "" || a.header.Get("Content-Length") != "0" {
		t.Errorf("a duplicate's answer is not empty: %q %v", a.body, a.header)
	}
	h.runs(1)
}

func TestDuplicateIsAnsweredAsTheWebhookSays(t *testing.T) {
	h := start(t, func(s *setup) {
		w := s.Webhooks[0]
		w.DuplicateStatus, w.DuplicateBody, w.DuplicateContentType = http.StatusAccepted, "[accepted]", "text/plain"
	})
	h.deliver("evt_1")
	a := h.deliver("evt_1")
	a.want(t, http.StatusAccepted, proxy.Duplicate)
	if a.body != "[accepted]" || a.header.Get("Content-Type") != "text/plain" {
		t.Errorf("answer %q, type %q", a.body, a.header.Get("Content-Type"))
	}
}

func TestDuplicateWithoutContentHasNoLength(t *testing.T) { // RFC 9110, section 8.6
	h := start(t, func(s *setup) { s.Webhooks[0].DuplicateStatus = http.StatusNoContent })
	h.deliver("evt_1")
	a := h.deliver("evt_1")
	a.want(t, http.StatusNoContent, proxy.Duplicate)
	if _, ok := a.header["Content-Length"]; ok {
		t.Error("an answer 204 has a Content-Length")
	}
}

func TestInFlightDeliveryWaitsForTheOutcome(t *testing.T) {
	h := start(t)
	g := newGate(t)
	h.upstream.held(g, http.StatusOK)
	first := h.begin("evt_1")
	await(t, h.upstream.arrived, "the first delivery")
	second := h.begin("evt_1")
	h.inFlight(2)
	select {
	case a := <-second:
		t.Fatalf("the second was answered %d while the first had no outcome", a.status)
	default:
	}
	g.open()
	await(t, first, "the first answer").want(t, http.StatusOK, proxy.Forwarded)
	await(t, second, "the second answer").want(t, http.StatusOK, proxy.Duplicate)
	h.runs(1)
}

// inFlight waits until so many deliveries are under way. The gauge is the only
// sign of a delivery that waits, so this looks at it until it says so.
func (h *harness) inFlight(want int) {
	h.t.Helper()
	timeout := time.After(patience)
	for h.metric("hookonce_deliveries_in_flight") != float64(want) {
		select {
		case <-timeout:
			h.t.Fatalf("%v deliveries are in flight, want %d", h.metric("hookonce_deliveries_in_flight"), want)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestInFlightDeliveryGoesOnWhenTheFirstIsReleased(t *testing.T) {
	h := start(t)
	g := newGate(t)
	var once sync.Once
	h.upstream.answers(func(w http.ResponseWriter, _ *seen) {
		status := http.StatusOK
		once.Do(func() { <-g.c; status = http.StatusInternalServerError })
		w.WriteHeader(status)
	})
	first := h.begin("evt_1")
	await(t, h.upstream.arrived, "the first delivery")
	second := h.begin("evt_1")
	h.inFlight(2)
	g.open()
	await(t, first, "the first answer").want(t, http.StatusInternalServerError, proxy.Released)
	await(t, second, "the second answer").want(t, http.StatusOK, proxy.Forwarded)
	h.runs(2)
}

func TestInFlightDeliveryIsTold503WhenTheWaitEnds(t *testing.T) {
	h := start(t, func(s *setup) { s.InFlightWait = 20 * time.Millisecond })
	g := newGate(t)
	h.upstream.held(g, http.StatusOK)
	first := h.begin("evt_1")
	await(t, h.upstream.arrived, "the first delivery")
	a := h.deliver("evt_1")
	a.want(t, http.StatusServiceUnavailable, proxy.InFlight)
	if a.header.Get("Retry-After") != "5" {
		t.Errorf("Retry-After %q, want 5", a.header.Get("Retry-After"))
	}
	g.open()
	await(t, first, "the first answer")
	h.runs(1)
}

// replica starts another process on the same store and upstream.
func replica(t testing.TB, h *harness, changes ...func(*setup)) *harness {
	t.Helper()
	return start(t, append([]func(*setup){func(s *setup) { s.shared = h }}, changes...)...)
}

func TestAnotherReplicaWaitsForTheOutcome(t *testing.T) {
	h := start(t)
	other := replica(t, h)
	g := newGate(t)
	h.upstream.held(g, http.StatusOK)
	first := h.begin("evt_1")
	await(t, h.upstream.arrived, "the first delivery")
	second := other.begin("evt_1")
	other.store.await(t, "claim", 2)
	g.open()
	await(t, first, "the first answer").want(t, http.StatusOK, proxy.Forwarded)
	await(t, second, "the second answer").want(t, http.StatusOK, proxy.Duplicate)
	h.runs(1)
}

func TestAnotherReplicaIsTold503WhenTheWaitEnds(t *testing.T) {
	h := start(t)
	other := replica(t, h, func(s *setup) { s.InFlightWait = 20 * time.Millisecond })
	g := newGate(t)
	h.upstream.held(g, http.StatusOK)
	first := h.begin("evt_1")
	await(t, h.upstream.arrived, "the first delivery")
	other.deliver("evt_1").want(t, http.StatusServiceUnavailable, proxy.InFlight)
	g.open()
	await(t, first, "the first answer")
	h.runs(1)
}

func TestAnotherReplicaGoesOnWhenTheFirstIsReleased(t *testing.T) {
	h := start(t)
	other := replica(t, h)
	g := newGate(t)
	h.upstream.held(g, http.StatusInternalServerError)
	first := h.begin("evt_1")
	await(t, h.upstream.arrived, "the first delivery")
	second := other.begin("evt_1")
	other.store.await(t, "claim", 2)
	g.open()
	await(t, first, "the first answer").want(t, http.StatusInternalServerError, proxy.Released)
	await(t, second, "the second answer").want(t, http.StatusInternalServerError, proxy.Released)
	h.runs(2)
}

func TestCrashedReplicasClaimIsTakenOver(t *testing.T) {
	h := start(t)
	if _, err := h.store.real.Claim(context.Background(), "evt:evt_1", store.NewToken()); err != nil {
		t.Fatal(err)
	}
	h.expire("evt:evt_1")
	h.deliver("evt_1").want(t, http.StatusOK, proxy.Forwarded)
	got := h.upstream.requests()[0].Header
	if got.Get("Hookonce-Prior-Outcome") != "unknown" || got.Get("Hookonce-Attempt") != "2" {
		t.Errorf("the application was told prior %q, attempt %q; want unknown, 2", got.Get("Hookonce-Prior-Outcome"), got.Get("Hookonce-Attempt"))
	}
	if n := h.metric("hookonce_leases_expired_total", "webhook", "default"); n != 1 {
		t.Errorf("%v leases expired, want 1", n)
	}
}

func TestCrashedReplicasClaimIsHeldForAPerson(t *testing.T) {
	h := start(t, func(s *setup) { s.options.Hold = true })
	if _, err := h.store.real.Claim(context.Background(), "evt:evt_1", store.NewToken()); err != nil {
		t.Fatal(err)
	}
	h.expire("evt:evt_1")
	a := h.deliver("evt_1")
	a.want(t, http.StatusServiceUnavailable, proxy.Held)
	if a.header.Get("Retry-After") != "5" {
		t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
	}
	h.runs(0)
}

func TestPersonsDecisionEndsAHeldEvent(t *testing.T) {
	for name, c := range map[string]struct {
		decide  func(*harness) error
		outcome proxy.Outcome
		runs    int
	}{
		"release": {func(h *harness) error { return h.store.real.ReleaseEvent(context.Background(), "evt:evt_1", false) }, proxy.Forwarded, 1},
		"complete": {func(h *harness) error { return h.store.real.CompleteEvent(context.Background(), "evt:evt_1", false) },
			proxy.Duplicate, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, func(s *setup) { s.options.Hold = true })
			if _, err := h.store.real.Claim(context.Background(), "evt:evt_1", store.NewToken()); err != nil {
				t.Fatal(err)
			}
			h.expire("evt:evt_1")
			if err := c.decide(h); err != nil {
				t.Fatal(err)
			}
			h.deliver("evt_1").want(t, http.StatusOK, c.outcome)
			h.runs(c.runs)
			if c.runs == 1 && h.upstream.requests()[0].Header.Get("Hookonce-Prior-Outcome") == "none" {
				t.Error("the application was told that nothing had run")
			}
		})
	}
}

func TestPassedEventRunsOnceMoreAndIsToldSo(t *testing.T) {
	h := start(t)
	h.deliver("evt_1")
	if err := h.store.real.PassEvent(context.Background(), "evt:evt_1"); err != nil {
		t.Fatal(err)
	}
	h.deliver("evt_1").want(t, http.StatusOK, proxy.Forwarded)
	h.deliver("evt_1").want(t, http.StatusOK, proxy.Duplicate)
	h.runs(2)
	if got := h.upstream.requests()[1].Header.Get("Hookonce-Prior-Outcome"); got != "done" {
		t.Errorf("prior outcome %q, want done", got)
	}
}

func TestSimultaneousDeliveriesRunOnce(t *testing.T) {
	h := start(t)
	g := newGate(t)
	h.upstream.held(g, http.StatusOK)
	const deliveries = 64
	answers := make([]<-chan answer, deliveries)
	for i := range answers {
		answers[i] = h.begin("evt_1")
	}
	h.inFlight(deliveries)
	for i, a := range answers {
		select {
		case got := <-a:
			t.Fatalf("delivery %d was answered %d before the event had run", i, got.status)
		default:
		}
	}
	g.open()
	for _, a := range answers {
		if got := await(t, a, "an answer"); got.status != http.StatusOK {
			t.Errorf("answer %d %s", got.status, got.outcome())
		}
	}
	h.runs(1)
	h.settled()
	if f, d := h.outcomes(proxy.Forwarded), h.outcomes(proxy.Duplicate); f != 1 || d != deliveries-1 {
		t.Errorf("%v forwarded and %v duplicates", f, d)
	}
}

func TestStormInOneProcessAsksTheStoreOnce(t *testing.T) {
	h := start(t)
	g := newGate(t)
	h.upstream.held(g, http.StatusOK)
	var answers []<-chan answer
	for range 16 {
		answers = append(answers, h.begin("evt_1"))
	}
	h.inFlight(16)
	g.open()
	for _, a := range answers {
		await(t, a, "an answer")
	}
	if n := h.store.count("claim"); n != 1 {
		t.Errorf("the store was asked %d times for one key", n)
	}
}

func TestSenderThatLeavesWhileWaitingClaimsNothing(t *testing.T) {
	h := start(t)
	g := newGate(t)
	h.upstream.held(g, http.StatusInternalServerError)
	first := h.begin("evt_1")
	await(t, h.upstream.arrived, "the first delivery")
	ctx, leave := context.WithCancel(context.Background())
	gone := make(chan answer, 1)
	r := h.request("POST", path, event("evt_1")).WithContext(ctx)
	go func() { gone <- h.do(r) }()
	h.inFlight(2)
	leave()
	await(t, gone, "the leaving")
	line := h.logged(proxy.ClientGone)
	if line["status"] != float64(499) {
		t.Errorf("status %v in the log, want 499", line["status"])
	}
	g.open()
	await(t, first, "the first answer")
	h.settled()
	h.runs(1)
	h.known("evt:evt_1", "")
	if n := h.outcomes(proxy.ClientGone); n != 1 {
		t.Errorf("%v client_gone", n)
	}
}

func TestSenderThatLeavesWhileAnotherReplicaWorksClaimsNothing(t *testing.T) {
	h := start(t)
	token := store.NewToken()
	if _, err := h.store.real.Claim(context.Background(), "evt:evt_1", token); err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(context.Background())
	gone := make(chan answer, 1)
	r := h.request("POST", path, event("evt_1")).WithContext(ctx)
	go func() { gone <- h.do(r) }()
	h.store.await(t, "claim", 1)
	leave()
	await(t, gone, "the leaving")
	h.logged(proxy.ClientGone)
	if err := h.store.real.Release(context.Background(), "evt:evt_1", token); err != nil {
		t.Error("the claim of the other replica was touched:", err)
	}
	h.runs(0)
}

func TestKeysAreScopedByWebhookAndPath(t *testing.T) {
	named := func(name string) func(*proxy.Webhook) { return func(w *proxy.Webhook) { w.Namespace = name } }
	cases := []struct {
		hook   func(testing.TB) *proxy.Webhook
		target string
		key    string
	}{
		{func(t testing.TB) *proxy.Webhook { return hook(t, "default", "/w") }, "/w", "evt:evt_1"},
		{func(t testing.TB) *proxy.Webhook { return hook(t, "github", "/w", named("github")) }, "/w", "github/evt:evt_1"},
		{func(t testing.TB) *proxy.Webhook { return hook(t, "default", "/w/") }, "/w/billing", "billing/evt:evt_1"},
		{func(t testing.TB) *proxy.Webhook { return hook(t, "default", "/w/") }, "/w/", "evt:evt_1"},
		{func(t testing.TB) *proxy.Webhook { return hook(t, "n", "/w/", named("n")) }, "/w/billing", "n/billing/evt:evt_1"},
	}
	for _, c := range cases {
		t.Run(c.key, func(t *testing.T) {
			h := start(t, func(s *setup) { s.Webhooks = []*proxy.Webhook{c.hook(t)} })
			h.do(h.request("POST", c.target, event("evt_1"))).want(t, http.StatusOK, proxy.Forwarded)
			h.known(c.key, store.Done)
			if got := h.upstream.requests()[0].Header.Get("Hookonce-Key"); got != c.key {
				t.Errorf("Hookonce-Key %q, want %q", got, c.key)
			}
		})
	}
}

func TestSameEventRunsAtEachPathOfASubtree(t *testing.T) {
	h := start(t, func(s *setup) { s.Webhooks = []*proxy.Webhook{hook(t, "default", "/w/")} })
	for _, target := range []string{"/w/a/b", "/w/a%2Fb", "/w/a"} {
		h.do(h.request("POST", target, event("evt_1"))).want(t, http.StatusOK, proxy.Forwarded)
		h.do(h.request("POST", target, event("evt_1"))).want(t, http.StatusOK, proxy.Duplicate)
	}
	h.runs(3)
}

func TestDeliveryWithoutAnIDIsKnownByItsBody(t *testing.T) {
	h := start(t)
	for _, outcome := range []proxy.Outcome{proxy.Forwarded, proxy.Duplicate} {
		h.do(h.request("POST", path, `{"amount":1}`)).want(t, http.StatusOK, outcome)
	}
	h.known("sha256:"+sha("{\"amount\":1}"), store.Done)
}

func TestMissingIDCanBeForwardedOrRejected(t *testing.T) {
	for rule, want := range map[proxy.MissingID]struct {
		status  int
		outcome proxy.Outcome
	}{
		proxy.MissingForward: {http.StatusOK, proxy.Unkeyed},
		proxy.MissingReject:  {http.StatusBadRequest, proxy.NoEventID},
	} {
		t.Run(string(rule), func(t *testing.T) {
			h := start(t, func(s *setup) { s.Webhooks[0].MissingID = rule })
			for range 2 {
				h.do(h.request("POST", path, `{"amount":1}`)).want(t, want.status, want.outcome)
			}
			if n := h.store.count("claim"); n != 0 {
				t.Errorf("%d claims for what has no id", n)
			}
		})
	}
}

func TestNothingInTheBodyIsForwardedUnclaimed(t *testing.T) {
	h := start(t)
	for _, body := range []string{"", " \n", "{}", "[]", " { } "} {
		h.do(h.request("POST", path, body)).want(t, http.StatusOK, proxy.Unkeyed)
	}
	if n := h.store.count("claim"); n != 0 {
		t.Errorf("%d claims", n)
	}
	h.runs(5)
}

func TestNothingInTheBodyIsRejectedWhereIDsAreNeeded(t *testing.T) {
	h := start(t, func(s *setup) { s.Webhooks[0].MissingID = proxy.MissingReject })
	h.do(h.request("POST", path, "{}")).want(t, http.StatusBadRequest, proxy.NoEventID)
	h.runs(0)
}

func TestEventIDNoneIsNeverDeduplicated(t *testing.T) {
	h := start(t, func(s *setup) { s.Webhooks[0].Key = keyRule(t, "none") })
	for range 2 {
		a := h.deliver("evt_1")
		a.want(t, http.StatusOK, proxy.Unkeyed)
	}
	h.runs(2)
	got := h.upstream.requests()[0].Header
	for _, name := range []string{"Hookonce-Key", "Hookonce-Attempt", "Hookonce-Prior-Outcome", "Idempotency-Key"} {
		if got.Get(name) != "" {
			t.Errorf("an unclaimed delivery has %s: %q", name, got.Get(name))
		}
	}
}
