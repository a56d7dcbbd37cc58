#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A daemon under load while it measures and its profile is replaced.

soak.py [--cores 0,1] FABRICWISED FABRICWISE SCRIPTED_WORKER LOAD SECONDS

The daemon has the cores named (the first two); what only stands in for a node,
its askers and its operators, the load, the workers and the clients that ask for
new profiles, runs on the machine's others, where it has more.

Prints what the load saw, the daemon's memory over time, its CPU time by
thread and when idle; exits with 1 where a call failed, memory grew, or a limit
was missed.
"""

import argparse
import collections
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROFILES = [ROOT / f"deploy/profiles/h200x2-{fabric}.json"
            for fabric in ("p2p", "shm", "net")]
# What the node's worker says each time that it measures.
REPLAYED = ROOT / "deploy/profiles/h200x2-p2p-worker.json"
CORES = 2              # of the daemon
SWAP_SECONDS = 5       # a new snapshot this often, measured or imported
IDLE_SECONDS = 30
SETTLED = 0.2          # the part of a run after which memory is to be flat
MOST_RSS_MIB = 100
MOST_GROWTH = 0.05     # of resident memory, from there to the end
MOST_P99_US = 2000
MOST_IDLE_CORE = 0.005


def rss_mib(process):
  for line in pathlib.Path(f"/proc/{process}/status").read_text().splitlines():
    if line.startswith("VmRSS:"):
      return int(line.split()[1]) / 1024
  raise RuntimeError("no VmRSS")


def cpu_seconds(stat):
  """Of a process or thread, from its stat file, with its name."""
  name, fields = stat.read_text().split("(", 1)[1].rsplit(") ", 1)
  fields = fields.split()
  return name, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_by_thread(process):
  """CPU seconds of the living threads, those of one name together."""
  seconds = collections.Counter()
  for stat in pathlib.Path(f"/proc/{process}/task").glob("*/stat"):
    with contextlib.suppress(OSError):
      name, used = cpu_seconds(stat)
      seconds[name] += used
  return seconds


def listed(cores):
  return ",".join(map(str, sorted(cores)))


@contextlib.contextmanager
def on(cores, afterwards):
  """What is started here runs on `cores`."""
  os.sched_setaffinity(0, cores)
  try:
    yield
  finally:
    os.sched_setaffinity(0, afterwards)


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--cores", type=lambda text: set(map(int, text.split(","))))
  for name in ("daemon", "client", "worker", "load", "seconds"):
    parser.add_argument(name)
  arguments = parser.parse_args()
  client = arguments.client
  machine = os.sched_getaffinity(0)
  cores = arguments.cores or set(sorted(machine)[:CORES])
  others = machine - cores or machine
  print(f"daemon on cores {listed(cores)}, load, workers and clients on "
        f"{listed(others)}")
  os.sched_setaffinity(0, others)

  faults = []
  with tempfile.TemporaryDirectory() as folder:
    script = pathlib.Path(folder, "script")
    script.write_text(f"probe replay={REPLAYED} done")
    worker = pathlib.Path(folder, "worker")
    worker.write_text(f"#!/bin/sh\nexec taskset -c {listed(others)} "
                      f"'{pathlib.Path(arguments.worker).resolve()}' \"$@\"\n")
    worker.chmod(0o755)
    port = 7419
    target = f"127.0.0.1:{port}"
    with on(cores, others):
      daemon = subprocess.Popen(
          [arguments.daemon, "--config", "", "--listen", target,
           "--loopback-role", "operator", "--metrics-listen", "none",
           "--operator-calls-per-minute", "0",
           "--database", f"{folder}/soak.db", "--worker", worker,
           "--measure", "on-request", "--profile", PROFILES[0]],
          env={**os.environ, "SCRIPTED_WORKER": str(script)},
          stderr=open(f"{folder}/log", "w"))
    for _ in range(100):
      if subprocess.run([client, "status", "--target", target],
                        capture_output=True).returncode == 0:
        break
      time.sleep(0.1)

    over = threading.Event()
    memory, swaps = [], {"measured": 0, "imported": 0}

    def watch():
      begin = time.monotonic()
      while not over.wait(1):
        memory.append((time.monotonic() - begin, rss_mib(daemon.pid)))

    def swap():
      turn = 0
      while not over.wait(SWAP_SECONDS):
        turn += 1
        if turn % 2:
          command, kind = ["measure", "--full"], "measured"
        else:
          path = PROFILES[turn // 2 % len(PROFILES)]
          command, kind = ["profile", "import", path, "--allow-other-node"], "imported"
        done = subprocess.run([client, *command, "--target", target],
                              capture_output=True, text=True)
        if done.returncode:
          faults.append(f"{kind}: {done.stderr.strip()}")
        swaps[kind] += 1

    threads = [threading.Thread(target=watch), threading.Thread(target=swap)]
    for thread in threads:
      thread.start()
    under = subprocess.run(
        [arguments.load, "--target", target, "--model", "Llama-3.1-8B",
         "--seconds", arguments.seconds], text=True, capture_output=True)
    over.set()
    for thread in threads:
      thread.join()
    print(under.stdout, end="")
    if under.returncode:
      faults.append("calls failed " + under.stderr)
    p99 = re.search(r"p99 (\d+)", under.stdout)
    if p99 and int(p99[1]) > MOST_P99_US:
      faults.append(f"p99 is {p99[1]} us; at most {MOST_P99_US}")
    print(f"snapshots: {swaps['measured']} measured, {swaps['imported']} imported")
    print("CPU seconds by thread:", ", ".join(
        f"{name} {used:.1f}"
        for name, used in cpu_by_thread(daemon.pid).most_common() if used >= 0.1))

    settled = memory[int(len(memory) * SETTLED):]
    first, last = settled[0][1], settled[-1][1]
    highest = max(mib for _, mib in memory)
    print("resident MiB:", ", ".join(
        f"{mib:.1f} at {at:.0f} s"
        for at, mib in memory[::max(1, len(memory) // 10)]))
    print(f"resident MiB: {first:.1f} after {settled[0][0]:.0f} s, "
          f"{last:.1f} at the end, {highest:.1f} at most")
    if highest > MOST_RSS_MIB:
      faults.append(f"resident memory {highest:.1f} MiB")
    if last > first * (1 + MOST_GROWTH):
      faults.append(f"resident memory grew from {first:.1f} to {last:.1f} MiB")

    stat = pathlib.Path(f"/proc/{daemon.pid}/stat")
    before = cpu_seconds(stat)[1]
    time.sleep(IDLE_SECONDS)
    idle = (cpu_seconds(stat)[1] - before) / IDLE_SECONDS
    print(f"idle: {idle:.2%} of a core")
    if idle > MOST_IDLE_CORE:
      faults.append(f"idle, it takes {idle:.2%} of a core")
    daemon.terminate()
    if daemon.wait(timeout=20):
      faults.append(f"the daemon left with {daemon.returncode}")
  for fault in faults[:10]:
    print("fault:", fault)
  return 1 if faults else 0


if __name__ == "__main__":
  sys.exit(main())
