#!/usr/bin/env bash
# hookonce on a real cluster: beside an application (kustomize, Helm) and in front of one (Helm), under a provider that never
# stops, while pods are replaced, killed, and the database goes away. Ten minutes.
#
#   KUBECONFIG=… DATABASE_URL=postgres://… HOOKONCE_IMAGE=… PLAY_IMAGE=… ./run.sh [PART…]
#
# PART: sidecar crash outage order parent gateway two plain (all of them by default).
# DATABASE_URL is reachable from pods and from here (psql). DATABASE_STOP and DATABASE_START are commands that take the
# database away and bring it back; without them the part "outage" is left out. PLAY_IMAGE: ./images.sh makes both images.
# Needs kubectl, helm, psql, python3. The namespace hookonce-test is made and removed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
: "${DATABASE_URL:?}" "${HOOKONCE_IMAGE:?}" "${PLAY_IMAGE:?}"
parts=${*:-sidecar crash outage order parent gateway two plain}
ns=hookonce-test
secret=whsec_$RANDOM$RANDOM$RANDOM
work=$(mktemp -d)
# KEEP: leave everything as it is, to look at it.
trap '[ -n "${KEEP:-}" ] || { kubectl delete namespace '"$ns"' --wait=false >/dev/null 2>&1; rm -rf "$work"; }' EXIT

say() { printf '\n== %s\n' "$*"; }
die() { echo "FAILED: $*" >&2; exit 1; }
k() { kubectl -n "$ns" "$@"; }
wants() { case " $parts " in *" $1 "*) return 0 ;; esac; return 1; }

# apply FILE… : with the API server's own validation, and without a warning (PodSecurity restricted would be one).
apply() {
  k apply --server-side --force-conflicts -f "$1" >"$work/applied" 2>&1 || { cat "$work/applied"; die "not accepted: $1"; }
  ! grep -i warning "$work/applied" || die "accepted with a warning: $1"
}

provider() { kubectl get --raw "/api/v1/namespaces/$ns/services/provider:8000/proxy/$1"; }
address() { echo "http://$(k get service "$1" -o jsonpath='{.spec.clusterIP}'):${2:-80}"; }

# audit WHAT REPORT TOLD : no event lost, none run twice (but TOLD of them, told so), every answer accounted for.
audit() {
  python3 - "$1" "$3" "$2" <<'PYTHON' || die "$1"
import json, sys

name, told, report = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
print(name + ":", json.dumps(report))
assert report["events"] > 0
assert report["deliveries"].get("200 duplicate", 0) > 0, "nothing was repeated, so nothing is shown"
assert report["lost"] == 0, "lost"
assert report["never_ran"] == 0, "accepted but never run"
assert report["twice"] == 0, "run twice without being told"
assert report["unaccounted"] == 0, "answers that hookonce did not give"
assert told < 0 or report["twice_told"] <= told, "run again although nothing was killed"
PYTHON
}

# stream TARGET… -- COMMAND… : the provider sends while COMMAND runs, then the books are audited.
stream() {
  local query="start?rate=$rate&work_ms=$work_ms"
  while [ "$1" != -- ]; do query+="&target=$1"; shift; done
  shift
  provider "$query"
  sleep 3
  "$@"
  sleep 3
  provider stop >"$work/report"
}

# twice TARGET : one event, sent two times. Where a stream runs, its audit sees that it ran once.
twice() {
  local once="once?id=evt_$RANDOM&target=$1" answers
  for _ in $(seq 30); do # the node hears of a new Service a moment after its pods are ready
    [ "$(provider "once?id=evt_first_$RANDOM&target=$1")" = "0 no answer" ] || break
    sleep 1
  done
  answers="$(provider "$once"), $(provider "$once")"
  echo "$answers"
  [ "$answers" = "200 forwarded, 200 duplicate" ] || die "the event did not run once"
}

pod() { k get pods -l "app=$1" --field-selector=status.phase=Running -o json | python3 -c '
import json, sys
print(next(p["metadata"]["name"] for p in json.load(sys.stdin)["items"] if not p["metadata"].get("deletionTimestamp")))'; }

# starts_first APP : in its pods the sidecar started before the application.
starts_first() {
  k get pods -l "app=$1" -o json | python3 -c '
import json, sys
for pod in json.load(sys.stdin)["items"]:
    if pod["metadata"].get("deletionTimestamp"): continue
    s = pod["status"]
    side = s["initContainerStatuses"][0]["state"]["running"]["startedAt"]; app = s["containerStatuses"][0]["state"]["running"]["startedAt"]
    print("sidecar started", side, "- app started", app)
    assert side <= app and s["initContainerStatuses"][0]["started"]'
}

# stops_last APP CONTAINER : in one of its pods the sidecar stops after the application, which is that container.
stops_last() {
  local victim first second stopping stopped
  victim=$(pod "$1")
  k logs -f "$victim" -c hookonce --timestamps >"$work/hookonce.log" 2>/dev/null &
  first=$!
  k logs -f "$victim" -c "$2" --timestamps >"$work/app.log" 2>/dev/null &
  second=$!
  sleep 2
  k delete pod "$victim" >/dev/null
  wait "$first" "$second" || true
  stopping=$(grep '"stopping"' "$work/hookonce.log" | cut -d' ' -f1)
  stopped=$(grep 'stopped' "$work/app.log" | cut -d' ' -f1)
  echo "application stopped $stopped - sidecar stopping $stopping"
  [[ -n $stopped && $stopped < $stopping ]] || die "the sidecar stopped first"
  grep -q '"stopped"' "$work/hookonce.log" || die "the sidecar was killed"
}

# restart DEPLOYMENT : every pod is replaced.
restart() {
  k rollout restart "deployment/$1" >/dev/null
  k rollout status "deployment/$1" --timeout=180s
}

start_database() { eval "$DATABASE_START"; }
rows() { psql -XAtq "$DATABASE_URL" -c "$1"; }
rate=20 work_ms=50

say "a namespace that enforces PodSecurity restricted, a provider, secrets"
kubectl delete namespace "$ns" --ignore-not-found --timeout=120s >/dev/null
rows "DROP TABLE IF EXISTS processed_events, shop_events, shared_events" 2>/dev/null || die "DATABASE_URL cannot be reached from here"
cat >"$work/base.yaml" <<YAML
apiVersion: v1
kind: Namespace
metadata:
  name: $ns
  labels: {pod-security.kubernetes.io/enforce: restricted, pod-security.kubernetes.io/warn: restricted}
---
apiVersion: v1
kind: Secret
metadata: {name: hookonce-database, namespace: $ns}
stringData: {url: "$DATABASE_URL"}
---
apiVersion: v1
kind: Secret
metadata: {name: hookonce-webhook, namespace: $ns}
stringData: {secret: "$secret"}
---
apiVersion: v1
kind: Pod
metadata: {name: provider, namespace: $ns, labels: {app: provider}}
spec:
  containers:
    - name: provider
      image: $PLAY_IMAGE
      imagePullPolicy: IfNotPresent
      args: [provider]
      env: [{name: SECRET, value: "$secret"}]
      securityContext: &restricted
        allowPrivilegeEscalation: false
        capabilities: {drop: [ALL]}
        runAsNonRoot: true
        runAsUser: 65532
        seccompProfile: {type: RuntimeDefault}
---
apiVersion: v1
kind: Service
metadata: {name: provider, namespace: $ns}
spec: {selector: {app: provider}, ports: [{port: 8000}]}
YAML
apply "$work/base.yaml"
k wait --for=condition=Ready pod/provider --timeout=60s >/dev/null
books=$(address provider 8000)

# The application as it would be without hookonce.
app() {
  cat <<YAML
apiVersion: apps/v1
kind: Deployment
metadata: {name: $1}
spec:
  replicas: $2
  strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  selector: {matchLabels: {app: $1}}
  template:
    metadata: {labels: {app: $1}}
    spec:
      terminationGracePeriodSeconds: 40
      containers:
        - name: app
          image: $PLAY_IMAGE
          imagePullPolicy: IfNotPresent
          args: [app]
          env: [{name: BOOKS, value: "$books"}]
          ports: [{name: http, containerPort: 8000}]
          readinessProbe: {httpGet: {path: /page, port: http}, periodSeconds: 1}
          $3
          securityContext:
            allowPrivilegeEscalation: false
            capabilities: {drop: [ALL]}
            runAsNonRoot: true
            runAsUser: 65532
            seccompProfile: {type: RuntimeDefault}
---
apiVersion: v1
kind: Service
metadata: {name: $1}
spec: {selector: {app: $1}, ports: [{name: http, port: 80, targetPort: http}]}
YAML
}

if wants sidecar || wants crash || wants outage || wants order; then
  say "beside an application: the kustomize component, while the provider sends"
  mkdir "$work/k"
  cp -r "$here/../sidecar" "$here/../prestop" "$work/k/"
  mkdir "$work/k/mine"
  app beside 2 "" >"$work/k/mine/app.yaml"
  cat >"$work/k/mine/kustomization.yaml" <<YAML
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [app.yaml]
components: [../sidecar, ../prestop]
images: [{name: ghcr.io/hookonce/hookonce, newName: ${HOOKONCE_IMAGE%:*}, newTag: ${HOOKONCE_IMAGE##*:}}]
configMapGenerator:
  - name: hookonce
    literals:
      - UPSTREAM_URL=http://127.0.0.1:8000
      - WEBHOOK_PATH=/webhook/stripe
      - WEBHOOK_PROVIDER=stripe
      - LEASE=6s
YAML
  # The application was there before, without hookonce; a preStop it had.
  mkdir "$work/k/before"
  cp "$work/k/mine/app.yaml" "$work/k/before"
  cat >"$work/k/before/kustomization.yaml" <<YAML
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [app.yaml]
components: [../prestop]
YAML
  kubectl kustomize "$work/k/before" >"$work/before.yaml"
  apply "$work/before.yaml"
  k rollout status deployment/beside --timeout=120s >/dev/null
  beside=$(address beside)
  # As ../README.md says: the pods first, and what turns to them last.
  turn() {
    kubectl kustomize "$work/k/mine" >"$work/beside.yaml"
    awk 'BEGIN {RS = ORS = "---\n"} !/kind: (Service|NetworkPolicy)\n/' "$work/beside.yaml" >"$work/pods.yaml"
    apply "$work/pods.yaml"
    k rollout status deployment/beside --timeout=180s
    apply "$work/beside.yaml"
  }
  stream "$beside" -- turn
  python3 - "$(cat "$work/report")" <<'PYTHON' || die "there was a gap"
import json, sys

report = json.loads(sys.argv[1])
print("switch:", sys.argv[1])
assert report["events"] > 0 and report["lost"] == 0 and set(report["pages"]) == {"200"}
answers = set(report["deliveries"])
assert answers <= {"200 ", "200 forwarded", "200 duplicate"}, "a delivery was not answered 200"
assert {"200 ", "200 forwarded"} <= answers, "not from the application to hookonce"
PYTHON
  starts_first beside
fi

if wants sidecar; then
  say "rolling restarts of application and sidecar, while the provider sends"
  restart_twice() {
    restart beside
    restart beside
  }
  stream "$beside" -- restart_twice
  audit "rolling restart beside" "$(cat "$work/report")" 0
fi

if wants crash; then
  say "a sidecar that crashes with deliveries in flight"
  echo '{"securityContext":{"runAsUser":65532}}' >"$work/as.json" # a process may only signal its own user's
  crash() {
    local victim
    victim=$(pod beside)
    k debug "$victim" --image="$PLAY_IMAGE" --image-pull-policy=IfNotPresent --target=hookonce --profile=restricted --custom="$work/as.json" -- /play crash >"$work/debug" 2>&1 ||
      { cat "$work/debug"; die "kubectl debug"; }
    for _ in $(seq 60); do
      [ "$(k get pod "$victim" -o jsonpath='{.status.initContainerStatuses[0].restartCount}{.status.containerStatuses[0].restartCount}')" = 10 ] && break
      sleep 1
    done
    restarts=$(k get pod "$victim" -o jsonpath='{.status.initContainerStatuses[0].restartCount} {.status.containerStatuses[0].restartCount}')
    echo "restarts of sidecar and application: $restarts"
    [ "$restarts" = "1 0" ] || die "the sidecar did not come back alone"
    k wait --for=condition=Ready "pod/$victim" --timeout=60s
    sleep 10 # for the leases
  }
  work_ms=1500 stream "$beside" -- crash
  audit "crash" "$(cat "$work/report")" -1
  python3 - "$(cat "$work/report")" <<'PYTHON' || die "crash"
import json, sys

assert json.loads(sys.argv[1])["twice_told"] > 0, "no lease was taken over"
PYTHON
fi

if wants outage && [ -n "${DATABASE_STOP:-}" ]; then
  say "the database is gone for 30 seconds"
  outage() {
    eval "$DATABASE_STOP"
    sleep 30
    start_database
    sleep 5
  }
  stream "$beside" -- outage
  audit "outage" "$(cat "$work/report")" -1
  python3 - "$(cat "$work/report")" <<'PYTHON' || die "outage"
import json, sys

report = json.loads(sys.argv[1])
assert set(report["pages"]) == {"200"}, "the application's other pages did not go on"
assert report["deliveries"].get("503 store_unavailable", 0) > 0, "nobody was answered 503"
PYTHON
fi

if wants order; then
  say "the sidecar stops after the application"
  stops_last beside app
fi

chart=$here/../../../helm/hookonce
values() {
  cat >"$work/values-$1.yaml" <<YAML
image: {repository: "${HOOKONCE_IMAGE%:*}", tag: "${HOOKONCE_IMAGE##*:}"}
upstream: {url: "$(address behind)"}
webhook: {path: /webhook/stripe, provider: stripe, existingSecret: {name: hookonce-webhook}}
database: {existingSecret: {name: hookonce-database}, table: shared_events, lease: 6s}
migration: {run: $2}
podDisruptionBudget: {enabled: true}
autoscaling: {enabled: $3, minReplicas: 2, maxReplicas: 3}
networkPolicy: {enabled: true}
monitoring: {dashboard: {enabled: true}}
YAML
}
install() { helm upgrade --install "$1" "$chart" -n "$ns" -f "$work/values-$1.yaml" --wait --timeout 180s "${@:2}" >"$work/helm" 2>&1 || { cat "$work/helm"; die "helm"; }; ! grep -i warning "$work/helm" || die "helm warned"; }

# nothing_left SELECTOR TABLE : of what helm has just uninstalled, whose pods SELECTOR selects.
nothing_left() {
  local left
  k wait --for=delete pod -l "$1" --timeout=90s >/dev/null
  left=$(k get all,configmap,secret,serviceaccount,pdb,hpa,networkpolicy,job -l app.kubernetes.io/managed-by=Helm -o name)
  [ -z "$left" ] || die "left: $left"
  echo "rows in the table: $(rows "SELECT count(*) FROM $2")"
}

if wants parent; then
  say "beside an application: the chart in the application's own chart"
  cp -r "$chart" "$work/hookonce"
  parent=$work/hookonce/tests/parent
  helm dependency update "$parent" >/dev/null
  cat >"$work/values-shop.yaml" <<YAML
image: "$PLAY_IMAGE"
args: [app]
env: [{name: BOOKS, value: "$books"}]
readiness: /page
hookonce:
  image: {repository: "${HOOKONCE_IMAGE%:*}", tag: "${HOOKONCE_IMAGE##*:}"}
  webhook: {existingSecret: {name: hookonce-webhook}}
  database: {table: shop_events, lease: 6s}
  networkPolicy: {enabled: true}
YAML
  chart=$parent install shop
  starts_first shop
  k get deployment,service,networkpolicy -l app.kubernetes.io/managed-by=Helm
  say "a restart and an upgrade of it, while the provider sends to both Services"
  shop=$(address shop)
  upgrade() {
    twice "$shop"
    restart shop
    chart=$parent install shop --set hookonce.limits.maxBody=1MiB
    [ "$(k get pod "$(pod shop)" -o jsonpath='{.spec.initContainers[0].env[?(@.name=="MAX_BODY")].value}')" = 1MiB ] || die "the upgrade changed nothing"
  }
  stream "$shop" "$(address shop-hookonce)" -- upgrade
  audit "beside, by a chart" "$(cat "$work/report")" 0
  stops_last shop shop
  helm uninstall shop -n "$ns" --wait >/dev/null
  nothing_left app=shop shop_events
fi

if wants gateway || wants two || wants plain; then
  say "an application"
  app behind 2 "lifecycle: {preStop: {sleep: {seconds: 5}}}" >"$work/behind.yaml"
  apply "$work/behind.yaml"
  k rollout status deployment/behind --timeout=120s >/dev/null
fi

if wants gateway || wants two; then
  say "in front of it: the chart"
  values one job true
  version=$(kubectl version -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)["serverVersion"]["gitVersion"])')
  helm template one "$chart" -n "$ns" --kube-version "$version" -f "$work/values-one.yaml" >"$work/one.yaml"
  k apply --dry-run=server -f "$work/one.yaml" | sed 's/^/  /'
  install one
  k get deployment,pdb,hpa,networkpolicy -l app.kubernetes.io/instance=one
  one=$(address one-hookonce)
fi

if wants gateway; then
  say "rolling restarts of hookonce, of the application, and an upgrade, while the provider sends"
  restarts() {
    restart one-hookonce
    restart behind
    install one --set limits.maxBody=1MiB
    [ "$(k get deployment one-hookonce -o jsonpath='{.spec.template.spec.containers[0].env[?(@.name=="MAX_BODY")].value}')" = 1MiB ] || die "the upgrade changed nothing"
  }
  stream "$one" -- restarts
  audit "rolling restart in front" "$(cat "$work/report")" 0
fi

if wants two; then
  say "two releases on one table, while the provider sends to both"
  values two never false
  install two
  stream "$one" "$(address two-hookonce)" -- sleep 15
  audit "two releases" "$(cat "$work/report")" 0
  say "uninstalling leaves nothing but the table"
  helm uninstall one -n "$ns" --wait >/dev/null
  helm uninstall two -n "$ns" --wait >/dev/null
  nothing_left app.kubernetes.io/name=hookonce shared_events
fi

if wants plain; then
  say "in front of it: gateway.yaml, and cleanup-cronjob.yaml"
  for file in gateway cleanup-cronjob; do
    sed "s#image: ghcr.io/.*#image: $HOOKONCE_IMAGE#; s#UPSTREAM_URL: .*#UPSTREAM_URL: $(address behind)#" "$here/../$file.yaml" >"$work/$file.yaml"
    apply "$work/$file.yaml"
  done
  k rollout status deployment/hookonce --timeout=120s
  twice "$(address hookonce)"
  k create job cleanup-now --from=cronjob/hookonce-cleanup >/dev/null
  k wait --for=condition=Complete job/cleanup-now --timeout=60s
fi

say "all is well ($SECONDS s)"
