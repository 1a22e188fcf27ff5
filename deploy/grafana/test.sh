#!/usr/bin/env bash
# Is the dashboard what Grafana knows: every member of every panel, its panels without overlap, its variables used?
# Half a minute, once built. Needs Go and python3. That its queries have answers is seen by ../prometheus/live.py.
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/go.mod" <<'GO'
module strict

go 1.26
GO
cat >"$work/main.go" <<'GO'
// strict decodes a dashboard by the schemas that Grafana generates its SDK from.
package main

import (
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	plugins.RegisterDefaultPlugins()
	raw, err := os.ReadFile(os.Args[1])
	if err == nil {
		err = new(dashboard.Dashboard).UnmarshalJSONStrict(raw)
	}
	if err != nil && err.Error() != "" { // all is well is said with an empty list, which is not nil
		fmt.Println(err)
		os.Exit(1)
	}
}
GO
dashboard=$PWD/dashboard.json
(cd "$work" && go get github.com/grafana/grafana-foundation-sdk/go@v0.0.22 2>/dev/null && go run . "$dashboard")
python3 - <<'PYTHON'
import json
import re

with open("dashboard.json") as f:
    board = json.load(f)
taken, ids = {}, set()
text = json.dumps(board["panels"])
for panel in board["panels"]:
    assert panel["id"] not in ids, f"id {panel['id']} twice"
    ids.add(panel["id"])
    at = panel["gridPos"]
    assert at["x"] + at["w"] <= 24, panel["title"]
    for x in range(at["x"], at["x"] + at["w"]):
        for y in range(at["y"], at["y"] + at["h"]):
            assert (x, y) not in taken, f"{panel['title']} lies over {taken[x, y]}"
            taken[x, y] = panel["title"]
for variable in board["templating"]["list"]:
    assert f"${variable['name']}" in text, f"${variable['name']} is not used"
known = set(re.findall(r"`(hookonce_\w+)", open("../../README.md").read()))
used = {re.sub(r"_(bucket|sum|count)$", "", m) for m in re.findall(r"hookonce_\w+", " ".join(
    t["expr"] for p in board["panels"] for t in p.get("targets", [])))}
assert used <= known, f"no such metrics in README.md: {used - known}"
print(f"{len(ids)} panels, {len(used)} of {len(known)} metrics; not shown: {', '.join(sorted(known - used)) or 'none'}")
PYTHON
