#!/usr/bin/env python3
"""Causes every fault that there is an alert for, on the real things, and sees that its alert fires and no other.

A throw-away Postgres, an application that does as it is told, one hookonce a fault, and a Prometheus that scrapes them
with rules.yaml, in which a minute has become a second. One of them is built from a copy of the source that has a fault.
At the end every query of the Grafana dashboard is asked of that Prometheus. Three minutes. Needs Go, and on Debian as
root installs prometheus and postgresql.

    deploy/prometheus/live.py [BINARY]
"""
import concurrent.futures
import glob
import hashlib
import hmac
import http.server
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SECRET = "whsec_live"
processes = []


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(*command, **kw):
    p = subprocess.Popen(command, **kw)
    processes.append(p)
    return p


def wait_for(what, check, seconds=60):
    limit = time.time() + seconds
    while time.time() < limit:
        try:
            value = check()
            if value:
                return value
        except (OSError, urllib.error.URLError):
            pass
        time.sleep(0.2)
    sys.exit(f"waited {seconds} s in vain for {what}")


def get(url):
    with urllib.request.urlopen(url, timeout=30) as r:
        return r.read().decode()


# --- the application: the body says what it does

class App(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    waiting = threading.Event()  # set: whoever waits for it goes on
    arrived = set()              # ids of those who wait

    def do_POST(self):
        do = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = do.get("status", 200)
        if do.get("hang"):
            App.arrived.add(do["id"])
            App.waiting.wait(do["hang"])
            status = do.get("late", status) if self.headers["Hookonce-Attempt"] == "1" else 200
        if do.get("break"):
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = lambda self: (self.send_response(200), self.send_header("Content-Length", "0"), self.end_headers())

    def log_message(self, *_):
        pass


class Quiet(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):  # a client that was killed on purpose
        pass


# --- one hookonce, which is one job in Prometheus

class Hookonce:
    fleet = {}

    def __init__(self, job, **settings):
        self.job, self.port, self.admin = job, free_port(), free_port()
        self.settings = settings
        self.n = 0
        Hookonce.fleet[job] = self
        self.run()

    def run(self):
        env = {
            "PATH": os.environ["PATH"], "UPSTREAM_URL": f"http://127.0.0.1:{app.server_port}",
            "LISTEN_ADDR": f"127.0.0.1:{self.port}", "ADMIN_ADDR": f"127.0.0.1:{self.admin}",
            "DATABASE_URL": database, "EVENTS_TABLE": "events_" + self.settings.get("table", self.job),
            "WEBHOOK_PATH": "/w", "WEBHOOK_PROVIDER": "hmac", "WEBHOOK_SECRET": SECRET, "WEBHOOK_HMAC_HEADER": "X-Signature",
            "LEASE": "3s", "STORE_TIMEOUT": "1s", "CLEANUP_INTERVAL": "5s", "LOG_LEVEL": "error",
        }
        env.update({k: v for k, v in self.settings.items() if k != "table"})
        self.process = start(miscounting if self.job == "miscounts" else binary, env=env, stderr=open(f"{work}/{self.job}.log", "a"))

    def ready(self):
        # 15 s are the longest that the state of the store takes to be seen
        wait_for(f"{self.job} to be ready", lambda: "hookonce_ready 1" in get(f"http://127.0.0.1:{self.admin}/metrics"))

    def send(self, id=None, secret=SECRET, **do):
        self.n += 1
        do["id"] = id or f"evt_{self.n}"
        body = json.dumps(do).encode()
        signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/w", body, {"X-Signature": signature, "Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=200) as r:
                return r.headers["Hookonce-Outcome"]
        except urllib.error.HTTPError as e:
            return e.headers["Hookonce-Outcome"]
        except OSError:
            return None


def psql(sql):
    return subprocess.run([f"{bin}/psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", database.partition("&pool")[0]], input=sql, text=True, check=True, capture_output=True)


def postgres(*command):
    user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.getuid() == 0 else []
    subprocess.run([*user, *command], check=True, cwd=work, stdout=subprocess.DEVNULL)


def pg_ctl(command):
    postgres(f"{bin}/pg_ctl", "-D", f"{work}/pg/data", "-w", "-m", "immediate", "-l", f"{work}/pg/log",
             "-o", f"-p {pg_port} -k {work}/pg -c listen_addresses=127.0.0.1 -c max_connections=300 -c fsync=off", command)


# --- the faults

def traffic(h, until, **do):
    while time.time() < until:
        h.send(**do)
        time.sleep(0.3)


def well(h, until):
    """Repeats, a failure now and then, a stranger now and then: an ordinary day."""
    while time.time() < until:
        for id in range(20):
            h.send(id=f"evt_{time.time()}_{id}")
            h.send(id="evt_again")
        h.send(status=500)
        h.send(secret="stranger")
        urllib.request.urlopen(f"http://127.0.0.1:{h.port}/page", timeout=30).close()
        time.sleep(1)


def half(h, until):
    while time.time() < until:
        h.send(status=500)
        h.send()
        time.sleep(0.4)


def forged(h, until):
    while time.time() < until:
        h.send(secret="old")
        h.send()
        time.sleep(0.3)


def slow_store(h, until):
    blocker = threading.Thread(target=lambda: [psql(
        f"BEGIN; LOCK TABLE events_{h.job} IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(0.8); COMMIT;") for _ in iter(lambda: time.time() < until, False)])
    blocker.start()
    traffic(h, until)
    blocker.join()


def crash(h, until):
    threading.Thread(target=h.send, kwargs={"id": "evt_crash", "hang": 200}).start()
    wait_for("the delivery", lambda: "evt_crash" in App.arrived)
    h.process.kill()
    h.process.wait()
    h.run()
    h.ready()
    time.sleep(4)
    h.send(id="evt_crash")
    traffic(h, until)


def paused(h, until):
    """The first one sleeps over its lease; the second runs the event meanwhile; then the first settles."""
    second = Hookonce("paused_second", table=h.job)
    second.ready()
    threading.Thread(target=h.send, kwargs={"id": "evt_paused", "hang": 20, "late": 500}).start()
    wait_for("the delivery", lambda: "evt_paused" in App.arrived)
    h.process.send_signal(signal.SIGSTOP)
    time.sleep(5)
    second.send(id="evt_paused", status=200)
    h.process.send_signal(signal.SIGCONT)
    traffic(h, until)


def gone(h, until):
    time.sleep(10)
    h.process.terminate()


def overload(h, until):
    """One whose body is long in coming holds the room of all."""
    with socket.create_connection(("127.0.0.1", h.port)) as slow:
        slow.sendall(b"POST /w HTTP/1.1\r\nHost: x\r\nContent-Length: 3500\r\n\r\n" + b" " * 3000)
        time.sleep(1)
        for _ in range(5):
            h.send(pad="x" * 3000)
    traffic(h, until)


def broken(h, until):
    for _ in range(2):
        h.send(**{"break": True})
    traffic(h, until)


FAULTS = {
    # job: (what happens, settings, alerts that have to fire, alerts that may as well)
    "well": (well, {}, set(), set()),
    "fails_all": (lambda h, u: traffic(h, u, status=500), {}, {"HookonceAppFailsAll", "HookonceAppFails"}, set()),
    "fails_half": (half, {}, {"HookonceAppFails"}, set()),
    "forged": (forged, {}, {"HookonceBadSignatures"}, set()),
    "slow_store": (slow_store, {"LEASE": "9s", "STORE_TIMEOUT": "3s"}, {"HookonceStoreSlow"}, {"HookonceStoreErrors"}),
    "crashed": (crash, {}, {"HookonceLeaseTakenOver"}, {"HookonceDown", "HookonceNotReady"}),
    "paused": (paused, {}, {"HookonceLeaseLost"}, {"HookonceDown", "HookonceStoreErrors", "HookonceNotReady", "HookonceAppFails"}),
    "paused_second": (None, {}, {"HookonceLeaseTakenOver"}, set()),
    "gone": (gone, {}, {"HookonceDown"}, set()),
    "overload": (overload, {"MAX_BODY": "4KiB", "MAX_BUFFERED": "4KiB"}, {"HookonceOverloaded"}, set()),
    "held": (broken, {"ON_UNKNOWN": "hold"}, {"HookonceEventHeld", "HookonceOutcomeUnknown"}, set()),
    "unsettled": (broken, {"RETENTION": "4s", "CLEANUP_INTERVAL": "2s"}, {"HookonceOutcomeUnknown", "HookonceUnsettledDeleted"}, set()),
    "uncleaned": (traffic, {"CLEANUP_INTERVAL": "0s"}, {"HookonceCleanupLate"}, set()),
    "stuck": (lambda h, u: h.send(hang=70), {"UPSTREAM_TIMEOUT": "120s"}, {"HookonceDeliveryStuck"}, set()),
    # The application fails, and this hookonce counts it all as forwarded: no other alert can see that.
    "miscounts": (lambda h, u: traffic(h, u, status=500), {}, {"HookonceOutcomesDoNotAddUp"}, set()),
    # At the end the database goes, for all of them; these two go on receiving.
    "no_store": (None, {}, {"HookonceNotReady", "HookonceStoreErrors"}, {"HookonceStoreSlow"}),
    "no_store_forward": (None, {"ON_STORE_ERROR": "forward"}, {"HookonceUnclaimed", "HookonceNotReady", "HookonceStoreErrors"}, {"HookonceStoreSlow"}),
}


def build_miscounting():
    """A hookonce that counts each delivery as one that ran, however it ended. The fault is in a copy of the source."""
    copy, path = f"{work}/source", "proxy/answer.go"
    for part in ("cmd", "proxy", "store"):
        shutil.copytree(f"{ROOT}/{part}", f"{copy}/{part}")
    for part in ("go.mod", "go.sum"):
        shutil.copy(f"{ROOT}/{part}", copy)
    right, wrong = "h.Metrics.End(d.hook.Name, string(e.outcome), took)", "h.Metrics.End(d.hook.Name, string(Forwarded), took)"
    with open(f"{copy}/{path}") as f:
        source = f.read()
    if source.count(right) != 1:
        sys.exit(f"{path} counts outcomes in another way than live.py expects")
    with open(f"{copy}/{path}", "w") as f:
        f.write(source.replace(right, wrong))
    subprocess.run(["go", "build", "-o", miscounting, "./cmd/hookonce"], cwd=copy, check=True)


def quick(rules):
    """rules.yaml with a second for each minute, and ten for each hour of cleanup."""
    rules = re.sub(r"\[(\d+)m\]", r"[\1s]", rules).replace("[1h]", "[60s]").replace("* 3600", "* 10")
    return re.sub(r"for: (\d+)m", r"for: \1s", rules)


def ask(query, **at):
    url = f"http://127.0.0.1:{prometheus_port}/api/v1/query?" + urllib.parse.urlencode({"query": query, **at})
    return json.loads(get(url))["data"]["result"]


def fired():
    out = {}
    for r in ask('max_over_time(ALERTS{alertstate="firing"}[10m])'):
        out.setdefault(r["metric"].get("job"), set()).add(r["metric"]["alertname"])
    return out


def dashboard():
    """Each query of each panel, with the variables at All, has an answer."""
    board = json.load(open(f"{HERE}/../grafana/dashboard.json"))
    empty = asked = 0
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"]
            for name, value in {"$namespace": ".*", "$job": ".*", "$webhook": ".*", "$__rate_interval": "15s", "$__range": "5m"}.items():
                query = query.replace(name, value)
            asked += 1
            if not any(r["value"][1] != "NaN" for r in ask(query)):
                empty += 1
                print(f"  no data: {panel['title']}: {query}")
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            label, of = re.search(r", (\w+)\)$", variable["query"]["query"]).group(1), re.search(r"\((\w+)", variable["query"]["query"]).group(1)
            known = json.loads(get(f"http://127.0.0.1:{prometheus_port}/api/v1/label/{label}/values?match[]={of}"))["data"]
            print(f"  ${variable['name']}: {', '.join(known) or 'none here'}")
            empty += label != "namespace" and not known
    print(f"dashboard: {asked} queries asked, {empty} without data")
    return empty == 0


def main():
    global app, work, bin, pg_port, database, binary, miscounting, prometheus_port
    if not shutil.which("prometheus") or not glob.glob("/usr/lib/postgresql/*/bin"):
        subprocess.run("apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends prometheus postgresql", shell=True, check=True)
    work = tempfile.mkdtemp(prefix="hookonce-live-")
    os.chmod(work, 0o755)
    binary = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else f"{work}/hookonce"
    if len(sys.argv) < 2:
        subprocess.run(["go", "build", "-o", binary, "./cmd/hookonce"], cwd=ROOT, check=True)
    miscounting = f"{work}/miscounting"
    build_miscounting()
    bin, pg_port, prometheus_port = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1], free_port(), free_port()
    database = f"postgres://postgres@127.0.0.1:{pg_port}/postgres?sslmode=disable&pool_max_conns=4"
    os.mkdir(f"{work}/pg")
    if os.getuid() == 0:
        shutil.chown(f"{work}/pg", "postgres")
    postgres(f"{bin}/initdb", "-D", f"{work}/pg/data", "-U", "postgres", "-A", "trust", "--no-sync")
    pg_ctl("start")
    app = Quiet(("127.0.0.1", 0), App)
    threading.Thread(target=app.serve_forever, daemon=True).start()

    for job, (_, settings, _, _) in FAULTS.items():
        if job != "paused_second":
            Hookonce(job, **settings)
    with open(f"{work}/rules.yaml", "w") as f:
        f.write(quick(open(f"{HERE}/rules.yaml").read()))
    jobs = [job for job in FAULTS if job != "paused_second"]
    targets = "".join(f"  - job_name: {j}\n    file_sd_configs: [{{files: ['{work}/{j}.json'], refresh_interval: 1s}}]\n" for j in FAULTS)
    with open(f"{work}/prometheus.yaml", "w") as f:
        f.write(f"global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\nrule_files: [rules.yaml]\nscrape_configs:\n{targets}")

    def expose(h):
        with open(f"{work}/{h.job}.json.part", "w") as f:
            json.dump([{"targets": [f"127.0.0.1:{h.admin}"]}], f)
        os.rename(f"{work}/{h.job}.json.part", f"{work}/{h.job}.json")

    for job in jobs:
        Hookonce.fleet[job].ready()
        expose(Hookonce.fleet[job])
    start("prometheus", f"--config.file={work}/prometheus.yaml", f"--storage.tsdb.path={work}/tsdb", f"--web.listen-address=127.0.0.1:{prometheus_port}",
          stderr=open(f"{work}/prometheus.log", "w"))
    wait_for("Prometheus", lambda: get(f"http://127.0.0.1:{prometheus_port}/-/ready"))
    # A counter that is not 0 when it is first seen has not risen.
    wait_for("the first scrapes", lambda: len(ask("hookonce_build_info")) == len(jobs))
    print(f"{len(jobs)} faults, in {work}")

    until = time.time() + 75
    threads = [threading.Thread(target=FAULTS[job][0], args=(Hookonce.fleet[job], until)) for job in jobs if FAULTS[job][0]]
    for t in threads:
        t.start()
    wait_for("the second one", lambda: "paused_second" in Hookonce.fleet)
    expose(Hookonce.fleet["paused_second"])
    for t in threads:
        t.join()
    data = dashboard()
    before = fired()

    print("the database goes")
    pg_ctl("stop")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        until = time.time() + 15
        for job in ("no_store", "no_store_forward"):
            pool.submit(traffic, Hookonce.fleet[job], until)
    pg_ctl("start")
    after = fired()

    wrong = not data
    seen = set()
    for job, (_, _, must, may) in FAULTS.items():
        got = after.get(job, set()) if job.startswith("no_store") else before.get(job, set())
        seen |= got
        missing, surplus = must - got, got - must - may
        wrong |= bool(missing or surplus)
        print(f"{'WRONG' if missing or surplus else 'ok':6}{job:18}{', '.join(sorted(got)) or 'silent'}"
              + (f"   MISSING {missing}" if missing else "") + (f"   SURPLUS {surplus}" if surplus else ""))
    every = set(re.findall(r"- alert: (\w+)", open(f"{HERE}/rules.yaml").read()))
    if every - seen:
        wrong = True
        print("never fired:", every - seen)
    print(f"{len(every & seen)} of {len(every)} alerts fired on their fault")
    return wrong


if __name__ == "__main__":
    code = 1
    try:
        code = int(main())
    finally:
        for p in processes:
            p.kill()
        for p in processes:
            p.wait()
        try:
            pg_ctl("stop")
        except Exception:  # it may not have been started
            pass
        if code == 0:
            shutil.rmtree(work, ignore_errors=True)
    sys.exit(code)
