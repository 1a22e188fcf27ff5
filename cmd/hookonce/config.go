package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v10"
)

// Config is the environment, parsed. README.md has the table.
type Config struct {
	UpstreamURL     string `env:"UPSTREAM_URL"`
	UpstreamProfile string `env:"UPSTREAM_PROFILE" envDefault:"generic"`
	ListenAddr      string `env:"LISTEN_ADDR" envDefault:":8080"`
	AdminAddr       string `env:"ADMIN_ADDR" envDefault:":9090"`

	StoreConfig

	InFlightWait    time.Duration `env:"IN_FLIGHT_WAIT" envDefault:"5s"`
	UpstreamTimeout time.Duration `env:"UPSTREAM_TIMEOUT" envDefault:"60s"`
	MaxBody         size          `env:"MAX_BODY" envDefault:"25MiB"`
	MaxBuffered     size          `env:"MAX_BUFFERED" envDefault:"256MiB"`
	ReadTimeout     time.Duration `env:"READ_TIMEOUT" envDefault:"30s"`
	CleanupInterval time.Duration `env:"CLEANUP_INTERVAL" envDefault:"1h"`
	Mode            string        `env:"MODE" envDefault:"enforce"`
	OnStoreError    string        `env:"ON_STORE_ERROR" envDefault:"reject"`
	Unmatched       string        `env:"UNMATCHED" envDefault:"forward"`
	Forwarded       string        `env:"FORWARDED" envDefault:"preserve"`
	ShutdownDelay   time.Duration `env:"SHUTDOWN_DELAY" envDefault:"0s"`
	ShutdownTimeout time.Duration `env:"SHUTDOWN_TIMEOUT" envDefault:"25s"`
	LogLevel        string        `env:"LOG_LEVEL" envDefault:"info"`
	LogFormat       string        `env:"LOG_FORMAT" envDefault:"json"`

	Webhooks string `env:"WEBHOOKS"`

	upstream *url.URL
	webhooks []*WebhookConfig
}

// StoreConfig is what the commands need that touch the store alone.
type StoreConfig struct {
	DatabaseURL     string        `env:"DATABASE_URL" envDefault:"sqlite:hookonce.db"`
	DatabaseURLFile string        `env:"DATABASE_URL_FILE"`
	EventsTable     string        `env:"EVENTS_TABLE" envDefault:"processed_events"`
	AutoMigrate     bool          `env:"AUTO_MIGRATE" envDefault:"true"`
	AdoptTable      bool          `env:"ADOPT_TABLE" envDefault:"false"`
	Lease           time.Duration `env:"LEASE" envDefault:"30s"`
	StoreTimeout    time.Duration `env:"STORE_TIMEOUT" envDefault:"2s"`
	OnUnknown       string        `env:"ON_UNKNOWN" envDefault:"release"`
	Retention       time.Duration `env:"RETENTION" envDefault:"720h"`

	batchSize int // 0: the store's own choice; benchmarks set another
}

// size is a number of bytes, written 1024, 64KiB, 25MiB or 1GiB.
type size int64

// UnmarshalText parses a size.
func (s *size) UnmarshalText(text []byte) error {
	number, unit := string(text), int64(1)
	for suffix, factor := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if n, ok := strings.CutSuffix(number, suffix); ok {
			number, unit = n, factor
			break
		}
	}
	n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(number), "B"), 10, 64)
	if err != nil || n < 0 || n > 1<<62/unit {
		return errors.New("write a size as 25MiB (KiB, MiB, GiB) or in bytes")
	}
	*s = size(n * unit)
	return nil
}

// faults collects everything that is wrong with a configuration, so that all
// of it can be mended at once.
type faults []string

func (f *faults) add(variable, format string, arguments ...any) {
	*f = append(*f, variable+": "+fmt.Sprintf(format, arguments...))
}

// has says whether a variable has a fault already: one that could not be
// parsed is not blamed again for being empty.
func (f faults) has(variable string) bool {
	return slices.ContainsFunc(f, func(fault string) bool { return strings.HasPrefix(fault, variable+": ") })
}

func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	sort.Strings(f)
	return misuse{fmt.Errorf("the configuration has %s:\n  %s", count(len(f), "fault"), strings.Join(f, "\n  "))}
}

// count is a number of things, in words.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}

// environment is the environment as a map. A variable that is set but empty
// counts as not set, except for secrets (somebody forgot one) and namespaces
// (none is meant).
func environment(environ []string) map[string]string {
	vars := make(map[string]string, len(environ))
	for _, line := range environ {
		name, value, _ := strings.Cut(line, "=")
		if value != "" || strings.HasSuffix(name, "SECRET") || strings.HasSuffix(name, "_NAMESPACE") {
			vars[name] = value
		}
	}
	return vars
}

// parseInto fills a struct from the variables that begin with prefix.
func parseInto(target any, prefix string, vars map[string]string, f *faults) {
	options := env.Options{Environment: vars, Prefix: prefix}
	var all env.AggregateError
	if err := env.ParseWithOptions(target, options); errors.As(err, &all) {
		for _, one := range all.Errors {
			var p env.ParseError
			if errors.As(one, &p) {
				f.add(prefix+variableOf(target, p.Name), "%s", parseAdvice(p))
				continue
			}
			*f = append(*f, one.Error())
		}
	}
}

// variableOf is the variable of a field: env's errors name the field only.
func variableOf(target any, field string) string {
	if sf, ok := reflect.TypeOf(target).Elem().FieldByName(field); ok {
		return sf.Tag.Get("env")
	}
	return field
}

func parseAdvice(p env.ParseError) string {
	switch p.Type.String() {
	case "time.Duration":
		return "not a duration; write it as 30s, 5m or 720h"
	case "bool":
		return "not true or false"
	case "int":
		return "not a whole number"
	}
	return p.Err.Error()
}

// names lists the variables of a struct.
func names(target any, prefix string) []string {
	fields, _ := env.GetFieldParamsWithOptions(target, env.Options{Environment: map[string]string{}, Prefix: prefix})
	out := make([]string, 0, len(fields))
	for _, field := range fields {
		if field.Key != "" {
			out = append(out, field.Key)
		}
	}
	return out
}

// loadConfig parses and validates everything that serving needs. Its error
// names every fault, with the remedy, and shows no secret.
func loadConfig(environ []string) (*Config, error) {
	vars := environment(environ)
	var f faults
	c := &Config{}
	parseInto(c, "", vars, &f)
	c.StoreConfig.validate(vars, &f)
	c.validate(&f)
	known := append(names(c, ""), "GOMEMLIMIT")
	hooks, hookNames := loadWebhooks(c, vars, &f)
	c.webhooks = hooks
	checkUnknown(vars, append(known, hookNames...), &f)
	return c, f.err()
}

// loadStoreConfig is for the commands that touch the store alone: nothing
// else of the environment has to be right.
func loadStoreConfig(environ []string) (*StoreConfig, error) {
	vars := environment(environ)
	var f faults
	c := &StoreConfig{}
	parseInto(c, "", vars, &f)
	c.validate(vars, &f)
	return c, f.err()
}

func (c *StoreConfig) validate(vars map[string]string, f *faults) {
	if c.DatabaseURLFile != "" {
		if vars["DATABASE_URL"] != "" {
			f.add("DATABASE_URL_FILE", "DATABASE_URL is set, too; keep one of them")
		}
		content, err := os.ReadFile(c.DatabaseURLFile)
		if err != nil {
			f.add("DATABASE_URL_FILE", "%v", err)
		} else if strings.TrimSpace(string(content)) == "" && vars["DATABASE_URL"] == "" {
			f.add("DATABASE_URL_FILE", "%s is empty; put the URL into it", c.DatabaseURLFile)
		}
		c.DatabaseURL = strings.TrimSpace(string(content))
	} else if vars["DATABASE_URL"] == "" && vars["KUBERNETES_SERVICE_HOST"] != "" {
		f.add("DATABASE_URL", "not set; inside Kubernetes the embedded store has to be asked for in so many words "+
			"(sqlite:/path/on/a/volume/hookonce.db), because a pod's own files go with the pod; postgres://… is for production")
	}
	if scheme, _, _ := strings.Cut(c.DatabaseURL, ":"); c.DatabaseURL != "" && !slices.Contains([]string{"postgres", "postgresql", "sqlite"}, scheme) {
		f.add("DATABASE_URL", "begins neither with postgres:// nor with sqlite:")
	}
	oneOf(f, "ON_UNKNOWN", c.OnUnknown, "release", "hold")
	if vars["STORE_TIMEOUT"] == "" && c.Lease > 0 { // a short lease brings its own short patience
		c.StoreTimeout = min(c.StoreTimeout, c.Lease/3)
	}
	positive(f, "LEASE", c.Lease)
	positive(f, "STORE_TIMEOUT", c.StoreTimeout)
	positive(f, "RETENTION", c.Retention)
	if c.Lease > 0 && c.Lease < 3*c.StoreTimeout {
		f.add("LEASE", "%v is under 3 × STORE_TIMEOUT (%v): a lease would run out while its renewal waits for the store; "+
			"make it at least %v", c.Lease, c.StoreTimeout, 3*c.StoreTimeout)
	}
}

func (c *Config) validate(f *faults) {
	c.upstream = c.parseUpstream(f)
	oneOf(f, "UPSTREAM_PROFILE", c.UpstreamProfile, "generic", "n8n")
	oneOf(f, "MODE", c.Mode, "enforce", "observe")
	oneOf(f, "ON_STORE_ERROR", c.OnStoreError, "reject", "forward")
	oneOf(f, "UNMATCHED", c.Unmatched, "forward", "reject")
	oneOf(f, "FORWARDED", c.Forwarded, "preserve", "append", "replace")
	oneOf(f, "LOG_LEVEL", c.LogLevel, "debug", "info", "warn", "error")
	oneOf(f, "LOG_FORMAT", c.LogFormat, "json", "text")
	for variable, address := range map[string]string{"LISTEN_ADDR": c.ListenAddr, "ADMIN_ADDR": c.AdminAddr} {
		if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
			f.add(variable, "%q is no address; write it as :8080 or 127.0.0.1:8080", address)
		}
	}
	if c.ListenAddr == c.AdminAddr && !strings.HasSuffix(c.ListenAddr, ":0") {
		f.add("ADMIN_ADDR", "the same as LISTEN_ADDR; metrics and health need a port of their own")
	}
	positive(f, "UPSTREAM_TIMEOUT", c.UpstreamTimeout)
	positive(f, "READ_TIMEOUT", c.ReadTimeout)
	notNegative(f, "IN_FLIGHT_WAIT", c.InFlightWait)
	notNegative(f, "CLEANUP_INTERVAL", c.CleanupInterval)
	notNegative(f, "SHUTDOWN_DELAY", c.ShutdownDelay)
	notNegative(f, "SHUTDOWN_TIMEOUT", c.ShutdownTimeout)
	if c.MaxBody <= 0 && !f.has("MAX_BODY") {
		f.add("MAX_BODY", "has to be more than nothing")
	}
	if c.MaxBuffered < c.MaxBody && !f.has("MAX_BUFFERED") {
		f.add("MAX_BUFFERED", "smaller than MAX_BODY: the largest delivery could never be read; make it at least as large")
	}
}

func (c *Config) parseUpstream(f *faults) *url.URL {
	const form = "write it as http://host:port"
	if c.UpstreamURL == "" {
		f.add("UPSTREAM_URL", "not set; it is where the application listens: %s", form)
		return nil
	}
	u, err := url.Parse(c.UpstreamURL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		f.add("UPSTREAM_URL", "not the address of an HTTP server; %s, with a base path if the application has one", form)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		f.add("UPSTREAM_URL", "has a user, a query or a fragment, which would not be sent; %s", form)
	default:
		u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/"), strings.TrimSuffix(u.RawPath, "/")
	}
	return u
}

func oneOf(f *faults, variable, value string, allowed ...string) {
	for _, a := range allowed {
		if value == a {
			return
		}
	}
	f.add(variable, "%q is none of %s", value, strings.Join(allowed, ", "))
}

func positive(f *faults, variable string, d time.Duration) {
	if d <= 0 && !f.has(variable) {
		f.add(variable, "has to be longer than nothing")
	}
}

func notNegative(f *faults, variable string, d time.Duration) {
	if d < 0 {
		f.add(variable, "cannot be negative")
	}
}
