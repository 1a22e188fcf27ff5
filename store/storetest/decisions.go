package storetest

import (
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hookonce/hookonce/store"
)

// What a person decides: events that are held, given back, completed, let through once more.

func (s *suite) held(want int) {
	s.Helper()
	n, err := s.HeldCount(s.ctx)
	s.ok(err)
	if n != want {
		s.Fatalf("%d held, want %d", n, want)
	}
}

func hold(s *suite) {
	t := s.first("evt:1")
	s.held(0)
	s.ok(s.EndLease(s.ctx, "evt:1", t))
	s.refused("evt:1", store.Held)
	s.state("evt:1", store.Held)
	s.held(1)
	s.ok(s.ReleaseEvent(s.ctx, "evt:1", false))
	s.held(0)
	t = s.won("evt:1", store.Claim{Attempt: 2, Prior: store.PriorUnknown})
	s.ok(s.EndLease(s.ctx, "evt:1", t))
	s.ok(s.CompleteEvent(s.ctx, "evt:1", false))
	s.held(0)
	s.refused("evt:1", store.Done)
}

func crashHeld(s *suite) {
	t := s.first("evt:1")
	s.Age("evt:1", 2*time.Minute)
	s.refused("evt:1", store.Held)
	s.state("evt:1", store.Held)
	s.held(1)
	s.ok(s.Complete(s.ctx, "evt:1", t, 200)) // late, but nobody else had it
	s.held(0)
	s.state("evt:1", store.Done)
}

func completedNotHeld(s *suite) {
	t := s.first("evt:1")
	s.ok(s.Complete(s.ctx, "evt:1", t, 200))
	s.held(0)
	t = s.first("evt:2")
	s.ok(s.Release(s.ctx, "evt:2", t))
	s.gone("evt:2")
}

func pass(s *suite) {
	t := s.first("evt:1")
	s.ok(s.Complete(s.ctx, "evt:1", t, 200))
	s.ok(s.PassEvent(s.ctx, "evt:1"))
	claims := make([]store.Claim, 16)
	tokens := make([]store.Token, 16)
	all(len(claims), func(i int) { tokens[i], claims[i] = s.claim("evt:1") })
	s.oneOf(claims)
	for i, c := range claims {
		if !c.Won {
			continue
		}
		if diff := cmp.Diff(store.Claim{Won: true, Attempt: 2, Prior: store.PriorDone}, c); diff != "" {
			s.Error(diff)
		}
		if e := s.state("evt:1", store.InFlight); e.Status == nil || e.CompletedAt == nil {
			s.Errorf("the first run was forgotten: %+v", e)
		}
		s.ok(s.Complete(s.ctx, "evt:1", tokens[i], 202))
	}
	if e := s.state("evt:1", store.Done); *e.Status != 202 || e.Attempts != 2 {
		s.Errorf("%+v", e)
	}
	s.refused("evt:1", store.Done)
}

func passFailed(s *suite) {
	t := s.first("evt:1")
	s.ok(s.Complete(s.ctx, "evt:1", t, 200))
	s.ok(s.PassEvent(s.ctx, "evt:1"))
	t = s.won("evt:1", store.Claim{Attempt: 2, Prior: store.PriorDone})
	s.ok(s.Release(s.ctx, "evt:1", t))
	s.won("evt:1", store.Claim{Attempt: 3, Prior: store.PriorDone})
	s.Age("evt:1", 2*time.Minute)
	s.won("evt:1", store.Claim{Attempt: 4, Prior: store.PriorDone, TakenOver: true})
}

func passConflict(s *suite) {
	s.fails(s.PassEvent(s.ctx, "evt:1"), store.ErrNotFound)
	t := s.first("evt:1")
	s.fails(s.PassEvent(s.ctx, "evt:1"), store.ErrConflict)
	s.ok(s.EndLease(s.ctx, "evt:1", t))
	s.fails(s.PassEvent(s.ctx, "evt:1"), store.ErrConflict)
}

func releaseEvent(s *suite) {
	s.fails(s.ReleaseEvent(s.ctx, "evt:1", true), store.ErrNotFound)
	t := s.first("evt:1")
	s.fails(s.ReleaseEvent(s.ctx, "evt:1", false), store.ErrConflict)
	s.ok(s.ReleaseEvent(s.ctx, "evt:1", true))
	s.fails(s.Renew(s.ctx, "evt:1", t), store.ErrLost)
	t = s.won("evt:1", store.Claim{Attempt: 2, Prior: store.PriorUnknown})
	s.ok(s.Complete(s.ctx, "evt:1", t, 200))
	s.fails(s.ReleaseEvent(s.ctx, "evt:1", false), store.ErrConflict)
	s.state("evt:1", store.Done)
	s.ok(s.ReleaseEvent(s.ctx, "evt:1", true))
	s.state("evt:1", store.Unknown)
	s.ok(s.ReleaseEvent(s.ctx, "evt:1", false))
	s.won("evt:1", store.Claim{Attempt: 3, Prior: store.PriorDone})
}

func completeEvent(s *suite) {
	s.fails(s.CompleteEvent(s.ctx, "evt:1", true), store.ErrNotFound)
	t := s.first("evt:1")
	s.fails(s.CompleteEvent(s.ctx, "evt:1", false), store.ErrConflict)
	s.ok(s.CompleteEvent(s.ctx, "evt:1", true))
	s.refused("evt:1", store.Done)
	s.fails(s.Release(s.ctx, "evt:1", t), store.ErrLost)
	before := s.state("evt:1", store.Done)
	s.ok(s.CompleteEvent(s.ctx, "evt:1", false))
	if diff := cmp.Diff(before, s.state("evt:1", store.Done)); diff != "" {
		s.Error(diff)
	}
	t = s.first("evt:2")
	s.ok(s.EndLease(s.ctx, "evt:2", t))
	s.ok(s.CompleteEvent(s.ctx, "evt:2", false))
	s.refused("evt:2", store.Done)
}
