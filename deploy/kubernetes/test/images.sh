#!/usr/bin/env bash
# Makes the two images of run.sh as archives, for clusters without a registry: FOLDER/hookonce.tar and FOLDER/play.tar
# (localhost/hookonce:test, localhost/play:test). Needs Go and buildah.   usage: images.sh FOLDER
set -euo pipefail
folder=$(realpath "${1:?say where to}")
cd "$(dirname "$0")/../../.."
mkdir -p "$folder"
# image NAME BINARY : FROM scratch, as the Dockerfile's last stage, whose base adds certificates and a user.
image() {
  local container
  container=$(buildah from scratch)
  buildah copy -q "$container" "$2" "/$1" >/dev/null
  buildah config --entrypoint "[\"/$1\"]" --user 65532:65532 "$container"
  buildah commit -q --rm "$container" "localhost/$1:test" >/dev/null
  rm -f "$folder/$1.tar"
  buildah push -q "localhost/$1:test" "docker-archive:$folder/$1.tar:localhost/$1:test"
}
build() { CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.release=test" -o "$folder/bin/$1" "$2"; }
build play ./deploy/kubernetes/test/play
build hookonce ./cmd/hookonce
image play "$folder/bin/play"
image hookonce "$folder/bin/hookonce"
