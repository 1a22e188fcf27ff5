package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/hookonce/hookonce/proxy"
	"github.com/hookonce/hookonce/proxy/admin"
	"github.com/hookonce/hookonce/proxy/metrics"
	"github.com/hookonce/hookonce/store"
)

// server is one serving process.
type server struct {
	config   *Config
	log      *slog.Logger
	db       database
	metrics  *metrics.Metrics
	handler  *proxy.Handler
	stopping atomic.Bool
	prepared atomic.Bool // the schema has been accepted
	storeUp  atomic.Bool
	tried    chan struct{} // closed when the store has been tried once
	fatal    chan error    // what ends serving at once: at most one is read
}

func (p *program) serve(c *cobra.Command, _ []string) error {
	config, err := loadConfig(p.environ)
	if err != nil {
		return err
	}
	return p.serveWith(c.Context(), config)
}

func (p *program) serveWith(ctx context.Context, config *Config) (err error) {
	signal.Ignore(syscall.SIGPIPE) // a log that nobody reads any more ends nothing
	lines := newGatherer(p.stderr)
	defer lines.Close()
	log := config.logger(lines)
	registry := prometheus.NewRegistry()
	labels := make([]string, len(config.webhooks))
	hooks := make([]*proxy.Webhook, len(config.webhooks))
	for i, w := range config.webhooks {
		labels[i], hooks[i] = w.label(), w.entry()
	}
	s := &server{
		config:  config,
		log:     log,
		metrics: metrics.New(registry, version(), labels, proxy.Outcomes()),
		tried:   make(chan struct{}),
		fatal:   make(chan error, 4),
	}
	observe := config.Mode == "observe"
	storeConfig := config.StoreConfig
	if observe {
		storeConfig.OnUnknown = "release" // observing holds nothing back
	}
	if s.db, err = storeConfig.open(s.metrics.Batched); err != nil {
		return err
	}
	defer closeSoon(s.db)
	p.limitMemory(config)
	stdlog.SetOutput(io.Discard) // net/http writes bytes of answers to it

	s.handler = proxy.New(proxy.Config{
		Upstream: config.upstream, N8N: config.UpstreamProfile == "n8n", Webhooks: hooks,
		Store: preparedStore{s.db, &s.prepared}, Metrics: s.metrics, Log: log, Now: time.Now, Transport: proxy.NewTransport(),
		Lease: config.Lease, InFlightWait: config.InFlightWait, UpstreamTimeout: config.UpstreamTimeout,
		ReadTimeout: config.ReadTimeout, MaxBody: int64(config.MaxBody), MaxBuffered: int64(config.MaxBuffered),
		Observe: observe, Hold: storeConfig.OnUnknown == "hold", ForwardOnStoreError: config.OnStoreError == "forward",
		RejectUnmatched: config.Unmatched == "reject", Forwarded: config.Forwarded,
	})
	front := &http.Server{Handler: s.handler, ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 3 * time.Minute,
		DisableGeneralOptionsHandler: true, // OPTIONS * is the application's, too
		ErrorLog:                     slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	back := &http.Server{Handler: admin.Handler(registry, s.ready, s.summary), ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}

	// The signal ends neither the deliveries nor what they wait for: those are
	// drained. A second signal ends everything, as it does without us.
	stop, forget := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer forget()
	background, endBackground := context.WithCancel(context.WithoutCancel(ctx))
	defer endBackground()
	go s.handler.Run(background)
	go s.keepStore(background)
	go s.keepSecrets(background)
	// Not a wait for the database: a moment for one that is there, so that the
	// first delivery need not come again.
	select {
	case <-s.tried:
	case <-time.After(config.StoreTimeout):
	case err := <-s.fatal:
		return err
	}
	if err := s.listen("LISTEN_ADDR", config.ListenAddr, front); err != nil {
		return err
	}
	defer front.Close()
	defer back.Close()
	if err := s.listen("ADMIN_ADDR", config.AdminAddr, back); err != nil {
		return err
	}
	s.warn()

	select {
	case err := <-s.fatal:
		return err
	case <-stop.Done():
		forget()
		return s.drain(front, back)
	}
}

// listen opens an address and serves on it in the background.
func (s *server) listen(variable, address string, server *http.Server) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("%s: %w; choose another address, or stop what uses this one", variable, err)
	}
	s.log.Info("listening", "for", variable, "address", listener.Addr().String())
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.fatal <- fmt.Errorf("%s: %w", variable, err)
		}
	}()
	return nil
}

// drain stops, in this order: not ready, wait, accept no more, finish the
// deliveries, settle, close.
func (s *server) drain(front, back *http.Server) error {
	s.stopping.Store(true)
	s.log.Info("stopping", "delay", s.config.ShutdownDelay.Seconds(), "timeout", s.config.ShutdownTimeout.Seconds())
	time.Sleep(s.config.ShutdownDelay)
	limit, cancel := context.WithTimeout(context.Background(), s.config.ShutdownTimeout)
	defer cancel()
	cut := front.Shutdown(limit)
	deliveries, settlements := s.handler.Drain(limit)
	front.Close()
	back.Close()
	if deliveries+settlements > 0 {
		return fmt.Errorf("SHUTDOWN_TIMEOUT (%v) was over before %d deliveries and %d settlements were finished; "+
			"their claims are taken over when the leases run out", s.config.ShutdownTimeout, deliveries, settlements)
	}
	if cut != nil {
		s.log.Info("streams that passed through were cut off")
	}
	s.log.Info("stopped")
	return nil
}

// closeSoon closes the store, but does not wait for a database that hangs.
func closeSoon(db database) {
	closed := make(chan struct{})
	go func() {
		db.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(time.Second):
	}
}

// ready says whether the process takes deliveries, and in a sentence how it is.
func (s *server) ready() (bool, string) {
	switch {
	case s.stopping.Load():
		return false, "stopping"
	case !s.storeUp.Load():
		return true, "the store is down: " + s.withoutStore() + ", everything else passes through"
	}
	return true, "ok"
}

// withoutStore says what becomes of webhooks while the store is down.
func (s *server) withoutStore() string {
	switch {
	case s.config.Mode == "observe":
		return "webhooks are forwarded and not recorded"
	case s.config.OnStoreError == "forward":
		return "webhooks are forwarded unclaimed"
	}
	return "webhooks are answered 503"
}

func (s *server) summary() string {
	_, state := s.ready()
	text := fmt.Sprintf("hookonce %s\nstate: %s\nmode: %s\nupstream: %s\n", version(), state, s.config.Mode, s.config.upstream.Redacted())
	for _, w := range s.config.webhooks {
		text += fmt.Sprintf("webhook %s: %s, provider %s, event id %s\n", w.label(), w.Path, w.Provider, w.key.String())
	}
	return text
}

// preparedStore claims and completes nothing before the schema has been
// accepted: in a table that was refused it might work all the same.
type preparedStore struct {
	database
	prepared *atomic.Bool
}

var errNotPrepared = errors.New("the store is not ready, the log has said why")

func (s preparedStore) Claim(ctx context.Context, key string, t store.Token) (store.Claim, error) {
	if !s.prepared.Load() {
		return store.Claim{}, errNotPrepared
	}
	return s.database.Claim(ctx, key, t)
}

func (s preparedStore) Complete(ctx context.Context, key string, t store.Token, status int) error {
	if !s.prepared.Load() {
		return errNotPrepared
	}
	return s.database.Complete(ctx, key, t, status)
}

// How often the store is looked after.
const (
	storeRetry = time.Second     // while it is down
	storeWatch = 5 * time.Second // while all is well
)

// keepStore prepares the schema as soon as the database answers, watches the
// store, and cleans up.
func (s *server) keepStore(ctx context.Context) {
	first, said := true, ""
	for {
		err := s.config.prepare(ctx, s.db)
		if err == nil {
			break
		}
		if errors.Is(err, store.ErrForeignTable) || errors.Is(err, store.ErrSchemaOld) {
			if first {
				s.fatal <- err
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
		if said != err.Error() {
			said = err.Error()
			s.log.Error("the store is not ready; until it is, "+s.withoutStore(), "error", said)
		}
		if first {
			close(s.tried)
		}
		if !pause(ctx, storeRetry) {
			return
		}
		first = false
	}
	s.log.Info("the store is ready")
	s.prepared.Store(true)
	s.storeUp.Store(true)
	if first {
		close(s.tried)
	}
	go s.keepClean(ctx)
	for wait := time.Duration(0); pause(ctx, wait); {
		held, err := s.db.HeldCount(ctx)
		if ctx.Err() != nil {
			return
		}
		up := err == nil
		if s.storeUp.Swap(up) && !up {
			s.log.Error("the store is down", "error", err.Error())
		}
		s.metrics.StoreState(held, up)
		stats := s.db.Stats()
		s.metrics.Connections(stats.InUse, stats.Idle, stats.Max)
		if wait = storeWatch; !up {
			wait = storeRetry
		}
	}
}

// keepClean deletes what is past its retention. Replicas start at different
// moments, and one at a time does the work.
func (s *server) keepClean(ctx context.Context) {
	interval := s.config.CleanupInterval
	if interval == 0 {
		return
	}
	for pause(ctx, interval/2+rand.N(interval)) {
		began := time.Now()
		cleaned, err := s.db.Cleanup(ctx, s.config.Retention)
		if ctx.Err() != nil {
			return
		}
		s.metrics.StoreAnswered("cleanup", time.Since(began), err)
		if err != nil {
			s.log.Error("cleanup failed, it will be tried again", "error", err.Error())
			continue
		}
		s.metrics.Cleaned(cleaned.Deleted, cleaned.Unsettled, time.Now())
		if cleaned.Deleted > 0 {
			s.log.Info("cleaned up", "deleted", cleaned.Deleted, "unsettled", cleaned.Unsettled)
		}
	}
}

// keepSecrets reads secret files anew: Kubernetes swaps them behind a symbolic
// link, so only a look at the content tells.
func (s *server) keepSecrets(ctx context.Context) {
	said := make(map[*WebhookConfig]string)
	for pause(ctx, time.Second) {
		for _, w := range s.config.webhooks {
			if w.SecretFile == "" {
				continue
			}
			changed, err := w.reloadSecret()
			switch {
			case err != nil && said[w] != err.Error():
				said[w] = err.Error()
				s.log.Error("the secret file cannot be used, the old secrets stay in force", "webhook", w.label(), "error", err.Error())
			case changed:
				delete(said, w)
				s.log.Info("secrets read anew", "webhook", w.label())
			}
		}
	}
}

// pause waits, and says whether to go on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// limitMemory keeps the garbage collector from holding more than the
// deliveries may and the process needs; GOMEMLIMIT overrides. Below that limit
// it need not hurry: what lives is a few megabytes, and Go's default of 100 %
// would collect after every few hundred deliveries. GOGC overrides.
func (p *program) limitMemory(c *Config) {
	if debug.SetMemoryLimit(-1) == 1<<63-1 { // nobody has set it
		debug.SetMemoryLimit(int64(c.MaxBuffered) + 64<<20)
	}
	if !slices.ContainsFunc(p.environ, func(v string) bool { return strings.HasPrefix(v, "GOGC=") }) {
		debug.SetGCPercent(200)
	}
}

// warn says at the start what is allowed, but may not be meant.
func (s *server) warn() {
	c := s.config
	if strings.HasPrefix(c.DatabaseURL, "sqlite:") {
		s.log.Warn("the embedded store is for one replica and for trying out; set DATABASE_URL to postgres://… for production")
	}
	if c.Mode == "observe" {
		s.log.Warn("MODE=observe: everything is forwarded, nothing is refused; see hookonce_observed_total")
	}
	for _, w := range c.webhooks {
		log := s.log.With("webhook", w.label(), "provider", w.Provider)
		p := w.provider
		if w.Provider == "none" {
			log.Warn("provider none: nothing is verified, so anybody can make the application run")
		}
		if p.Tolerance > 0 && w.tolerance == 0 {
			log.Warn("tolerance 0: a captured delivery is accepted for ever, as long as its key is not known")
		}
		if c.Retention < p.RetryWindow {
			log.Warn("RETENTION is shorter than this provider goes on sending: an event may run twice", "retries_for", p.RetryWindow.String())
		}
		if p.Waits > 0 && c.InFlightWait >= p.Waits {
			log.Info("IN_FLIGHT_WAIT is longer than this provider waits: it will be gone before it is answered", "waits", p.Waits.String())
		}
	}
}
