package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/hookonce/hookonce/store"
	"github.com/hookonce/hookonce/store/internal/batch"
)

// work is what one operation does inside the transaction that it shares.
type work func(w *writer) error

// write puts work into the next transaction and waits for its commit.
func (s *Store) write(ctx context.Context, do work) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.o.Timeout, s.errTimeout)
	defer cancel()
	return s.queue.Do(ctx, do)
}

// fly runs one batch as one transaction. Work that fails undoes it all, and
// then each gets a transaction of its own.
func (s *Store) fly(q *batch.Queue[work], take func() []*batch.Item[work]) {
	s.busy.Store(1)
	defer s.busy.Store(0)
	err := s.writer.begin() // may wait for another process
	items := take()
	if err != nil {
		q.Again(items, translate(err), false) // some have come meanwhile, and had no try of their own
		return
	}
	if s.o.ObserveBatch != nil {
		s.o.ObserveBatch(len(items))
	}
	answers := make([]error, len(items))
	for i, it := range items {
		if answers[i] = it.Op(s.writer); answers[i] != nil && !isOwn(answers[i]) {
			s.writer.drop()
			q.Again(items, translate(answers[i]), true)
			return
		}
	}
	if err := s.writer.commit(); err != nil {
		q.Again(items, translate(err), len(items) == 1)
		return
	}
	for i, it := range items {
		it.Finish(answers[i])
	}
}

// writer is the one connection that writes, with its prepared statements. Only
// a flight uses it, and there is one at a time.
//
// Its statements run without a context: none takes long (busy_timeout bounds
// the wait for other processes), and the driver starts a goroutine for each
// that could be cancelled.
type writer struct {
	db      *sql.DB
	replace *strings.Replacer
	conn    *sql.Conn
	stmts   map[string]*sql.Stmt
}

func (w *writer) begin() (err error) {
	if w.conn == nil {
		if w.conn, err = w.db.Conn(context.Background()); err != nil {
			return err
		}
		w.stmts = map[string]*sql.Stmt{}
	}
	// IMMEDIATE: a transaction that begins by reading could not wait for another writer later.
	if _, err = w.conn.ExecContext(context.Background(), "BEGIN IMMEDIATE"); err != nil {
		w.drop()
	}
	return err
}

func (w *writer) commit() error {
	_, err := w.conn.ExecContext(context.Background(), "COMMIT")
	if err != nil {
		w.drop()
	}
	return err
}

// drop closes the connection, which undoes the transaction.
func (w *writer) drop() {
	for _, st := range w.stmts {
		_ = st.Close()
	}
	if w.conn != nil {
		_ = w.conn.Close()
	}
	w.conn, w.stmts = nil, nil
}

func (w *writer) prepared(statement string) (*sql.Stmt, error) {
	if st, ok := w.stmts[statement]; ok {
		return st, nil
	}
	st, err := w.conn.PrepareContext(context.Background(), w.replace.Replace(statement))
	if err == nil {
		w.stmts[statement] = st
	}
	return st, err
}

// exec returns how many rows the statement changed.
func (w *writer) exec(statement string, args ...any) (int64, error) {
	st, err := w.prepared(statement)
	if err != nil {
		return 0, err
	}
	res, err := st.Exec(args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (w *writer) queryRow(statement string, args []any, into ...any) error {
	st, err := w.prepared(statement)
	if err != nil {
		return err
	}
	return st.QueryRow(args...).Scan(into...)
}

func isOwn(err error) bool {
	own := []error{store.ErrLost, store.ErrNotFound, store.ErrConflict, store.ErrForeignTable, store.ErrSchemaOld}
	return slices.ContainsFunc(own, func(o error) bool { return errors.Is(err, o) })
}

// translate says in the store's words what went wrong, and what to do where
// that is known. Codes: https://www.sqlite.org/rescode.html
func translate(err error) error {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return err
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return fmt.Errorf("another process holds the database file: %w", err)
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("the disk of the database file is full: %w", err)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return fmt.Errorf("the database file and its directory must be writable: %w", err)
	case sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT:
		return fmt.Errorf("the database file is damaged or no SQLite file (restore it, or name another in DATABASE_URL): %w", err)
	}
	return fmt.Errorf("the database file: %w", err)
}
