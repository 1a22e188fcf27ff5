#!/usr/bin/env bash
# Are the rules valid, and does each alert fire on its fault and on nothing else? Some seconds.
# Needs promtool; on Debian as root it installs it.
set -euo pipefail
cd "$(dirname "$0")"
if ! command -v promtool >/dev/null; then
  apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends prometheus
fi
promtool check rules rules.yaml
promtool check config --syntax-only prometheus.yaml
promtool test rules rules_test.yaml
python3 - <<'PYTHON'
import re

rules, tests, runbook = (open(name).read() for name in ("rules.yaml", "rules_test.yaml", "../README.md"))
alerts = re.findall(r"- alert: (\w+)", rules)
for alert in alerts:
    assert re.search(rf"alertname: {alert}\n\s+exp_alerts:\n\s+- exp_labels", tests), f"no test in which {alert} fires"
    assert f"### {alert}\n" in runbook, f"no section in ../README.md for {alert}"
    assert f"README.md#{alert.lower()}\n" in rules, f"no runbook_url for {alert}"
print(f"{len(alerts)} alerts, each with a test and a runbook section")
PYTHON
cmp rules.yaml ../../helm/hookonce/files/rules.yaml # the chart has its own copy: a chart cannot reach outside itself
