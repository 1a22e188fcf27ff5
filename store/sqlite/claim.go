package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hookonce/hookonce/store"
	"github.com/hookonce/hookonce/store/internal/batch"
)

// Claim asks for the key under the token; see package store for what comes of
// it. Asking again under the same token finds the claim that was won. The error
// wraps store.ErrUncertain if the claim may be there nevertheless.
func (s *Store) Claim(ctx context.Context, key string, t store.Token) (store.Claim, error) {
	var c store.Claim
	err := s.write(ctx, func(w *writer) (err error) {
		c, err = s.claim(w, key, t)
		return err
	})
	if errors.Is(err, batch.ErrDoubtful) {
		err = fmt.Errorf("%w: %w", store.ErrUncertain, err)
	}
	if err != nil {
		return store.Claim{}, err
	}
	return c, nil
}

const insertSQL = `
INSERT INTO {table} (key, first_seen, token, lease_until, hold)
VALUES (?1, {now}, ?2, {now} + ?3, ?4)
ON CONFLICT (key) DO NOTHING`

const lookSQL = `
SELECT token IS NOT NULL, COALESCE(token = ?2, false), attempts, prior, hold,
  lease_until IS NULL, COALESCE(lease_until - {now}, 0)
FROM {table}
WHERE key = ?1`

const takeOverSQL = `
UPDATE {table}
SET token = ?2,
  lease_until = {now} + ?3,
  attempts = attempts + 1,
  prior = CASE prior WHEN 'done' THEN 'done' ELSE 'unknown' END,
  hold = ?4
WHERE key = ?1`

// claim decides one claim. The transaction is the only one that writes, so
// nothing changes between its statements.
func (s *Store) claim(w *writer, key string, t store.Token) (c store.Claim, err error) {
	args := []any{key, t[:], s.o.Lease.Milliseconds(), s.o.Hold}
	n, err := w.exec(insertSQL, args...)
	if err != nil || n == 1 {
		return store.Claim{Won: true, Attempt: 1, Prior: store.PriorNone}, err
	}
	var unsettled, mine, hold, done bool
	var left int64
	err = w.queryRow(lookSQL, args[:2], &unsettled, &mine, &c.Attempt, &c.Prior, &hold, &done, &left)
	switch {
	case err != nil:
		return c, err
	case done:
		return store.Claim{State: store.Done}, nil
	case mine:
		c.Won = true
		return c, nil
	case left > 0:
		return store.Claim{State: store.InFlight, LeaseLeft: time.Duration(left) * time.Millisecond}, nil
	case hold:
		return store.Claim{State: store.Held}, nil
	}
	if _, err = w.exec(takeOverSQL, args...); err != nil {
		return c, err
	}
	if c.Prior != store.PriorDone {
		c.Prior = store.PriorUnknown
	}
	return store.Claim{Won: true, Attempt: c.Attempt + 1, Prior: c.Prior, TakenOver: unsettled}, nil
}
