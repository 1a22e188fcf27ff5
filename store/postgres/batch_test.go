package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hookonce/hookonce/store"
	"github.com/hookonce/hookonce/store/pgtest"
	"github.com/hookonce/hookonce/store/postgres"
	"github.com/hookonce/hookonce/store/storetest"
)

func TestPoisonedKeyHarmsNobodyElse(t *testing.T) {
	s := open(t, pgtest.Start(t).Database(t), storetest.Options())
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			key := fmt.Sprint("evt:", i)
			if i%10 == 0 {
				key += "\x00" // Postgres takes no NUL in a text
			}
			c, err := s.Claim(t.Context(), key, store.NewToken())
			if i%10 == 0 && (err == nil || errors.Is(err, store.ErrUncertain)) {
				t.Errorf("poisoned: %+v, %v", c, err)
			}
			if i%10 != 0 && (err != nil || !c.Won) {
				t.Errorf("%+v, %v", c, err)
			}
		})
	}
	wg.Wait()
}

// Two replicas, each with batches of random keys in any order, all kinds of
// operations, on leases that keep running out.
func TestReplicasDoNotDeadlock(t *testing.T) {
	url := pgtest.Start(t).Database(t)
	o := storetest.Options()
	o.Lease = time.Millisecond
	replicas := []*postgres.Store{open(t, url, o), open(t, url, o)}
	var claims atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			s := replicas[g%2]
			for i := 0; ctx.Err() == nil; i++ {
				key, token := fmt.Sprint("evt:", rand.IntN(40)), store.NewToken()
				c, err := s.Claim(ctx, key, token)
				if err == nil && c.Won {
					claims.Add(1)
					switch rand.IntN(5) {
					case 0:
						err = s.Renew(ctx, key, token)
					case 1:
						err = s.Complete(ctx, key, token, 200)
					case 2:
						err = s.EndLease(ctx, key, token)
					case 3:
						err = s.Release(ctx, key, token)
					}
				} else if err == nil && c.State == store.Done {
					err = s.PassEvent(ctx, key)
				}
				if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrLost) && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	var deadlocks int
	db := raw(t, url)
	// A backend reports when it ends, so the replicas' have to.
	for _, s := range replicas {
		s.Close()
	}
	if err := db.QueryRow(t.Context(), `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`).Scan(&deadlocks); err != nil {
		t.Fatal(err)
	}
	if deadlocks > 0 {
		t.Errorf("%d deadlocks in %d claims", deadlocks, claims.Load())
	}
	t.Logf("%d claims won", claims.Load())
}

// What a row and the server's log look like from below.
type below struct {
	Xmin, Xmax, Ctid, LSN string
	Xid                   int64
}

func TestDuplicatesWriteNothing(t *testing.T) {
	server := pgtest.StartOwn(t) // alone on it, so that nobody else writes
	url := server.Database(t)
	s := open(t, url, storetest.Options())
	db := raw(t, url)
	done, live := store.NewToken(), store.NewToken()
	for key, token := range map[string]store.Token{"done": done, "live": live} {
		if c, err := s.Claim(t.Context(), key, token); err != nil || !c.Won {
			t.Fatal(c, err)
		}
	}
	if err := s.Complete(t.Context(), "done", done, 200); err != nil {
		t.Fatal(err)
	}
	claim := func(i int) {
		if c, err := s.Claim(t.Context(), []string{"done", "live"}[i%2], store.NewToken()); err != nil || c.Won {
			t.Error(c, err)
		}
	}
	storm := func() { // in a storm claims look first, else they insert first
		var wg sync.WaitGroup
		for i := range 400 {
			wg.Go(func() { claim(i) })
		}
		wg.Wait()
		for i := range 10 {
			claim(i)
		}
	}
	look := func() (rows []below) {
		for _, key := range []string{"done", "live"} {
			var b below
			if err := db.QueryRow(t.Context(), `SELECT xmin::text, xmax::text, ctid::text, pg_current_wal_insert_lsn()::text,
				pg_snapshot_xmax(pg_current_snapshot())::text::bigint FROM processed_events WHERE key = $1`, key).
				Scan(&b.Xmin, &b.Xmax, &b.Ctid, &b.LSN, &b.Xid); err != nil {
				t.Fatal(err)
			}
			rows = append(rows, b)
		}
		return rows
	}
	storm() // the first readers of a page may tidy it
	server.Exec(t, url, "CHECKPOINT")
	before := look()
	storm()
	if diff := cmp.Diff(before, look()); diff != "" {
		t.Errorf("duplicates wrote (-before +after):\n%s", diff)
	}
}

// In a storm of duplicates claims look before they insert: whoever is new, or
// whose row has gone, must not notice.
func TestNewEventsInAStormOfDuplicatesAreWonOnce(t *testing.T) {
	o := storetest.Options()
	var largest atomic.Int64
	o.ObserveBatch = func(size int) { largest.Store(max(largest.Load(), int64(size))) }
	s := open(t, pgtest.Start(t).Database(t)+"&pool_max_conns=1", o)
	for i := range 50 {
		key, token := fmt.Sprint("done:", i), store.NewToken()
		if _, err := s.Claim(t.Context(), key, token); err != nil {
			t.Fatal(err)
		}
		if err := s.Complete(t.Context(), key, token, 200); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 20 {
		var won, known atomic.Int64
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				key := fmt.Sprint("done:", i%50)
				if i%10 == 0 { // twice each
					key = fmt.Sprintf("new:%d:%d", round, i/20)
				}
				c, err := s.Claim(t.Context(), key, store.NewToken())
				switch {
				case err != nil:
					t.Error(err)
				case c.Won && i%10 == 0:
					won.Add(1)
				case c.State == store.Done && i%10 != 0:
					known.Add(1)
				}
			})
		}
		wg.Wait()
		if won.Load() != 10 || known.Load() != 180 {
			t.Errorf("round %d: %d won, %d known, want 10 and 180", round, won.Load(), known.Load())
		}
	}
	if largest.Load() < 8 {
		t.Errorf("the largest batch had %d claims: no storm", largest.Load())
	}
}

func TestCompletionsAreHeapOnlyUpdates(t *testing.T) {
	url := pgtest.Start(t).Database(t)
	s := open(t, url, storetest.Options())
	const n = 2000
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := g; i < n; i += 8 {
				key, token := fmt.Sprintf("evt:%x", rand.Uint64()), store.NewToken()
				if _, err := s.Claim(t.Context(), key, token); err != nil {
					t.Error(err)
				}
				if err := s.Complete(t.Context(), key, token, 200); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	s.Close() // backends report when they end
	var all, hot int
	db := raw(t, url)
	if err := db.QueryRow(t.Context(), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'processed_events'`).Scan(&all, &hot); err != nil {
		t.Fatal(err)
	}
	if all != n || hot < n*9/10 {
		t.Errorf("%d of %d updates were heap-only", hot, all)
	}
}

func TestClaimsThatWaitShareABatch(t *testing.T) {
	url := pgtest.Start(t).Database(t) + "&pool_max_conns=1"
	var sizes []int // one flight at a time has the connection
	var mu sync.Mutex
	o := storetest.Options()
	o.ObserveBatch = func(n int) {
		mu.Lock()
		defer mu.Unlock()
		sizes = append(sizes, n)
	}
	s := open(t, url, o)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			if c, err := s.Claim(t.Context(), fmt.Sprint("evt:", i), store.NewToken()); err != nil || !c.Won {
				t.Error(c, err)
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, n := range sizes {
		sum += n
	}
	if sum != 200 || len(sizes) > 100 {
		t.Errorf("batches of %v", sizes)
	}
}

func TestThroughPgBouncerInTransactionMode(t *testing.T) {
	server := pgtest.Start(t)
	through := server.Bouncer(t)
	storetest.Run(t, func(t *testing.T, o store.Options) storetest.Opened {
		direct := server.Database(t)
		both := opened(t, direct, o)
		both.Store = open(t, through(direct)+"&pool_max_conns=8", o)
		return both
	})
}
