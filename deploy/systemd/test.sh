#!/usr/bin/env bash
# Is the unit right, and is it shut in? A second. Needs systemd-analyze (it does not have to be running).
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Something has to be where the unit looks for the program and its settings.
sed "s#/usr/local/bin/hookonce\$#/bin/true#; s#/etc/hookonce/#$work/#" hookonce.service >"$work/hookonce.service"
touch "$work/hookonce.env"
said=$(systemd-analyze verify "$work/hookonce.service" 2>&1 | grep "hookonce" || true)
[ -z "$said" ] || { echo "$said"; exit 1; }
systemd-analyze security --offline=true --threshold=20 "$work/hookonce.service" | tail -n 1
