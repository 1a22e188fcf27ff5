// Package storetest is the contract of a store as one suite, which every store
// has to pass, and any fake that tests use.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hookonce/hookonce/store"
)

// Store is all that a store does.
type Store interface {
	Claim(ctx context.Context, key string, t store.Token) (store.Claim, error)
	Renew(ctx context.Context, key string, t store.Token) error
	Complete(ctx context.Context, key string, t store.Token, status int) error
	Release(ctx context.Context, key string, t store.Token) error
	EndLease(ctx context.Context, key string, t store.Token) error
	KeepAnswer(ctx context.Context, key string, t store.Token, a store.Answer) error
	Answer(ctx context.Context, key string) (store.Answer, error)
	Event(ctx context.Context, key string) (store.Event, error)
	Events(ctx context.Context, state store.State, limit int) ([]store.Event, error)
	ReleaseEvent(ctx context.Context, key string, force bool) error
	CompleteEvent(ctx context.Context, key string, force bool) error
	PassEvent(ctx context.Context, key string) error
	HeldCount(ctx context.Context) (int, error)
	Cleanup(ctx context.Context, retention time.Duration) (store.Cleaned, error)
	Migrate(ctx context.Context, adopt bool) error
	CheckSchema(ctx context.Context) error
	Ping(ctx context.Context) error
	Stats() store.Stats
	Close()
}

// Opened is a migrated store with an empty table, and ways behind its back.
type Opened struct {
	Store
	Age      func(key string, d time.Duration) // moves all times of the row into the past
	Template func(key string) bool             // the n8n template's own INSERT; whether it returned the key
	Delete   func(key string)                  // the row is gone
}

// Options are what the suite opens stores with, save where a test says otherwise.
func Options() store.Options {
	return store.Options{Table: "processed_events", Lease: time.Minute, Timeout: 10 * time.Second}
}

// suite is one test's store and what it needs to speak of it briefly.
type suite struct {
	*testing.T
	Opened
	ctx context.Context
}

// Run runs the suite. open returns an own store for each test, closed by t.Cleanup.
func Run(t *testing.T, open func(t *testing.T, o store.Options) Opened) {
	tests := []struct {
		name string
		hold bool
		test func(*suite)
	}{
		{"OneOfManyConcurrentClaimsWins", false, oneWins},
		{"ManyKeysAtOnce", false, manyKeys},
		{"ClaimOfALiveLeaseIsInFlight", false, inFlight},
		{"AskingAgainUnderTheSameTokenFindsTheClaim", false, askAgain},
		{"CompletedIsNeverClaimedAgain", false, completed},
		{"ReleaseDeletesTheRow", false, releaseDeletes},
		{"ReleaseKeepsWhatIsKnown", false, releaseKeeps},
		{"LeaseThatRanOutIsTakenOver", false, takeOver},
		{"OneOfManyTakesOver", false, oneTakesOver},
		{"LateOwnerCanNeitherReleaseNorRenew", false, fencing},
		{"OldTokenDoesNotReleaseANewClaim", false, fencingAfterRelease},
		{"LateCompletionIsRecorded", false, lateCompletion},
		{"LateCompletionIsRecordedWhereTheRowHasGone", false, lateCompletionGone},
		{"CompletingTwiceKeepsTheFirst", false, completeTwice},
		{"KeptAnswerIsHadOnceTheEventIsDone", false, keepAnswer},
		{"AnswerIsNotKeptUnderAnOldToken", false, keepAnswerFenced},
		{"RenewExtendsTheLease", false, renew},
		{"UnknownOutcomeRunsAgainAndIsTold", false, endLease},
		{"UnknownOutcomeIsHeld", true, hold},
		{"CrashedClaimIsHeld", true, crashHeld},
		{"CompletedIsNotHeld", true, completedNotHeld},
		{"PassLetsExactlyOneMoreRun", false, pass},
		{"PassedAttemptThatFailedIsStillToldDone", false, passFailed},
		{"OnlyDoneIsPassed", false, passConflict},
		{"PersonReleasesWithForceOnly", false, releaseEvent},
		{"PersonCompletesWithForceOnly", false, completeEvent},
		{"TemplateRowIsDone", false, templateRow},
		{"TemplateInsertFindsOurClaim", false, templateInsert},
		{"CleanupDeletesByAgeAndState", false, cleanup},
		{"CleanupKeepsHeld", true, cleanupHeld},
		{"CleanupInManyBatches", false, cleanupMany},
		{"KeysOfAnyKind", false, keys},
		{"EventsNewestFirst", false, events},
		{"SchemaIsReady", false, schema},
		{"CallerWhoLeavesHarmsNobody", false, leaver},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := Options()
			o.Hold = tt.hold
			tt.test(&suite{T: t, Opened: open(t, o), ctx: t.Context()})
		})
	}
}

func (s *suite) claim(key string) (store.Token, store.Claim) {
	s.Helper()
	t := store.NewToken()
	return t, s.claimAs(key, t)
}

func (s *suite) claimAs(key string, t store.Token) store.Claim {
	s.Helper()
	c, err := s.Claim(s.ctx, key, t)
	if err != nil {
		s.Fatalf("Claim(%q): %v", key, err)
	}
	return c
}

func (s *suite) won(key string, want store.Claim) store.Token {
	s.Helper()
	t, got := s.claim(key)
	want.Won = true
	if diff := cmp.Diff(want, got); diff != "" {
		s.Fatalf("Claim(%q) (-want +got):\n%s", key, diff)
	}
	return t
}

func (s *suite) first(key string) store.Token {
	s.Helper()
	return s.won(key, store.Claim{Attempt: 1, Prior: store.PriorNone})
}

func (s *suite) refused(key string, want store.State) {
	s.Helper()
	if _, c := s.claim(key); c.Won || c.State != want {
		s.Fatalf("Claim(%q) = %+v, want %s", key, c, want)
	}
}

func (s *suite) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *suite) fails(err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Fatalf("error %v, want %v", err, want)
	}
}

func (s *suite) state(key string, want store.State) store.Event {
	s.Helper()
	e, err := s.Event(s.ctx, key)
	s.ok(err)
	if e.State != want {
		s.Fatalf("%q is %s, want %s: %+v", key, e.State, want, e)
	}
	return e
}

func (s *suite) gone(key string) {
	s.Helper()
	_, err := s.Event(s.ctx, key)
	s.fails(err, store.ErrNotFound)
}

// all runs f n times at once.
func all(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

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

func templateRow(s *suite) {
	if !s.Template("evt:1") {
		s.Fatal("the template's INSERT did not return the new key")
	}
	s.refused("evt:1", store.Done)
	e := s.state("evt:1", store.Done)
	if e.Attempts != 1 || e.CompletedAt != nil || e.Status != nil {
		s.Errorf("%+v", e)
	}
	if age := time.Since(e.FirstSeen); age < -time.Minute || age > time.Minute {
		s.Errorf("first seen %v ago", age)
	}
}

func templateInsert(s *suite) {
	s.first("evt:1")
	if s.Template("evt:1") {
		s.Error("the template's INSERT returned a key that is claimed")
	}
	s.state("evt:1", store.InFlight)
}

func cleanup(s *suite) {
	const month = 720 * time.Hour
	done := s.first("done")
	s.ok(s.Complete(s.ctx, "done", done, 200))
	s.Age("done", month+time.Hour)
	s.Template("template")
	s.Age("template", month+time.Hour)
	s.first("ran out")
	s.Age("ran out", month+time.Hour)
	// Kept: recent ones, and what is old but was settled or renewed lately.
	fresh := s.first("fresh")
	s.ok(s.Complete(s.ctx, "fresh", fresh, 200))
	s.Template("fresh template")
	late := s.first("completed late")
	s.Age("completed late", month+time.Hour)
	s.ok(s.Complete(s.ctx, "completed late", late, 200))
	live := s.first("live")
	s.Age("live", 2*month)
	s.ok(s.Renew(s.ctx, "live", live))
	s.first("ran out lately")
	s.Age("ran out lately", time.Hour)

	got, err := s.Opened.Cleanup(s.ctx, month)
	s.ok(err)
	if diff := cmp.Diff(store.Cleaned{Deleted: 3, Unsettled: 1}, got); diff != "" {
		s.Error(diff)
	}
	for _, key := range []string{"done", "template", "ran out"} {
		s.gone(key)
	}
	for _, key := range []string{"fresh", "fresh template", "completed late"} {
		s.state(key, store.Done)
	}
	s.state("live", store.InFlight)
	s.state("ran out lately", store.Unknown)
}

func cleanupHeld(s *suite) {
	s.first("evt:1")
	s.Age("evt:1", 2000*time.Hour)
	got, err := s.Opened.Cleanup(s.ctx, time.Hour)
	s.ok(err)
	if got.Deleted != 0 {
		s.Errorf("%+v", got)
	}
	s.state("evt:1", store.Held)
}

func cleanupMany(s *suite) {
	const many = 1100 // more than one batch
	for i := range many {
		if !s.Template(fmt.Sprint("evt:", i)) {
			s.Fatalf("evt:%d was there", i)
		}
	}
	s.Age("", 100*time.Hour)
	s.first("live")
	got, err := s.Opened.Cleanup(s.ctx, time.Hour)
	s.ok(err)
	if got.Deleted != many {
		s.Errorf("%+v", got)
	}
	s.state("live", store.InFlight)
}

func keys(s *suite) {
	for _, key := range []string{
		"evt:'; DROP TABLE processed_events; --", `evt:\`, `evt:{a,"b"}`, "evt:NULL", "NULL", "evt:%s$1", "evt:🧿", "evt: ", "evt:\n\t",
		"evt:\u00c9", "evt:E\u0301", "a/b/evt:1", "EVT:1", "evt:1", "x", "evt:" + strings.Repeat("k", 251),
	} {
		t := s.first(key)
		s.refused(key, store.InFlight)
		s.ok(s.Renew(s.ctx, key, t))
		s.ok(s.Complete(s.ctx, key, t, 200))
		s.refused(key, store.Done)
		if e := s.state(key, store.Done); e.Key != key {
			s.Errorf("%q came back as %q", key, e.Key)
		}
	}
}

func events(s *suite) {
	s.first("in flight")
	s.Age("in flight", 3*time.Second)
	t := s.first("done")
	s.ok(s.Complete(s.ctx, "done", t, 200))
	s.Age("done", 2*time.Second)
	t = s.first("unknown")
	s.ok(s.EndLease(s.ctx, "unknown", t))
	s.Age("unknown", time.Second)
	for _, tt := range []struct {
		state store.State
		limit int
		want  []string
	}{
		{"", 10, []string{"unknown", "done", "in flight"}},
		{"", 2, []string{"unknown", "done"}},
		{store.Done, 10, []string{"done"}},
		{store.InFlight, 10, []string{"in flight"}},
		{store.Unknown, 10, []string{"unknown"}},
		{store.Held, 10, nil},
	} {
		list, err := s.Events(s.ctx, tt.state, tt.limit)
		s.ok(err)
		var got []string
		for _, e := range list {
			got = append(got, e.Key)
			if tt.state != "" && e.State != tt.state {
				s.Errorf("among %s: %+v", tt.state, e)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			s.Errorf("Events(%q, %d):\n%s", tt.state, tt.limit, diff)
		}
	}
	if _, err := s.Events(s.ctx, "lost", 1); err == nil {
		s.Error("a state that is none was accepted")
	}
}

func schema(s *suite) {
	s.ok(s.Ping(s.ctx))
	s.ok(s.CheckSchema(s.ctx))
	s.first("evt:1")
	s.ok(s.Migrate(s.ctx, false))
	s.ok(s.Migrate(s.ctx, true))
	s.state("evt:1", store.InFlight)
	if st := s.Stats(); st.Max < 1 || st.InUse > st.Max {
		s.Errorf("%+v", st)
	}
}

func leaver(s *suite) {
	gone, leave := context.WithCancel(s.ctx)
	leave()
	all(200, func(i int) {
		ctx := s.ctx
		if i%2 == 0 {
			ctx = gone
		}
		_, err := s.Claim(ctx, fmt.Sprint("evt:", i), store.NewToken())
		if i%2 == 1 && err != nil {
			s.Error("one who stayed: ", err)
		}
		if i%2 == 0 && err != nil && !errors.Is(err, context.Canceled) {
			s.Error("one who left: ", err)
		}
	})
}
