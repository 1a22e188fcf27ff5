// Package pgtest gives tests a PostgreSQL of their own, made from the binaries
// on the machine: for tests only.
package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// install says what to do where no PostgreSQL can be had.
const install = "these tests need PostgreSQL: install its server (Debian: apt-get install postgresql), " +
	"or name the folder of initdb and postgres in PGBIN, or an existing server in HOOKONCE_TEST_DATABASE_URL"

// Server is one running PostgreSQL.
type Server struct {
	Port   int
	Socket string // folder of the unix socket; empty where the server is not ours

	admin    string // URL of its first database
	dir, bin string
	settings []string
	after    string // what the keeper does last
	keeper   *exec.Cmd
	alive    io.Closer // once closed, the keeper ends the server
}

var shared struct { // one for a test binary: a cluster takes a second to make
	once   sync.Once
	server *Server
	err    error
}

// Start returns the server that the tests of a binary share: the one named in
// HOOKONCE_TEST_DATABASE_URL, or a throw-away one, which ends with the process.
func Start(t testing.TB) *Server {
	t.Helper()
	shared.once.Do(func() {
		if u := os.Getenv("HOOKONCE_TEST_DATABASE_URL"); u != "" {
			shared.server = &Server{admin: u}
			return
		}
		shared.server, shared.err = launch(`rm -rf "$PWD"`) // nobody else will
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// StartOwn returns a server for one test, which may stop and freeze it. The
// settings ("fsync=on") come after the defaults, which are fast and not durable.
func StartOwn(t testing.TB, settings ...string) *Server {
	t.Helper()
	s, err := launch("", settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Thaw(t)
		s.end()
	})
	return s
}

func launch(after string, settings ...string) (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pgtest-")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &Server{
		Port: port, Socket: dir, dir: dir, bin: bin, after: after,
		admin: fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port),
		settings: append([]string{
			"fsync=off", "full_page_writes=off", "max_connections=100", "listen_addresses=127.0.0.1",
			"unix_socket_directories=" + dir, "port=" + strconv.Itoa(port), "autovacuum_naptime=1d",
		}, settings...),
	}
	if id, ok := asUser(); ok {
		if err := os.Chown(dir, int(id.Uid), int(id.Gid)); err != nil {
			return nil, err
		}
	}
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	initdb.Dir = dir
	demote(initdb)
	if out, err := initdb.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("%w: %s\n%s", err, out, install)
	}
	return s, s.start()
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// binaries finds the folder that has initdb and postgres.
func binaries() (string, error) {
	folders := []string{os.Getenv("PGBIN")}
	debian, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.Sort(debian)
	slices.Reverse(debian)
	folders = append(folders, debian...)
	if p, err := exec.LookPath("initdb"); err == nil {
		folders = append(folders, filepath.Dir(p))
	}
	for _, f := range folders {
		if _, err := os.Stat(filepath.Join(f, "initdb")); f != "" && err == nil {
			return f, nil
		}
	}
	return "", errors.New(install)
}

// asUser is whom the server runs as: it refuses root.
func asUser() (*syscall.Credential, bool) {
	if os.Getuid() != 0 {
		return nil, false
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, false
	}
	uid, _ := strconv.ParseUint(u.Uid, 10, 32)
	gid, _ := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, true
}

// demote makes a command run as the user postgres where this process is root.
func demote(c *exec.Cmd) {
	if id, ok := asUser(); ok {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: id}
	}
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// keep runs a program until the pipe on its standard input closes, which also
// happens when this process is killed; then it ends the program.
const keep = `"$@" </dev/null & pid=$!
trap '' INT
read -r _
kill -%s $pid 2>/dev/null
wait $pid
%s
`

// keeper is the command that keeps a program in a folder, its output in a file
// there; signal ends the program, and then the shell does what after says.
func keeper(dir, signal, after string, args ...string) (*exec.Cmd, io.Closer, error) {
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer log.Close()
	c := exec.Command("sh", append([]string{"-c", fmt.Sprintf(keep, signal, after), "keep"}, args...)...)
	c.Dir, c.Stdout, c.Stderr = dir, log, log
	demote(c)
	alive, err := c.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	return c, alive, c.Start()
}

func (s *Server) start() (err error) {
	args := []string{filepath.Join(s.bin, "postgres"), "-D", s.data()}
	for _, set := range s.settings {
		args = append(args, "-c", set)
	}
	if s.keeper, s.alive, err = keeper(s.dir, "INT", s.after, args...); err != nil {
		return err
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := s.exec(s.admin, "SELECT 1")
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			s.end()
			return fmt.Errorf("postgres did not start: %w\n%s", err, s.Log())
		}
		pause()
	}
}

func pause() { <-time.After(20 * time.Millisecond) }

func (s *Server) exec(url, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	_, err = c.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	return err
}

// Database makes an empty database for one test and returns its URL.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := "t_" + strings.ToLower(rand.Text()[:12])
	s.Exec(t, s.admin, "CREATE DATABASE "+name)
	if s.dir == "" { // somebody's own server is left as it was
		t.Cleanup(func() { s.Exec(t, s.admin, "DROP DATABASE "+name+" WITH (FORCE)") })
	}
	u, err := url.Parse(s.admin)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

// Exec runs statements in the database of that URL.
func (s *Server) Exec(t testing.TB, url, sql string) {
	t.Helper()
	if err := s.exec(url, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// Log is what the server has logged.
func (s *Server) Log() string {
	b, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return string(b)
}

// Stop shuts the server down at once, ending its sessions; Run starts it again
// on the same port.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	s.mustBeOwn(t)
	s.alive.Close()
	_ = s.keeper.Wait()
}

// Run starts the server again.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	s.mustBeOwn(t)
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
}

// Freeze stops the server's processes where they are: it hangs, and its
// connections stay open. Thaw lets them go on.
func (s *Server) Freeze(t testing.TB) { s.signal(t, syscall.SIGSTOP) }

// Thaw ends Freeze.
func (s *Server) Thaw(t testing.TB) { s.signal(t, syscall.SIGCONT) }

func (s *Server) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	s.mustBeOwn(t)
	b, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return // not running
	}
	first, _, _ := strings.Cut(string(b), "\n")
	master, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(master, sig) // first, so that it makes no more children
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range stats {
		b, _ := os.ReadFile(f)
		pid, rest, _ := strings.Cut(string(b), " ")
		fields := strings.Fields(rest[strings.LastIndexByte(rest, ')')+1:]) // state, ppid, …
		if len(fields) > 1 && fields[1] == first {
			n, _ := strconv.Atoi(pid)
			_ = syscall.Kill(n, sig)
		}
	}
}

func (s *Server) mustBeOwn(t testing.TB) {
	t.Helper()
	if s.dir == "" {
		t.Fatal("this test has to stop the server, so it needs one of its own: ", install)
	}
}

func (s *Server) end() {
	s.alive.Close()
	_ = s.keeper.Wait()
	os.RemoveAll(s.dir)
}
