package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/hookonce/hookonce/store"
)

// The state is never stored: it follows from lease and hold, on the store's clock.
const eventSQL = `
SELECT key,
  CASE
    WHEN lease_until IS NULL THEN 'done'
    WHEN lease_until > {now} THEN 'in_flight'
    WHEN hold THEN 'held'
    ELSE 'unknown'
  END AS state,
  {seen}, attempts, prior, lease_until, completed_at, status
FROM {table}
`

// which says of a state what its rows have in common.
func which(state store.State) (where string, ok bool) {
	switch state {
	case "":
		return "true", true
	case store.Done:
		return "lease_until IS NULL", true
	case store.InFlight:
		return "lease_until > {now}", true
	case store.Held:
		return "hold AND lease_until <= {now}", true
	case store.Unknown:
		return "NOT hold AND lease_until <= {now}", true
	}
	return "", false
}

// Event returns what is known of one key, or store.ErrNotFound.
func (s *Store) Event(ctx context.Context, key string) (store.Event, error) {
	events, err := s.list(ctx, eventSQL+"WHERE key = ?1", key)
	if err == nil && len(events) == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return store.Event{}, err
	}
	return events[0], nil
}

// Events lists events of one state ("": of any), newest first, limit at most.
func (s *Store) Events(ctx context.Context, state store.State, limit int) ([]store.Event, error) {
	where, ok := which(state)
	if !ok {
		return nil, fmt.Errorf("%q is no state: it is in_flight, done, held or unknown", state)
	}
	return s.list(ctx, eventSQL+"WHERE "+where+"\nORDER BY {seen} DESC, key\nLIMIT ?1", limit)
}

func (s *Store) list(ctx context.Context, query string, arg any) (events []store.Event, err error) {
	err = s.read(ctx, query, func(rows *sql.Rows) error {
		var e store.Event
		var firstSeen int64
		var leaseUntil, completedAt *int64
		err := rows.Scan(&e.Key, &e.State, &firstSeen, &e.Attempts, &e.Prior, &leaseUntil, &completedAt, &e.Status)
		e.FirstSeen, e.LeaseUntil, e.CompletedAt = time.UnixMilli(firstSeen), fromMilli(leaseUntil), fromMilli(completedAt)
		events = append(events, e)
		return err
	}, arg)
	return events, err
}

func fromMilli(ms *int64) *time.Time {
	if ms == nil {
		return nil
	}
	t := time.UnixMilli(*ms)
	return &t
}

// ReleaseEvent gives a key back in a person's name: the next delivery runs and
// is told what is known. A live or done event only by force.
func (s *Store) ReleaseEvent(ctx context.Context, key string, force bool) error {
	return s.decide(ctx, key, `
UPDATE {table}
SET prior = CASE WHEN lease_until IS NULL THEN 'done' ELSE prior END,
  lease_until = {now},
  token = NULL,
  hold = false
WHERE key = ?1
  AND (?2 OR lease_until <= {now})`, key, force)
}

// CompleteEvent settles an event in a person's name: its deliveries are
// duplicates from now on. A live one only by force.
func (s *Store) CompleteEvent(ctx context.Context, key string, force bool) error {
	return s.decide(ctx, key, `
UPDATE {table}
SET completed_at = CASE WHEN lease_until IS NULL THEN completed_at ELSE {now} END,
  lease_until = NULL,
  token = NULL,
  hold = false
WHERE key = ?1
  AND (?2 OR lease_until IS NULL OR lease_until <= {now})`, key, force)
}

// PassEvent lets exactly one more delivery of a done event run, told so.
func (s *Store) PassEvent(ctx context.Context, key string) error {
	return s.decide(ctx, key, `
UPDATE {table}
SET prior = 'done',
  lease_until = {now},
  token = NULL,
  hold = false
WHERE key = ?1
  AND lease_until IS NULL`, key)
}

// decide changes one row, or says why not.
func (s *Store) decide(ctx context.Context, key, statement string, args ...any) error {
	var changed int64
	err := s.write(ctx, func(w *writer) (err error) {
		changed, err = w.exec(statement, args...)
		return err
	})
	if err != nil || changed > 0 {
		return err
	}
	e, err := s.Event(ctx, key)
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: it is %s", store.ErrConflict, e.State)
}

// HeldCount counts the events that wait for a person.
func (s *Store) HeldCount(ctx context.Context) (n int, err error) {
	err = s.read(ctx, `
SELECT count(*)
FROM {table}
WHERE hold
  AND lease_until <= {now}`, func(rows *sql.Rows) error { return rows.Scan(&n) })
	return n, err
}

// cleanupBatch rows are deleted in one transaction, which claims may share.
const cleanupBatch = 500

const cleanupSQL = `
DELETE FROM {table}
WHERE key IN (
  SELECT key
  FROM {table}
  WHERE {seen} < {now} - ?1
    AND (lease_until IS NULL AND COALESCE(completed_at, {seen}) < {now} - ?1
      OR lease_until < {now} - ?1 AND NOT hold)
  ORDER BY {seen}
  LIMIT ?2)
RETURNING lease_until IS NOT NULL`

// Cleanup deletes what has been settled for longer than the retention, and what
// nobody retried for as long since its lease ran out, in small batches, as long
// again at rest as at work. Live and held events stay.
func (s *Store) Cleanup(ctx context.Context, retention time.Duration) (store.Cleaned, error) {
	var all store.Cleaned
	for {
		began := time.Now()
		var batch store.Cleaned
		err := s.write(ctx, func(w *writer) (err error) {
			batch, err = w.cleanup(retention)
			return err
		})
		if err != nil {
			return all, err
		}
		all.Deleted += batch.Deleted
		all.Unsettled += batch.Unsettled
		if batch.Deleted < cleanupBatch {
			return all, nil
		}
		select {
		case <-time.After(time.Since(began)):
		case <-ctx.Done():
			return all, context.Cause(ctx)
		}
	}
}

func (w *writer) cleanup(retention time.Duration) (c store.Cleaned, err error) {
	st, err := w.prepared(cleanupSQL)
	if err != nil {
		return c, err
	}
	rows, err := st.Query(retention.Milliseconds(), cleanupBatch)
	if err != nil {
		return c, err
	}
	defer rows.Close()
	for rows.Next() {
		var unsettled bool
		if err := rows.Scan(&unsettled); err != nil {
			return c, err
		}
		c.Deleted++
		if unsettled {
			c.Unsettled++
		}
	}
	return c, rows.Err()
}
