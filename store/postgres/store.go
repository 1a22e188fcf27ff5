// Package postgres keeps events in a table of PostgreSQL (13 or later), for any
// number of replicas. It is the only package that knows pgx.
//
// Every claim, renewal and settlement goes through a lane (batch.go), where
// those of a kind share a statement and a commit. No statement needs a session
// of its own, so PgBouncer's transaction mode is fine.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hookonce/hookonce/store"
)

// Store is the events table of one PostgreSQL database.
type Store struct {
	o     store.Options
	table string // quoted
	pool  *pgxpool.Pool

	patience   string      // how long a statement waits for a row that somebody else is at: then the others of its batch go without it
	errTimeout error       // of an operation whose time is up
	storm      atomic.Bool // most claims are duplicates at present

	claims, renewals, completions, releases, ends *lane
}

// Open parses and checks a URL (postgres://…, with pgx's parameters); it does
// not wait for a connection. No error of it shows the password.
func Open(rawURL string, o store.Options) (*Store, error) {
	table, err := quoteTable(o.Table)
	if err != nil {
		return nil, err
	}
	cfg, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	cc := cfg.ConnConfig
	if !strings.Contains(rawURL, "default_query_exec_mode") {
		// pgx's own default prepares statements on the connection, which
		// PgBouncer in transaction mode gives to somebody else.
		cc.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	if cc.ConnectTimeout == 0 || cc.ConnectTimeout > o.Timeout {
		cc.ConnectTimeout = o.Timeout
	}
	if cc.RuntimeParams["application_name"] == "" {
		cc.RuntimeParams["application_name"] = "hookonce"
	}
	if cc.ValidateConnect == nil && severalHosts(cc) {
		// Whoever names several hosts means "the one that can be written to".
		cc.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	// A stale connection is found out by the statement itself, which is then
	// asked again: a ping before each would cost a round trip at low load.
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	g := &gate{turn: make(chan struct{}, 1), wait: o.Timeout}
	cfg.BeforeConnect, cfg.AfterConnect = g.enter, g.leave

	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return nil, fmt.Errorf("the database's pool: %w", err)
	}
	s := &Store{o: o, table: table, pool: pool,
		patience:   strconv.FormatInt(max(1, o.Timeout.Milliseconds()/4), 10) + "ms",
		errTimeout: fmt.Errorf("the database did not answer within %v: %w", o.Timeout, context.DeadlineExceeded)}
	s.claims = s.newLane(s.claimAll)
	s.renewals = s.newLane(s.renewAll)
	s.completions = s.newLane(s.completeAll)
	s.releases = s.newLane(s.releaseAll)
	s.ends = s.newLane(s.endAll)
	return s, nil
}

func parse(rawURL string) (*pgxpool.Config, error) {
	const form = "postgres://user:password@host:5432/database?sslmode=require"
	cfg, err := pgxpool.ParseConfig(rawURL)
	// A / ? or # in a password that is not percent-encoded ends the host's part
	// of a URL, and what is left of the password passes for something else.
	u, malformed := url.Parse(rawURL)
	torn := malformed == nil && (u.Fragment != "" || strings.Contains(u.Path+u.RawQuery, "@"))
	if err == nil && !torn {
		return cfg, nil
	}
	if malformed != nil || torn {
		// Its parts cannot be told apart, so none of them may be shown.
		return nil, errors.New("the database URL cannot be parsed: write it as " + form +
			", with the password's special characters percent-encoded")
	}
	return nil, fmt.Errorf("the database URL is not valid: %w; write it as %s", err, form)
}

func severalHosts(cc *pgx.ConnConfig) bool {
	for _, f := range cc.Fallbacks {
		if f.Host != cc.Host || f.Port != cc.Port {
			return true
		}
	}
	return false
}

// quoteTable makes "table" or "schema.table" safe to put into a statement.
func quoteTable(name string) (string, error) {
	parts := strings.Split(name, ".")
	for _, p := range parts {
		if len(parts) > 2 || p == "" || len(p) > 63 || strings.ContainsRune(p, 0) {
			return "", fmt.Errorf("%q is no name of a table: write table or schema.table, each at most 63 bytes", name)
		}
	}
	return pgx.Identifier(parts).Sanitize(), nil
}

// sql puts the table's name into a statement.
func (s *Store) sql(statement string) string {
	return strings.ReplaceAll(statement, "{table}", s.table)
}

// do runs work on a connection, and again on another one where that connection
// turns out to be broken, within Options.Timeout.
func (s *Store) do(ctx context.Context, work func(context.Context, *pgxpool.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	for try := 1; ; try++ {
		err := s.once(ctx, work)
		if err == nil || !worthAnother(err) || try == 3 || ctx.Err() != nil {
			return translate(err)
		}
	}
}

func (s *Store) once(ctx context.Context, work func(context.Context, *pgxpool.Conn) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return &connectError{err}
	}
	defer conn.Release()
	return s.inspect(conn, work(ctx, conn))
}

// inspect marks the error of a connection that is of no more use, and throws
// it away; with it all that were made before, which lead to the same server
// that has gone or become read-only.
func (s *Store) inspect(conn *pgxpool.Conn, err error) error {
	if err == nil || !conn.Conn().IsClosed() && !serverGone(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_ = conn.Conn().Close(ctx)
	s.pool.Reset()
	return &brokenError{err}
}

// Ping asks the database for a sign of life.
func (s *Store) Ping(ctx context.Context) error {
	return s.do(ctx, func(ctx context.Context, c *pgxpool.Conn) error { return c.Ping(ctx) })
}

// Stats says what the pool's connections do.
func (s *Store) Stats() store.Stats {
	st := s.pool.Stat()
	return store.Stats{InUse: int(st.AcquiredConns()), Idle: int(st.IdleConns()), Max: int(st.MaxConns())}
}

// Close waits for the operations under way and closes the connections.
func (s *Store) Close() {
	for _, l := range []*lane{s.claims, s.renewals, s.completions, s.releases, s.ends} {
		l.Close()
	}
	s.pool.Close()
}
