#!/usr/bin/env bash
# Builds the image and runs it as Kubernetes would: read-only, without capabilities, as its own user. It answers the first
# event and its repeat, says how it is, stops on SIGTERM with 0. Then the image for the other architecture, amd64 or arm64,
# which is cross-compiled; its program runs where qemu-user-static is. A minute or five, once the base images are there.
# ENGINE: podman (default) or docker. BUILD: "buildah build --isolation chroot --pull=never" where that is all there is.
set -euo pipefail
cd "$(dirname "$0")/.."
engine=${ENGINE:-podman}
image=localhost/hookonce:image-test
${BUILD:-$engine build} --build-arg VERSION=v0.0.0-image-test -t "$image" .

read -r app front back < <(python3 -c '
import socket
free = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
print(*(s.getsockname()[1] for s in free))')
python3 -c '
import http.server, sys
class App(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), App).serve_forever()' "$app" &
server=$!
container='' program=$(mktemp)
trap 'kill $server; rm -f "$program"; [ -z "$container" ] || $engine rm -f "$container" >/dev/null' EXIT

size=$($engine image inspect "$image" --format '{{.Size}}')
user=$($engine image inspect "$image" --format '{{.Config.User}}')
echo "$((size / 1000 / 1000)) MB, user $user, $($engine run --rm "$image" version)"
[ "$size" -le 30000000 ] || { echo "over 30 MB"; exit 1; }
[ "$user" = 65532:65532 ] || { echo "not a numeric user"; exit 1; }
$engine run --rm "$image" version | grep -q v0.0.0-image-test || { echo "the version is not in it"; exit 1; }

container=$($engine run -d --network host --read-only --cap-drop ALL --security-opt no-new-privileges --tmpfs /data:mode=1777 \
  -e UPSTREAM_URL="http://127.0.0.1:$app" -e LISTEN_ADDR="127.0.0.1:$front" -e ADMIN_ADDR="127.0.0.1:$back" \
  -e DATABASE_URL=sqlite:/data/hookonce.db -e WEBHOOK_PATH=/webhook/stripe -e WEBHOOK_PROVIDER=stripe -e WEBHOOK_SECRET=whsec_demo "$image")
for _ in $(seq 100); do curl -sf "http://127.0.0.1:$back/readyz" >/dev/null && break; sleep 0.2; done
curl -sf "http://127.0.0.1:$back/readyz" >/dev/null || { $engine logs "$container"; echo "not ready"; exit 1; }
send() { $engine exec "$container" /hookonce send "http://127.0.0.1:$front/webhook/stripe" --provider stripe --secret whsec_demo --data '{"id":"evt_1"}'; }
answers="$(send), $(send)"
[ "$answers" = "200 forwarded, 200 duplicate" ] || { $engine logs "$container"; echo "the event did not run once: $answers"; exit 1; }
$engine stop -t 30 "$container" >/dev/null
code=$($engine inspect "$container" --format '{{.State.ExitCode}}')
[ "$code" = 0 ] || { echo "exit $code on SIGTERM"; exit 1; }
echo "once, then duplicate, then stopped with 0"

case $(uname -m) in
  x86_64) here=amd64 there=arm64 machine=b700 emulator=qemu-aarch64-static ;;
  aarch64) here=arm64 there=amd64 machine=3e00 emulator=qemu-x86_64-static ;;
  *) echo "no other architecture known to $(uname -m)"; exit 1 ;;
esac
# Debian 12's buildah and podman do not know BUILDPLATFORM in FROM by themselves.
${BUILD:-$engine build} --platform "linux/$there" --build-arg "BUILDPLATFORM=linux/$here" --build-arg VERSION=v0.0.0-image-test -t "$image-$there" .
architecture=$($engine image inspect "$image-$there" --format '{{.Architecture}}')
$engine rm -f "$container" >/dev/null
container=$($engine create --platform "linux/$there" "$image-$there")
$engine cp "$container:/hookonce" "$program"
elf=$(od -An -tx1 -j18 -N2 "$program" | tr -d ' ')
[ "$architecture $elf" = "$there $machine" ] || { echo "image for $architecture, program for $elf: not $there, $machine"; exit 1; }
if command -v "$emulator" >/dev/null; then
  ran=$("$emulator" "$program" version)
  [[ "$ran" = *linux/$there* ]] || { echo "$ran"; exit 1; }
else
  ran="not run: there is no $emulator here"
fi
echo "$there image, $there program: $ran"
