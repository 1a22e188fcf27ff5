package postgres_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hookonce/hookonce/store"
	"github.com/hookonce/hookonce/store/pgtest"
	"github.com/hookonce/hookonce/store/storetest"
)

// BenchmarkClaimAmong compares claims in an empty table with those among ten
// million keys, inserted in random order as events are: one after the other and
// in turn (medians), and events that 128 callers claim and complete (rates).
//
//	go test -run '^$' -bench ClaimAmong -benchtime 2000x -timeout 60m ./store/postgres
func BenchmarkClaimAmong(b *testing.B) {
	const keys, chunk = 10_000_000, 250_000
	server := pgtest.StartOwn(b, "fsync=on", "full_page_writes=on", "autovacuum_naptime=10s", "shared_buffers=1GB", "max_wal_size=16GB")
	few := storetest.Options()
	many := few
	many.Table = "many"
	url := server.Database(b)
	empty, full := open(b, url, few), open(b, url, many)
	db := raw(b, url)
	exec := func(sql string, args ...any) {
		if _, err := db.Exec(b.Context(), sql, args...); err != nil {
			b.Fatal(err)
		}
	}
	for range keys / chunk {
		exec(`INSERT INTO many (key, completed_at, status)
			SELECT 'evt:evt_' || substr(md5(random()::text), 1, 24), now(), 200 FROM generate_series(1, $1::int)`, chunk)
	}
	exec("VACUUM ANALYZE many") // not meanwhile
	exec("CHECKPOINT")
	took := map[storetest.Store][]time.Duration{}
	for b.Loop() {
		for _, s := range []storetest.Store{empty, full} {
			token := store.NewToken()
			begun := time.Now()
			if c, err := s.Claim(b.Context(), "evt:evt_"+token.String()[:24], token); err != nil || !c.Won {
				b.Fatal(c, err)
			}
			took[s] = append(took[s], time.Since(begun))
		}
	}
	median := func(s storetest.Store) float64 {
		slices.Sort(took[s])
		return took[s][len(took[s])/2].Seconds() * 1e3
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(empty), "ms-empty")
	b.ReportMetric(median(full), "ms-10M")
	b.ReportMetric(median(full)/median(empty), "ratio")
	var rates [2][]float64
	for range 5 {
		for i, s := range []storetest.Store{empty, full} {
			begun := time.Now()
			events(b, s, 20_000)
			rates[i] = append(rates[i], 20_000/time.Since(begun).Seconds())
		}
	}
	for i := range rates {
		slices.Sort(rates[i])
	}
	b.ReportMetric(rates[0][2], "events/s-empty")
	b.ReportMetric(rates[1][2], "events/s-10M")
}

// events lets 128 callers claim and complete so many events.
func events(b *testing.B, s storetest.Store, n int) {
	var all sync.WaitGroup
	for i := range 128 {
		all.Go(func() {
			for range (n + i) / 128 {
				token := store.NewToken()
				key := "evt:evt_" + token.String()[:24]
				if c, err := s.Claim(b.Context(), key, token); err != nil || !c.Won {
					b.Error(c, err)
				}
				if err := s.Complete(b.Context(), key, token, 200); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// BenchmarkBytesPerKey sends events through the store, 128 at once, and reports
// what table and indexes take for each, and how many settlements were heap-only
// updates.
//
//	go test -run '^$' -bench BytesPerKey -benchtime 1000000x ./store/postgres
func BenchmarkBytesPerKey(b *testing.B) {
	server := pgtest.StartOwn(b, "fsync=on", "full_page_writes=on", "autovacuum_naptime=10s", "max_wal_size=4GB")
	url := server.Database(b)
	s, db := open(b, url, storetest.Options()), raw(b, url)
	var wal, walAfter int64
	one := func(sql string, into ...any) {
		if err := db.QueryRow(context.Background(), sql).Scan(into...); err != nil {
			b.Fatal(err)
		}
	}
	const written = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"
	one(written, &wal)
	events(b, s, b.N)
	one(written, &walAfter)
	var rows, table, indexes, hot, updates float64
	one(`SELECT count(*) FROM processed_events`, &rows)
	one(`SELECT pg_table_size('processed_events'), pg_indexes_size('processed_events')`, &table, &indexes)
	db.Close() // a session reports what it did when it ends
	s.Close()
	db = raw(b, url)
	one(`SELECT n_tup_hot_upd, n_tup_upd FROM pg_stat_user_tables WHERE relname = 'processed_events'`, &hot, &updates)
	b.ReportMetric(table/rows, "table-B/key")
	b.ReportMetric(indexes/rows, "index-B/key")
	b.ReportMetric(float64(walAfter-wal)/rows, "wal-B/key")
	b.ReportMetric(100*hot/updates, "%hot")
}
