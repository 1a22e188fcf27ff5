package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hookonce/hookonce/store"
	"github.com/hookonce/hookonce/store/internal/batch"
)

// Claim asks for the key under the token; see package store for what comes of
// it. Asking again under the same token finds the claim that was won. The error
// wraps store.ErrUncertain if the claim may be there nevertheless.
func (s *Store) Claim(ctx context.Context, key string, t store.Token) (store.Claim, error) {
	o := &op{key: key, token: t}
	err := s.ask(ctx, s.claims, o)
	if errors.Is(err, batch.ErrDoubtful) {
		err = fmt.Errorf("%w: %w", store.ErrUncertain, err)
	}
	if err != nil {
		return store.Claim{}, err
	}
	return o.claim, nil
}

// A claim is won by inserting the row. DO NOTHING, because DO UPDATE would lock
// and dirty the row of every duplicate.
//
// A key that somebody inserts in a transaction of their own, and does not
// commit, must not hold up the claims of others: hence the lock_timeout ($5),
// which is set once, before the first row.
const insertSQL = `
INSERT INTO {table} (key, token, lease_until, hold)
SELECT key, token, now() + make_interval(secs => $3::float8), $4::bool
FROM unnest($1::text[], $2::text[]::uuid[]) AS asked (key, token)
WHERE (SELECT set_config('lock_timeout', $5::text, true)) IS NOT NULL
ON CONFLICT (key) DO NOTHING
RETURNING key, token`

// Whoever's token stands in the row has it.
const lookSQL = `
SELECT key, token, attempts, prior, lease_until IS NULL AS done, hold,
  COALESCE(EXTRACT(EPOCH FROM lease_until - now()), 0)::float8 AS lease_left
FROM {table}
WHERE key = ANY ($1::text[])`

// A row whose lease has ended is taken over. It is locked first, and looked at
// again as it is then: of those who saw the lease end, one gets it. A row that
// somebody else is at is left alone: who waits for nobody while it has locks
// can be in no deadlock.
const takeOverSQL = `
WITH ended AS (
  SELECT e.key, asked.token, e.token IS NOT NULL AS ran_out
  FROM unnest($1::text[], $2::text[]::uuid[]) AS asked (key, token)
  JOIN {table} AS e ON e.key = asked.key
  WHERE e.lease_until <= now()
    AND NOT e.hold
  FOR UPDATE OF e SKIP LOCKED)
UPDATE {table} AS e
SET token = ended.token,
  lease_until = now() + make_interval(secs => $3::float8),
  attempts = e.attempts + 1,
  prior = CASE e.prior WHEN 'done' THEN 'done' ELSE 'unknown' END,
  hold = $4::bool
FROM ended
WHERE e.key = ended.key
RETURNING e.key, e.token, e.attempts, e.prior, ended.ran_out`

// A batch of so many claims, most of which found their key there, is a storm of
// duplicates: the next batch looks before it inserts.
const stormSize = 8

// claimAll decides a batch of claims: insert, and look how it stands with those
// whose key was there already. Whoever lost a row in between begins anew.
func (s *Store) claimAll(ctx context.Context, conn *pgxpool.Conn, items []*item) ([]*item, error) {
	asked := len(items)
	if s.o.ObserveBatch != nil {
		s.o.ObserveBatch(asked)
	}
	var err error
	for try := range 4 {
		if try > 0 || !s.storm.Load() {
			items, err = s.insert(ctx, conn, items)
		}
		lost := len(items)
		if err == nil && lost > 0 {
			items, err = s.answerLost(ctx, conn, items)
		}
		if try == 0 {
			s.storm.Store(asked >= stormSize && lost-len(items) > asked/2)
		}
		if err != nil || len(items) == 0 {
			return items, err
		}
	}
	// It changes hands quicker than anybody can ask: somebody has it, not we.
	for _, it := range items {
		it.Op.claim = store.Claim{State: store.InFlight}
		it.Finish(nil)
	}
	return nil, nil
}

// insert finishes the claims that it wins, and returns the others.
func (s *Store) insert(ctx context.Context, conn *pgxpool.Conn, items []*item) ([]*item, error) {
	keys, tokens := columns(items)
	won, err := names(conn.Query(ctx, s.sql(insertSQL), keys, tokens, s.o.Lease.Seconds(), s.o.Hold, s.patience))
	if err != nil {
		return items, err
	}
	return slices.DeleteFunc(items, func(it *item) bool {
		if !won[it.Op.name()] {
			return false
		}
		it.Op.claim = store.Claim{Won: true, Attempt: 1, Prior: store.PriorNone}
		it.Finish(nil)
		return true
	}), nil
}

// answerLost looks how it stands with keys that are there already, takes over
// those whose lease has ended, and returns the claims whose row has gone or
// changed hands meanwhile.
func (s *Store) answerLost(ctx context.Context, conn *pgxpool.Conn, items []*item) ([]*item, error) {
	rows, err := s.find(ctx, conn, items)
	if err != nil {
		return items, err
	}
	var ended, again []*item
	for _, it := range items {
		row, there := rows[it.Op.key]
		switch {
		case !there:
			again = append(again, it)
		case row.ended(it.Op.token):
			ended = append(ended, it)
		default:
			it.Op.claim = row.verdict(it.Op.token)
			it.Finish(nil)
		}
	}
	if len(ended) == 0 {
		return again, nil
	}
	taken, err := s.takeOver(ctx, conn, ended)
	if err != nil {
		return slices.Concat(again, ended), err
	}
	for _, it := range ended {
		c, won := taken[it.Op.name()]
		if !won { // somebody was quicker: see how it stands now
			again = append(again, it)
			continue
		}
		it.Op.claim = c
		it.Finish(nil)
	}
	return again, nil
}

// row is what a claim has to know of one.
type row struct {
	token     pgtype.UUID
	attempts  int
	prior     string
	done      bool
	hold      bool
	leaseLeft float64 // seconds
}

func (r row) of(t store.Token) bool { return r.token.Valid && r.token.Bytes == t }

// ended: it can be taken over by the token's owner.
func (r row) ended(t store.Token) bool {
	return !r.done && r.leaseLeft <= 0 && !r.hold && !r.of(t)
}

func (r row) verdict(t store.Token) store.Claim {
	switch {
	case r.done:
		return store.Claim{State: store.Done}
	case r.of(t):
		return store.Claim{Won: true, Attempt: r.attempts, Prior: store.Prior(r.prior)}
	case r.leaseLeft > 0:
		left := time.Duration(r.leaseLeft * float64(time.Second))
		return store.Claim{State: store.InFlight, LeaseLeft: left}
	default:
		return store.Claim{State: store.Held}
	}
}

func (s *Store) find(ctx context.Context, conn *pgxpool.Conn, items []*item) (map[string]row, error) {
	keys, _ := columns(items)
	rows, err := conn.Query(ctx, s.sql(lookSQL), keys)
	if err != nil {
		return nil, err
	}
	found := map[string]row{}
	var key string
	var r row
	_, err = pgx.ForEachRow(rows, []any{&key, &r.token, &r.attempts, &r.prior, &r.done, &r.hold, &r.leaseLeft}, func() error {
		found[key] = r
		return nil
	})
	return found, err
}

func (s *Store) takeOver(ctx context.Context, conn *pgxpool.Conn, items []*item) (map[name]store.Claim, error) {
	keys, tokens := columns(items)
	rows, err := conn.Query(ctx, s.sql(takeOverSQL), keys, tokens, s.o.Lease.Seconds(), s.o.Hold)
	if err != nil {
		return nil, err
	}
	taken := map[name]store.Claim{}
	var n name
	var prior string
	c := store.Claim{Won: true}
	_, err = pgx.ForEachRow(rows, []any{&n.key, (*[16]byte)(&n.token), &c.Attempt, &prior, &c.TakenOver}, func() error {
		c.Prior = store.Prior(prior)
		taken[n] = c
		return nil
	})
	return taken, err
}
