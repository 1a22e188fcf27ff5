package main

import (
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/hookonce/hookonce/store/pgtest"
)

func TestEachEventRunsOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, database string) {
		app := newApplication(t, nil)
		s := serveReady(t, serveEnv(app.URL, database))
		now := time.Now()
		for _, c := range []struct {
			body     string
			signedAt time.Time
			outcome  string
		}{
			{`{"id":"evt_A"}`, now, "forwarded"},
			{`{"id":"evt_A"}`, now.Add(-time.Minute), "duplicate"}, // another signature
			{`{"id":"evt_B"}`, now, "forwarded"},
		} {
			wantAnswer(t, do(t, signed(t, s.url+"/hook", c.body, c.signedAt)), http.StatusOK, c.outcome)
		}
		var keys []string
		for _, r := range app.seen() {
			keys = append(keys, r.header.Get("Hookonce-Key")+" "+r.header.Get("Hookonce-Attempt")+" "+r.header.Get("Hookonce-Prior-Outcome"))
		}
		if diff := cmp.Diff([]string{"evt:evt_A 1 none", "evt:evt_B 1 none"}, keys); diff != "" {
			t.Error(diff)
		}
	})
}

func TestBodyWithoutIDRunsOnceUnderItsHash(t *testing.T) {
	eachStore(t, func(t *testing.T, database string) {
		app := newApplication(t, nil)
		s := serveReady(t, serveEnv(app.URL, database))
		const body = `{"type":"ping"}`
		wantAnswer(t, s.deliver(t, body), http.StatusOK, "forwarded")
		wantAnswer(t, s.deliver(t, body), http.StatusOK, "duplicate")
		// printf '{"type":"ping"}' | sha256sum
		const key = "sha256:cdeb977b07509618335ceaa57b4b76fe3ec9c72f50102f74dcfbab92228ec6fb"
		runs := app.seen()
		if len(runs) != 1 || runs[0].header.Get("Hookonce-Key") != key {
			t.Errorf("runs: %v", runs)
		}
	})
}

func TestFailedEventRunsAgain(t *testing.T) {
	eachStore(t, func(t *testing.T, database string) {
		var status atomic.Int32
		status.Store(http.StatusInternalServerError)
		app := newApplication(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) })
		environ := serveEnv(app.URL, database)
		s := serveReady(t, environ)
		wantAnswer(t, s.deliver(t, `{"id":"evt_A"}`), http.StatusInternalServerError, "released")
		if code, out, stderr := command(t, environ, "", "events", "show", "evt:evt_A"); code != exitFailed || !strings.Contains(stderr, "no such key") {
			t.Errorf("the key is still there: %d %s%s", code, out, stderr)
		}
		status.Store(http.StatusOK)
		wantAnswer(t, s.deliver(t, `{"id":"evt_A"}`), http.StatusOK, "forwarded")
		if n := len(app.seen()); n != 2 {
			t.Errorf("%d runs", n)
		}
	})
}

func TestSimultaneousDeliveriesRunOnceOverTwoReplicas(t *testing.T) {
	for _, deliveries := range []int{8, 64} {
		t.Run(fmt.Sprint(deliveries), func(t *testing.T) {
			database := pgtest.Start(t).Database(t)
			arrived, finish := make(chan struct{}, deliveries), make(chan struct{})
			var finished atomic.Bool
			app := newApplication(t, func(http.ResponseWriter, *http.Request) {
				arrived <- struct{}{}
				<-finish
				finished.Store(true)
			})
			environ := serveEnv(app.URL, database, "IN_FLIGHT_WAIT=15s")
			replicas := []*serving{serveReady(t, environ), serveReady(t, environ)}
			var all sync.WaitGroup
			for i := range deliveries {
				all.Go(func() {
					wantAnswer2xx(t, replicas[i%2].deliver(t, `{"id":"evt_A"}`))
					if !finished.Load() {
						t.Error("answered 2xx before the application had finished")
					}
				})
			}
			<-arrived
			eventually(t, "all deliveries are under way", func() bool {
				return metric(t, replicas[0], `hookonce_deliveries_in_flight{webhook="default"}`)+
					metric(t, replicas[1], `hookonce_deliveries_in_flight{webhook="default"}`) == float64(deliveries)
			})
			close(finish)
			all.Wait()
			if n := len(app.seen()); n != 1 {
				t.Errorf("%d runs", n)
			}
		})
	}
}

func wantAnswer2xx(t *testing.T, got answer) {
	t.Helper()
	if got.status != http.StatusOK || got.outcome != "forwarded" && got.outcome != "duplicate" {
		t.Errorf("answered %d %s", got.status, got.outcome)
	}
}

// metric is the value of a series.
func metric(t *testing.T, s *serving, series string) (value float64) {
	t.Helper()
	for line := range strings.Lines(get(t, s.admin+"/metrics").body) {
		if text, ok := strings.CutPrefix(line, series+" "); ok {
			_, _ = fmt.Sscan(text, &value)
			return value
		}
	}
	t.Fatalf("no metric %s", series)
	return 0
}

func TestEverythingElsePassesThrough(t *testing.T) {
	app := newApplication(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	s := serveReady(t, serveEnv(app.URL+"/base", "sqlite:"+filepath.Join(t.TempDir(), "x.db")))
	wantAnswer(t, get(t, s.url+"/any/thing?a=1&b;c"), http.StatusTeapot, "")
	wantAnswer(t, get(t, s.url+"/hook"), http.StatusTeapot, "")
	if runs := app.seen(); runs[0].target != "/base/any/thing?a=1&b;c" {
		t.Errorf("target %s", runs[0].target)
	}
}

func TestForgedDeliveryIsRefused(t *testing.T) {
	app := newApplication(t, nil)
	s := serveReady(t, serveEnv(app.URL, "sqlite:"+filepath.Join(t.TempDir(), "x.db")))
	r := signed(t, s.url+"/hook", `{"id":"evt_A"}`, time.Now())
	r.Header.Set("Stripe-Signature", stripeSignature(`{"id":"evt_B"}`, time.Now()))
	wantAnswer(t, do(t, r), http.StatusUnauthorized, "invalid_signature")
	wantAnswer(t, do(t, signed(t, s.url+"/HOOK", `{"id":"evt_A"}`, time.Now())), http.StatusBadRequest, "bad_request")
	if len(app.seen()) != 0 {
		t.Error("reached the application")
	}
	if log := s.log.String(); strings.Contains(log, testSecret) || strings.Contains(log, "v1=") {
		t.Errorf("the log shows a secret or a signature: %s", log)
	}
}

func TestServesWithoutTheDatabaseAndRecovers(t *testing.T) {
	server := pgtest.StartOwn(t)
	database := server.Database(t)
	server.Stop(t)
	app := newApplication(t, nil)
	s := serve(t, serveEnv(app.URL, database, "STORE_TIMEOUT=1s"))
	wantAnswer(t, get(t, s.url+"/editor"), http.StatusOK, "")
	refused := s.deliver(t, `{"id":"evt_A"}`)
	wantAnswer(t, refused, http.StatusServiceUnavailable, "store_unavailable")
	if refused.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if ready := get(t, s.admin+"/readyz"); ready.status != http.StatusOK || !strings.Contains(ready.body, "store is down") {
		t.Errorf("readyz: %d %s", ready.status, ready.body)
	}
	wantAnswer(t, get(t, s.admin+"/livez"), http.StatusOK, "")
	server.Run(t)
	s.waitReady(t)
	eventually(t, "deliveries are taken", func() bool { return s.deliver(t, `{"id":"evt_A"}`).outcome == "forwarded" })
	wantAnswer(t, s.deliver(t, `{"id":"evt_A"}`), http.StatusOK, "duplicate")
}

func TestOldSchemaIsSaidWhereTheDatabaseAnswersLater(t *testing.T) {
	server := pgtest.StartOwn(t)
	database := server.Database(t)
	server.Stop(t)
	app := newApplication(t, nil)
	s := serve(t, serveEnv(app.URL, database, "AUTO_MIGRATE=false", "STORE_TIMEOUT=1s"))
	server.Run(t)
	eventually(t, "the log says what to do", func() bool { return strings.Contains(s.log.String(), "run: hookonce migrate") })
	wantAnswer(t, s.deliver(t, `{"id":"evt_A"}`), http.StatusServiceUnavailable, "store_unavailable")
	if code, _, stderr := command(t, []string{"DATABASE_URL=" + database}, "", "migrate"); code != exitOK {
		t.Fatal(stderr)
	}
	s.waitReady(t)
	wantAnswer(t, s.deliver(t, `{"id":"evt_A"}`), http.StatusOK, "forwarded")
}

func TestNothingIsClaimedInATableThatWasRefused(t *testing.T) {
	server := pgtest.StartOwn(t)
	database := server.Database(t)
	if code, _, stderr := command(t, []string{"DATABASE_URL=" + database}, "", "migrate"); code != exitOK {
		t.Fatal(stderr)
	}
	// Claims would work in it, all the same.
	server.Exec(t, database, "ALTER TABLE processed_events DROP answer; COMMENT ON TABLE processed_events IS NULL")
	server.Stop(t)
	app := newApplication(t, nil)
	s := serve(t, serveEnv(app.URL, database, "STORE_TIMEOUT=1s"))
	eventually(t, "the first try is over", func() bool { return strings.Contains(s.log.String(), "the store is not ready") })
	server.Run(t)
	eventually(t, "the log says what is wrong", func() bool { return strings.Contains(s.log.String(), "another EVENTS_TABLE") })
	wantAnswer(t, s.deliver(t, `{"id":"evt_A"}`), http.StatusServiceUnavailable, "store_unavailable")
	if runs := app.seen(); len(runs) != 0 {
		t.Errorf("reached the application: %v", runs)
	}
}

func TestOldSchemaEndsServingAtTheStart(t *testing.T) {
	eachStore(t, func(t *testing.T, database string) {
		s := start(t, serveEnv("http://127.0.0.1:1", database, "AUTO_MIGRATE=false"))
		if code := s.wait(t); code != exitFailed || !strings.Contains(s.log.String(), "run: hookonce migrate") {
			t.Errorf("exit code %d: %s", code, s.log)
		}
		if code, _, stderr := command(t, []string{"DATABASE_URL=" + database}, "", "migrate"); code != exitOK {
			t.Fatal(stderr)
		}
		serveReady(t, serveEnv("http://127.0.0.1:1", database, "AUTO_MIGRATE=false"))
	})
}

// template is the n8n template's table, with an event of the workflow's own.
const template = `CREATE TABLE processed_events (key text PRIMARY KEY, first_seen timestamptz NOT NULL DEFAULT now());
INSERT INTO processed_events (key) VALUES ('evt:evt_old')`

// whole is the whole table as text.
const whole = `(SELECT string_agg(row_to_json(e)::text, ',' ORDER BY key) FROM processed_events AS e)`

func TestForeignTableIsNotTouchedUntilAdopted(t *testing.T) {
	server := pgtest.Start(t)
	database := server.Database(t)
	server.Exec(t, database, template)
	server.Exec(t, database, "CREATE TABLE before AS SELECT "+whole+" AS was")
	untouched := "DO $$ BEGIN IF " + whole + " IS DISTINCT FROM (SELECT was FROM before) THEN RAISE 'touched'; END IF; END $$"

	app := newApplication(t, nil)
	environ := serveEnv(app.URL, database)
	s := start(t, environ)
	if code := s.wait(t); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	code, _, stderr := command(t, environ, "", "migrate")
	if code != exitFailed {
		t.Errorf("migrate: exit code %d", code)
	}
	for _, text := range []string{s.log.String(), stderr} {
		for _, part := range []string{"Remove the claim step from the workflow", "hookonce migrate --adopt", "EVENTS_TABLE"} {
			if !strings.Contains(text, part) {
				t.Errorf("%q lacks %q", text, part)
			}
		}
	}
	server.Exec(t, database, untouched)

	if code, out, stderr := command(t, environ, "", "migrate", "--adopt"); code != exitOK {
		t.Fatalf("exit code %d: %s%s", code, out, stderr)
	}
	adopted := serveReady(t, environ)
	wantAnswer(t, adopted.deliver(t, `{"id":"evt_old"}`), http.StatusOK, "duplicate")
	wantAnswer(t, adopted.deliver(t, `{"id":"evt_new"}`), http.StatusOK, "forwarded")
	// The template's own way of claiming goes on working, for its own events.
	server.Exec(t, database, "INSERT INTO processed_events (key) VALUES ('evt:evt_own') ON CONFLICT (key) DO NOTHING")
	wantAnswer(t, adopted.deliver(t, `{"id":"evt_own"}`), http.StatusOK, "duplicate")
}

func TestServesWithRightsOnRowsAlone(t *testing.T) {
	server := pgtest.Start(t)
	database := server.Database(t)
	if code, _, stderr := command(t, []string{"DATABASE_URL=" + database}, "", "migrate"); code != exitOK {
		t.Fatal(stderr)
	}
	role := "r_" + strings.ToLower(rand.Text()[:12])
	server.Exec(t, database, fmt.Sprintf(`CREATE ROLE %s LOGIN PASSWORD 'pw';
		REVOKE ALL ON SCHEMA public FROM PUBLIC; GRANT USAGE ON SCHEMA public TO %s;
		GRANT SELECT, INSERT, UPDATE, DELETE ON processed_events TO %s`, role, role, role))
	t.Cleanup(func() { server.Exec(t, database, fmt.Sprintf("DROP OWNED BY %s; DROP ROLE %s", role, role)) })
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "pw")
	var status atomic.Int32
	app := newApplication(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) })
	environ := serveEnv(app.URL, u.String(), "RETENTION=1ms")
	s := serveReady(t, environ)
	status.Store(http.StatusInternalServerError)
	wantAnswer(t, s.deliver(t, `{"id":"evt_A"}`), http.StatusInternalServerError, "released")
	status.Store(http.StatusOK)
	wantAnswer(t, s.deliver(t, `{"id":"evt_A"}`), http.StatusOK, "forwarded")
	wantAnswer(t, s.deliver(t, `{"id":"evt_A"}`), http.StatusOK, "duplicate")
	if code, out, stderr := command(t, environ, "", "cleanup"); code != exitOK || !strings.Contains(out, "deleted 1 ") {
		t.Errorf("cleanup: %d %s%s", code, out, stderr)
	}
}

func TestPortInUseEndsServing(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, variable := range []string{"LISTEN_ADDR", "ADMIN_ADDR"} {
		s := start(t, serveEnv("http://127.0.0.1:1", "sqlite:"+filepath.Join(t.TempDir(), "x.db"), variable+"="+taken.Addr().String()))
		if code := s.wait(t); code != exitFailed || !strings.Contains(s.log.String(), variable) {
			t.Errorf("%s: exit code %d: %s", variable, code, s.log)
		}
	}
}

func TestStoppingLeavesNothingBehind(t *testing.T) {
	pgtest.Start(t)
	eachStore(t, func(t *testing.T, database string) {
		app := newApplication(t, nil)
		http.DefaultClient.CloseIdleConnections()
		before := goleak.IgnoreCurrent()
		s := serveReady(t, serveEnv(app.URL, database))
		wantAnswer(t, s.deliver(t, `{"id":"evt_A"}`), http.StatusOK, "forwarded")
		if code := s.stop(t); code != exitOK {
			t.Errorf("exit code %d", code)
		}
		http.DefaultClient.CloseIdleConnections()
		app.CloseClientConnections()
		goleak.VerifyNone(t, before)
	})
}
