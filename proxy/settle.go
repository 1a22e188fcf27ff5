package proxy

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hookonce/hookonce/store"
)

// settlement is how a claim ends in the store.
type settlement struct {
	kind   settlementKind
	hook   string // the metric label
	key    string
	token  store.Token
	status int           // of the upstream's answer, where it completes
	maybe  time.Duration // of a claim that may yet arrive: tried for so long once the store answers again; 0: it is there
	until  time.Time     // when that ends
	flight *flight       // to land; nil: none
	sure   bool          // the token was this process's for certain: losing it is worth a count
}

type settlementKind string

const (
	complete settlementKind = "complete"  // never run again
	release  settlementKind = "release"   // the next delivery runs
	endLease settlementKind = "end_lease" // whether it ran is unknown

	// claimUnknown claims and ends the lease at once: the event was forwarded
	// unclaimed, and whether it ran is unknown.
	claimUnknown settlementKind = "claim_unknown"
)

// settle records how an attempt ended, durably, before the answer goes out. If
// the store is down the answer stands all the same; settling then goes on in
// the background, and until it is recorded this process answers for the key.
func (h *Handler) settle(s settlement) {
	_, err := h.record(s)
	if err == nil {
		return
	}
	s.sure = false // it may have been carried out already
	h.Log.Error("settling failed, trying again in the background: until then this process answers for the key",
		"webhook", s.hook, "key", s.key, "settlement", string(s.kind), "error", err.Error())
	if s.kind == complete && s.flight != nil {
		h.flights.complete(s.flight)
	}
	h.settler.later(s)
}

// releaseLater releases a claim that may have been committed, or may still be:
// it was on its way when the store hung. Should it slip through, its lease
// ends it.
func (h *Handler) releaseLater(key string, token store.Token) {
	h.settler.later(settlement{kind: release, key: key, token: token, maybe: h.Lease})
}

// record asks the store once. Its error means: try again; lost, that the claim
// was not there under the token.
func (h *Handler) record(s settlement) (lost bool, err error) {
	ctx := context.Background() // settling outlives the request; the store bounds it
	switch s.kind {
	case complete:
		err = h.Store.Complete(ctx, s.key, s.token, s.status)
	case release:
		err = h.Store.Release(ctx, s.key, s.token)
	case endLease:
		err = h.Store.EndLease(ctx, s.key, s.token)
	case claimUnknown:
		var claim store.Claim
		if claim, err = h.Store.Claim(ctx, s.key, s.token); err == nil && claim.Won {
			err = h.Store.EndLease(ctx, s.key, s.token)
		}
	}
	if lost = errors.Is(err, store.ErrLost); lost {
		if s.sure {
			h.Metrics.LeaseLost(s.hook)
			h.Log.Warn("the lease was lost before the claim was settled: the event may have run twice",
				"webhook", s.hook, "key", s.key, "settlement", string(s.kind))
		}
		err = nil
	}
	if err == nil && s.flight != nil {
		h.flights.land(s.key, s.flight, s.kind == complete)
	}
	return lost, err
}

// settler tries settlements again that the store could not take.
type settler struct {
	h    *Handler
	mu   sync.Mutex
	todo []settlement
	wake chan struct{} // holds one token while there may be something to do
	open tally
}

func newSettler(h *Handler) *settler {
	return &settler{h: h, wake: make(chan struct{}, 1)}
}

func (s *settler) later(one settlement) {
	if one.maybe == 0 {
		s.open.begin()
	}
	s.mu.Lock()
	s.todo = append(s.todo, one)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// How long the settler rests after a round in which the store did not answer.
const (
	firstRest = 100 * time.Millisecond
	lastRest  = time.Second
)

// run tries again until ctx ends.
func (s *settler) run(ctx context.Context) {
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return
		}
		rest := firstRest
		for s.round() > 0 {
			select {
			case <-time.After(rest):
				rest = min(2*rest, lastRest)
			case <-s.wake:
				rest = firstRest
			case <-ctx.Done():
				return
			}
		}
	}
}

// round tries everything once, and says how much is left. After three failures
// on end the store is down, and the rest of the round can be saved.
func (s *settler) round() (left int) {
	s.mu.Lock()
	todo := s.todo
	s.todo = nil
	s.mu.Unlock()
	var again []settlement
	failed := 0
	for i, one := range todo {
		if failed == 3 {
			again = slices.Concat(todo[i:], again) // those first that had no try
			break
		}
		lost, err := s.h.record(one)
		switch {
		case err != nil:
			failed++
			again = append(again, one)
		case one.maybe == 0:
			s.h.Log.Info("settled in the background", "webhook", one.hook, "key", one.key, "settlement", string(one.kind))
			failed = 0
			s.open.end()
		case !lost: // it had arrived, and is released
		case one.until.IsZero():
			one.until = time.Now().Add(one.maybe)
			again = append(again, one)
		case time.Now().Before(one.until):
			again = append(again, one)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.todo = append(again, s.todo...)
	return len(s.todo)
}

// Run settles in the background what the store could not take at once, until
// ctx ends. It has to run while the handler serves.
func (h *Handler) Run(ctx context.Context) { h.settler.run(ctx) }

// Drain waits until all deliveries have ended, those that run on after their
// answer included, and everything is settled. It returns how many are left
// when ctx ends.
func (h *Handler) Drain(ctx context.Context) (deliveries, settlements int) {
	deliveries = h.open.wait(ctx)
	settlements = h.settler.open.wait(ctx)
	if deliveries+settlements > 0 {
		h.Log.LogAttrs(ctx, slog.LevelError, "stopping before everything was settled: claims run out with their lease",
			slog.Int("deliveries", deliveries), slog.Int("settlements", settlements))
	}
	return deliveries, settlements
}
