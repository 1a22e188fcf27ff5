package sqlite

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hookonce/hookonce/store"
)

//go:embed migrations/001_events.sql
var firstMigration string

// ours are the columns of the table; the first two are the n8n template's too.
// They tell the version: a file has but one PRAGMA user_version, which may be
// another application's.
var ours = [...]string{"key", "first_seen", "lease_until", "completed_at", "token", "attempts", "status", "hold", "prior",
	"answer", "answer_type"}

const uniqueSQL = `
SELECT count(*)
FROM pragma_index_list(?1) AS l
WHERE l."unique"
  AND NOT l.partial
  AND (SELECT group_concat(i.name) FROM pragma_index_info(l.name) AS i) = 'key'`

// inspect returns nil if the table is complete.
func (s *Store) inspect(columns []string, unique bool) error {
	lacks := slices.DeleteFunc(slices.Clone(ours[:]), func(c string) bool { return slices.Contains(columns, c) })
	others := slices.DeleteFunc(slices.Clone(columns), func(c string) bool { return slices.Contains(ours[:], c) })
	switch {
	case len(columns) == 0:
		return fmt.Errorf("%w: there is no table %s; run: hookonce migrate (or set AUTO_MIGRATE=true)", store.ErrSchemaOld, s.o.Table)
	case !unique || slices.Contains(lacks, "first_seen"):
		return fmt.Errorf("the table %s is not one that hookonce can use (it needs key TEXT PRIMARY KEY and first_seen): set another EVENTS_TABLE", s.o.Table)
	case len(lacks) == 0:
		return nil
	case len(others) > 0:
		return fmt.Errorf("the table %s has columns that hookonce does not know (%s): set another EVENTS_TABLE",
			s.o.Table, strings.Join(others, ", "))
	}
	return fmt.Errorf("%w: %s", store.ErrForeignTable, fmt.Sprintf(store.AdoptAdvice, s.o.Table))
}

// CheckSchema returns nil if the table is ready to serve; store.ErrSchemaOld or
// store.ErrForeignTable say that Migrate is needed.
func (s *Store) CheckSchema(ctx context.Context) error {
	var columns []string
	err := s.read(ctx, "SELECT name FROM pragma_table_info(?1)", func(rows *sql.Rows) error {
		columns = append(columns, "")
		return rows.Scan(&columns[len(columns)-1])
	}, s.o.Table)
	if err != nil {
		return err
	}
	unique := false
	err = s.read(ctx, uniqueSQL, func(rows *sql.Rows) error { return rows.Scan(&unique) }, s.o.Table)
	if err != nil {
		return err
	}
	return s.inspect(columns, unique)
}

// Migrate makes the table, or brings it up to date. A table that hookonce did
// not make is taken over only with adopt, its rows as they are; else the error
// wraps store.ErrForeignTable.
func (s *Store) Migrate(ctx context.Context, adopt bool) error {
	err := s.CheckSchema(ctx)
	if err == nil || !(errors.Is(err, store.ErrSchemaOld) || adopt && errors.Is(err, store.ErrForeignTable)) {
		return err
	}
	err = s.write(ctx, func(w *writer) error {
		_, err := w.conn.ExecContext(context.Background(), s.replace.Replace(firstMigration))
		return err
	})
	if err != nil && s.CheckSchema(ctx) == nil {
		return nil // another process was quicker
	}
	return err
}
