package sqlite_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hookonce/hookonce/store"
	"github.com/hookonce/hookonce/store/sqlite"
	"github.com/hookonce/hookonce/store/storetest"
)

func TestOpenSaysWhatIsWrongWithTheFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "not a database")
	if err := os.WriteFile(file, []byte(strings.Repeat("no database, ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	o := storetest.Options()
	for url, want := range map[string]string{
		"sqlite:" + dir + "/missing/x.db": "there is no directory",
		"sqlite:" + dir:                   "cannot be opened",
		"sqlite:":                         "must name a file",
		"sqlite::memory:":                 "must name a file",
		"mysql:x":                         "must name a file",
	} {
		if s, err := sqlite.Open(url, o); err == nil {
			s.Close()
			t.Errorf("%s was accepted", url)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v does not say %q", url, err, want)
		}
	}
	s, err := sqlite.Open("sqlite:"+file, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Migrate(t.Context(), false); err == nil || !strings.Contains(err.Error(), "damaged or no SQLite file") {
		t.Errorf("got %v", err)
	}
	o.Table = "a.b"
	if _, err := sqlite.Open("sqlite:"+filepath.Join(dir, "x.db"), o); err == nil || !strings.Contains(err.Error(), "a.b") {
		t.Errorf("a schema: %v", err)
	}
}

func TestFileNamesAndTablesOfAnyKind(t *testing.T) {
	for _, name := range []string{"with space.db", "odd?x=1&_pragma=y.db", "100%.db", "ünï#.db"} {
		o := storetest.Options()
		o.Table = `odd "table"; --`
		path := filepath.Join(t.TempDir(), name)
		s := open(t, path, o)
		if c, err := s.Claim(t.Context(), "evt:1", store.NewToken()); err != nil || !c.Won {
			t.Error(c, err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

func TestForeignTableIsLeftAloneUntilAdopted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hookonce.db")
	db := raw(t, path)
	for _, q := range []string{
		`CREATE TABLE processed_events (key TEXT PRIMARY KEY, first_seen TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)`,
		`INSERT INTO processed_events (key, first_seen) VALUES ('evt:old', '2001-02-03 04:05:06'), ('evt:new', CURRENT_TIMESTAMP)`,
	} {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	s, err := sqlite.Open("sqlite:"+path, storetest.Options())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := t.Context()
	for _, err := range []error{s.CheckSchema(ctx), s.Migrate(ctx, false)} {
		if !errors.Is(err, store.ErrForeignTable) || !strings.Contains(err.Error(), "--adopt") || !strings.Contains(err.Error(), "Remove the claim step") {
			t.Errorf("got %v", err)
		}
	}
	if err := s.Migrate(ctx, true); err != nil {
		t.Fatal(err)
	}
	if err := s.CheckSchema(ctx); err != nil {
		t.Error(err)
	}
	if c, err := s.Claim(ctx, "evt:old", store.NewToken()); err != nil || c.State != store.Done {
		t.Errorf("the template's row: %+v, %v", c, err)
	}
	if c, err := s.Claim(ctx, "evt:ours", store.NewToken()); err != nil || !c.Won {
		t.Error(c, err)
	}
	e, err := s.Event(ctx, "evt:old")
	if want := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC); err != nil || !e.FirstSeen.Equal(want) {
		t.Errorf("first seen %v, %v", e.FirstSeen, err)
	}
	if got, err := s.Cleanup(ctx, time.Hour); err != nil || got.Deleted != 1 {
		t.Errorf("%+v, %v: the old row, by its text", got, err)
	}
}

func TestTablesThatHookonceCannotUseAreRefused(t *testing.T) {
	for _, table := range []string{
		"CREATE TABLE processed_events (key TEXT, first_seen INTEGER)",
		"CREATE TABLE processed_events (key TEXT PRIMARY KEY, at INTEGER)",
		"CREATE TABLE processed_events (key TEXT PRIMARY KEY, first_seen INTEGER, payload TEXT)",
	} {
		path := filepath.Join(t.TempDir(), "hookonce.db")
		if _, err := raw(t, path).Exec(table); err != nil {
			t.Fatal(err)
		}
		s, err := sqlite.Open("sqlite:"+path, storetest.Options())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for _, err := range []error{s.CheckSchema(t.Context()), s.Migrate(t.Context(), true)} {
			if err == nil || !strings.Contains(err.Error(), "EVENTS_TABLE") {
				t.Errorf("%s: %v", table, err)
			}
		}
	}
}

// As the command line beside the server: another connection pool on the file.
func TestSeveralProcessesShareTheFile(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	path := filepath.Join(t.TempDir(), "hookonce.db")
	var stores [4]*sqlite.Store
	var wg sync.WaitGroup
	for i := range stores {
		s, err := sqlite.Open("sqlite:"+path, storetest.Options())
		if err != nil {
			t.Fatal(err)
		}
		stores[i] = s
		wg.Go(func() { // all on the empty file
			if err := s.Migrate(t.Context(), false); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var won [20]int
	var mu sync.Mutex
	for i := range won {
		for _, s := range stores {
			wg.Go(func() {
				c, err := s.Claim(t.Context(), fmt.Sprint("evt:", i), store.NewToken())
				if err != nil {
					t.Error(err)
				}
				if c.Won {
					mu.Lock()
					won[i]++
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	for i, n := range won {
		if n != 1 {
			t.Errorf("evt:%d was won by %d", i, n)
		}
	}
	for _, s := range stores {
		s.Close()
	}
	goleak.VerifyNone(t, leaks)
}

func TestLockedFileIsAnErrorInTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hookonce.db")
	o := storetest.Options()
	o.Timeout = 300 * time.Millisecond
	s := open(t, path, o)
	db := raw(t, path)
	if _, err := db.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	token := store.NewToken()
	if _, err := s.Claim(t.Context(), "evt:1", token); err == nil || errors.Is(err, store.ErrUncertain) {
		t.Errorf("got %v", err)
	}
	if d := time.Since(began); d > 2*time.Second {
		t.Errorf("took %v", d)
	}
	if _, err := s.Event(t.Context(), "evt:1"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a reader has to wait for a writer: %v", err)
	}
	if _, err := db.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if c, err := s.Claim(t.Context(), "evt:1", token); err != nil || !c.Won {
		t.Error(c, err)
	}
}

func TestWorkThatFailsUndoesNoOtherWork(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hookonce.db")
	s := open(t, path, storetest.Options())
	if _, err := raw(t, path).Exec(`CREATE TRIGGER poison BEFORE INSERT ON processed_events WHEN NEW.key LIKE '%bad%'
BEGIN SELECT RAISE(ROLLBACK, 'poisoned'); END`); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			key := fmt.Sprint("evt:", i)
			if i%10 == 0 {
				key += "bad"
			}
			c, err := s.Claim(t.Context(), key, store.NewToken())
			if i%10 == 0 && err == nil {
				t.Errorf("poisoned: %+v", c)
			}
			if i%10 != 0 && (err != nil || !c.Won) {
				t.Errorf("%+v, %v", c, err)
			}
		})
	}
	wg.Wait()
	list, err := s.Events(t.Context(), "", 100)
	if err != nil || len(list) != 54 {
		t.Errorf("%d rows, %v", len(list), err)
	}
}
