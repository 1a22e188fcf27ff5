package pgtest

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// Bouncer starts a PgBouncer in transaction mode, with two connections to each
// of the server's databases, and returns what turns a database's URL into the
// one through it.
func (s *Server) Bouncer(t testing.TB) func(database string) string {
	t.Helper()
	bin, err := exec.LookPath("pgbouncer")
	if err != nil {
		bin = "/usr/sbin/pgbouncer"
		if _, err := os.Stat(bin); err != nil {
			t.Fatal("this test needs PgBouncer: install it (Debian: apt-get install pgbouncer)")
		}
	}
	u, err := url.Parse(s.admin)
	if err != nil {
		t.Fatal(err)
	}
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pgtest-bouncer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	forced := "user=" + u.User.Username()
	if password, ok := u.User.Password(); ok {
		forced += " password='" + password + "'"
	}
	ini := fmt.Sprintf(`[databases]
* = host=%s port=%s %s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
`, u.Hostname(), u.Port(), forced, port)
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(ini), 0o600); err != nil {
		t.Fatal(err)
	}
	if id, ok := asUser(); ok {
		for _, f := range []string{dir, file} {
			if err := os.Chown(f, int(id.Uid), int(id.Gid)); err != nil {
				t.Fatal(err)
			}
		}
	}
	kept, alive, err := keeper(dir, "TERM", "", bin, file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		alive.Close()
		_ = kept.Wait()
	})
	u.Host = "127.0.0.1:" + strconv.Itoa(port)
	u.RawQuery = "sslmode=disable&default_query_exec_mode=exec"
	for deadline := time.Now().Add(10 * time.Second); ; pause() {
		err := s.exec(u.String(), "SELECT 1")
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Fatalf("pgbouncer did not start: %v\n%s", err, log)
		}
	}
	return func(database string) string {
		d, err := url.Parse(database)
		if err != nil {
			t.Fatal(err)
		}
		d.Host, d.RawQuery = u.Host, "sslmode=disable"
		return d.String()
	}
}
