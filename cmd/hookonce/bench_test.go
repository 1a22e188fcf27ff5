package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hookonce/hookonce/store/pgtest"
)

// BenchmarkSideBySide compares hookonce with the least that a reverse proxy
// takes and with one statement for each claim and settlement: each a process of
// its own in front of one upstream, on a PostgreSQL of its own that syncs every
// commit, in turn, -benchtime 5x times over. It prints the table that
// deploy/performance.md explains. A part of it:
//
//	go test -run '^$' -bench SideBySide/1KB/128 -benchtime 5x ./cmd/hookonce
func BenchmarkSideBySide(b *testing.B) {
	rig := newRig(b)
	b.Cleanup(func() { rig.report(os.Stdout) })
	for _, kilobytes := range []int{1, 100} {
		b.Run(fmt.Sprintf("%dKB", kilobytes), func(b *testing.B) {
			for _, connections := range []int{1, 8, 32, 128, 512} {
				b.Run(strconv.Itoa(connections), func(b *testing.B) {
					rig.measure(b, kilobytes<<10, connections)
				})
			}
		})
	}
}

// contender is one way from a sender to the application.
type contender struct {
	name    string
	target  string // URL
	stream  func() *stream
	outcome string // that each answer has to have
	admin   string // URL of its metrics; "": none
}

const (
	direct      = "upstream"
	bare        = "bare proxy"
	tuned       = "bare proxy, tuned"
	passThrough = "pass-through"
	newPostgres = "new, Postgres"
	newSQLite   = "new, SQLite"
	duplicates  = "duplicates, Postgres"
	duplicatesL = "duplicates, SQLite"
	oneByOne    = "new, one statement each"
)

// rig is everything that a measurement needs, and what has been measured.
type rig struct {
	contenders []contender
	database   string
	cells      []*cell
}

// durable is how PostgreSQL is run in production.
var durable = []string{"fsync=on", "full_page_writes=on", "autovacuum_naptime=10s", "max_wal_size=4GB", "shared_buffers=512MB"}

func newRig(b *testing.B) *rig {
	server := pgtest.StartOwn(b, durable...)
	upstream := role(b, "upstream")
	database := func(settings string) string { return server.Database(b) + settings }
	path, err := binary()
	if err != nil {
		b.Fatal(err)
	}
	hookonce := func(path, databaseURL string, more ...string) *process {
		p := launchFrom(b, path, serveEnv(upstream, databaseURL, more...), 64<<10)
		p.waitReady(b)
		return p
	}
	pg, sqlite := hookonce(path, database("")), hookonce(path, "sqlite:"+filepath.Join(b.TempDir(), "hookonce.db"))
	single := hookonce(os.Args[0], database("&pool_max_conns=32"), roleVariable+"=single", "STORE_TIMEOUT=10s")

	r := &rig{database: database("")}
	once := func() *stream { return &stream{} }
	again := func() *stream { return &stream{ids: 10_000} }
	for _, hookonce := range []*process{pg, sqlite} { // so that they are duplicates
		l := &load{target: hookonce.url + "/hook", body: 1 << 10, connections: 128, stream: again()}
		for l.stream.sent.Load() < 2*l.stream.ids {
			l.run(b, warmUp)
		}
		l.close()
	}
	r.contenders = []contender{
		{direct, upstream + "/hook", once, "", ""},
		{bare, role(b, "bare", "UPSTREAM_URL="+upstream) + "/hook", once, "", ""},
		{tuned, role(b, "tuned", "GOGC=200", "UPSTREAM_URL="+upstream) + "/hook", once, "", ""},
		{passThrough, pg.url + "/rest", once, "", ""},
		{newPostgres, pg.url + "/hook", once, "forwarded", pg.admin},
		{newSQLite, sqlite.url + "/hook", once, "forwarded", sqlite.admin},
		{duplicates, pg.url + "/hook", again, "duplicate", pg.admin},
		{duplicatesL, sqlite.url + "/hook", again, "duplicate", sqlite.admin},
		{oneByOne, single.url + "/hook", once, "forwarded", ""},
	}
	return r
}

// BenchmarkCleanup compares the new events that hookonce takes over 128
// connections while a million expired keys are cleaned up, every five seconds
// of that, with those before:
//
//	go test -run '^$' -bench Cleanup -benchtime 3x -timeout 30m ./cmd/hookonce
func BenchmarkCleanup(b *testing.B) {
	const keys = 1_000_000
	server := pgtest.StartOwn(b, durable...)
	url := server.Database(b)
	path, err := binary()
	if err != nil {
		b.Fatal(err)
	}
	p := launchFrom(b, path, serveEnv(role(b, "upstream"), url), 64<<10)
	p.waitReady(b)
	l := &load{target: p.url + "/hook", body: 1 << 10, connections: 128, stream: &stream{}}
	defer l.close()
	l.run(b, 2*time.Second)
	var rates, tails, speeds []float64
	for b.Loop() {
		sql(b, url, `INSERT INTO processed_events (key, first_seen, completed_at, status)
			SELECT 'evt:old_' || md5(random()::text), now() - i, now() - i, 200
			FROM (SELECT interval '40 days' + random() * interval '30 days' AS i FROM generate_series(1, $1)) AS old`, keys)
		sql(b, url, "VACUUM ANALYZE processed_events") // what the insert leaves behind is nobody's business here
		sql(b, url, "CHECKPOINT")
		l.run(b, 3*time.Second) // its pages are written whole once more
		before := l.run(b, 5*time.Second)
		begun, cleaned := time.Now(), make(chan time.Duration, 1)
		cleanup := exec.Command(path, "cleanup")
		cleanup.Env = []string{"DATABASE_URL=" + url}
		if err := cleanup.Start(); err != nil {
			b.Fatal(err)
		}
		go func() {
			if err := cleanup.Wait(); err != nil {
				b.Error("cleanup: ", err)
			}
			cleaned <- time.Since(begun)
		}()
		for cleaning := true; cleaning; {
			during := l.run(b, 5*time.Second)
			select {
			case took := <-cleaned:
				speeds = append(speeds, keys/took.Seconds())
				cleaning = false
			default:
				rates = append(rates, during.rate/before.rate)
				tails = append(tails, during.quantile(.99)/before.quantile(.99))
			}
		}
	}
	if len(rates) == 0 {
		b.Fatal("the cleanup was over before the measurement")
	}
	b.ReportMetric(0, "ns/op")
	rate, tail := spreadOf(rates), spreadOf(tails)
	b.ReportMetric(rate.median, "rate/without")
	b.ReportMetric(rate.least, "rate/without-least")
	b.ReportMetric(tail.median, "p99/without")
	b.ReportMetric(tail.most, "p99/without-most")
	b.ReportMetric(spreadOf(speeds).median, "keys/s")
}

func sql(b *testing.B, url, statement string, args ...any) {
	conn, err := pgx.Connect(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(b.Context())
	if _, err := conn.Exec(b.Context(), statement, args...); err != nil {
		b.Fatal(err)
	}
}

// cell is what was measured with one body size and one number of connections.
type cell struct {
	body, connections int
	commit            time.Duration // median of single-row commits
	samples           map[string][]sample
	resident          map[string]float64 // bytes
}

const (
	warmUp = 200 * time.Millisecond
	slice  = time.Second
)

func (r *rig) measure(b *testing.B, body, connections int) {
	c := &cell{body: body, connections: connections, commit: r.commit(b),
		samples: map[string][]sample{}, resident: map[string]float64{}}
	r.cells = append(r.cells, c)
	turn := slices.Clone(r.contenders)
	for b.Loop() {
		for _, one := range turn {
			l := &load{target: one.target, outcome: one.outcome, body: body, connections: connections, stream: one.stream()}
			l.run(b, warmUp)
			c.samples[one.name] = append(c.samples[one.name], l.run(b, slice))
			l.close()
			if one.admin != "" {
				c.resident[one.name] = max(c.resident[one.name], resident(b, one.admin))
			}
		}
		slices.Reverse(turn) // whatever one leaves behind hits another one next
	}
	b.ReportMetric(0, "ns/op")
	for _, one := range r.contenders {
		b.ReportMetric(c.ratio(one.name, bare).median, strings.NewReplacer(" ", "-", ",", "").Replace(one.name)+"/bare")
	}
}

// commit is the median time of a single-row commit, in this moment.
func (r *rig) commit(b *testing.B) time.Duration {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, r.database)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "CREATE TABLE IF NOT EXISTS commits (n bigserial PRIMARY KEY)"); err != nil {
		b.Fatal(err)
	}
	took := make([]time.Duration, 200)
	for i := range took {
		begun := time.Now()
		if _, err := conn.Exec(ctx, "INSERT INTO commits DEFAULT VALUES"); err != nil {
			b.Fatal(err)
		}
		took[i] = time.Since(begun)
	}
	slices.Sort(took)
	return took[len(took)/2]
}

var residentMetric = regexp.MustCompile(`(?m)^process_resident_memory_bytes (\S+)$`)

// resident is the memory that a process holds, in bytes.
func resident(b *testing.B, admin string) float64 {
	found := residentMetric.FindStringSubmatch(get(b, admin+"/metrics").body)
	if found == nil {
		return 0 // not on every system
	}
	bytes, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		b.Fatal(err)
	}
	return bytes
}

// spread is a median, and what it was taken of: least and most.
type spread struct{ median, least, most float64 }

func spreadOf(values []float64) spread {
	slices.Sort(values)
	n := len(values)
	return spread{(values[(n-1)/2] + values[n/2]) / 2, values[0], values[n-1]}
}

// ratio compares two contenders turn by turn.
func (c *cell) ratio(one, other string) spread {
	ratios := make([]float64, len(c.samples[one]))
	for i := range ratios {
		ratios[i] = c.samples[one][i].rate / c.samples[other][i].rate
	}
	return spreadOf(ratios)
}

func (c *cell) each(name string, figure func(sample) float64) spread {
	values := make([]float64, len(c.samples[name]))
	for i, s := range c.samples[name] {
		values[i] = figure(s)
	}
	return spreadOf(values)
}

// report prints the table: medians, in brackets the least and the most.
func (r *rig) report(w io.Writer) {
	fmt.Fprintln(w, "\n| body | connections | a commit | | requests a second | of the bare proxy | p50 ms | p99 ms | resident MB |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, c := range r.cells {
		if len(c.samples[oneByOne]) == 0 {
			continue // it failed
		}
		for _, one := range r.contenders {
			rate, ratio := c.each(one.name, func(s sample) float64 { return s.rate }), c.ratio(one.name, bare)
			memory := ""
			if m := c.resident[one.name]; m > 0 {
				memory = fmt.Sprintf("%.0f", m/1e6)
			}
			fmt.Fprintf(w, "| %d KB | %d | %.2f ms | %s | %.0f (%.0f–%.0f) | %.2f (%.2f–%.2f) | %.2f | %.1f | %s |\n",
				c.body>>10, c.connections, c.commit.Seconds()*1e3, one.name, rate.median, rate.least, rate.most,
				ratio.median, ratio.least, ratio.most,
				c.each(one.name, func(s sample) float64 { return s.quantile(.5) }).median*1e3,
				c.each(one.name, func(s sample) float64 { return s.quantile(.99) }).median*1e3, memory)
		}
	}
}

// roleVariable makes the test binary be one of the processes of the rig.
const roleVariable = "HOOKONCE_BENCH_ROLE"

// role starts the process and returns its URL.
func role(b *testing.B, name string, environ ...string) string {
	c := exec.Command(os.Args[0])
	c.Env, c.Stderr = slices.Concat(environ, []string{roleVariable + "=" + name}), os.Stderr
	stdin, err := c.StdinPipe() // it ends when this process does
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		stdin.Close()
		_ = c.Wait()
	})
	var address string
	if _, err := fmt.Fscanln(stdout, &address); err != nil {
		b.Fatalf("%s: %v", name, err)
	}
	return "http://" + address
}

// play is what a process of the rig does.
func play(name string) error {
	var handler http.Handler
	switch name {
	case "upstream":
		handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			io.WriteString(w, `{"ok":true}`)
		})
	case "bare", "tuned":
		proxy := bareProxy(os.Getenv("UPSTREAM_URL"))
		if name == "tuned" { // as hookonce is
			proxy.BufferPool = &buffers{}
		}
		handler = proxy
	case "single": // hookonce, with a statement and a commit for each claim and each settlement
		environ := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, roleVariable) })
		config, err := loadConfig(environ)
		if err != nil {
			return err
		}
		config.batchSize = 1
		return (&program{stderr: os.Stderr}).serveWith(context.Background(), config)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	go http.Serve(listener, handler)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// bareProxy is the least that a reverse proxy takes: it stores nothing.
func bareProxy(upstream string) *httputil.ReverseProxy {
	target, _ := url.Parse(upstream)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 512 // else it would connect anew all the time
	transport.MaxIdleConns = 0
	return &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
		},
	}
}

// buffers is what httputil's documentation says a BufferPool is for.
type buffers struct{ pool sync.Pool }

func (p *buffers) Get() []byte {
	if buffer, ok := p.pool.Get().(*[]byte); ok {
		return *buffer
	}
	return make([]byte, 32<<10)
}

func (p *buffers) Put(buffer []byte) { p.pool.Put(&buffer) }
