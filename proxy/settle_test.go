package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hookonce/hookonce/proxy"
	"github.com/hookonce/hookonce/store"
)

// deadAddress is an address where nobody listens.
func deadAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestNoByteOfTheAnswerBeforeItIsRecorded(t *testing.T) {
	h := start(t)
	g := newGate(t)
	h.store.set("complete", func(string) error { <-g.c; return nil }, nil)
	r := h.request("POST", path, event("evt_1"))
	conn := h.dial()
	defer conn.Close()
	if err := r.Write(conn); err != nil {
		t.Fatal(err)
	}
	h.store.await(t, "complete", 1) // the upstream has answered 200 by now
	conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := conn.Read(make([]byte, 1)); n > 0 {
		t.Fatal("the sender was answered before the completion was recorded")
	} else if !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "timeout") {
		t.Fatal(err)
	}
	g.open()
	conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	h.known("evt:evt_1", store.Done)
}

func TestAnswerThatIsNo2xxGivesTheKeyBack(t *testing.T) {
	for _, status := range []int{301, 304, 400, 404, 410, 429, 500, 503} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			h := start(t)
			h.upstream.answers(func(w http.ResponseWriter, _ *seen) {
				w.Header().Set("Retry-After", "77")
				w.WriteHeader(status)
			})
			a := h.deliver("evt_1")
			a.want(t, status, proxy.Released)
			if a.header.Get("Retry-After") != "77" {
				t.Error("the upstream's Retry-After did not come through")
			}
			h.known("evt:evt_1", "")
			h.upstream.status(http.StatusOK)
			h.deliver("evt_1").want(t, http.StatusOK, proxy.Forwarded)
			if got := h.upstream.requests()[1].Header.Get("Hookonce-Prior-Outcome"); got != "none" {
				t.Errorf("prior outcome %q after a release, want none", got)
			}
		})
	}
}

func TestReleaseOnNarrowedKeepsTheKey(t *testing.T) {
	h := start(t, func(s *setup) {
		s.Webhooks[0].ReleaseOn = func(status int) bool { return status >= 500 }
	})
	h.upstream.status(http.StatusNotFound)
	h.deliver("evt_1").want(t, http.StatusNotFound, proxy.Kept)
	h.known("evt:evt_1", store.Done)
	h.deliver("evt_1").want(t, http.StatusOK, proxy.Duplicate)
	h.upstream.status(http.StatusBadGateway)
	h.deliver("evt_2").want(t, http.StatusBadGateway, proxy.Released)
}

func TestRefusedConnectionIsUnreachableAndReleased(t *testing.T) {
	h := start(t, func(s *setup) { s.address = deadAddress(t) })
	a := h.deliver("evt_1")
	a.want(t, http.StatusBadGateway, proxy.Unreachable)
	h.known("evt:evt_1", "")
	if strings.Contains(a.body, "127.0.0.1") {
		t.Errorf("the answer names internals: %s", a.body)
	}
}

func TestUnknownHostIsUnreachableAndReleased(t *testing.T) {
	h := start(t, func(s *setup) { s.address = "upstream.invalid:80" }) // RFC 6761: never resolves
	h.deliver("evt_1").want(t, http.StatusBadGateway, proxy.Unreachable)
	h.known("evt:evt_1", "")
}

func TestFailedTLSHandshakeIsUnreachableAndReleased(t *testing.T) {
	h := start(t, func(s *setup) { s.Upstream = plainAsTLS(t) })
	h.deliver("evt_1").want(t, http.StatusBadGateway, proxy.Unreachable)
	h.known("evt:evt_1", "")
}

func TestConnectionResetAfterTheRequestIsUnknown(t *testing.T) {
	w := newWire(t)
	h := start(t, func(s *setup) { s.address = w.address() })
	first := h.begin("evt_1")
	r, c := w.accept()
	head(t, r)
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
	await(t, first, "the answer").want(t, http.StatusBadGateway, proxy.Unknown)
	h.known("evt:evt_1", store.Unknown)

	second := h.begin("evt_1")
	r, c = w.accept()
	if got := head(t, r); !strings.Contains(got, "Hookonce-Prior-Outcome: unknown\r\n") || !strings.Contains(got, "Hookonce-Attempt: 2\r\n") {
		t.Errorf("the next attempt was not told: %s", got)
	}
	io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	await(t, second, "the second answer").want(t, http.StatusOK, proxy.Forwarded)
}

func TestReleaseAfterAnUnknownAttemptForgetsNothing(t *testing.T) {
	w := newWire(t)
	h := start(t, func(s *setup) { s.address = w.address() })
	for _, answer := range []string{"", "HTTP/1.1 500 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"} {
		a := h.begin("evt_1")
		r, c := w.accept()
		head(t, r)
		io.WriteString(c, answer)
		c.Close()
		await(t, a, "the answer")
	}
	h.known("evt:evt_1", store.Unknown)
}

func TestAnswerBrokenOffBeforeItsStatusIsUnknown(t *testing.T) {
	w := newWire(t)
	h := start(t, func(s *setup) { s.address = w.address() })
	a := h.begin("evt_1")
	r, c := w.accept()
	head(t, r)
	io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 20") // a 1xx is no answer
	c.Close()
	await(t, a, "the answer").want(t, http.StatusBadGateway, proxy.Unknown)
	h.known("evt:evt_1", store.Unknown)
}

func TestUnknownIsHeldWhereTheOperatorSaysSo(t *testing.T) {
	w := newWire(t)
	h := start(t, func(s *setup) { s.address, s.options.Hold = w.address(), true })
	a := h.begin("evt_1")
	r, c := w.accept()
	head(t, r)
	c.Close()
	await(t, a, "the answer").want(t, http.StatusBadGateway, proxy.Unknown)
	h.known("evt:evt_1", store.Held)
	h.deliver("evt_1").want(t, http.StatusServiceUnavailable, proxy.Held)
}

// late is a harness whose upstream answers only after UPSTREAM_TIMEOUT, with
// the status, once the gate is open.
func late(t *testing.T, status int) (*harness, *gate) {
	h := start(t, func(s *setup) { s.UpstreamTimeout = 500 * time.Millisecond; s.InFlightWait = 10 * time.Millisecond })
	g := newGate(t)
	h.upstream.held(g, status)
	a := h.deliver("evt_1")
	a.want(t, http.StatusGatewayTimeout, proxy.Unknown)
	return h, g
}

func TestLate2xxCompletes(t *testing.T) {
	h, g := late(t, http.StatusOK)
	g.open()
	h.settled()
	h.known("evt:evt_1", store.Done)
	h.deliver("evt_1").want(t, http.StatusOK, proxy.Duplicate)
	h.runs(1)
}

func TestLate500Releases(t *testing.T) {
	h, g := late(t, http.StatusInternalServerError)
	g.open()
	h.settled()
	h.known("evt:evt_1", "")
}

func TestRetryAfterATimeoutIsInFlightWhileTheUpstreamWorks(t *testing.T) {
	h, g := late(t, http.StatusOK)
	h.deliver("evt_1").want(t, http.StatusServiceUnavailable, proxy.InFlight)
	h.runs(1)
	g.open()
	h.settled()
}

func TestUpstreamThatNeverAnswersIsUnknown(t *testing.T) {
	h, _ := late(t, http.StatusOK)
	h.settled() // after one more UPSTREAM_TIMEOUT
	h.known("evt:evt_1", store.Unknown)
}

func TestLeaseIsRenewedAfterTheTimeoutToo(t *testing.T) {
	h := start(t, func(s *setup) { s.UpstreamTimeout, s.Lease = 300*time.Millisecond, 30*time.Millisecond })
	g := newGate(t)
	h.upstream.held(g, http.StatusOK)
	h.deliver("evt_1").want(t, http.StatusGatewayTimeout, proxy.Unknown)
	h.store.await(t, "renew", h.store.count("renew")+2)
	g.open()
	h.settled()
}

func TestUnclaimedTimeoutEndsTheUpstreamCall(t *testing.T) {
	ended := make(chan struct{})
	h := start(t, func(s *setup) {
		s.UpstreamTimeout = 50 * time.Millisecond
		s.Webhooks[0].Key = keyRule(t, "none")
		s.upstream = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			close(ended)
		})
	})
	h.deliver("evt_1").want(t, http.StatusGatewayTimeout, proxy.Unknown)
	await(t, ended, "the end of the upstream call")
}

func TestSendersHangUpDoesNotCancelTheUpstream(t *testing.T) {
	h := start(t)
	g := newGate(t)
	cancelled := make(chan bool, 1)
	h.upstream.answers(func(_ http.ResponseWriter, s *seen) {
		select {
		case <-s.Context().Done():
			cancelled <- true
		case <-g.c:
			cancelled <- false
		}
	})
	conn := h.dial()
	if err := h.request("POST", path, event("evt_1")).Write(conn); err != nil {
		t.Fatal(err)
	}
	await(t, h.upstream.arrived, "the delivery")
	conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
	// A duplicate that waits shows that the first still leads, after hookonce
	// had the time to notice.
	second := h.begin("evt_1")
	h.inFlight(2)
	g.open()
	if await(t, cancelled, "the upstream") {
		t.Error("the upstream call was cancelled")
	}
	await(t, second, "the second").want(t, http.StatusOK, proxy.Duplicate)
	h.settled()
	if n := h.outcomes(proxy.Forwarded); n != 1 {
		t.Errorf("%v forwarded", n)
	}
}

func TestSendersHangUpIsNoHangUpOfTheUpstreamCall(t *testing.T) {
	// The server's own notice of the hang-up ends the request's context; with
	// it would end the call, if it hung on it.
	h := start(t)
	ended := make(chan struct{})
	g := newGate(t)
	h.upstream.answers(func(_ http.ResponseWriter, s *seen) {
		select {
		case <-s.Context().Done():
			close(ended)
		case <-g.c:
		}
	})
	ctx, leave := context.WithCancel(context.Background())
	r := h.request("POST", path, event("evt_1")).WithContext(ctx)
	gone := make(chan answer, 1)
	go func() { gone <- h.do(r) }()
	await(t, h.upstream.arrived, "the delivery")
	leave()
	await(t, gone, "the leaving")
	select {
	case <-ended:
		t.Error("the upstream call ended with the sender")
	case <-time.After(100 * time.Millisecond): // long enough for the notice to travel
	}
	g.open()
	h.settled()
	h.known("evt:evt_1", store.Done)
}

func TestLeaseIsRenewedWhileTheUpstreamWorks(t *testing.T) {
	h := start(t, func(s *setup) { s.Lease = 30 * time.Millisecond })
	g := newGate(t)
	h.upstream.held(g, http.StatusOK)
	a := h.begin("evt_1")
	h.store.await(t, "renew", 3)
	g.open()
	await(t, a, "the answer").want(t, http.StatusOK, proxy.Forwarded)
}

func TestSettlementWaitsForTheRenewalUnderWay(t *testing.T) {
	h := start(t, func(s *setup) { s.Lease = 90 * time.Millisecond })
	works, renews := newGate(t), newGate(t)
	h.upstream.held(works, http.StatusOK)
	var renewing atomic.Bool
	h.store.set("renew", func(string) error {
		renewing.Store(true)
		<-renews.c
		renewing.Store(false)
		return nil
	}, nil)
	h.store.set("complete", func(string) error {
		if renewing.Load() {
			t.Error("two statements at one row at once")
		}
		return nil
	}, nil)
	a := h.begin("evt_1")
	h.store.await(t, "renew", 1)
	works.open()
	for h.metric("hookonce_upstream_request_duration_seconds", "code", "2xx") == 0 {
		runtime.Gosched()
	}
	for range 10_000 { // time enough for a settlement that does not wait
		runtime.Gosched()
	}
	renews.open()
	await(t, a, "the answer").want(t, http.StatusOK, proxy.Forwarded)
}

func TestRenewalIsTriedAgainWhenTheStoreFails(t *testing.T) {
	h := start(t, func(s *setup) { s.Lease = 60 * time.Millisecond })
	g := newGate(t)
	h.upstream.held(g, http.StatusOK)
	h.store.fails("renew")
	a := h.begin("evt_1")
	h.store.await(t, "renew", 3)
	h.store.set("renew", nil, nil)
	h.store.await(t, "renew", 5)
	g.open()
	await(t, a, "the answer").want(t, http.StatusOK, proxy.Forwarded)
}

func TestLostLeaseIsCountedAndItsCompletionRecorded(t *testing.T) {
	h := start(t)
	g := newGate(t)
	h.upstream.held(g, http.StatusOK)
	a := h.begin("evt_1")
	await(t, h.upstream.arrived, "the delivery")
	h.takeOver("evt:evt_1")
	g.open()
	await(t, a, "the answer").want(t, http.StatusOK, proxy.Forwarded)
	h.known("evt:evt_1", store.Done)
	if n := h.metric("hookonce_leases_lost_total", "webhook", "default"); n != 1 {
		t.Errorf("%v leases lost, want 1", n)
	}
}

// takeOver is what another replica does with a lease that has run out.
func (h *harness) takeOver(key string) store.Token {
	h.t.Helper()
	h.expire(key)
	token := store.NewToken()
	if c, err := h.store.real.Claim(context.Background(), key, token); err != nil || !c.Won {
		h.t.Fatalf("taking over: %+v, %v", c, err)
	}
	return token
}

func TestLateReleaseDoesNotTouchTheNewClaim(t *testing.T) {
	h := start(t)
	g := newGate(t)
	h.upstream.held(g, http.StatusInternalServerError)
	a := h.begin("evt_1")
	await(t, h.upstream.arrived, "the delivery")
	h.takeOver("evt:evt_1")
	g.open()
	await(t, a, "the answer").want(t, http.StatusInternalServerError, proxy.Released)
	h.known("evt:evt_1", store.InFlight)
	if n := h.metric("hookonce_leases_lost_total"); n != 1 {
		t.Errorf("%v leases lost, want 1", n)
	}
}

func TestLostLeaseIsNotRenewedAgain(t *testing.T) {
	h := start(t, func(s *setup) { s.Lease = 300 * time.Millisecond })
	g := newGate(t)
	h.upstream.held(g, http.StatusOK)
	a := h.begin("evt_1")
	await(t, h.upstream.arrived, "the delivery")
	h.takeOver("evt:evt_1")
	h.logs.await(t, "the lease was lost while")
	n := h.store.count("renew")
	g.open()
	await(t, a, "the answer")
	if got := h.store.count("renew"); got != n {
		t.Errorf("%d renewals after the lease was lost", got-n)
	}
}

func TestHeldUpProcessRenewsBeforeItSends(t *testing.T) {
	h := start(t, func(s *setup) { s.Lease = 400 * time.Millisecond })
	h.store.set("claim", nil, held(t, 250*time.Millisecond))
	h.upstream.answers(func(http.ResponseWriter, *seen) {
		if h.store.count("renew") == 0 {
			t.Error("sent without renewing")
		}
	})
	h.deliver("evt_1").want(t, http.StatusOK, proxy.Forwarded)
	h.runs(1)
}

// held holds the first answer back for so long, as a pause of the process
// would.
func held(t testing.TB, d time.Duration) func(string) error {
	var once sync.Once
	return func(string) error {
		once.Do(func() { await(t, time.After(d), "the pause's end") })
		return nil
	}
}

func TestNotRenewedIsNotSentAndTheClaimIsAskedForAgain(t *testing.T) {
	for name, body := range map[string]string{"with a body": event("evt_1"), "without a body": ""} {
		t.Run(name, func(t *testing.T) {
			h := start(t, func(s *setup) {
				s.Lease = 400 * time.Millisecond
				s.Webhooks[0].Key = keyRule(t, "header:X-Event")
			})
			var once sync.Once
			h.store.set("claim", nil, func(key string) error {
				once.Do(func() {
					await(t, time.After(250*time.Millisecond), "the pause's end")
					token := h.takeOver(key) // another replica has it, and gives it back
					if err := h.store.real.Release(context.Background(), key, token); err != nil {
						t.Error(err)
					}
				})
				return nil
			})
			h.do(h.request("POST", path, body, "X-Event", "evt_1")).want(t, http.StatusOK, proxy.Forwarded)
			if n := h.store.count("claim"); n != 2 {
				t.Errorf("%d claims, want 2", n)
			}
			h.runs(1)
			if got := h.upstream.requests()[0]; got.err != nil || string(got.body) != body {
				t.Errorf("the upstream got %q, %v", got.body, got.err)
			}
			if n := h.metric("hookonce_leases_lost_total"); n != 0 {
				t.Errorf("%v leases lost, though nothing has run", n)
			}
		})
	}
}

func TestNotRenewedBecauseAnotherRanItIsADuplicate(t *testing.T) {
	h := start(t, func(s *setup) { s.Lease = 400 * time.Millisecond })
	var once sync.Once
	h.store.set("claim", nil, func(key string) error {
		once.Do(func() {
			await(t, time.After(250*time.Millisecond), "the pause's end")
			token := h.takeOver(key)
			if err := h.store.real.Complete(context.Background(), key, token, 200); err != nil {
				t.Error(err)
			}
		})
		return nil
	})
	h.deliver("evt_1").want(t, http.StatusOK, proxy.Duplicate)
	h.runs(0)
}

func TestStoreDownAtTheClaimIsAnswered503(t *testing.T) {
	h := start(t)
	h.store.fails()
	a := h.deliver("evt_1")
	a.want(t, http.StatusServiceUnavailable, proxy.StoreUnavailable)
	if a.header.Get("Retry-After") != "5" {
		t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
	}
	h.runs(0)
	if n := h.metric("hookonce_store_errors_total", "operation", "claim"); n != 1 {
		t.Errorf("%v errors counted", n)
	}
	h.store.setAll(nil)
	h.deliver("evt_1").want(t, http.StatusOK, proxy.Forwarded)
}

func TestStoreDownForwardsUnclaimedWhereTheOperatorSaysSo(t *testing.T) {
	h := start(t, func(s *setup) { s.ForwardOnStoreError = true })
	h.store.fails()
	h.deliver("evt_1").want(t, http.StatusOK, proxy.Unclaimed)
	got := h.upstream.requests()[0].Header
	if got.Get("Hookonce-Prior-Outcome") != "unknown" || got.Get("Hookonce-Key") != "evt:evt_1" || got.Get("Idempotency-Key") != "evt:evt_1" {
		t.Errorf("the application was told %v", got)
	}
	if _, ok := got["Hookonce-Attempt"]; ok {
		t.Error("an attempt was named, though nothing was claimed")
	}
	h.deliver("evt_1").want(t, http.StatusOK, proxy.Duplicate) // this process knows
	h.runs(1)
	h.store.setAll(nil)
	h.settled()
	h.known("evt:evt_1", store.Done)
	h.logged(proxy.Unclaimed)
	if n := h.outcomes(proxy.Unclaimed); n != 1 {
		t.Errorf("%v unclaimed", n)
	}
}

func TestUnclaimedFailureLeavesNothingBehind(t *testing.T) {
	h := start(t, func(s *setup) { s.ForwardOnStoreError = true })
	h.store.fails()
	h.upstream.status(http.StatusInternalServerError)
	h.deliver("evt_1").want(t, http.StatusInternalServerError, proxy.Unclaimed)
	h.upstream.status(http.StatusOK)
	h.deliver("evt_1").want(t, http.StatusOK, proxy.Unclaimed)
	h.store.setAll(nil)
	h.settled()
}

func TestUnclaimedUnreachableLeavesNothingBehind(t *testing.T) {
	h := start(t, func(s *setup) {
		s.ForwardOnStoreError, s.address, s.InFlightWait = true, deadAddress(t), 50*time.Millisecond
	})
	h.store.fails()
	for range 2 {
		h.deliver("evt_1").want(t, http.StatusBadGateway, proxy.Unreachable)
	}
}

// unclaimedLate is an unclaimed delivery that was answered 504 while the
// upstream works on.
func unclaimedLate(t *testing.T, status int) (*harness, *gate) {
	h := start(t, func(s *setup) {
		s.ForwardOnStoreError, s.UpstreamTimeout, s.InFlightWait = true, 300*time.Millisecond, 50*time.Millisecond
	})
	h.store.fails()
	g := newGate(t)
	h.upstream.held(g, status)
	h.deliver("evt_1").want(t, http.StatusGatewayTimeout, proxy.Unknown)
	return h, g
}

func TestUnclaimedLate2xxIsRecorded(t *testing.T) {
	h, g := unclaimedLate(t, http.StatusOK)
	h.store.setAll(nil)
	g.open()
	h.settled()
	h.known("evt:evt_1", store.Done)
}

func TestUnclaimedLateFailureLetsTheNextDeliveryRun(t *testing.T) {
	h, g := unclaimedLate(t, http.StatusInternalServerError)
	h.store.setAll(nil)
	g.open()
	h.settled()
	h.upstream.status(http.StatusOK)
	h.deliver("evt_1").want(t, http.StatusOK, proxy.Forwarded)
}

func TestUnclaimedSilenceLetsTheNextDeliveryRun(t *testing.T) {
	h, _ := unclaimedLate(t, http.StatusOK)
	h.store.setAll(nil)
	h.settled()
	h.upstream.status(http.StatusOK)
	h.deliver("evt_1").want(t, http.StatusOK, proxy.Forwarded)
}

func TestStoreDownAtTheCompletionLeavesTheAnswerStanding(t *testing.T) {
	h := start(t)
	h.store.fails("complete")
	h.deliver("evt_1").want(t, http.StatusOK, proxy.Forwarded)
	h.known("evt:evt_1", store.InFlight)
	claims := h.store.count("claim")
	h.deliver("evt_1").want(t, http.StatusOK, proxy.Duplicate)
	if h.store.count("claim") != claims {
		t.Error("the store was asked for a key that this process answers for")
	}
	h.runs(1)
	h.store.set("complete", nil, nil)
	h.settled()
	h.known("evt:evt_1", store.Done)
}

func TestCompletionIsRecordedHoweverLateTheStoreComesBack(t *testing.T) {
	h := start(t)
	h.store.fails("complete")
	h.deliver("evt_1")
	h.store.await(t, "complete", 3)
	h.takeOver("evt:evt_1") // the lease ran out meanwhile
	h.store.set("complete", nil, nil)
	h.settled()
	h.known("evt:evt_1", store.Done)
}

func TestStoreDownAtTheReleaseIsTriedAgain(t *testing.T) {
	h := start(t, func(s *setup) { s.InFlightWait = 10 * time.Millisecond })
	h.store.fails("release")
	h.upstream.status(http.StatusInternalServerError)
	h.deliver("evt_1").want(t, http.StatusInternalServerError, proxy.Released)
	h.deliver("evt_1").want(t, http.StatusServiceUnavailable, proxy.InFlight)
	h.store.set("release", nil, nil)
	h.settled()
	h.known("evt:evt_1", "")
}

func TestReleaseIsTriedAgainUntilTheTokenIsLost(t *testing.T) {
	h := start(t)
	h.store.fails("release")
	h.upstream.status(http.StatusInternalServerError)
	h.deliver("evt_1")
	h.takeOver("evt:evt_1")
	h.store.set("release", nil, nil)
	h.settled()
	h.known("evt:evt_1", store.InFlight) // the new claim's
}

// uncertain commits the claim and loses the answer.
func (h *harness) uncertain() {
	h.store.set("claim", nil, func(string) error { return fmt.Errorf("%w: injected", store.ErrUncertain) })
}

func TestUncertainClaimIsReleasedInTheBackground(t *testing.T) {
	h := start(t)
	h.uncertain()
	h.deliver("evt_1").want(t, http.StatusServiceUnavailable, proxy.StoreUnavailable)
	h.gone("evt:evt_1")
	h.store.set("claim", nil, nil)
	h.deliver("evt_1").want(t, http.StatusOK, proxy.Forwarded)
	if n := h.metric("hookonce_leases_lost_total"); n != 0 {
		t.Errorf("%v leases lost", n)
	}
}

func TestUncertainClaimThatArrivesLateIsReleasedToo(t *testing.T) {
	h := start(t)
	var claimed atomic.Pointer[string]
	h.store.set("claim", func(key string) error {
		claimed.Store(&key)
		return fmt.Errorf("%w: injected", store.ErrUncertain) // on its way, not there yet
	}, nil)
	h.deliver("evt_1").want(t, http.StatusServiceUnavailable, proxy.StoreUnavailable)
	h.store.await(t, "release", 2) // found nothing once, and goes on
}

func TestUncertainClaimIsReleasedWhereItWasForwardedAndFailed(t *testing.T) {
	h := start(t, func(s *setup) { s.ForwardOnStoreError = true })
	h.uncertain()
	h.upstream.status(http.StatusInternalServerError)
	h.deliver("evt_1").want(t, http.StatusInternalServerError, proxy.Unclaimed)
	h.gone("evt:evt_1")
}

func TestUnclaimedUnknownIsToldToTheNextAttempt(t *testing.T) {
	w := newWire(t)
	h := start(t, func(s *setup) { s.address, s.ForwardOnStoreError = w.address(), true })
	h.store.fails("claim")
	a := h.begin("evt_1")
	r, c := w.accept()
	head(t, r)
	c.Close()
	await(t, a, "the answer").want(t, http.StatusBadGateway, proxy.Unknown)
	h.store.set("claim", nil, nil)
	h.settled()
	h.known("evt:evt_1", store.Unknown)
}

func TestStatusBelow200IsNoAnswer(t *testing.T) {
	for _, answer := range []string{"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", "HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n"} {
		w := newWire(t)
		h := start(t, func(s *setup) { s.address = w.address() })
		a := h.begin("evt_1")
		r, c := w.accept()
		head(t, r)
		io.WriteString(c, answer)
		await(t, a, "the answer").want(t, http.StatusBadGateway, proxy.Unknown)
		h.known("evt:evt_1", store.Unknown)
		if n := h.metric("hookonce_leases_lost_total"); n != 0 {
			t.Errorf("%v leases lost", n)
		}
	}
}

func TestLogHasNoBytesOfTheApplicationsAnswer(t *testing.T) {
	w := newWire(t)
	h := start(t, func(s *setup) { s.address = w.address() })
	a := h.begin("evt_1")
	r, c := w.accept()
	head(t, r)
	io.WriteString(c, "MARKANSWER not HTTP\r\n\r\n")
	c.Close()
	await(t, a, "the answer").want(t, http.StatusBadGateway, proxy.Unknown)
	h.logged(proxy.Unknown)
	if strings.Contains(h.logs.text(), "MARKANSWER") {
		t.Error(h.logs.text())
	}
}

func TestStartUpPageOfN8NIsNoAcceptance(t *testing.T) {
	h := start(t, func(s *setup) { s.N8N = true })
	starting := func(w http.ResponseWriter, _ *seen) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		io.WriteString(w, "<html><body>n8n is starting up. Please wait</body></html>")
	}
	h.upstream.answers(starting)
	a := h.deliver("evt_1")
	a.want(t, http.StatusServiceUnavailable, proxy.NotReady)
	if a.header.Get("Retry-After") != "5" || strings.Contains(a.body, "n8n is") {
		t.Errorf("answer %v %s", a.header, a.body)
	}
	h.known("evt:evt_1", "")
	h.upstream.answers(func(w http.ResponseWriter, _ *seen) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "<html>thank you</html>")
	})
	a = h.deliver("evt_1")
	a.want(t, http.StatusOK, proxy.Forwarded)
	if a.body != "<html>thank you</html>" {
		t.Errorf("the look at the page has eaten of it: %q", a.body)
	}
}

func TestStartUpPageIsAnAnswerLikeAnyOtherWithoutTheProfile(t *testing.T) {
	h := start(t)
	h.upstream.answers(func(w http.ResponseWriter, _ *seen) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "n8n is starting up")
	})
	h.deliver("evt_1").want(t, http.StatusOK, proxy.Forwarded)
}

func TestLateStartUpPageIsNoAcceptance(t *testing.T) {
	h := start(t, func(s *setup) { s.N8N, s.UpstreamTimeout = true, 300*time.Millisecond })
	g := newGate(t)
	h.upstream.answers(func(w http.ResponseWriter, _ *seen) {
		<-g.c
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "n8n is starting up")
	})
	h.deliver("evt_1").want(t, http.StatusGatewayTimeout, proxy.Unknown)
	g.open()
	h.settled()
	h.known("evt:evt_1", "")
}

func TestTypeThatIsNotAcceptedIsReleased(t *testing.T) {
	h := start(t, func(s *setup) { s.Webhooks[0].NotAccepted = []string{"text/html"} })
	h.upstream.answers(func(w http.ResponseWriter, _ *seen) {
		w.Header().Set("Content-Type", "Text/HTML; charset=utf-8")
		io.WriteString(w, "a login page")
	})
	h.deliver("evt_1").want(t, http.StatusServiceUnavailable, proxy.NotReady)
	h.known("evt:evt_1", "")
	h.upstream.answers(func(w http.ResponseWriter, _ *seen) { w.Header().Set("Content-Type", "application/json") })
	h.deliver("evt_1").want(t, http.StatusOK, proxy.Forwarded)
}

func TestNotReadyUnclaimedIsAnswered503Too(t *testing.T) {
	h := start(t, func(s *setup) {
		s.Webhooks[0].NotAccepted, s.Webhooks[0].Key = []string{"text/html"}, keyRule(t, "none")
	})
	h.upstream.answers(func(w http.ResponseWriter, _ *seen) { w.Header().Set("Content-Type", "text/html") })
	h.deliver("evt_1").want(t, http.StatusServiceUnavailable, proxy.NotReady)
}

func Test2xxWhoseBodyBreaksOffCountsAs2xx(t *testing.T) {
	h := start(t)
	h.upstream.answers(func(w http.ResponseWriter, _ *seen) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	a := h.deliver("evt_1")
	if a.err == nil {
		t.Errorf("answer %d: the sender has to see that it broke off", a.status)
	}
	h.settled()
	h.known("evt:evt_1", store.Done)
	h.logged(proxy.Forwarded)
	if n := h.outcomes(proxy.Forwarded); n != 1 {
		t.Errorf("%v forwarded", n)
	}
	if n := h.metric("hookonce_deliveries_in_flight"); n != 0 {
		t.Errorf("%v in flight", n)
	}
}

func TestEmptyDeliveryOnAStaleConnectionIsNeverResent(t *testing.T) {
	w := newWire(t)
	h := start(t, func(s *setup) {
		s.address = w.address()
		s.Webhooks[0].Key = keyRule(t, "header:X-Event")
	})
	send := func(id string) <-chan answer {
		r := h.request("POST", path, "", "X-Event", id)
		c := make(chan answer, 1)
		go func() { c <- h.do(r) }()
		return c
	}
	a := send("evt_1")
	r, c := w.accept()
	if got := head(t, r); !strings.Contains(got, "Content-Length: 0\r\n") || strings.Contains(got, "chunked") {
		t.Errorf("an empty body was framed anew: %q", got)
	}
	io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	await(t, a, "the first answer").want(t, http.StatusOK, proxy.Forwarded)

	a = send("evt_2") // on the same connection, which ends without an answer
	head(t, r)
	c.Close()
	got := await(t, a, "the second answer")
	got.want(t, http.StatusBadGateway, proxy.Unknown)
	h.known("evt:evt_2", store.Unknown)
	select {
	case again := <-w.conns: // a fresh connection may have been opened, but nothing is sent on it
		again.SetReadDeadline(time.Now().Add(patience))
		if text, _ := io.ReadAll(again); len(text) > 0 {
			t.Errorf("sent again: %q", text)
		}
		again.Close()
	default:
	}
}

func TestDeliveryOnAStaleConnectionIsNeverResent(t *testing.T) {
	w := newWire(t)
	h := start(t, func(s *setup) { s.address = w.address() })
	a := h.begin("evt_1")
	r, c := w.accept()
	head(t, r)
	io.CopyN(io.Discard, r, int64(len(event("evt_1"))))
	io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	await(t, a, "the first answer")
	a = h.begin("evt_2")
	head(t, r)
	c.Close()
	await(t, a, "the second answer").want(t, http.StatusBadGateway, proxy.Unknown)
	if len(w.conns) > 0 {
		t.Error("another connection was opened")
	}
}
