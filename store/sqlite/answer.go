package sqlite

import (
	"context"
	"database/sql"

	"github.com/hookonce/hookonce/store"
)

// KeepAnswer keeps the upstream's answer with a claim that is about to be
// completed. The error is store.ErrLost if the claim is no longer the asker's.
func (s *Store) KeepAnswer(ctx context.Context, key string, t store.Token, a store.Answer) error {
	var changed int64
	body := a.Body
	if body == nil {
		body = []byte{} // an empty answer is an answer
	}
	err := s.write(ctx, func(w *writer) (err error) {
		changed, err = w.exec(`
UPDATE {table}
SET answer = ?3,
  answer_type = ?4
WHERE key = ?1
  AND token = ?2`, key, t[:], body, a.ContentType)
		return err
	})
	if err == nil && changed == 0 {
		return store.ErrLost
	}
	return err
}

// Answer returns what was kept with a completed event, or store.ErrNotFound.
func (s *Store) Answer(ctx context.Context, key string) (a store.Answer, err error) {
	found := false
	err = s.read(ctx, `
SELECT COALESCE(status, 200), answer_type, answer
FROM {table}
WHERE key = ?1
  AND lease_until IS NULL
  AND answer IS NOT NULL`, func(rows *sql.Rows) error {
		found = true
		return rows.Scan(&a.Status, &a.ContentType, &a.Body)
	}, key)
	if err == nil && !found {
		return a, store.ErrNotFound
	}
	return a, err
}
