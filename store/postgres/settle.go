package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hookonce/hookonce/store"
)

// mineSQL begins renewals, releases and the ends of leases: the rows that still
// stand under the token named, locked in the order of the keys. (What $3 is
// for is said at insertSQL.)
const mineSQL = `
WITH mine AS (
  SELECT e.key, e.token, e.prior
  FROM unnest($1::text[], $2::text[]::uuid[]) AS asked (key, token)
  JOIN {table} AS e ON e.key = asked.key
    AND e.token = asked.token
  WHERE (SELECT set_config('lock_timeout', $3::text, true)) IS NOT NULL
  ORDER BY e.key
  FOR UPDATE OF e)`

// Renew makes the lease end Options.Lease from now, on the store's clock.
func (s *Store) Renew(ctx context.Context, key string, t store.Token) error {
	return s.ask(ctx, s.renewals, &op{key: key, token: t})
}

const renewSQL = mineSQL + `
UPDATE {table} AS e
SET lease_until = now() + make_interval(secs => $4::float8)
FROM mine
WHERE e.key = mine.key
RETURNING mine.key, mine.token`

func (s *Store) renewAll(ctx context.Context, conn *pgxpool.Conn, items []*item) ([]*item, error) {
	return s.settle(ctx, conn, items, renewSQL, s.o.Lease.Seconds())
}

// EndLease settles a claim whose outcome nobody knows: the row stays, and the
// next delivery runs and is told so; with Options.Hold it is held.
func (s *Store) EndLease(ctx context.Context, key string, t store.Token) error {
	return s.ask(ctx, s.ends, &op{key: key, token: t})
}

const endSQL = mineSQL + `
UPDATE {table} AS e
SET lease_until = now(),
  token = NULL,
  hold = $4::bool
FROM mine
WHERE e.key = mine.key
RETURNING mine.key, mine.token`

func (s *Store) endAll(ctx context.Context, conn *pgxpool.Conn, items []*item) ([]*item, error) {
	return s.settle(ctx, conn, items, endSQL, s.o.Hold)
}

// Release gives the key back: the next delivery runs. The row goes, save where
// an earlier attempt may have run or has run: that is not to be forgotten.
func (s *Store) Release(ctx context.Context, key string, t store.Token) error {
	return s.ask(ctx, s.releases, &op{key: key, token: t})
}

const releaseSQL = mineSQL + `,
gone AS (
  DELETE FROM {table} AS e
  USING mine
  WHERE e.key = mine.key
    AND mine.prior = 'none'
  RETURNING mine.key, mine.token),
kept AS (
  UPDATE {table} AS e
  SET lease_until = now(),
    token = NULL,
    hold = false
  FROM mine
  WHERE e.key = mine.key
    AND mine.prior <> 'none'
  RETURNING mine.key, mine.token)
SELECT key, token FROM gone
UNION ALL
SELECT key, token FROM kept`

func (s *Store) releaseAll(ctx context.Context, conn *pgxpool.Conn, items []*item) ([]*item, error) {
	return s.settle(ctx, conn, items, releaseSQL)
}

// settle runs one statement that returns the claims which were still the
// asker's; the others are lost.
func (s *Store) settle(ctx context.Context, conn *pgxpool.Conn, items []*item, sql string, more ...any) ([]*item, error) {
	keys, tokens := columns(items)
	mine, err := names(conn.Query(ctx, s.sql(sql), append([]any{keys, tokens, s.patience}, more...)...))
	if err != nil {
		return items, err
	}
	for _, it := range items {
		it.Finish(lostUnless(mine, it))
	}
	return nil, nil
}

// lostUnless the claim was found, or may have been settled by this operation
// itself, in a try whose answer got lost.
func lostUnless(mine map[name]bool, it *item) error {
	if mine[it.Op.name()] || it.Doubtful {
		return nil
	}
	return store.ErrLost
}

// Complete records that the event has run, with the upstream's status. That is
// a fact whatever the token, and is recorded also where the row has gone; the
// error is store.ErrLost if the claim was no longer the asker's (recorded all
// the same).
func (s *Store) Complete(ctx context.Context, key string, t store.Token, status int) error {
	return s.ask(ctx, s.completions, &op{key: key, token: t, status: status})
}

// In the ordinary course nobody else waits for more than one of the rows that
// it changes: takeovers skip what is locked, a late completion is alone, and
// the handler lets no renewal of a claim run beside its settlement. So they
// are not locked in order first, which would cost half as much again. After a
// timeout two may meet all the same: then Postgres ends one, and it is sent again.
const completeSQL = `
UPDATE {table} AS e
SET lease_until = NULL,
  token = NULL,
  hold = false,
  completed_at = now(),
  status = ran.status
FROM unnest($1::text[], $2::text[]::uuid[], $4::int[]) AS ran (key, token, status)
WHERE (SELECT set_config('lock_timeout', $3::text, true)) IS NOT NULL
  AND e.key = ran.key
  AND e.token = ran.token
RETURNING ran.key, ran.token`

// One at a time, so that it holds no lock while it waits for another: it may be
// at somebody else's row.
const recordSQL = `
INSERT INTO {table} AS e (key, completed_at, status)
SELECT $1::text, now(), $2::int
WHERE (SELECT set_config('lock_timeout', $3::text, true)) IS NOT NULL
ON CONFLICT (key) DO UPDATE
SET lease_until = NULL,
  token = NULL,
  hold = false,
  completed_at = now(),
  status = excluded.status
WHERE e.lease_until IS NOT NULL`

func (s *Store) completeAll(ctx context.Context, conn *pgxpool.Conn, items []*item) ([]*item, error) {
	keys, tokens := columns(items)
	statuses := make([]int, len(items))
	for i, it := range items {
		statuses[i] = it.Op.status
	}
	mine, err := names(conn.Query(ctx, s.sql(completeSQL), keys, tokens, s.patience, statuses))
	if err != nil {
		return items, err
	}
	late := slices.DeleteFunc(items, func(it *item) bool {
		if mine[it.Op.name()] {
			it.Finish(nil)
			return true
		}
		return false
	})
	if len(late) == 0 {
		return nil, nil
	}
	rows, err := s.find(ctx, conn, late)
	if err != nil {
		return late, err
	}
	for i, it := range late {
		// Done already where a batch was committed whose answer got lost.
		if row, there := rows[it.Op.key]; !there || !row.done {
			if _, err := conn.Exec(ctx, s.sql(recordSQL), it.Op.key, it.Op.status, s.patience); err != nil {
				return late[i:], fmt.Errorf("recording a late completion: %w", err)
			}
		}
		it.Finish(lostUnless(mine, it))
	}
	return nil, nil
}
