package postgres_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hookonce/hookonce/store"
	"github.com/hookonce/hookonce/store/pgtest"
	"github.com/hookonce/hookonce/store/postgres"
	"github.com/hookonce/hookonce/store/storetest"
)

func TestContract(t *testing.T) {
	server := pgtest.Start(t)
	storetest.Run(t, func(t *testing.T, o store.Options) storetest.Opened {
		return opened(t, server.Database(t), o)
	})
}

func TestContractWithoutBatches(t *testing.T) {
	server := pgtest.Start(t)
	storetest.Run(t, func(t *testing.T, o store.Options) storetest.Opened {
		o.BatchSize = 1
		return opened(t, server.Database(t), o)
	})
}

// What one table is too small for can be hash partitions (deploy/performance.md).
func TestContractOnHashPartitions(t *testing.T) {
	server := pgtest.Start(t)
	storetest.Run(t, func(t *testing.T, o store.Options) storetest.Opened {
		url := server.Database(t)
		server.Exec(t, url, partitions(t))
		return opened(t, url, o)
	})
}

// partitions are the statements that deploy/performance.md shows.
func partitions(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "```sql\n")
	sql, _, found := strings.Cut(after, "```")
	if !found || !strings.Contains(sql, "PARTITION BY HASH") {
		t.Fatal("deploy/performance.md shows no partitions")
	}
	return sql
}

// open returns a store on that database, migrated.
func open(t testing.TB, url string, o store.Options) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := s.Migrate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	return s
}

// raw is a way to the database behind the store's back.
func raw(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	p, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func opened(t testing.TB, url string, o store.Options) storetest.Opened {
	s := open(t, url, o)
	db := raw(t, url)
	exec := func(sql string, args ...any) int64 {
		tag, err := db.Exec(t.Context(), sql, args...)
		if err != nil {
			t.Error(err)
		}
		return tag.RowsAffected()
	}
	return storetest.Opened{
		Store: s,
		Age: func(key string, d time.Duration) {
			exec(fmt.Sprintf(`UPDATE processed_events SET first_seen = first_seen - i, lease_until = lease_until - i, completed_at = completed_at - i
				FROM (SELECT interval '%f seconds' AS i) AS by WHERE key = $1 OR $1 = ''`, d.Seconds()), key)
		},
		Template: func(key string) bool {
			return exec(`INSERT INTO processed_events (key) VALUES ($1) ON CONFLICT (key) DO NOTHING RETURNING key`, key) == 1
		},
		Delete: func(key string) { exec(`DELETE FROM processed_events WHERE key = $1`, key) },
	}
}

// Durable, as in production: what a commit costs is what batches save.
func BenchmarkStore(b *testing.B) {
	server := pgtest.StartOwn(b, "fsync=on", "full_page_writes=on")
	storetest.Benchmark(b, func(b *testing.B, o store.Options) storetest.Store {
		return open(b, server.Database(b)+"&pool_max_conns=10", o)
	})
}
