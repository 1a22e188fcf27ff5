package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/hookonce/hookonce/store"
	"github.com/hookonce/hookonce/store/sqlite"
	"github.com/hookonce/hookonce/store/storetest"
)

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T, o store.Options) storetest.Opened {
		return opened(t, filepath.Join(t.TempDir(), "hookonce.db"), o)
	})
}

func open(t testing.TB, path string, o store.Options) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open("sqlite:"+path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := s.Migrate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	return s
}

// raw is a way to the file behind the store's back, as another process has.
func raw(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_busy_timeout=5000&_synchronous=OFF")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	return db
}

func opened(t testing.TB, path string, o store.Options) storetest.Opened {
	s := open(t, path, o)
	db := raw(t, path)
	exec := func(query string, args ...any) int64 {
		res, err := db.Exec(query, args...)
		if err != nil {
			t.Error(err)
			return 0
		}
		n, _ := res.RowsAffected()
		return n
	}
	return storetest.Opened{
		Store: s,
		Age: func(key string, d time.Duration) {
			exec(`UPDATE processed_events SET first_seen = first_seen - ?2, lease_until = lease_until - ?2, completed_at = completed_at - ?2
				WHERE key = ?1 OR ?1 = ''`, key, d.Milliseconds())
		},
		Template: func(key string) bool {
			return exec(`INSERT INTO processed_events (key) VALUES (?) ON CONFLICT (key) DO NOTHING RETURNING key`, key) == 1
		},
		Delete: func(key string) { exec(`DELETE FROM processed_events WHERE key = ?`, key) },
	}
}

func BenchmarkStore(b *testing.B) {
	storetest.Benchmark(b, func(b *testing.B, o store.Options) storetest.Store {
		return open(b, filepath.Join(b.TempDir(), "hookonce.db"), o)
	})
}
