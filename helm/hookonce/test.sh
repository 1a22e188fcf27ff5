#!/usr/bin/env bash
# Everything about the chart that needs no cluster: lint, schema, unit tests, and all manifests against Kubernetes' own
# schemas. About a minute, and some minutes more where helm and the others have to be built first.
# Needs Go; HOOKONCE_TOOLS says where the tools are kept.
set -euo pipefail
cd "$(dirname "$0")"
tools=${HOOKONCE_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/hookonce-tools}
mkdir -p "$tools"
export PATH="$tools:$PATH" GOBIN="$tools"
kubernetes=1.34.4

command -v helm >/dev/null || go install helm.sh/helm/v3/cmd/helm@v3.22.0
command -v kubeconform >/dev/null || go install github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0
if ! command -v helm-unittest >/dev/null; then
  # go install refuses it (its go.mod has replacements), so build it where it is.
  module=$(go mod download -json github.com/helm-unittest/helm-unittest@v1.1.2 | sed -n 's/.*"Dir": "\(.*\)",/\1/p')
  work=$(mktemp -d)
  cp -r "$module/." "$work" && chmod -R u+w "$work"
  (cd "$work" && go build -o "$tools/helm-unittest" ./cmd/helm-unittest)
  rm -rf "$work"
fi
schemas=$tools/schemas-$kubernetes
if [ ! -d "$schemas" ]; then
  module=$(go mod download -json "k8s.io/kubernetes@v$kubernetes" | sed -n 's/.*"Dir": "\(.*\)",/\1/p')
  python3 ../../deploy/kubernetes/test/schemas.py "$module/api/openapi-spec/swagger.json" "$schemas.part"
  mv "$schemas.part" "$schemas"
fi

echo "== the chart's own copies are the same as what is deployed without it"
cmp files/rules.yaml ../../deploy/prometheus/rules.yaml
cmp files/dashboard.json ../../deploy/grafana/dashboard.json

echo "== every variable of hookonce has its value"
# A secret comes as a file, whatever else.
grep -oh 'env:"[A-Z_]*"' ../../cmd/hookonce/config.go ../../cmd/hookonce/webhooks.go | cut -d'"' -f2 | grep -vx SECRET | sort -u |
  while read -r variable; do
    grep -q "\"$variable\"" templates/_container.tpl || { echo "the chart does not know $variable"; exit 1; }
  done

echo "== the schema refuses unknown keys at every level"
python3 - <<'PYTHON'
import json


def levels(schema, where):
    if isinstance(schema, dict):
        if "properties" in schema and isinstance(schema["properties"], dict):
            assert schema.get("additionalProperties") is False, where
        for key, value in schema.items():
            levels(value, f"{where}/{key}")


with open("values.schema.json") as f:
    levels(json.load(f), "")
PYTHON

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for values in ci/*-values.yaml; do
  echo "== $values"
  helm lint --quiet --strict . --values "$values"
  helm template release . --kube-version "$kubernetes" --values "$values" >"$work/$(basename "$values")"
done
echo "== a chart that has hookonce as its sidecar"
helm package --destination "$work" . >/dev/null
mkdir -p "$work/parent" && cp -r tests/parent/. "$work/parent" && mkdir -p "$work/parent/charts" && cp "$work"/hookonce-*.tgz "$work/parent/charts/"
helm template release "$work/parent" --kube-version "$kubernetes" >"$work/parent.yaml"

echo "== manifests against the schemas of Kubernetes $kubernetes"
for way in ../../deploy/kubernetes/*/kustomization.yaml; do
  grep -q "^kind: Component" "$way" || kubectl kustomize "$(dirname "$way")" >"$work/kustomize-$(basename "$(dirname "$way")").yaml"
done
cp ../../deploy/kubernetes/*.yaml "$work/"
kubeconform -strict -summary -schema-location "$schemas/{{ .ResourceKind }}{{ .KindSuffix }}.json" \
  -skip ServiceMonitor,PrometheusRule "$work"/*.yaml

echo "== unit tests"
helm-unittest --strict --file 'tests/*_test.yaml' .
helm-unittest --strict --file 'tests/*_test.yaml' "$work/parent"
