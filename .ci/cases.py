#!/usr/bin/env python3
"""Runs the black-box cases: cases.py FOLDER BINARY STORE LEFT_OUT...

What fails side by side with others is tried once more by itself: many cases
are about times, and share the machine. Failing twice is failing.
"""
import json
import subprocess
import sys
import tempfile

folder, binary, store, *left_out = sys.argv[1:]


def run(ids, jobs):
    """The ids that failed."""
    with tempfile.NamedTemporaryFile(suffix=".json") as results:
        done = subprocess.run([sys.executable, f"{folder}/run.py", "--bin", binary, "--cases", f"{folder}/cases.jsonl", "--store", store,
                               "--jobs", str(jobs), "--json", results.name, "--only", ",".join(ids)], check=False)
        if done.returncode not in (0, 1):
            sys.exit(done.returncode)
        found = json.load(results)
        return [r["id"] for r in found if r["result"].lower() == "fail"]


with open(f"{folder}/cases.jsonl", encoding="utf-8") as lines:
    everything = [json.loads(line)["id"] for line in lines if line.strip()]
failed = run([i for i in everything if i not in left_out], 4)
if failed:
    print("once more, one at a time:", ", ".join(failed), flush=True)
    failed = run(failed, 1)
sys.exit(1 if failed else 0)
