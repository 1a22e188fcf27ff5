package storetest

import (
	"fmt"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hookonce/hookonce/store"
)

// The life of a claim, from asking for it to its settlement.

func oneWins(s *suite) {
	claims := make([]store.Claim, 64)
	all(len(claims), func(i int) { _, claims[i] = s.claim("evt:1") })
	s.oneOf(claims)
}

func (s *suite) oneOf(claims []store.Claim) {
	s.Helper()
	won := 0
	for _, c := range claims {
		switch {
		case c.Won:
			won++
		case c.State != store.InFlight || c.LeaseLeft <= 0:
			s.Errorf("a loser was told %+v", c)
		}
	}
	if won != 1 {
		s.Errorf("%d of %d won", won, len(claims))
	}
}

func manyKeys(s *suite) {
	all(300, func(i int) {
		key := fmt.Sprint("evt:", i%100)
		t, c := s.claim(key)
		if c.Won {
			if err := s.Complete(s.ctx, key, t, 200+i%100); err != nil {
				s.Error(err)
			}
		}
	})
	for i := range 100 {
		if e := s.state(fmt.Sprint("evt:", i), store.Done); *e.Status != 200+i || e.Attempts != 1 {
			s.Errorf("%+v", e)
		}
	}
}

func inFlight(s *suite) {
	s.first("evt:1")
	_, c := s.claim("evt:1")
	if c.Won || c.State != store.InFlight || c.LeaseLeft <= 50*time.Second || c.LeaseLeft > time.Minute {
		s.Errorf("%+v", c)
	}
	e := s.state("evt:1", store.InFlight)
	if e.LeaseUntil == nil || e.CompletedAt != nil || e.Status != nil || e.Attempts != 1 || e.Prior != store.PriorNone {
		s.Errorf("%+v", e)
	}
	if age := time.Since(e.FirstSeen); age < -time.Minute || age > time.Minute {
		s.Errorf("first seen %v ago", age)
	}
}

func askAgain(s *suite) {
	t := s.first("evt:1")
	if c := s.claimAs("evt:1", t); !c.Won || c.Attempt != 1 || c.Prior != store.PriorNone {
		s.Errorf("%+v", c)
	}
	s.ok(s.Complete(s.ctx, "evt:1", t, 200))
	if c := s.claimAs("evt:1", t); c.Won || c.State != store.Done {
		s.Errorf("after completion: %+v", c)
	}
}

func completed(s *suite) {
	t := s.first("evt:1")
	s.ok(s.Complete(s.ctx, "evt:1", t, 204))
	s.refused("evt:1", store.Done)
	s.Age("evt:1", 1000*time.Hour)
	s.refused("evt:1", store.Done)
	e := s.state("evt:1", store.Done)
	if e.CompletedAt == nil || e.Status == nil || *e.Status != 204 || e.LeaseUntil != nil {
		s.Errorf("%+v", e)
	}
	s.fails(s.Renew(s.ctx, "evt:1", t), store.ErrLost)
	s.fails(s.Release(s.ctx, "evt:1", t), store.ErrLost)
	s.fails(s.EndLease(s.ctx, "evt:1", t), store.ErrLost)
	s.state("evt:1", store.Done)
}

func releaseDeletes(s *suite) {
	t := s.first("evt:1")
	s.ok(s.Release(s.ctx, "evt:1", t))
	s.gone("evt:1")
	s.fails(s.Release(s.ctx, "evt:1", t), store.ErrLost)
	s.first("evt:1")
}

func releaseKeeps(s *suite) {
	t := s.first("evt:1")
	s.ok(s.EndLease(s.ctx, "evt:1", t)) // sent, no answer
	t = s.won("evt:1", store.Claim{Attempt: 2, Prior: store.PriorUnknown})
	s.ok(s.Release(s.ctx, "evt:1", t)) // 500
	s.state("evt:1", store.Unknown)
	s.won("evt:1", store.Claim{Attempt: 3, Prior: store.PriorUnknown})
}

func takeOver(s *suite) {
	s.first("evt:1")
	s.Age("evt:1", 2*time.Minute)
	s.state("evt:1", store.Unknown)
	s.won("evt:1", store.Claim{Attempt: 2, Prior: store.PriorUnknown, TakenOver: true})
	s.refused("evt:1", store.InFlight)
	s.Age("evt:1", 2*time.Minute)
	s.won("evt:1", store.Claim{Attempt: 3, Prior: store.PriorUnknown, TakenOver: true})
}

func oneTakesOver(s *suite) {
	s.first("evt:1")
	s.Age("evt:1", 2*time.Minute)
	claims := make([]store.Claim, 64)
	all(len(claims), func(i int) { _, claims[i] = s.claim("evt:1") })
	s.oneOf(claims)
	if e := s.state("evt:1", store.InFlight); e.Attempts != 2 {
		s.Errorf("%+v", e)
	}
}

func fencing(s *suite) {
	old := s.first("evt:1")
	s.Age("evt:1", 2*time.Minute)
	t := s.won("evt:1", store.Claim{Attempt: 2, Prior: store.PriorUnknown, TakenOver: true})
	before := s.state("evt:1", store.InFlight)
	s.fails(s.Renew(s.ctx, "evt:1", old), store.ErrLost)
	s.fails(s.Release(s.ctx, "evt:1", old), store.ErrLost)
	s.fails(s.EndLease(s.ctx, "evt:1", old), store.ErrLost)
	if diff := cmp.Diff(before, s.state("evt:1", store.InFlight)); diff != "" {
		s.Errorf("the old token changed the row:\n%s", diff)
	}
	s.ok(s.Renew(s.ctx, "evt:1", t))
}

func fencingAfterRelease(s *suite) {
	old := s.first("evt:1")
	s.ok(s.Release(s.ctx, "evt:1", old))
	s.first("evt:1") // attempt 1 again: the attempt alone tells nothing
	s.fails(s.Release(s.ctx, "evt:1", old), store.ErrLost)
	s.state("evt:1", store.InFlight)
}

func lateCompletion(s *suite) {
	old := s.first("evt:1")
	s.Age("evt:1", 2*time.Minute)
	t := s.won("evt:1", store.Claim{Attempt: 2, Prior: store.PriorUnknown, TakenOver: true})
	s.fails(s.Complete(s.ctx, "evt:1", old, 201), store.ErrLost)
	if e := s.state("evt:1", store.Done); e.Status == nil || *e.Status != 201 {
		s.Errorf("%+v", e)
	}
	s.fails(s.Release(s.ctx, "evt:1", t), store.ErrLost)
	s.state("evt:1", store.Done)
}

func lateCompletionGone(s *suite) {
	t := s.first("evt:1")
	s.Delete("evt:1")
	s.fails(s.Complete(s.ctx, "evt:1", t, 200), store.ErrLost)
	if e := s.state("evt:1", store.Done); *e.Status != 200 || e.CompletedAt == nil {
		s.Errorf("%+v", e)
	}
	s.refused("evt:1", store.Done)
}

func completeTwice(s *suite) {
	t := s.first("evt:1")
	s.ok(s.Complete(s.ctx, "evt:1", t, 200))
	before := s.state("evt:1", store.Done)
	s.fails(s.Complete(s.ctx, "evt:1", store.NewToken(), 202), store.ErrLost)
	if diff := cmp.Diff(before, s.state("evt:1", store.Done)); diff != "" {
		s.Error(diff)
	}
}

func keepAnswer(s *suite) {
	t := s.first("evt:1")
	want := store.Answer{Status: 201, ContentType: "text/xml", Body: []byte("<a>\x00\xff</a>")}
	s.ok(s.KeepAnswer(s.ctx, "evt:1", t, want))
	_, err := s.Answer(s.ctx, "evt:1")
	s.fails(err, store.ErrNotFound) // not before it is done
	s.ok(s.Complete(s.ctx, "evt:1", t, 201))
	got, err := s.Answer(s.ctx, "evt:1")
	s.ok(err)
	if diff := cmp.Diff(want, got); diff != "" {
		s.Error(diff)
	}

	t = s.first("evt:empty")
	s.ok(s.KeepAnswer(s.ctx, "evt:empty", t, store.Answer{Status: 204}))
	s.ok(s.Complete(s.ctx, "evt:empty", t, 204))
	if got, err := s.Answer(s.ctx, "evt:empty"); err != nil || got.Status != 204 || len(got.Body) > 0 {
		s.Errorf("%+v, %v", got, err)
	}

	t = s.first("evt:none")
	s.ok(s.Complete(s.ctx, "evt:none", t, 200))
	_, err = s.Answer(s.ctx, "evt:none")
	s.fails(err, store.ErrNotFound)
}

func keepAnswerFenced(s *suite) {
	s.first("evt:1")
	err := s.KeepAnswer(s.ctx, "evt:1", store.NewToken(), store.Answer{Status: 200, Body: []byte("late")})
	s.fails(err, store.ErrLost)
	err = s.KeepAnswer(s.ctx, "evt:gone", store.NewToken(), store.Answer{Status: 200})
	s.fails(err, store.ErrLost)
}

func renew(s *suite) {
	t := s.first("evt:1")
	s.Age("evt:1", 50*time.Second)
	s.ok(s.Renew(s.ctx, "evt:1", t))
	if _, c := s.claim("evt:1"); c.LeaseLeft < 50*time.Second {
		s.Errorf("%+v", c)
	}
	// Run out, but nobody took it over: still the owner's.
	s.Age("evt:1", 2*time.Minute)
	s.ok(s.Renew(s.ctx, "evt:1", t))
	s.refused("evt:1", store.InFlight)
	s.fails(s.Renew(s.ctx, "evt:1", store.NewToken()), store.ErrLost)
	s.fails(s.Renew(s.ctx, "evt:other", t), store.ErrLost)
}

func endLease(s *suite) {
	t := s.first("evt:1")
	s.ok(s.EndLease(s.ctx, "evt:1", t))
	s.state("evt:1", store.Unknown)
	s.won("evt:1", store.Claim{Attempt: 2, Prior: store.PriorUnknown})
	s.fails(s.Renew(s.ctx, "evt:1", t), store.ErrLost)
}
