// Package sqlite keeps events in an embedded SQLite file, for one replica and
// for trying out. The file may be used by several processes of one machine at
// once (the command line beside the server).
//
// One connection writes: whatever operations wait for it share a transaction,
// and one fsync (write.go). Others read.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	_ "modernc.org/sqlite" // registers the driver, in pure Go

	"github.com/hookonce/hookonce/store"
	"github.com/hookonce/hookonce/store/internal/batch"
)

// Store is the events table of one SQLite file.
type Store struct {
	o       store.Options
	replace *strings.Replacer // puts table and clock into statements
	reader  *sql.DB
	writer  *writer
	queue   *batch.Queue[work]
	busy    atomic.Int32 // 1 while the writer is at work

	errTimeout error // of an operation whose time is up
}

const maxReaders = 2

// Open checks that the file of "sqlite:path" can be had, and makes it where it
// is missing.
func Open(rawURL string, o store.Options) (*Store, error) {
	path, ok := strings.CutPrefix(rawURL, "sqlite:")
	path = strings.TrimPrefix(path, "//")
	if !ok || path == "" || strings.HasPrefix(path, ":memory:") {
		return nil, errors.New("the database URL must name a file: sqlite:hookonce.db or sqlite:/var/lib/hookonce/hookonce.db")
	}
	if o.Table == "" || strings.ContainsAny(o.Table, ".\x00") {
		return nil, fmt.Errorf("%q is no name of a table in SQLite, which has no schemas: write it without a dot", o.Table)
	}
	if err := checkFile(path); err != nil {
		return nil, err
	}
	s := &Store{o: o, errTimeout: fmt.Errorf("the database file did not answer within %v: %w", o.Timeout, context.DeadlineExceeded)}
	s.replace = strings.NewReplacer(
		"{table}", quote(o.Table),
		"{table_first_seen}", quote(o.Table+"_first_seen"),
		"{table_held}", quote(o.Table+"_held"),
		"{now}", clock,
		"{seen}", seen,
	)
	// FULL: a settlement is on the disk before the answer goes out.
	dsn := fmt.Sprintf("file:%s?_busy_timeout=%d&_journal_mode=WAL&_synchronous=FULL",
		(&url.URL{Path: path}).EscapedPath(), o.Timeout.Milliseconds())
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxIdleConns(0) // the writer keeps its connection; one that it gives up is to close
	s.writer = &writer{db: db, replace: s.replace}
	if s.reader, err = sql.Open("sqlite", dsn); err != nil {
		return nil, err
	}
	s.reader.SetMaxOpenConns(maxReaders)
	s.reader.SetMaxIdleConns(maxReaders)
	size := o.BatchSize
	if size == 0 {
		size = 256
	}
	s.queue = batch.New(size, 1, s.fly)
	return s, nil
}

// clock is SQLite's, in milliseconds since 1970.
const clock = `CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER)`

// seen is first_seen in milliseconds; rows that somebody else's INSERT wrote
// may have a text there (CURRENT_TIMESTAMP).
const seen = `CASE typeof(first_seen) WHEN 'text' THEN unixepoch(first_seen) * 1000 ELSE first_seen END`

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// checkFile says what SQLite would call "unable to open database file".
func checkFile(path string) error {
	dir := filepath.Dir(path)
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return fmt.Errorf("the database file %s: there is no directory %s: make it, or change DATABASE_URL", path, dir)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("the database file cannot be opened for writing (who runs hookonce must own it and its directory): %w", err)
	}
	f.Close()
	// The write-ahead log lies beside it.
	probe, err := os.CreateTemp(dir, ".hookonce-*")
	if err != nil {
		return fmt.Errorf("the directory of the database file must be writable too: %w", err)
	}
	probe.Close()
	return os.Remove(probe.Name())
}

// read runs a query within Options.Timeout.
func (s *Store) read(ctx context.Context, query string, each func(*sql.Rows) error, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	rows, err := s.reader.QueryContext(ctx, s.replace.Replace(query), args...)
	if err != nil {
		return translate(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			return err
		}
	}
	return translate(rows.Err())
}

// Ping asks the file for a sign of life.
func (s *Store) Ping(ctx context.Context) error {
	return s.read(ctx, "SELECT 1", func(*sql.Rows) error { return nil })
}

// Stats says what the connections do: one writes, the others read.
func (s *Store) Stats() store.Stats {
	r, w := s.reader.Stats(), s.writer.db.Stats()
	inUse := r.InUse + int(s.busy.Load())
	return store.Stats{InUse: inUse, Idle: max(r.OpenConnections+w.OpenConnections-inUse, 0), Max: maxReaders + 1}
}

// Close waits for the operations under way and closes the file.
func (s *Store) Close() {
	s.queue.Close()
	s.writer.drop()
	_ = s.writer.db.Close()
	_ = s.reader.Close()
}
