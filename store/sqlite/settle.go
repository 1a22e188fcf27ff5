package sqlite

import (
	"context"

	"github.com/hookonce/hookonce/store"
)

// Renew makes the lease end Options.Lease from now, on the store's clock.
func (s *Store) Renew(ctx context.Context, key string, t store.Token) error {
	return s.settle(ctx, `
UPDATE {table}
SET lease_until = {now} + ?3
WHERE key = ?1
  AND token = ?2`, key, t[:], s.o.Lease.Milliseconds())
}

// EndLease settles a claim whose outcome nobody knows: the row stays, and the
// next delivery runs and is told so; with Options.Hold it is held.
func (s *Store) EndLease(ctx context.Context, key string, t store.Token) error {
	return s.settle(ctx, `
UPDATE {table}
SET lease_until = {now},
  token = NULL,
  hold = ?3
WHERE key = ?1
  AND token = ?2`, key, t[:], s.o.Hold)
}

// settle changes the row that still stands under the token.
func (s *Store) settle(ctx context.Context, statement string, args ...any) error {
	return s.write(ctx, func(w *writer) error {
		return lostIfNone(w.exec(statement, args...))
	})
}

func lostIfNone(changed int64, err error) error {
	if err == nil && changed == 0 {
		return store.ErrLost
	}
	return err
}

// Release gives the key back: the next delivery runs. The row goes, save where
// an earlier attempt may have run or has run: that is not to be forgotten.
func (s *Store) Release(ctx context.Context, key string, t store.Token) error {
	return s.write(ctx, func(w *writer) error {
		n, err := w.exec(`
DELETE FROM {table}
WHERE key = ?1
  AND token = ?2
  AND prior = 'none'`, key, t[:])
		if err != nil || n == 1 {
			return err
		}
		return lostIfNone(w.exec(`
UPDATE {table}
SET lease_until = {now},
  token = NULL,
  hold = false
WHERE key = ?1
  AND token = ?2`, key, t[:]))
	})
}

// Complete records that the event has run, with the upstream's status. That is
// a fact whatever the token, and is recorded also where the row has gone; the
// error is store.ErrLost if the claim was no longer the asker's (recorded all
// the same).
func (s *Store) Complete(ctx context.Context, key string, t store.Token, status int) error {
	return s.write(ctx, func(w *writer) error {
		n, err := w.exec(`
UPDATE {table}
SET lease_until = NULL,
  token = NULL,
  hold = false,
  completed_at = {now},
  status = ?3
WHERE key = ?1
  AND token = ?2`, key, t[:], status)
		if err != nil || n == 1 {
			return err
		}
		if _, err = w.exec(`
INSERT INTO {table} (key, first_seen, completed_at, status)
VALUES (?1, {now}, {now}, ?2)
ON CONFLICT (key) DO UPDATE
SET lease_until = NULL,
  token = NULL,
  hold = false,
  completed_at = {now},
  status = ?2
WHERE lease_until IS NOT NULL`, key, status); err != nil {
			return err
		}
		return store.ErrLost
	})
}
