package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hookonce/hookonce/store"
)

// The state is never stored: it follows from lease and hold, on the store's clock.
const eventSQL = `
SELECT key,
  CASE
    WHEN lease_until IS NULL THEN 'done'
    WHEN lease_until > now() THEN 'in_flight'
    WHEN hold THEN 'held'
    ELSE 'unknown'
  END AS state,
  first_seen, attempts, prior, lease_until, completed_at, status
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
		return "lease_until > now()", true
	case store.Held:
		return "hold AND lease_until <= now()", true
	case store.Unknown:
		return "NOT hold AND lease_until <= now()", true
	}
	return "", false
}

// Event returns what is known of one key, or store.ErrNotFound.
func (s *Store) Event(ctx context.Context, key string) (store.Event, error) {
	events, err := s.list(ctx, eventSQL+"WHERE key = $1::text", key)
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
	return s.list(ctx, eventSQL+"WHERE "+where+"\nORDER BY first_seen DESC, key\nLIMIT $1::int", limit)
}

func (s *Store) list(ctx context.Context, sql string, arg any) (events []store.Event, err error) {
	err = s.do(ctx, func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, s.sql(sql), arg)
		if err != nil {
			return err
		}
		events, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (e store.Event, err error) {
			var state, prior string
			err = r.Scan(&e.Key, &state, &e.FirstSeen, &e.Attempts, &prior, &e.LeaseUntil, &e.CompletedAt, &e.Status)
			e.State, e.Prior = store.State(state), store.Prior(prior)
			return e, err
		})
		return err
	})
	return events, err
}

// ReleaseEvent gives a key back in a person's name: the next delivery runs and
// is told what is known. A live or done event only by force.
func (s *Store) ReleaseEvent(ctx context.Context, key string, force bool) error {
	return s.decide(ctx, key, `
UPDATE {table}
SET prior = CASE WHEN lease_until IS NULL THEN 'done' ELSE prior END,
  lease_until = now(),
  token = NULL,
  hold = false
WHERE key = $1::text
  AND ($2::bool OR lease_until <= now())`, key, force)
}

// CompleteEvent settles an event in a person's name: its deliveries are
// duplicates from now on. A live one only by force.
func (s *Store) CompleteEvent(ctx context.Context, key string, force bool) error {
	return s.decide(ctx, key, `
UPDATE {table}
SET completed_at = CASE WHEN lease_until IS NULL THEN completed_at ELSE now() END,
  lease_until = NULL,
  token = NULL,
  hold = false
WHERE key = $1::text
  AND ($2::bool OR lease_until IS NULL OR lease_until <= now())`, key, force)
}

// PassEvent lets exactly one more delivery of a done event run, told so.
func (s *Store) PassEvent(ctx context.Context, key string) error {
	return s.decide(ctx, key, `
UPDATE {table}
SET prior = 'done',
  lease_until = now(),
  token = NULL,
  hold = false
WHERE key = $1::text
  AND lease_until IS NULL`, key)
}

// decide changes one row, or says why not.
func (s *Store) decide(ctx context.Context, key, sql string, args ...any) error {
	var changed int64
	err := s.do(ctx, func(ctx context.Context, c *pgxpool.Conn) error {
		tag, err := c.Exec(ctx, s.sql(sql), args...)
		changed = tag.RowsAffected()
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
	err = s.do(ctx, func(ctx context.Context, c *pgxpool.Conn) error {
		// The partial index has the rows with hold, which are few.
		return c.QueryRow(ctx, s.sql(`
SELECT count(*)
FROM {table}
WHERE hold
  AND lease_until <= now()`)).Scan(&n)
	})
	return n, err
}
