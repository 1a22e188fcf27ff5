package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/hookonce/hookonce/store"
	"github.com/hookonce/hookonce/store/pgtest"
	"github.com/hookonce/hookonce/store/storetest"
)

func shortOptions() store.Options {
	o := storetest.Options()
	o.Timeout = 2 * time.Second
	return o
}

// fill opens connections by working on several keys at once.
func fill(t *testing.T, s storetest.Store, name string) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			key, token := fmt.Sprint(name, i), store.NewToken()
			if c, err := s.Claim(t.Context(), key, token); err != nil || !c.Won {
				t.Error(c, err)
			}
			if err := s.Complete(t.Context(), key, token, 200); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestRestartIsNotNoticed(t *testing.T) {
	server := pgtest.StartOwn(t)
	url := server.Database(t)
	s := open(t, url, shortOptions())
	fill(t, s, "before ")
	server.Stop(t)
	server.Run(t)
	fill(t, s, "after ") // on connections that are all broken
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStoppedServerIsAnErrorInTimeAndNothingIsClaimed(t *testing.T) {
	server := pgtest.StartOwn(t)
	s := open(t, server.Database(t), shortOptions())
	fill(t, s, "before ")
	server.Stop(t)
	began := time.Now()
	_, err := s.Claim(t.Context(), "evt:1", store.NewToken())
	if err == nil || time.Since(began) > 3*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	_, err = s.Claim(t.Context(), "evt:2", store.NewToken())
	if err == nil || errors.Is(err, store.ErrUncertain) {
		t.Errorf("nothing was sent, yet: %v", err)
	}
	for what, err := range map[string]error{
		"ping": s.Ping(t.Context()), "check": s.CheckSchema(t.Context()), "renew": s.Renew(t.Context(), "evt:1", store.NewToken()),
	} {
		if err == nil || errors.Is(err, store.ErrLost) {
			t.Errorf("%s: %v", what, err)
		}
	}
	server.Run(t)
	fill(t, s, "after ")
}

func TestFrozenServerIsAnErrorInTimeAndRecovers(t *testing.T) {
	server := pgtest.StartOwn(t)
	url := server.Database(t)
	leaks := goleak.IgnoreCurrent()
	s := open(t, url, shortOptions())
	fill(t, s, "before ")
	server.Freeze(t)
	var wg sync.WaitGroup
	began := time.Now()
	for i := range 20 {
		wg.Go(func() {
			if _, err := s.Claim(t.Context(), fmt.Sprint("evt:", i), store.NewToken()); err == nil {
				t.Error("a frozen server answered")
			}
		})
	}
	wg.Wait()
	if d := time.Since(began); d > 2500*time.Millisecond {
		t.Errorf("took %v, with a timeout of 2 s", d)
	}
	server.Thaw(t)
	deadline := time.Now().Add(5 * time.Second)
	for s.Ping(t.Context()) != nil {
		if time.Now().After(deadline) {
			t.Fatal("the pool did not recover")
		}
	}
	fill(t, s, "after ")
	s.Close()
	goleak.VerifyNone(t, leaks)
}

func TestKeyThatSomebodyHoldsUncommittedDoesNotHoldUpOthers(t *testing.T) {
	server := pgtest.Start(t)
	url := server.Database(t)
	s := open(t, url, shortOptions())
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.Background())
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "INSERT INTO processed_events (key) VALUES ('evt:locked')"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := s.Claim(t.Context(), "evt:locked", store.NewToken()); err == nil {
			t.Error("claimed what somebody else may still commit")
		}
	})
	for i := range 20 {
		wg.Go(func() {
			if c, err := s.Claim(t.Context(), fmt.Sprint("evt:", i), store.NewToken()); err != nil || !c.Won {
				t.Errorf("%d: %+v, %v", i, c, err)
			}
		})
	}
	wg.Wait()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c, err := s.Claim(t.Context(), "evt:locked", store.NewToken()); err != nil || !c.Won {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestTakeoverDoesNotWaitForARowThatSomebodyIsAt(t *testing.T) {
	url := pgtest.Start(t).Database(t)
	s, db := open(t, url, storetest.Options()), raw(t, url)
	token := store.NewToken()
	if _, err := s.Claim(t.Context(), "evt:1", token); err != nil {
		t.Fatal(err)
	}
	if err := s.EndLease(t.Context(), "evt:1", token); err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM processed_events FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	if c, err := s.Claim(t.Context(), "evt:1", store.NewToken()); err != nil || c.Won || c.State != store.InFlight {
		t.Errorf("%+v, %v", c, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c, err := s.Claim(t.Context(), "evt:1", store.NewToken()); err != nil || !c.Won || c.Prior != store.PriorUnknown {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestRowThatSomebodyHoldsDoesNotHoldUpOtherSettlements(t *testing.T) {
	url := pgtest.Start(t).Database(t) + "&pool_max_conns=1"
	s, db := open(t, url, shortOptions()), raw(t, url)
	tokens := make([]store.Token, 20)
	for i := range tokens {
		tokens[i] = store.NewToken()
		if _, err := s.Claim(t.Context(), fmt.Sprint("evt:", i), tokens[i]); err != nil {
			t.Fatal(err)
		}
	}
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM processed_events WHERE key = 'evt:0' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i, token := range tokens {
		wg.Go(func() {
			err := s.Complete(t.Context(), fmt.Sprint("evt:", i), token, 200)
			if i > 0 && err != nil || i == 0 && err == nil {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Complete(t.Context(), "evt:0", tokens[0], 200); err != nil {
		t.Error(err)
	}
}

func TestUncertainClaimIsFoundUnderItsToken(t *testing.T) {
	server := pgtest.StartOwn(t)
	url := server.Database(t)
	s := open(t, url, shortOptions())
	fill(t, s, "before ") // so that the claim goes out on a connection that is there
	server.Freeze(t)
	token := store.NewToken()
	if _, err := s.Claim(t.Context(), "evt:1", token); !errors.Is(err, store.ErrUncertain) {
		t.Fatalf("got %v, want ErrUncertain", err)
	}
	server.Thaw(t)
	deadline := time.Now().Add(5 * time.Second)
	for s.Ping(t.Context()) != nil {
		if time.Now().After(deadline) {
			t.Fatal("the pool did not recover")
		}
	}
	// Whether it was committed or not, the same token wins.
	if c, err := s.Claim(t.Context(), "evt:1", token); err != nil || !c.Won || c.Attempt != 1 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestReadOnlyConnectionsAreThrownAway(t *testing.T) {
	server := pgtest.StartOwn(t)
	url := server.Database(t)
	s := open(t, url, shortOptions())
	fill(t, s, "before ")
	server.Exec(t, url, "ALTER ROLE postgres SET default_transaction_read_only = on")
	server.Exec(t, url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'hookonce'")
	_, err := s.Claim(t.Context(), "evt:1", store.NewToken())
	if err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("got %v", err)
	}
	server.Exec(t, url+"&default_transaction_read_only=off", `ALTER ROLE postgres SET default_transaction_read_only = off`)
	fill(t, s, "after ")
}

func TestExhaustedServerIsNotStormed(t *testing.T) {
	server := pgtest.StartOwn(t, "max_connections=8", "superuser_reserved_connections=0", "max_wal_senders=0", "autovacuum=off")
	url := server.Database(t)
	s := open(t, url, shortOptions())
	server.Exec(t, url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'hookonce'")
	var others []*pgx.Conn
	for {
		c, err := pgx.Connect(t.Context(), url)
		if err != nil {
			break
		}
		others = append(others, c)
	}
	mark := len(server.Log())
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			_, err := s.Claim(t.Context(), fmt.Sprint("evt:", i), store.NewToken())
			if err == nil || !strings.Contains(err.Error(), "no connection left") {
				t.Errorf("got %v", err)
			}
		})
	}
	began := time.Now()
	wg.Wait()
	if n := strings.Count(server.Log()[mark:], "too many clients"); n > 2+int(time.Since(began)/(400*time.Millisecond)) {
		t.Errorf("%d attempts to connect in %v", n, time.Since(began))
	}
	for _, c := range others {
		c.Close(t.Context())
	}
	fill(t, s, "after ")
}
