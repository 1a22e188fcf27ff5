package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hookonce/hookonce/store"
)

const keepSQL = `
UPDATE {table}
SET answer = $3::bytea,
  answer_type = $4::text
WHERE key = $1::text
  AND token = $2::uuid`

// KeepAnswer keeps the upstream's answer with a claim that is about to be
// completed. The error is store.ErrLost if the claim is no longer the asker's.
func (s *Store) KeepAnswer(ctx context.Context, key string, t store.Token, a store.Answer) error {
	return s.do(ctx, func(ctx context.Context, c *pgxpool.Conn) error {
		body := a.Body
		if body == nil {
			body = []byte{} // an empty answer is an answer
		}
		tag, err := c.Exec(ctx, s.sql(keepSQL), key, t.String(), body, a.ContentType)
		if err == nil && tag.RowsAffected() == 0 {
			return store.ErrLost
		}
		return err
	})
}

const answerSQL = `
SELECT COALESCE(status, 200), answer_type, answer
FROM {table}
WHERE key = $1::text
  AND lease_until IS NULL
  AND answer IS NOT NULL`

// Answer returns what was kept with a completed event, or store.ErrNotFound.
func (s *Store) Answer(ctx context.Context, key string) (a store.Answer, err error) {
	err = s.do(ctx, func(ctx context.Context, c *pgxpool.Conn) error {
		err := c.QueryRow(ctx, s.sql(answerSQL), key).Scan(&a.Status, &a.ContentType, &a.Body)
		if errors.Is(err, pgx.ErrNoRows) {
			return store.ErrNotFound
		}
		return err
	})
	return a, err
}
