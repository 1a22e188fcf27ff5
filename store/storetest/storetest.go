// Package storetest is the contract of a store as one suite, which every store
// has to pass, and any fake that tests use.
package storetest

import (
	"context"
	"errors"
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
