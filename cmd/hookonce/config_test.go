package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// valid is an environment without a fault, with changes on top.
func valid(changes ...string) []string {
	return append([]string{
		"UPSTREAM_URL=http://127.0.0.1:5678", "LISTEN_ADDR=127.0.0.1:0", "ADMIN_ADDR=127.0.0.1:0", "WEBHOOK_PATH=/hook", "WEBHOOK_PROVIDER=stripe", "WEBHOOK_SECRET=" + testSecret,
	}, changes...)
}

func mustLoad(t *testing.T, environ []string) *Config {
	t.Helper()
	c, err := loadConfig(environ)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// faultsOf are the lines of the fault report, which a command writes.
func faultsOf(t *testing.T, environ []string, args ...string) []string {
	t.Helper()
	code, stdout, stderr := command(t, environ, "", args...)
	if code != exitMisuse || stdout != "" {
		t.Errorf("exit code %d, output %q, want %d and none", code, stdout, exitMisuse)
	}
	for _, secret := range []string{testSecret, "S3CR3T"} {
		if strings.Contains(stderr, secret) {
			t.Errorf("shows a secret: %s", stderr)
		}
	}
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	return lines[1:]
}

func TestFaultIsReportedWithItsNameAndRemedy(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte(" \n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const named = "WEBHOOKS=stripe,github WEBHOOK_STRIPE_SECRET=S3CR3T WEBHOOK_GITHUB_SECRET=S3CR3T -WEBHOOK_PATH -WEBHOOK_PROVIDER -WEBHOOK_SECRET "
	for _, c := range []struct {
		changes  string // separated by spaces; -NAME takes a variable away
		variable string
		remedy   string
	}{
		{"UPSTREAM_URL=", "UPSTREAM_URL", "write it as http://host:port"},
		{"UPSTREAM_URL=localhost:5678", "UPSTREAM_URL", "write it as http://host:port"},
		{"UPSTREAM_URL=ftp://app", "UPSTREAM_URL", "write it as http://host:port"},
		{"UPSTREAM_URL=http://", "UPSTREAM_URL", "write it as http://host:port"},
		{"UPSTREAM_URL=http://:80", "UPSTREAM_URL", "write it as http://host:port"},
		{"UPSTREAM_URL=http://me:S3CR3T@app", "UPSTREAM_URL", "has a user, a query or a fragment"},
		{"UPSTREAM_URL=http://app/?token=S3CR3T", "UPSTREAM_URL", "has a user, a query or a fragment"},
		{"UPSTREAM_URL=http://a\x7fS3CR3T", "UPSTREAM_URL", "write it as http://host:port"},
		{"UPSTREAM_PROFILE=zapier", "UPSTREAM_PROFILE", "none of generic, n8n"},
		{"LISTEN_ADDR=8080", "LISTEN_ADDR", "write it as :8080"},
		{"ADMIN_ADDR=localhost", "ADMIN_ADDR", "write it as :8080"},
		{"LISTEN_ADDR=:9090 ADMIN_ADDR=:9090", "ADMIN_ADDR", "need a port of their own"},
		{"IN_FLIGHT_WAIT=5", "IN_FLIGHT_WAIT", "write it as 30s, 5m or 720h"},
		{"IN_FLIGHT_WAIT=-1s", "IN_FLIGHT_WAIT", "cannot be negative"},
		{"UPSTREAM_TIMEOUT=soon", "UPSTREAM_TIMEOUT", "write it as 30s"},
		{"UPSTREAM_TIMEOUT=0s", "UPSTREAM_TIMEOUT", "longer than nothing"},
		{"READ_TIMEOUT=0s", "READ_TIMEOUT", "longer than nothing"},
		{"CLEANUP_INTERVAL=-1h", "CLEANUP_INTERVAL", "cannot be negative"},
		{"SHUTDOWN_DELAY=-1s", "SHUTDOWN_DELAY", "cannot be negative"},
		{"SHUTDOWN_TIMEOUT=-1s", "SHUTDOWN_TIMEOUT", "cannot be negative"},
		{"RETENTION=0s", "RETENTION", "longer than nothing"},
		{"RETENTION=30d", "RETENTION", "720h"},
		{"MAX_BODY=25MB", "MAX_BODY", "write a size as 25MiB"},
		{"MAX_BODY=-1", "MAX_BODY", "write a size as 25MiB"},
		{"MAX_BODY=1.5MiB", "MAX_BODY", "write a size as 25MiB"},
		{"MAX_BODY=99999999999GiB", "MAX_BODY", "write a size as 25MiB"},
		{"MAX_BODY=0", "MAX_BODY", "more than nothing"},
		{"MAX_BUFFERED=1MiB", "MAX_BUFFERED", "at least as large"},
		{"MODE=dry-run", "MODE", "none of enforce, observe"},
		{"ON_UNKNOWN=retry", "ON_UNKNOWN", "none of release, hold"},
		{"ON_STORE_ERROR=open", "ON_STORE_ERROR", "none of reject, forward"},
		{"UNMATCHED=drop", "UNMATCHED", "none of forward, reject"},
		{"FORWARDED=true", "FORWARDED", "none of preserve, append, replace"},
		{"LOG_LEVEL=loud", "LOG_LEVEL", "none of debug, info, warn, error"},
		{"LOG_FORMAT=xml", "LOG_FORMAT", "none of json, text"},
		{"AUTO_MIGRATE=maybe", "AUTO_MIGRATE", "true or false"},
		{"LEASE=0s", "LEASE", "longer than nothing"},
		{"LEASE=5s STORE_TIMEOUT=2s", "LEASE", "make it at least 6s"},
		{"STORE_TIMEOUT=0s", "STORE_TIMEOUT", "longer than nothing"},
		{"DATABASE_URL=postgres://db/x DATABASE_URL_FILE=" + empty, "DATABASE_URL_FILE", "keep one of them"},
		{"DATABASE_URL_FILE=/nowhere/at/all", "DATABASE_URL_FILE", "no such file"},
		{"KUBERNETES_SERVICE_HOST=10.0.0.1", "DATABASE_URL", "inside Kubernetes"},

		{"WEBHOOK_PATH=", "WEBHOOK_PATH", "where the provider's requests arrive"},
		{"WEBHOOK_PATH=hook", "WEBHOOK_PATH", "write it as /webhook/stripe"},
		{"WEBHOOK_PATH=/hook?x=1", "WEBHOOK_PATH", "without a query"},
		{"WEBHOOK_PATH=/hook/*", "WEBHOOK_PATH", "as a subtree like /webhook/"},
		{"WEBHOOK_PATH=/{name}", "WEBHOOK_PATH", "as a subtree like /webhook/"},
		{"WEBHOOK_PATH=https://me/hook", "WEBHOOK_PATH", "write it as /webhook/stripe"},
		{"WEBHOOK_PROVIDER=", "WEBHOOK_PROVIDER", "none if nothing is to be verified"},
		{"WEBHOOK_PROVIDER=strype", "WEBHOOK_PROVIDER", "it knows"},
		{"-WEBHOOK_SECRET", "WEBHOOK_SECRET", "copy it from the provider's settings"},
		{"WEBHOOK_SECRET=", "WEBHOOK_SECRET", "leave the door open"},
		{"WEBHOOK_SECRET=\r\n\t", "WEBHOOK_SECRET", "leave the door open"},
		{"WEBHOOK_PROVIDER=none WEBHOOK_SECRET=", "WEBHOOK_SECRET", "leave the door open"},
		{"WEBHOOK_PROVIDER=svix WEBHOOK_SECRET=S3CR3T!!", "WEBHOOK_SECRET", "whsec_"},
		{"WEBHOOK_PROVIDER=discord WEBHOOK_SECRET=S3CR3T", "WEBHOOK_SECRET", "hexadecimal"},
		{"WEBHOOK_SECRET_FILE=" + empty, "WEBHOOK_SECRET_FILE", "keep one of them"},
		{"-WEBHOOK_SECRET WEBHOOK_SECRET_FILE=" + empty, "WEBHOOK_SECRET_FILE", "put one on each line"},
		{"-WEBHOOK_SECRET WEBHOOK_SECRET_FILE=/nowhere", "WEBHOOK_SECRET_FILE", "no such file"},
		{"WEBHOOK_TOLERANCE=300", "WEBHOOK_TOLERANCE", "write it as 300s"},
		{"WEBHOOK_TOLERANCE=-5m", "WEBHOOK_TOLERANCE", "0 for no age check"},
		{"WEBHOOK_PROVIDER=square", "WEBHOOK_PUBLIC_URL", "signs the URL it calls"},
		{"WEBHOOK_PUBLIC_URL=hooks.example.com", "WEBHOOK_PUBLIC_URL", "write it as https://hooks.example.com"},
		{"WEBHOOK_PUBLIC_URL=https://me:S3CR3T@example.com", "WEBHOOK_PUBLIC_URL", "write it as https://hooks.example.com"},
		{"WEBHOOK_EVENT_ID=body:id", "WEBHOOK_EVENT_ID", "json:"},
		{"WEBHOOK_MISSING_ID=drop", "WEBHOOK_MISSING_ID", "none of sha256, forward, reject"},
		{"WEBHOOK_NAMESPACE=a/b", "WEBHOOK_NAMESPACE", "use a-z, 0-9, - and _"},
		{"WEBHOOK_RELEASE_ON=4xx", "WEBHOOK_RELEASE_ON", "has to have 5xx"},
		{"WEBHOOK_RELEASE_ON=500,503", "WEBHOOK_RELEASE_ON", "has to have 5xx"},
		{"WEBHOOK_RELEASE_ON=2xx,5xx", "WEBHOOK_RELEASE_ON", "from 3xx to 5xx"},
		{"WEBHOOK_RELEASE_ON=,5xx", "WEBHOOK_RELEASE_ON", "from 3xx to 5xx"},
		{"WEBHOOK_DUPLICATE_STATUS=409", "WEBHOOK_DUPLICATE_STATUS", "only a 2xx"},
		{"WEBHOOK_DUPLICATE_STATUS=ok", "WEBHOOK_DUPLICATE_STATUS", "whole number"},
		{"WEBHOOK_DUPLICATE_STATUS=204 WEBHOOK_DUPLICATE_BODY=seen", "WEBHOOK_DUPLICATE_BODY", "204 has no body"},
		{"WEBHOOK_INVALID_STATUS=200", "WEBHOOK_INVALID_STATUS", "4xx or 5xx"},
		{"WEBHOOK_INVALID_STATUS=302", "WEBHOOK_INVALID_STATUS", "4xx or 5xx"},
		{"WEBHOOK_HANDSHAKE=yes", "WEBHOOK_HANDSHAKE", "none of known, open"},
		{"WEBHOOK_GET=404", "WEBHOOK_GET", "none of forward, reject"},
		{"WEBHOOK_PROVIDER=token", "WEBHOOK_TOKEN_HEADER", "not set"},
		{"WEBHOOK_PROVIDER=github WEBHOOK_SECRET=S3CR3T WEBHOOK_HMAC_HEADER=X-Sig", "WEBHOOK_HMAC_HEADER", "leave it out"},
		{"WEBHOOK_PROVIDER=github WEBHOOK_SECRET=S3CR3T WEBHOOK_TOKEN_HEADER=X-Token", "WEBHOOK_TOKEN_HEADER", "leave it out"},
		{"WEBHOOK_PROVIDER=github WEBHOOK_SECRET=S3CR3T WEBHOOK_SNS_CERT_FILE=/x", "WEBHOOK_SNS_CERT_FILE", "leave it out"},
		{"DATABASE_URL=mysql://x", "DATABASE_URL", "begins neither"},
		{"WEBHOOK_PROVIDER=hmac WEBHOOK_HMAC_ALGORITHM=crc", "WEBHOOK_SECRET", "sha256, sha1, sha512 or md5"},
		{"WEBHOOK_PROVIDER=hmac WEBHOOK_HMAC_SIGNED={timestamp}", "WEBHOOK_SECRET", "lacks {body}"},
		{"WEBHOOK_PROVIDER=basic WEBHOOK_SECRET=S3CR3T", "WEBHOOK_SECRET", "colon"},

		{named + "WEBHOOKS=stripe,github,Git_Hub", "WEBHOOKS", "use a-z"},
		{named + "WEBHOOKS=stripe,github,stripe", "WEBHOOKS", "there twice"},
		{named + "WEBHOOKS=stripe,github,git-hub,git_hub WEBHOOK_GIT_HUB_PROVIDER=none", "WEBHOOKS", "the same variables"},
		{named + "WEBHOOK_GITHUB_PATH=/webhook/stripe", "WEBHOOK_GITHUB_PATH", "the path of stripe, too"},
		{named + "WEBHOOK_GITHUB_NAMESPACE=stripe", "WEBHOOK_GITHUB_NAMESPACE", "take each other for duplicates"},
		{named + "WEBHOOK_TOLERANCE=5m", "WEBHOOK_TOLERANCE", "say whose it is: WEBHOOK_<NAME>_TOLERANCE"},
		{named + "WEBHOOK_GITHUB_SECRET=", "WEBHOOK_GITHUB_SECRET", "leave the door open"},
		{named + "WEBHOOKS=stripe,github,acme WEBHOOK_ACME_SECRET=S3CR3T", "WEBHOOK_ACME_PROVIDER", "it knows"},
	} {
		t.Run(strings.ReplaceAll(c.changes, "/", "|"), func(t *testing.T) {
			environ := valid()
			for _, change := range strings.Split(c.changes, " ") {
				name, _, _ := strings.Cut(strings.TrimPrefix(change, "-"), "=")
				environ = slices.DeleteFunc(environ, func(line string) bool { return strings.HasPrefix(line, name+"=") })
				if !strings.HasPrefix(change, "-") {
					environ = append(environ, change)
				}
			}
			found := faultsOf(t, environ)
			if len(found) != 1 || !strings.HasPrefix(strings.TrimSpace(found[0]), c.variable+": ") || !strings.Contains(found[0], c.remedy) {
				t.Errorf("faults:\n%s\nwant one of %s with %q", strings.Join(found, "\n"), c.variable, c.remedy)
			}
		})
	}
}

func TestAllFaultsAreReportedAtOnce(t *testing.T) {
	found := faultsOf(t, []string{"LEASE=x", "MAX_BODY=x", "MODE=x", "WEBHOOK_PATH=x", "WEBHOOK_PROVIDER=stripe", "UPSTREM_URL=x"})
	var variables []string
	for _, line := range found {
		name, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		variables = append(variables, name)
	}
	want := []string{"LEASE", "MAX_BODY", "MODE", "UPSTREAM_URL", "UPSTREM_URL", "WEBHOOK_PATH", "WEBHOOK_SECRET"}
	if diff := cmp.Diff(want, variables); diff != "" {
		t.Error(diff)
	}
}

func TestDatabaseURLShowsNoPassword(t *testing.T) {
	for _, url := range []string{
		"mysql://me:S3CR3T@db/x", "postgres://me:S3CR3T@db:port/x", "postgres://me:S3CR3T%zz@db/x", "postgres://me:S3CR3T@db/x?sslmode=never",
		"me:S3CR3T@db", "postgres://me:S3CR3T@db/x?pool_max_conns=many",
	} {
		for _, args := range [][]string{nil, {"migrate"}, {"events", "list"}} {
			code, _, stderr := command(t, valid("DATABASE_URL="+url), "", args...)
			if code != exitMisuse || !strings.Contains(stderr, "DATABASE_URL") || strings.Contains(stderr, "S3CR3T") {
				t.Errorf("%s %v: exit code %d: %s", url, args, code, stderr)
			}
		}
	}
}

func TestStoreCommandsNeedTheStoresVariablesOnly(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "x.db")
	if code, _, stderr := command(t, []string{"DATABASE_URL=" + url, "MODE=nonsense"}, "", "migrate"); code != exitOK {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if found := faultsOf(t, []string{"DATABASE_URL=" + url, "LEASE=x", "ON_UNKNOWN=x"}, "migrate"); len(found) != 2 {
		t.Errorf("faults: %q", found)
	}
}

// TestVariablesAndDefaults pins every variable and its default. It is what operators rely on;
// a change here belongs into the changelog.
func TestVariablesAndDefaults(t *testing.T) {
	want := map[string]string{
		"UPSTREAM_URL": "", "UPSTREAM_PROFILE": "generic", "LISTEN_ADDR": ":8080", "ADMIN_ADDR": ":9090",
		"DATABASE_URL": "sqlite:hookonce.db", "DATABASE_URL_FILE": "", "EVENTS_TABLE": "processed_events",
		"AUTO_MIGRATE": "true", "ADOPT_TABLE": "false", "LEASE": "30s", "STORE_TIMEOUT": "2s", "ON_UNKNOWN": "release", "RETENTION": "720h",
		"IN_FLIGHT_WAIT": "5s", "UPSTREAM_TIMEOUT": "60s", "MAX_BODY": "25MiB", "MAX_BUFFERED": "256MiB", "READ_TIMEOUT": "30s",
		"CLEANUP_INTERVAL": "1h", "MODE": "enforce", "ON_STORE_ERROR": "reject", "UNMATCHED": "forward", "FORWARDED": "preserve",
		"SHUTDOWN_DELAY": "0s", "SHUTDOWN_TIMEOUT": "25s", "LOG_LEVEL": "info", "LOG_FORMAT": "json", "WEBHOOKS": "",
	}
	wantHook := map[string]string{
		"PATH": "", "PROVIDER": "", "SECRET": "", "SECRET_FILE": "", "TOLERANCE": "", "PUBLIC_URL": "",
		"EVENT_ID": "", "MISSING_ID": "", "NAMESPACE": "", "RELEASE_ON": "3xx,4xx,5xx", "NOT_ACCEPTED": "",
		"DUPLICATE": "", "DUPLICATE_STATUS": "", "DUPLICATE_BODY": "", "DUPLICATE_CONTENT_TYPE": "", "INVALID_STATUS": "",
		"HANDSHAKE": "known", "GET": "forward",
		"HMAC_HEADER": "", "HMAC_ALGORITHM": "", "HMAC_ENCODING": "", "HMAC_PREFIX": "", "HMAC_SIGNED": "",
		"HMAC_TIMESTAMP_HEADER": "", "HMAC_ID_HEADER": "", "TOKEN_HEADER": "", "SNS_CERT_FILE": "",
	}
	if diff := cmp.Diff(want, tags(reflect.TypeFor[Config]())); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(wantHook, tags(reflect.TypeFor[WebhookConfig]())); diff != "" {
		t.Error(diff)
	}
}

func tags(of reflect.Type) map[string]string {
	found := map[string]string{}
	for _, field := range reflect.VisibleFields(of) {
		if name := field.Tag.Get("env"); name != "" {
			found[name] = field.Tag.Get("envDefault")
		}
	}
	return found
}

func TestDefaultsHold(t *testing.T) {
	c := mustLoad(t, valid())
	w := c.webhooks[0]
	for name, is := range map[string]bool{
		"LEASE":            c.Lease == 30*time.Second,
		"STORE_TIMEOUT":    c.StoreTimeout == 2*time.Second,
		"RETENTION":        c.Retention == 30*24*time.Hour,
		"MAX_BODY":         c.MaxBody == 25<<20,
		"MAX_BUFFERED":     c.MaxBuffered == 256<<20,
		"AUTO_MIGRATE":     c.AutoMigrate,
		"ADOPT_TABLE":      !c.AdoptTable,
		"EVENT_ID":         w.key.String() == "json:id", // Stripe's
		"MISSING_ID":       w.MissingID == "sha256",
		"TOLERANCE":        w.tolerance == 5*time.Minute, // Stripe's
		"DUPLICATE_STATUS": w.DuplicateStatus == 200,
		"DUPLICATE_BODY":   w.DuplicateBody == "",
		"INVALID_STATUS":   w.InvalidStatus == 401,
		"label":            w.label() == "default",
	} {
		if !is {
			t.Errorf("%s has another default", name)
		}
	}
}

func TestREADMENamesEveryVariable(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	readme := string(text)
	for name, value := range tags(reflect.TypeFor[Config]()) {
		row := regexp.MustCompile("(?m)^\\|[^|\n]*`" + name + "`.*$").FindString(readme)
		if value == "0s" {
			value = "0"
		}
		if row == "" && !strings.Contains(readme, "`"+name) || row != "" && value != "" && value != "false" && !strings.Contains(row, "`"+value) {
			t.Errorf("README.md lacks %s with its default %q", name, value)
		}
	}
	for name := range tags(reflect.TypeFor[WebhookConfig]()) {
		if !strings.Contains(readme, "WEBHOOK_"+name) && !strings.Contains(readme, "_"+name+"`") {
			t.Errorf("README.md lacks WEBHOOK_%s", name)
		}
	}
}

func TestUnknownVariableIsAFault(t *testing.T) {
	for name, remedy := range map[string]string{
		"WEBHOOK_SECERT":        "did you mean WEBHOOK_SECRET?",
		"UPSTREM_URL":           "did you mean UPSTREAM_URL?",
		"UPSTREAM_TIME":         "did you mean UPSTREAM_TIMEOUT?",
		"DATABASE_URI":          "did you mean DATABASE_URL?",
		"EVENTS_TABEL":          "did you mean EVENTS_TABLE?",
		"IN_FLIGHT_WAITING":     "did you mean IN_FLIGHT_WAIT?",
		"RETENTION_DAYS":        "no such variable",
		"ONUNKNOWN":             "did you mean ON_UNKNOWN?",
		"STORE_TIMEOUTS":        "did you mean STORE_TIMEOUT?",
		"SHUTDOWN_GRACE":        "no such variable",
		"LEASE_DURATION":        "no such variable",
		"WEBHOOK_STRIPE_SECRET": "those named in WEBHOOKS",
		"MAX_BODY_SIZE":         "no such variable",
		"LOGLEVEL":              "did you mean LOG_LEVEL?",
		"ADOPT_TABLES":          "did you mean ADOPT_TABLE?",
	} {
		t.Run(name, func(t *testing.T) {
			found := faultsOf(t, valid(name+"=S3CR3T"))
			if len(found) != 1 || !strings.Contains(found[0], name+": unknown") || !strings.Contains(found[0], remedy) {
				t.Errorf("faults: %q, want %q", found, remedy)
			}
		})
	}
}

// Kubernetes sets seven variables for each port of each Service of the
// namespace (kubernetes.io, "Service", environment variables).
func TestOthersVariablesAreNoFault(t *testing.T) {
	var others []string
	for _, service := range []string{"WEBHOOK", "WEBHOOKS", "UPSTREAM", "DATABASE_URL", "STORE", "HOOKONCE", "LEASE", "MODE", "WEBHOOK_STRIPE", "RETENTION", "SHUTDOWN"} {
		for _, name := range []string{
			"_SERVICE_HOST=10.0.0.1", "_SERVICE_PORT=80", "_SERVICE_PORT_HTTP=80", "_SERVICE_PORT_WEB_2=80", "_PORT=tcp://10.0.0.1:80", "_PORT_80_TCP=tcp://10.0.0.1:80",
			"_PORT_80_TCP_PROTO=tcp", "_PORT_80_TCP_PORT=80", "_PORT_80_TCP_ADDR=10.0.0.1", "_PORT_53_UDP=udp://10.0.0.1:53",
		} {
			others = append(others, service+name)
		}
	}
	others = append(others, "WEBHOOK_URL=https://n8n.example.com", "WEBHOOK_TUNNEL_URL=https://n8n.example.com", // n8n's own
		"PATH=/bin", "HOME=/", "N8N_PORT=5678", "MODEL=x", "LEASES", "GOMEMLIMIT=1GiB", "HOSTNAME=a", "LANG=C")
	mustLoad(t, valid(others...))
}

func TestSetButEmptyCountsAsUnset(t *testing.T) {
	c := mustLoad(t, valid("LEASE=", "MODE=", "MAX_BODY=", "WEBHOOK_TOLERANCE=", "WEBHOOK_SECRET_FILE=", "WEBHOOK_DUPLICATE_STATUS=", "AUTO_MIGRATE="))
	if c.Lease != 30*time.Second || c.Mode != "enforce" || c.MaxBody != 25<<20 || !c.AutoMigrate {
		t.Errorf("%+v", c)
	}
}

func TestStoreTimeoutFollowsAShortLease(t *testing.T) {
	for _, c := range []struct {
		set  []string
		want time.Duration
	}{
		{nil, 2 * time.Second},
		{[]string{"LEASE=3s"}, time.Second},
		{[]string{"LEASE=1h"}, 2 * time.Second},
		{[]string{"LEASE=6s", "STORE_TIMEOUT=2s"}, 2 * time.Second},
		{[]string{"LEASE=30s", "STORE_TIMEOUT=10s"}, 10 * time.Second},
	} {
		if got := mustLoad(t, valid(c.set...)).StoreTimeout; got != c.want {
			t.Errorf("%v: STORE_TIMEOUT is %v, want %v", c.set, got, c.want)
		}
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]size{"0": 0, "1024": 1024, "10B": 10, "64KiB": 64 << 10, "25 MiB": 25 << 20, "1GiB": 1 << 30, "8589934592GiB": -1,
		"": -1, "MiB": -1, "10MB": -1, "10M": -1, "1TiB": -1, "-1": -1, "1e3": -1, "0x10": -1, "9223372036854775808": -1, "10KiBMiB": -1} {
		var s size
		err := s.UnmarshalText([]byte(text))
		if want < 0 && err == nil || want >= 0 && (err != nil || s != want) {
			t.Errorf("%q: %d, %v; want %d", text, s, err, want)
		}
	}
}

func TestReleaseOn(t *testing.T) {
	for _, c := range []struct {
		releaseOn string
		status    int
		want      bool
	}{
		{"", 500, true}, {"", 404, true}, {"", 301, true}, {"", 100, true}, {"", 999, true},
		{"5xx", 500, true}, {"5xx", 599, true}, {"5xx", 404, false}, {"5xx", 304, false}, {"5xx", 600, true},
		{"404, 429, 5xx", 404, true}, {"404,429,5xx", 429, true}, {"404,429,5xx", 400, false},
	} {
		w := mustLoad(t, valid("WEBHOOK_RELEASE_ON="+c.releaseOn)).webhooks[0]
		if got := w.releases(c.status); got != c.want {
			t.Errorf("%q: %d releases: %v", c.releaseOn, c.status, got)
		}
	}
}

func TestSeveralWebhooks(t *testing.T) {
	c := mustLoad(t, []string{"UPSTREAM_URL=http://app", "WEBHOOKS=stripe, github,my-shop", "WEBHOOK_STRIPE_SECRET=S3CR3T", "WEBHOOK_GITHUB_SECRET=S3CR3T",
		"WEBHOOK_GITHUB_PATH=/gh/", "WEBHOOK_MY_SHOP_PROVIDER=shopify", "WEBHOOK_MY_SHOP_SECRET=S3CR3T", "WEBHOOK_MY_SHOP_NAMESPACE=shop"})
	type hook struct {
		Label, Path, Provider, Namespace string
	}
	var got []hook
	for _, w := range c.webhooks {
		got = append(got, hook{w.label(), w.Path, w.Provider, w.entry().Namespace})
	}
	want := []hook{
		{"stripe", "/webhook/stripe", "stripe", "stripe"},
		{"github", "/gh/", "github", "github"},
		{"my-shop", "/webhook/my-shop", "shopify", "shop"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestUnnamedWebhookHasBareKeys(t *testing.T) {
	if namespace := mustLoad(t, valid()).webhooks[0].entry().Namespace; namespace != "" {
		t.Errorf("namespace %q", namespace)
	}
}

func TestDatabaseURLInsideKubernetes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(file, []byte("postgres://db/x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, set := range []string{"DATABASE_URL=sqlite:/data/x.db", "DATABASE_URL=postgres://db/x", "DATABASE_URL_FILE=" + file} {
		mustLoad(t, valid("KUBERNETES_SERVICE_HOST=10.0.0.1", set))
	}
	if c := mustLoad(t, valid("DATABASE_URL_FILE="+file)); c.DatabaseURL != "postgres://db/x" {
		t.Errorf("DATABASE_URL_FILE gives %q", c.DatabaseURL)
	}
}

// FuzzConfig looks for an environment that is a panic, or a message that shows
// a secret.
func FuzzConfig(f *testing.F) {
	f.Add("WEBHOOKS=stripe,github\nWEBHOOK_GITHUB_PATH=/x/\nLEASE=1s")
	f.Add("MAX_BODY=1GiB\nWEBHOOK_RELEASE_ON=5xx,404\nWEBHOOK_EVENT_ID=json:id+header:x")
	f.Add("WEBHOOK_PROVIDER=hmac\nWEBHOOK_HMAC_SIGNED={timestamp}.{body}\nWEBHOOK_HMAC_TIMESTAMP_HEADER=T")
	f.Add("UPSTREAM_URL=http://[::1]:80/%2f\nDATABASE_URL=postgres://%zz")
	f.Add("=\n==\nWEBHOOK_=\nWEBHOOK_PATH=%")
	const secret = "S3CR3T5f1e0b"
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, secret) || strings.Contains(text, "_FILE=") { // it may name a device
			t.Skip()
		}
		environ := append(valid("WEBHOOK_STRIPE_SECRET="+secret, "WEBHOOK_GITHUB_SECRET="+secret), strings.Split(text, "\n")...)
		environ = append(environ, "WEBHOOK_SECRET="+secret)
		for _, more := range [][]string{nil, {"DATABASE_URL=postgres://me:" + secret + "@db/x"}, {"UPSTREAM_URL=http://me:" + secret + "@app"}} {
			_, err := loadConfig(append(environ, more...))
			if err == nil {
				continue
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("shows a secret: %v", err)
			}
			if len(err.Error()) > 1<<20 {
				t.Errorf("a message of %d bytes", len(err.Error()))
			}
		}
	})
}
