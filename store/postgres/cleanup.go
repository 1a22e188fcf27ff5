package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hookonce/hookonce/store"
)

// cleanupBatch rows are deleted in one transaction: some milliseconds of work.
const cleanupBatch = 1000

// Without statistics, as after a bulk load, the planner would sort a million rows
// for each batch; so it may only walk the index.
const walkSQL = `
SELECT set_config('enable_seqscan', 'off', true),
  set_config('enable_bitmapscan', 'off', true),
  set_config('enable_sort', 'off', true)`

// The advisory lock lasts as long as the statement's own transaction, so that
// it needs no session; whoever does not get it deletes nothing. Rows that a
// claim is at work on are skipped. $2 is where the batch before this one ended:
// the index entries of what it deleted need not be walked again.
// A partition has ctids of its own, hence tableoid.
const cleanupSQL = `
WITH turn AS MATERIALIZED (
  SELECT pg_try_advisory_xact_lock(hashtextextended($4::text, 0)) AS mine),
old AS (
  SELECT tableoid, ctid
  FROM {table}
  WHERE (SELECT mine FROM turn)
    AND first_seen < now() - make_interval(secs => $1::float8)
    AND first_seen >= $2::timestamptz
    AND (lease_until IS NULL AND COALESCE(completed_at, first_seen) < now() - make_interval(secs => $1::float8)
      OR lease_until < now() - make_interval(secs => $1::float8) AND NOT hold)
  ORDER BY first_seen
  LIMIT $3::int
  FOR UPDATE SKIP LOCKED)
DELETE FROM {table} AS e
USING old
WHERE e.ctid = old.ctid
  AND e.tableoid = old.tableoid
RETURNING e.first_seen, e.lease_until IS NOT NULL`

// Cleanup deletes what has been settled for longer than the retention, and what
// nobody retried for as long since its lease ran out. It works in small
// batches, three times as long at rest as at work, one replica at a time; it
// never waits for a claim nor lets one wait. Live and held events stay.
func (s *Store) Cleanup(ctx context.Context, retention time.Duration) (store.Cleaned, error) {
	var all store.Cleaned
	for from := time.Unix(0, 0); ; {
		began := time.Now()
		var batch store.Cleaned
		var last time.Time
		err := s.do(ctx, func(ctx context.Context, c *pgxpool.Conn) error {
			batch, last = store.Cleaned{}, from
			b := &pgx.Batch{} // one round trip, one transaction
			b.Queue(walkSQL)
			b.Queue(s.sql(cleanupSQL), retention.Seconds(), from, cleanupBatch, "hookonce cleanup "+s.table)
			answers := c.SendBatch(ctx, b)
			defer answers.Close()
			if _, err := answers.Exec(); err != nil {
				return err
			}
			rows, err := answers.Query()
			if err != nil {
				return err
			}
			var seen time.Time
			var unsettled bool
			_, err = pgx.ForEachRow(rows, []any{&seen, &unsettled}, func() error {
				batch.Deleted++
				if unsettled {
					batch.Unsettled++
				}
				if seen.After(last) {
					last = seen
				}
				return nil
			})
			if err != nil {
				return err
			}
			return answers.Close()
		})
		if err != nil {
			return all, err
		}
		from = last
		all.Deleted += batch.Deleted
		all.Unsettled += batch.Unsettled
		if batch.Deleted < cleanupBatch {
			return all, nil
		}
		select {
		case <-time.After(3 * time.Since(began)):
		case <-ctx.Done():
			return all, context.Cause(ctx)
		}
	}
}
