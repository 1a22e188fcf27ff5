package postgres_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/hookonce/hookonce/store"
	"github.com/hookonce/hookonce/store/pgtest"
	"github.com/hookonce/hookonce/store/postgres"
	"github.com/hookonce/hookonce/store/storetest"
)

const template = `CREATE TABLE IF NOT EXISTS processed_events (
  key        text PRIMARY KEY,
  first_seen timestamptz NOT NULL DEFAULT now()
);
INSERT INTO processed_events (key) VALUES ('evt:old');`

// unmigrated returns a store on that database as it is.
func unmigrated(t testing.TB, url string, o store.Options) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestFiveMigrateAnEmptyDatabaseAtOnce(t *testing.T) {
	url := pgtest.Start(t).Database(t)
	var wg sync.WaitGroup
	for range 5 {
		s := unmigrated(t, url, storetest.Options())
		wg.Go(func() {
			if err := s.Migrate(t.Context(), false); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := unmigrated(t, url, storetest.Options()).CheckSchema(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestForeignTableIsLeftAloneUntilAdopted(t *testing.T) {
	server := pgtest.Start(t)
	url := server.Database(t)
	server.Exec(t, url, template)
	s := unmigrated(t, url, storetest.Options())
	for _, err := range []error{s.CheckSchema(t.Context()), s.Migrate(t.Context(), false)} {
		if !errors.Is(err, store.ErrForeignTable) {
			t.Fatalf("got %v", err)
		}
		for _, word := range []string{"Remove the claim step", "--adopt", "ADOPT_TABLE=true", "EVENTS_TABLE", "processed_events"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%q does not say %q", err, word)
			}
		}
	}
	var columns int
	db := raw(t, url)
	count := `SELECT count(*) FROM information_schema.columns WHERE table_name = 'processed_events'`
	if err := db.QueryRow(t.Context(), count).Scan(&columns); err != nil || columns != 2 {
		t.Fatalf("%d columns, %v: the table was touched", columns, err)
	}

	if err := s.Migrate(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if err := s.CheckSchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c, err := s.Claim(t.Context(), "evt:old", store.NewToken()); err != nil || c.State != store.Done {
		t.Errorf("the template's row: %+v, %v", c, err)
	}
}

func TestTablesThatHookonceCannotUseAreRefused(t *testing.T) {
	server := pgtest.Start(t)
	for name, tt := range map[string]struct{ table, want string }{
		"not unique":    {"CREATE TABLE processed_events (key text, first_seen timestamptz)", "PRIMARY KEY"},
		"other columns": {"CREATE TABLE processed_events (key text PRIMARY KEY, first_seen timestamptz, payload jsonb)", "payload"},
		"another key":   {"CREATE TABLE processed_events (key bigint PRIMARY KEY, first_seen timestamptz)", "PRIMARY KEY"},
		"no first_seen": {"CREATE TABLE processed_events (key text PRIMARY KEY, at timestamptz)", "first_seen"},
		"partly unique": {"CREATE TABLE processed_events (key text, first_seen timestamptz); CREATE UNIQUE INDEX ON processed_events (key) WHERE key <> ''", "PRIMARY KEY"},
	} {
		t.Run(name, func(t *testing.T) {
			url := server.Database(t)
			server.Exec(t, url, tt.table)
			s := unmigrated(t, url, storetest.Options())
			for _, err := range []error{s.CheckSchema(t.Context()), s.Migrate(t.Context(), true)} {
				if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "EVENTS_TABLE") {
					t.Errorf("got %v", err)
				}
			}
		})
	}
}

func TestEmptyDatabaseIsAnOldSchema(t *testing.T) {
	s := unmigrated(t, pgtest.Start(t).Database(t), storetest.Options())
	_, claim := s.Claim(t.Context(), "evt:1", store.NewToken())
	for _, err := range []error{s.CheckSchema(t.Context()), claim} {
		if !errors.Is(err, store.ErrSchemaOld) || !strings.Contains(err.Error(), "hookonce migrate") {
			t.Errorf("got %v", err)
		}
	}
	if errors.Is(claim, store.ErrUncertain) {
		t.Error("nothing can have been committed without a table")
	}
}

func TestCommentTellsTheVersionAndColumnsWhereItIsLost(t *testing.T) {
	server := pgtest.Start(t)
	for name, sql := range map[string]string{
		"as migrated":        "SELECT 1",
		"lost":               "COMMENT ON TABLE processed_events IS NULL",
		"somebody else's":    "COMMENT ON TABLE processed_events IS 'webhooks, see wiki'",
		"newer, more to it":  "ALTER TABLE processed_events ADD COLUMN later text; COMMENT ON TABLE processed_events IS 'hookonce schema 9'",
		"newer, and is lost": "ALTER TABLE processed_events ADD COLUMN later text; COMMENT ON TABLE processed_events IS ''",
	} {
		t.Run(name, func(t *testing.T) {
			url := server.Database(t)
			s := open(t, url, storetest.Options())
			server.Exec(t, url, sql)
			if err := s.CheckSchema(t.Context()); err != nil {
				t.Error(err)
			}
			if err := s.Migrate(t.Context(), false); err != nil {
				t.Error(err)
			}
			if c, err := s.Claim(t.Context(), "evt:1", store.NewToken()); err != nil || !c.Won {
				t.Errorf("%+v, %v", c, err)
			}
		})
	}
}

func TestRunTimeNeedsNoMoreThanDML(t *testing.T) {
	server := pgtest.Start(t)
	url := server.Database(t)
	o := storetest.Options()
	open(t, url, o)
	db := raw(t, url)
	var base string
	if err := db.QueryRow(t.Context(), "SELECT current_database()").Scan(&base); err != nil {
		t.Fatal(err)
	}
	role := "dml_" + base
	server.Exec(t, url, `CREATE ROLE `+role+` LOGIN PASSWORD 'dml-pw';
REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO `+role+`;
GRANT SELECT, INSERT, UPDATE, DELETE ON processed_events TO `+role)
	t.Cleanup(func() { server.Exec(t, url, "DROP OWNED BY "+role+"; DROP ROLE "+role) })

	s := unmigrated(t, strings.Replace(url, "postgres@", role+":dml-pw@", 1), o)
	ctx := t.Context()
	token := store.NewToken()
	c, err := s.Claim(ctx, "evt:1", token)
	if err != nil || !c.Won {
		t.Fatalf("%+v, %v", c, err)
	}
	for what, err := range map[string]error{
		"migrate": s.Migrate(ctx, false), "check": s.CheckSchema(ctx),
		"renew": s.Renew(ctx, "evt:1", token), "end": s.EndLease(ctx, "evt:1", token),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	token = store.NewToken()
	if c, err := s.Claim(ctx, "evt:1", token); err != nil || c.Attempt != 2 {
		t.Errorf("%+v, %v", c, err)
	}
	if err := s.Release(ctx, "evt:1", token); err != nil {
		t.Error(err)
	}
	if _, err := s.Cleanup(ctx, 0); err != nil {
		t.Error(err)
	}
	server.Exec(t, url, "REVOKE UPDATE ON processed_events FROM "+role)
	if err := s.CompleteEvent(ctx, "evt:1", false); err == nil || !strings.Contains(err.Error(), "lacks a right") {
		t.Errorf("got %v", err)
	}
}

func TestTableNamesAreQuotedAndMayNameASchema(t *testing.T) {
	server := pgtest.Start(t)
	for _, table := range []string{"events", "Ops.events", `odd "name"; --`, "hooks.select"} {
		t.Run(table, func(t *testing.T) {
			url := server.Database(t)
			server.Exec(t, url, `CREATE SCHEMA "Ops"; CREATE SCHEMA hooks`)
			o := storetest.Options()
			o.Table = table
			s := open(t, url, o)
			if err := s.CheckSchema(t.Context()); err != nil {
				t.Error(err)
			}
			if c, err := s.Claim(t.Context(), "evt:1", store.NewToken()); err != nil || !c.Won {
				t.Errorf("%+v, %v", c, err)
			}
			if _, err := s.Cleanup(t.Context(), 0); err != nil {
				t.Error(err)
			}
		})
	}
	for _, table := range []string{"", ".", "a.b.c", "a.", "a\x00b", strings.Repeat("x", 64)} {
		o := storetest.Options()
		o.Table = table
		if _, err := postgres.Open("postgres://127.0.0.1/x", o); err == nil {
			t.Errorf("%q was accepted", table)
		}
	}
}

func TestOpenNeverShowsThePassword(t *testing.T) {
	for _, url := range []string{
		"postgres://u:s3cr3t@host:notaport/db", "postgres://u:s3cr3t/x@host/db", "postgres://u:s3cr3t%zz@host/db", "postgres://u:s3cr3t@host/db?sslmode=yes",
		"postgres://u:s3cr3t@h ost/db", "postgres://u@host/db?password=s3cr3t&pool_max_conns=x", "postgres://u:s3cr3t@host/db?default_query_exec_mode=x",
		"host=x password=s3cr3t port=y", "postgres://u:s3cr3t@host/db?connect_timeout=soon", "postgres://u:s3cr3t:x@host:5432:1/db",
	} {
		s, err := postgres.Open(url, storetest.Options())
		if err == nil {
			s.Close()
			t.Errorf("%q was accepted", url)
		} else if strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("shows the password: %v", err)
		}
	}
}
