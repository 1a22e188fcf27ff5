package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hookonce/hookonce/store"
)

//go:embed migrations/*.sql
var migrations embed.FS

// mark begins the table's comment, the schema's version follows: there it needs
// no second table, and anybody who may use the table can read it.
const mark = "hookonce schema "

// ours are the columns of version 1; the first two are the n8n template's too.
var ours = []string{"key", "first_seen", "lease_until", "completed_at", "token", "attempts", "status", "hold", "prior",
	"answer", "answer_type"}

// schema is what the database has under the table's name.
type schema struct {
	columns []string
	comment string
	unique  bool // one column "key", which is text, and unique
}

const schemaSQL = `
SELECT
  ARRAY(
    SELECT attname::text
    FROM pg_attribute
    WHERE attrelid = t.oid
      AND attnum > 0
      AND NOT attisdropped),
  COALESCE(obj_description(t.oid, 'pg_class'), ''),
  EXISTS (
    SELECT
    FROM pg_index AS i
    JOIN pg_attribute AS a ON a.attrelid = i.indrelid
      AND a.attnum = i.indkey[0]
    WHERE i.indrelid = t.oid
      AND i.indisunique
      AND i.indimmediate
      AND i.indisvalid
      AND i.indpred IS NULL
      AND i.indnkeyatts = 1
      AND a.attname = 'key'
      AND a.atttypid IN ('text'::regtype, 'varchar'::regtype))
FROM (SELECT to_regclass($1::text) AS oid) AS t`

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func (s *Store) look(ctx context.Context, q querier) (sc schema, err error) {
	err = q.QueryRow(ctx, schemaSQL, s.table).Scan(&sc.columns, &sc.comment, &sc.unique)
	return sc, err
}

// version of a table that hookonce made; 0 if there is none yet. Where the
// comment was lost the columns tell.
func (s *Store) version(sc schema) (int, error) {
	lacks := slices.DeleteFunc(slices.Clone(ours), func(c string) bool { return slices.Contains(sc.columns, c) })
	others := slices.DeleteFunc(slices.Clone(sc.columns), func(c string) bool { return slices.Contains(ours, c) })
	switch n, marked := strings.CutPrefix(sc.comment, mark); {
	case len(sc.columns) == 0:
		return 0, nil
	case !sc.unique || slices.Contains(lacks, "first_seen"):
		return 0, fmt.Errorf("the table %s is not one that hookonce can use (it needs key text PRIMARY KEY and first_seen): set another EVENTS_TABLE", s.table)
	case len(lacks) == 0:
		if v, err := strconv.Atoi(strings.Fields(n + " 1")[0]); marked && err == nil {
			return v, nil
		}
		return 1, nil
	case len(others) > 0:
		return 0, fmt.Errorf("the table %s has columns that hookonce does not know (%s): set another EVENTS_TABLE",
			s.table, strings.Join(others, ", "))
	default:
		return 0, fmt.Errorf("%w: %s", store.ErrForeignTable, fmt.Sprintf(store.AdoptAdvice, s.table))
	}
}

// CheckSchema returns nil if the table is ready to serve; store.ErrSchemaOld or
// store.ErrForeignTable say that Migrate is needed. It needs no rights beyond
// those that serving needs.
func (s *Store) CheckSchema(ctx context.Context) error {
	v, err := s.current(ctx)
	switch {
	case err != nil:
		return err
	case v < len(s.steps()):
		return fmt.Errorf("%w: the table %s is at version %d of %d; run: hookonce migrate (or set AUTO_MIGRATE=true)",
			store.ErrSchemaOld, s.table, v, len(s.steps()))
	}
	return nil
}

func (s *Store) current(ctx context.Context) (v int, err error) {
	err = s.do(ctx, func(ctx context.Context, c *pgxpool.Conn) error {
		sc, err := s.look(ctx, c)
		if err != nil {
			return err
		}
		v, err = s.version(sc)
		return err
	})
	return v, err
}

// steps are the migrations, in order.
func (s *Store) steps() []string {
	names, _ := fs.Glob(migrations, "migrations/*.sql") // sorted; the pattern is valid
	return names
}

// Migrate brings the table up to date, or makes it; any number of replicas may
// do so at once. A newer schema is left alone: schemas only ever gain. A table
// that hookonce did not make is taken over only with adopt, its rows as they
// are; else the error wraps store.ErrForeignTable. An index on a big table
// takes its time: only ctx bounds that, not Options.Timeout.
func (s *Store) Migrate(ctx context.Context, adopt bool) error {
	if err := s.CheckSchema(ctx); err == nil {
		return nil // so a role that may not change the table need not try
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return translate(&connectError{err})
	}
	defer conn.Release()
	return translate(s.inspect(conn, pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		return s.migrate(ctx, tx, adopt)
	})))
}

func (s *Store) migrate(ctx context.Context, tx pgx.Tx, adopt bool) error {
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1::text, 0))", "hookonce migrate "+s.table); err != nil {
		return err
	}
	sc, err := s.look(ctx, tx)
	if err != nil {
		return err
	}
	v, err := s.version(sc)
	if err != nil && !(adopt && errors.Is(err, store.ErrForeignTable)) {
		return err
	}
	steps := s.steps()
	for ; v < len(steps); v++ {
		file, err := migrations.ReadFile(steps[v])
		if err != nil {
			return err
		}
		sql := s.sql(string(file)) + fmt.Sprintf("COMMENT ON TABLE %s IS '%s%d';", s.table, mark, v+1)
		if _, err := tx.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("migration %s: %w", steps[v], err)
		}
	}
	return nil
}
