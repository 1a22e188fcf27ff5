package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hookonce/hookonce/store/pgtest"
)

// TestKillLosesNothingAndRunsNothingTwiceUntold kills one of two replicas at
// random moments under load, and cuts their way to the database off for longer
// than a lease, while the application fails in every way. HOOKONCE_KILLS says
// how often, HOOKONCE_SEED repeats the dice of an earlier run.
func TestKillLosesNothingAndRunsNothingTwiceUntold(t *testing.T) {
	kills, seed := number(t, "HOOKONCE_KILLS", 20), number(t, "HOOKONCE_SEED", int(time.Now().UnixNano()&0xffffff))
	t.Logf("HOOKONCE_SEED=%d", seed)
	c := newCrash(t, uint64(seed))
	load, endLoad := context.WithCancel(t.Context())
	defer endLoad()
	var workers sync.WaitGroup
	for range 48 {
		workers.Go(func() { c.work(load) })
	}
	dice := rand.New(rand.NewPCG(uint64(seed), 0))
	var outages sync.WaitGroup
	for range kills {
		wait(between(dice, 100, 500))
		i := dice.IntN(2)
		r, other := c.replicas[i], c.replicas[1-i]
		switch {
		case r.cutOff.Load(): // what it has not recorded yet would be forgotten
			r = other
		case !other.cutOff.Load() && dice.IntN(3) == 0:
			other.cutOff.Store(true)
			length := between(dice, 2200, 2600)
			outages.Go(func() { other.outage(t, length) })
		}
		r.kill(t)
		wait(between(dice, 0, 200))
		r.launch(t)
	}
	outages.Wait()
	endLoad()
	workers.Wait()
	c.resendAll()

	c.seen.unrecorded = c.unrecorded()
	broken := c.seen.violations()
	for _, b := range broken[:min(len(broken), 10)] {
		event, _, _ := strings.Cut(b, ":")
		t.Errorf("%s\n%s", b, c.logged(event))
	}
	if len(broken) > 0 {
		t.Errorf("%d violations", len(broken))
	}
	for event, runs := range c.seen.runs {
		if len(c.seen.acks[event]) == 0 {
			t.Errorf("%s was never acknowledged: runs %v", event, runs)
		}
	}
	c.report(t, kills)
}

func number(t *testing.T, variable string, otherwise int) int {
	n, err := strconv.Atoi(cmp.Or(os.Getenv(variable), strconv.Itoa(otherwise)))
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

func wait(d time.Duration) { <-time.After(d) }

// between draws a number of milliseconds.
func between(dice *rand.Rand, least, most int) time.Duration {
	return time.Duration(least+dice.IntN(most-least+1)) * time.Millisecond
}

// crash is one run of the crash test.
type crash struct {
	seed     uint64
	start    time.Time
	seen     *history
	replicas [2]*replica
	events   atomic.Int64
	sent     atomic.Int64
	client   *http.Client
}

func newCrash(t *testing.T, seed uint64) *crash {
	c := &crash{seed: seed, start: time.Now(), seen: newHistory(),
		client: &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	t.Cleanup(c.client.CloseIdleConnections)
	app := httptest.NewServer(http.HandlerFunc(c.application))
	t.Cleanup(app.Close)
	database := pgtest.Start(t).Database(t)
	for i := range c.replicas {
		way, via := newWay(t, database)
		r := &replica{way: way, environ: serveEnv(app.URL, via,
			"LEASE=2s", "UPSTREAM_TIMEOUT=800ms", "IN_FLIGHT_WAIT=200ms")}
		c.replicas[i] = r
		r.launch(t)
	}
	return c
}

// application fails in every way that there is, as the dice of the event say;
// from the seventh run on it is well.
func (c *crash) application(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	event := strings.TrimSuffix(strings.TrimPrefix(string(body), `{"id":"`), `"}`)
	run := &appRun{began: time.Since(c.start), told: r.Header.Get("Hookonce-Prior-Outcome")}
	c.seen.mu.Lock()
	n := len(c.seen.runs[event])
	c.seen.runs[event] = append(c.seen.runs[event], run)
	c.seen.mu.Unlock()
	answer := func(status int) {
		c.seen.mu.Lock()
		run.ended, run.status = time.Since(c.start), status
		c.seen.mu.Unlock()
		if status != 0 {
			w.WriteHeader(status)
			return
		}
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			conn.Close()
		}
	}
	name := fnv.New64()
	fmt.Fprint(name, event, n)
	dice := rand.New(rand.NewPCG(c.seed, name.Sum64()))
	switch luck := dice.IntN(100); {
	case err != nil: // cut off: the replica died while it sent
		answer(0)
	case n >= 6 || luck < 68:
		wait(between(dice, 0, 30))
		answer(http.StatusOK)
	case luck < 78:
		wait(between(dice, 0, 10))
		answer(http.StatusInternalServerError)
	case luck < 80:
		answer(http.StatusNotFound)
	case luck < 86:
		wait(between(dice, 0, 20))
		answer(0)
	case luck < 93: // beyond UPSTREAM_TIMEOUT, some beyond the second one
		wait(between(dice, 900, 2200))
		answer(http.StatusOK)
	default:
		wait(between(dice, 900, 2200))
		answer(http.StatusServiceUnavailable)
	}
}

// work is a provider: one event after another, some of them sent twice at
// once, some again after they were acknowledged.
func (c *crash) work(ctx context.Context) {
	for ctx.Err() == nil {
		event := fmt.Sprintf("evt_%d", c.events.Add(1))
		name := fnv.New64()
		fmt.Fprint(name, event)
		dice := rand.New(rand.NewPCG(c.seed, name.Sum64()))
		var deliveries sync.WaitGroup
		for range 1 + dice.IntN(10)/7 {
			own := rand.New(rand.NewPCG(c.seed, dice.Uint64()))
			deliveries.Go(func() { c.send(event, own) })
		}
		deliveries.Wait()
		if dice.IntN(4) == 0 {
			c.send(event, dice)
		}
	}
}

// send delivers an event until it is acknowledged, but not for ever.
func (c *crash) send(event string, dice *rand.Rand) {
	body := fmt.Sprintf(`{"id":%q}`, event)
	for try := range 60 {
		target := c.replicas[dice.IntN(2)].url.Load().(string)
		r, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, target+"/hook", strings.NewReader(body))
		r.Header.Set("Stripe-Signature", stripeSignature(body, time.Now()))
		c.sent.Add(1)
		response, err := c.client.Do(r)
		if err == nil {
			now := time.Since(c.start)
			_, err = io.Copy(io.Discard, response.Body)
			response.Body.Close()
			if err == nil && response.StatusCode/100 == 2 {
				c.seen.mu.Lock()
				c.seen.acks[event] = append(c.seen.acks[event], now)
				c.seen.mu.Unlock()
				return
			}
		}
		wait(between(dice, 10, min(20<<min(try, 8), 500)))
	}
}

// resendAll delivers every event once more: whatever was acknowledged, but not
// recorded, runs again now.
func (c *crash) resendAll() {
	events := make(chan string)
	var senders sync.WaitGroup
	for i := range uint64(16) {
		dice := rand.New(rand.NewPCG(c.seed, i))
		senders.Go(func() {
			for event := range events {
				c.send(event, dice)
			}
		})
	}
	for n := range c.events.Load() {
		events <- fmt.Sprintf("evt_%d", n+1)
	}
	close(events)
	senders.Wait()
}

// report says what the run was made of, and fails if it was no trial.
func (c *crash) report(t *testing.T, kills int) {
	runs, again, unknown := 0, 0, 0
	for _, of := range c.seen.runs {
		runs += len(of)
		for i, r := range of {
			if i > 0 {
				again++
			}
			if r.told == "unknown" {
				unknown++
			}
		}
	}
	t.Logf("%d kills in %v; %d events, %d requests sent, %d runs, %d of them not the first, %d told unknown; %d answered for before they were recorded",
		kills, time.Since(c.start).Round(time.Second), c.events.Load(), c.sent.Load(), runs, again, unknown, len(c.seen.unrecorded))
	if again < kills || unknown < kills {
		t.Error("too little happened to prove anything")
	}
}

// logged is what the replicas have logged of an event.
func (c *crash) logged(event string) string {
	var lines []string
	for i, r := range c.replicas {
		for _, log := range r.logs {
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, `evt:`+event+`"`) {
					lines = append(lines, fmt.Sprintf("  replica %d: %s", i, line))
				}
			}
		}
	}
	return strings.Join(lines, "")
}

// unrecorded says from when to when a completion was not recorded, although it
// had been answered for.
func (c *crash) unrecorded() map[string][]span {
	spans := map[string][]span{}
	for _, r := range c.replicas {
		for _, log := range r.logs {
			for key, times := range log.unsettled() {
				for _, s := range times {
					to := time.Duration(math.MaxInt64)
					if !s.to.IsZero() { // a request may still be on its way
						to = s.to.Sub(c.start) + time.Second
					}
					event := strings.TrimPrefix(key, "evt:")
					spans[event] = append(spans[event], span{s.from.Sub(c.start), to})
				}
			}
		}
	}
	return spans
}

type unsettled struct{ from, to time.Time } // to is zero: never recorded

// unsettled are the keys whose completion was answered for before it was
// recorded, and when.
func (w *transcript) unsettled() map[string][]unsettled {
	keys := map[string][]unsettled{}
	for line := range strings.Lines(w.String()) {
		var fields struct {
			Time                 time.Time
			Msg, Key, Settlement string
		}
		if !strings.Contains(line, `"settlement":"complete"`) || json.Unmarshal([]byte(line), &fields) != nil {
			continue
		}
		times := keys[fields.Key]
		if strings.HasPrefix(fields.Msg, "settling failed") {
			keys[fields.Key] = append(times, unsettled{from: fields.Time})
		} else if fields.Msg == "settled in the background" && len(times) > 0 {
			times[len(times)-1].to = fields.Time
		}
	}
	return keys
}

// allSettled says whether nothing is left to be recorded.
func (w *transcript) allSettled() bool {
	for _, times := range w.unsettled() {
		if times[len(times)-1].to.IsZero() {
			return false
		}
	}
	return true
}

// replica is one that is killed and started again.
type replica struct {
	environ []string
	way     *way
	process *process
	url     atomic.Value // string; of the last one while it is down
	logs    []*transcript
	cutOff  atomic.Bool // from the database, or has still something to record from then
}

// outage cuts the replica off from the database, and waits until it has
// recorded what it answered meanwhile.
func (r *replica) outage(t *testing.T, length time.Duration) {
	r.way.hold(length)
	const limit = time.Minute
	late := time.After(limit)
	for !r.process.log.allSettled() {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-late:
			t.Errorf("not recorded %v after the outage: %v", limit, r.process.log.unsettled())
			return
		}
	}
	r.cutOff.Store(false)
}

func (r *replica) launch(t *testing.T) {
	r.process = launch(t, r.environ)
	r.url.Store(r.process.url)
	r.logs = append(r.logs, r.process.log)
}

func (r *replica) kill(t *testing.T) {
	r.process.signal(t, syscall.SIGKILL)
	r.process.wait(t)
}

// way is a replica's own way to the database. Held, it takes what it is given
// and hands nothing on; later everything arrives, also what the dead have sent.
type way struct{ flow sync.RWMutex }

func newWay(t *testing.T, database string) (w *way, via string) {
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	target := u.Host
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	u.Host = listener.Addr().String()
	w = &way{}
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", target)
			if err != nil {
				near.Close()
				continue
			}
			go w.carry(near, far)
			go w.carry(far, near)
		}
	}()
	return w, u.String()
}

func (w *way) carry(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		w.flow.RLock()
		if n > 0 {
			_, _ = to.Write(buffer[:n])
		}
		w.flow.RUnlock()
		if err != nil {
			to.Close()
			return
		}
	}
}

// hold holds everything for so long.
func (w *way) hold(d time.Duration) {
	w.flow.Lock()
	wait(d)
	w.flow.Unlock()
}
