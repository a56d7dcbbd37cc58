#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A daemon under load while it measures and its profile is replaced.

soak.py FABRICWISED FABRICWISE SCRIPTED_WORKER LOAD SECONDS

Prints what the load saw, the daemon's memory over time and its CPU time when
idle; exits with 1 where a call failed, memory grew, or a limit was missed.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROFILES = [ROOT / f"deploy/profiles/h200x2-{fabric}.json"
            for fabric in ("p2p", "shm", "net")]
SWAP_SECONDS = 5       # a new snapshot this often, measured or imported
IDLE_SECONDS = 30
SETTLED = 0.2          # the part of a run after which memory is to be flat
MOST_RSS_MIB = 100
MOST_GROWTH = 0.05     # of resident memory, from there to the end
MOST_IDLE_CORE = 0.005


def rss_mib(process):
  for line in pathlib.Path(f"/proc/{process}/status").read_text().splitlines():
    if line.startswith("VmRSS:"):
      return int(line.split()[1]) / 1024
  raise RuntimeError("no VmRSS")


def cpu_seconds(process):
  fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")")[1].split()
  return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
  daemon_path, client, worker, load, seconds = sys.argv[1:]
  faults = []
  with tempfile.TemporaryDirectory() as folder:
    script = pathlib.Path(folder, "script")
    script.write_text("probe plan done")
    port = 7419
    target = f"127.0.0.1:{port}"
    daemon = subprocess.Popen(
        [daemon_path, "--config", "", "--listen", target,
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
        [load, "--target", target, "--model", "Llama-3.1-8B",
         "--seconds", seconds], text=True, capture_output=True)
    over.set()
    for thread in threads:
      thread.join()
    print(under.stdout, end="")
    if under.returncode:
      faults.append("calls failed " + under.stderr)
    settled = memory[int(len(memory) * SETTLED):]
    first, last = settled[0][1], settled[-1][1]
    highest = max(mib for _, mib in memory)
    print(f"snapshots: {swaps['measured']} measured, {swaps['imported']} imported")
    print(f"resident MiB: {memory[0][1]:.1f} at first, {first:.1f} after "
          f"{settled[0][0]:.0f} s, {last:.1f} at the end, {highest:.1f} at most")
    if highest > MOST_RSS_MIB:
      faults.append(f"resident memory {highest:.1f} MiB")
    if last > first * (1 + MOST_GROWTH):
      faults.append(f"resident memory grew from {first:.1f} to {last:.1f} MiB")

    before = cpu_seconds(daemon.pid)
    time.sleep(IDLE_SECONDS)
    idle = (cpu_seconds(daemon.pid) - before) / IDLE_SECONDS
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
