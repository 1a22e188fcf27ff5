#!/usr/bin/env bash
# Is the unit right, is it shut in, and does it run? A minute. The unit is installed and started as it says under a real
# systemd: this machine's own /usr, booted in a container with an empty /etc and /var and a network of its own.
# Needs systemd-analyze; and for the second half root, systemd-nspawn (Debian: systemd-container), python3, and Go or BINARY.
# Exit code 77: the second half could not be tried here, and why is said.
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d)
nspawn='' leader=''
finish() {
  # Whoever ends its first process ends the container.
  if [ -n "$nspawn" ]; then kill -KILL "${leader:-$nspawn}"; wait "$nspawn" || true; fi 2>/dev/null
  rm -rf "$work"
}
trap finish EXIT

# Something has to be where the unit looks for the program and its settings.
sed "s#/usr/local/bin/hookonce\$#/bin/true#; s#/etc/hookonce/#$work/#" hookonce.service >"$work/hookonce.service"
touch "$work/hookonce.env"
said=$(systemd-analyze verify "$work/hookonce.service" 2>&1 | grep "hookonce" || true)
[ -z "$said" ] || { echo "$said"; exit 1; }
systemd-analyze security --offline=true --threshold=20 "$work/hookonce.service" | tail -n 1

not_run() { echo "NOT RUN under systemd: $*"; exit 77; }
[ "$(id -u)" -eq 0 ] || not_run "that needs root"
command -v systemd-nspawn >/dev/null || not_run "there is no systemd-nspawn (Debian: systemd-container)"
[ -x /usr/bin/python3 ] || not_run "there is no /usr/bin/python3 for the application"
binary=${BINARY:-$work/hookonce}
[ -n "${BINARY:-}" ] || (cd ../.. && CGO_ENABLED=0 go build -o "$binary" ./cmd/hookonce)

echo 'disable *' >"$work/none.preset" # nothing else that is installed here is to start
options=()
[ -d /run/systemd/system ] || options=(--register=no --keep-unit) # no systemd out here to register with
systemd-nspawn --quiet --directory=/ --volatile=yes --tmpfs=/usr/local/bin --private-network --console=pipe "${options[@]}" \
  --machine="hookonce-test-$$" --bind-ro="$work/none.preset:/etc/systemd/system-preset/00-none.preset" --boot \
  >"$work/said" 2>&1 </dev/null &
nspawn=$!
inside() { nsenter --target "$leader" --all "$@"; }
for _ in $(seq 300); do
  kill -0 "$nspawn" 2>/dev/null || { nspawn=''; not_run "systemd-nspawn says: $(cat "$work/said")"; }
  leader=$(pgrep -P "$nspawn" | head -n 1 || true)
  [ -z "$leader" ] || state=$(inside systemctl is-system-running 2>/dev/null || true)
  case ${state:-} in running | degraded) break ;; esac
  sleep 0.2
done
echo "systemd $(inside systemctl --version | sed -n '1s/systemd \([^ ]*\).*/\1/p'): ${state:-did not come up}"
case ${state:-} in running | degraded) ;; *) not_run "it did not come up in a minute" ;; esac

# Installed as the unit and its example say, with the embedded store.
root=/proc/$leader/root
install -m 0755 "$binary" "$root/usr/local/bin/hookonce"
install -m 0700 -d "$root/etc/hookonce"
sed 's#^DATABASE_URL=.*#DATABASE_URL=sqlite:/var/lib/hookonce/hookonce.db#' hookonce.env.example >"$root/etc/hookonce/hookonce.env"
install -D -m 0644 hookonce.service "$root/etc/systemd/system/hookonce.service"
nsenter --target "$leader" --net ip link set lo up
inside systemd-run --quiet --unit=app /usr/bin/python3 -c '
import http.server
class App(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", 5678), App).serve_forever()'

fail() { echo "$*"; inside journalctl --no-pager -n 30 -u hookonce; exit 1; }
property() { inside systemctl show hookonce --property "$1" --value; }
send() { inside /usr/local/bin/hookonce send http://127.0.0.1:8080/webhook/stripe --provider stripe --secret whsec_from_the_provider --data "{\"id\":\"$1\"}"; }
is() { [ "$2" = "$3" ] || fail "$1: $2, not $3"; }
ready() {
  for _ in $(seq 100); do inside python3 -c 'import urllib.request as u; u.urlopen("http://127.0.0.1:9090/readyz")' 2>/dev/null && return; sleep 0.2; done
  fail "not ready"
}

inside systemctl daemon-reload
inside systemctl enable --now hookonce 2>&1 | grep -q multi-user.target.wants || fail "not enabled"
ready
is "first delivery" "$(send evt_1)" "200 forwarded"
is "its repeat" "$(send evt_1)" "200 duplicate"
process=$root/proc/$(property MainPID)
user=$(stat -c %u "$process")
[ "$user" -ne 0 ] || fail "it runs as root"
is "capabilities, no new privileges, filtered calls" "$(awk '/^(CapEff|NoNewPrivs|Seccomp):/ { printf "%s ", $2 }' "$process/status")" "0000000000000000 1 2 "

inside systemctl restart hookonce
ready
is "the repeat after a restart" "$(send evt_1)" "200 duplicate"
inside systemctl kill --signal=KILL hookonce
for _ in $(seq 50); do [ "$(property NRestarts)" = 1 ] && break; sleep 0.2; done
is "restarts after a crash" "$(property NRestarts)" 1
ready
is "the repeat after a crash" "$(send evt_1)" "200 duplicate"
is "a new one" "$(send evt_2)" "200 forwarded"

inside systemctl stop hookonce
is "stopped" "$(property Result) $(property ExecMainStatus)" "success 0"
echo 'UPSTREAM_URL=nonsense' >>"$root/etc/hookonce/hookonce.env"
inside systemctl start hookonce || true
for _ in $(seq 50); do [ "$(property ActiveState)" = failed ] && break; sleep 0.2; done
is "a fault in the settings" "$(property ActiveState) $(property ExecMainStatus) $(property NRestarts)" "failed 2 0"
inside systemd-analyze verify hookonce.service 2>&1 | grep hookonce && fail "systemd does not like the unit"
inside systemd-analyze security --threshold=20 hookonce.service | tail -n 1
echo "user $user: once, then duplicate, after a restart and a crash too; stopped with 0; not restarted with wrong settings"
