#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The real daemon and client with a worker that does what it is told.

measuring_test.py FABRICWISED FABRICWISE SCRIPTED_WORKER [unittest arguments]
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import grpc

import daemon_test
from daemon_test import NOT_SERVING, PATIENCE_SECONDS, PROFILE, SERVING

CLIENT, WORKER = "", ""
# What one worker does alone: the rest of a plan would only take time.
ONE_PART = ("--key", "launch/", "--key", "memory/")
REFUSED, FAILED, NO_GROUNDS = 1, 2, 3  # the client's exit codes


class Node:
  """A daemon, its scripted worker, and the client."""

  def __init__(self, folder, *flags):
    self.folder = pathlib.Path(folder)
    self.script = self.folder / "script"
    self.database = self.folder / "d.db"
    self.config = self.folder / "d.conf"
    self.config.write_text("")
    self.flags = flags

  def start(self, script, *more):
    self.plays(script)
    self.daemon = daemon_test.Daemon(
        "--config", self.config, "--database", self.database,
        "--listen", "127.0.0.1:0", "--loopback-role", "operator",
        "--metrics-listen", "127.0.0.1:0",
        "--worker", WORKER, *self.flags, *more,
        env={**os.environ, "SCRIPTED_WORKER": str(self.script)}).started()
    return self

  def plays(self, script):
    """What the next workers do."""
    self.script.write_text(script)

  def client(self, *arguments):
    return [CLIENT, *arguments, "--target", self.daemon.tcp()]

  def run(self, *arguments):
    return subprocess.run(
        self.client(*arguments), capture_output=True, text=True, check=False,
        timeout=PATIENCE_SECONDS, stdin=subprocess.DEVNULL)

  def measure(self, *arguments):
    return self.run("measure", *arguments)

  def status(self):
    return json.loads(self.run("status", "--format", "json").stdout)

  def stored(self):
    with contextlib.closing(sqlite3.connect(self.database)) as database:
      return database.execute("SELECT count(*) FROM measurements").fetchone()[0]

  def metrics(self):
    _, text = self.daemon.scrape()
    return {name: float(value) for name, value in
            re.findall(r"^(fabricwise_[^#\s]*) (\S+)$", text, re.M)}

  def fault(self, fault):
    return self.metrics()[f'fabricwise_worker_faults_total{{fault="{fault}"}}']

  def runs(self, kind, result):
    return self.metrics()["fabricwise_measurement_runs_total"
                          f'{{kind="{kind}",result="{result}"}}']


class Asking:
  """Somebody who asks for advice all the while."""

  def __init__(self, daemon):
    self.daemon, self.answers, self.error = daemon, 0, None

  def __enter__(self):
    self.ended = threading.Event()
    self.thread = threading.Thread(target=self.ask)
    self.thread.start()
    return self

  def ask(self):
    try:
      with grpc.insecure_channel(self.daemon.tcp()) as channel:
        call = channel.unary_unary(
            "/fabricwise.v1.ParallelismAdvisor/RecommendParallelism",
            daemon_test.raw, daemon_test.raw)
        while not self.ended.is_set():
          call(daemon_test.question("Llama-3.1-8B", 1 + self.answers % 60),
               timeout=PATIENCE_SECONDS)
          self.answers += 1
          self.ended.wait(0.01)
    except grpc.RpcError as error:
      self.error = error

  def __exit__(self, *_):
    self.ended.set()
    self.thread.join()


class MeasuringTest(unittest.TestCase):

  def node(self, *flags):
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    return Node(folder.name, *flags)

  def start(self, script, *flags):
    node = self.node(*flags).start(script)
    self.clean_up(node)
    return node

  def clean_up(self, node):
    self.addCleanup(node.daemon.process.stderr.close)
    self.addCleanup(node.daemon._reader.join)
    self.addCleanup(node.daemon.kill)

  def test_a_new_node_is_measured_and_serves_without_being_asked(self):
    node = self.start("probe plan done")
    self.assertEqual(node.daemon.wait_for("run ended")["kind"], "quick")
    self.assertEqual(node.daemon.health(), SERVING)
    status = node.status()
    self.assertEqual(status["fingerprint"], status["node_fingerprint"])
    self.assertGreater(int(status["measurement_count"]), 100)
    record = node.daemon.wait_for("run ended")
    self.assertEqual((record["kind"], record["verdict"]), ("full", "kept"))
    self.assertEqual(node.runs("quick", "kept"), 1)
    self.assertEqual(node.runs("full", "kept"), 1)
    metrics = node.metrics()
    self.assertEqual(metrics["fabricwise_profile_matches_node"], 1)
    self.assertEqual(metrics["fabricwise_worker_installed"], 1)
    self.assertGreater(metrics["fabricwise_measurement_gpu_seconds_total"], 1)
    self.assertEqual(metrics["fabricwise_stored_measurements"], node.stored())
    answer = node.run("recommend", "--model", "Llama-3.1-8B", "--concurrency",
                      "8", "--format", "json")
    self.assertEqual(answer.returncode, 0, answer.stderr)
    self.assertEqual(json.loads(answer.stdout)["grounds"]["fingerprint"],
                     status["node_fingerprint"])

    # After a restart it goes on with what it has, and does not measure anew.
    stored = node.stored()
    self.assertEqual(node.daemon.stop(), 0)
    node.start("probe plan done")
    self.clean_up(node)
    self.assertEqual(node.daemon.health(), SERVING)
    node.daemon.wait_for("node looked at")
    self.assertEqual(node.status()["fingerprint"], status["fingerprint"])
    self.assertEqual(node.stored(), stored)

  def test_measures_when_asked_and_shows_it(self):
    node = self.start("probe plan done", "--measure", "on-request")
    self.assertEqual(node.daemon.health(), NOT_SERVING)
    result = node.measure(*ONE_PART)
    self.assertEqual(result.returncode, 0, result.stderr)
    lines = result.stdout.splitlines()
    self.assertEqual(lines[0], " 1 of 13  launch/graph_node  10.0 us")
    self.assertEqual(lines[-1], " 13 measured; a new profile is in use")
    self.assertEqual(node.stored(), 13)
    self.assertEqual(node.daemon.health(), SERVING)
    # Again: appended, and the newest count.
    self.assertEqual(node.measure(*ONE_PART).returncode, 0)
    self.assertEqual(node.stored(), 26)
    last = json.loads(
        node.measure(*ONE_PART, "--format", "json").stdout.splitlines()[-1])
    self.assertTrue(last["profile_changed"])
    refused = node.measure("--key", "nothing/")
    self.assertEqual(refused.returncode, NO_GROUNDS)
    self.assertIn("begins with nothing/", refused.stderr)

  def test_no_fault_of_the_worker_harms_the_daemon(self):
    node = self.start("probe plan done", "--measure", "on-request",
                      "--profile", PROFILE)
    before, fingerprint = node.stored(), node.status()["fingerprint"]
    faults = (
        ("died", "probe results=3 crash", "died of SIGSEGV after 7 frames"),
        ("died", "probe plan exit=3", "left with exit status 3"),
        ("garbled", "probe results=3 garbage hang", "garbage: frame 7"),
        ("garbled", "probe results=3 half", "bytes into frame 7"),
        ("garbled", "probe length=1073741824 hang", "1073741824 bytes long"),
        ("garbled", "log=hello", "without Done, after 0; its last words: 'hello"),
        ("garbled", "probe plan", "without Done"),
        ("garbled", "probe results=1 number=9 result=launch/graph_node done",
         "bears the number 9"),
        ("refused", "probe result=gemm/bf16/m1n2k3 done", "was not asked for"),
        ("refused", "probe odd=launch/graph_node done", "median_seconds is -1"),
        ("refused", "probe plan plan done", "a second time"),
        ("died", "deaf child flood=50000000 probe crash", "died of SIGSEGV"),
    )
    with Asking(node.daemon) as asking:
      for fault, script, message in faults:
        with self.subTest(script=script):
          node.plays(script)
          count, answers = node.fault(fault), asking.answers
          # The look at the node comes first, and must be good.
          result = node.measure(*ONE_PART)
          self.assertEqual(result.returncode, FAILED, result.stdout)
          self.assertIn(message, result.stderr)
          self.assertEqual(node.fault(fault), count + 1)
          self.assertEqual(node.daemon.health(), SERVING)
          self.assertGreater(asking.answers, answers)
    self.assertIsNone(asking.error)
    self.assertEqual(node.stored(), before)
    self.assertEqual(node.status()["fingerprint"], fingerprint)
    # And then a good one.
    node.plays("probe plan done")
    self.assertEqual(node.measure(*ONE_PART).returncode, 0)
    self.assertEqual(node.stored(), before + 13)

  def test_a_worker_that_hangs_or_drips_is_ended(self):
    nodes = [self.start(script, "--measure", "on-request", "--profile", PROFILE)
             for script in ("deaf probe results=3 hang",
                            "probe results=3 drip=1000")]
    clients = [subprocess.Popen(node.client("measure", *ONE_PART),
                                stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True)
               for node in nodes]
    for node, client in zip(nodes, clients):
      with client:
        _, errors = client.communicate(timeout=PATIENCE_SECONDS)
        self.assertEqual(client.returncode, FAILED)
        self.assertIn("the worker hung: no frame for", errors)
        self.assertEqual(node.fault("hung"), 1)
        self.assertEqual(node.daemon.health(), SERVING)

  def test_output_of_the_worker_is_logged_within_bounds(self):
    node = self.start("lines=3000 log=done probe plan done",
                      "--measure", "on-request")
    self.assertEqual(node.measure(*ONE_PART).returncode, 0)
    self.assertEqual(node.daemon.stop(), 0)
    with self.assertRaises(AssertionError):  # reads to the end of the log
      node.daemon.wait_for("no such event")
    said = [e["line"] for e in node.daemon.events if e["event"] == "worker says"]
    self.assertEqual(said[0], "line 0")
    self.assertIn("2001 lines left out", said)
    self.assertLessEqual(len(said), 2 * 1001)

  def begin(self, node, *arguments):
    """A client whose run is under way in a worker that waits."""
    client = subprocess.Popen(node.client("measure", *ONE_PART, *arguments),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True)
    self.addCleanup(client.stderr.close)
    self.addCleanup(client.stdout.close)
    self.addCleanup(client.wait)
    self.addCleanup(client.kill)
    self.assertIn("1 of 13", client.stdout.readline())
    return client

  def test_whoever_asked_may_cancel(self):
    node = self.start("probe results=3 hang", "--measure", "on-request")
    client = self.begin(node)
    refused = node.measure(*ONE_PART)
    self.assertEqual(refused.returncode, REFUSED)
    self.assertIn("another run is under way", refused.stderr)
    self.assertEqual(node.metrics()["fabricwise_measuring"], 1)
    client.send_signal(signal.SIGINT)
    self.assertEqual(node.daemon.wait_for("run ended")["verdict"], "cancelled")
    self.assertEqual(node.stored(), 0)
    self.assertEqual(node.runs("quick", "cancelled"), 1)
    # One that leaves in order hands over what it has.
    node.plays("probe results=3 term done")
    self.begin(node).send_signal(signal.SIGINT)
    record = node.daemon.wait_for("run ended")
    self.assertEqual((record["verdict"], record["kept"]), ("cancelled", "3"))
    self.assertEqual(node.stored(), 3)

  def test_busy_gpus_are_left_alone(self):
    node = self.start("busy plan done", "--measure", "on-request")
    result = node.measure()
    self.assertEqual(result.returncode, NO_GROUNDS)
    self.assertIn("GPUs are busy", result.stderr)
    self.assertEqual(node.stored(), 0)
    doctor = node.run("doctor")
    self.assertIn("GPU 0: 1 process is on it", doctor.stdout)

    # A job that lands in the middle: what was whole is kept.
    node.plays("probe results=2 yield")
    result = node.measure(*ONE_PART)
    self.assertEqual(result.returncode, NO_GROUNDS)
    self.assertEqual(node.runs("quick", "yielded"), 1)
    self.assertEqual(node.stored(), 2)

  def test_a_scheduled_run_is_put_off_while_the_gpus_are_busy(self):
    node = self.start("busy plan done")
    self.assertEqual(node.daemon.wait_for("run put off")["reason"], "busy")
    self.assertEqual(node.status()["scheduler_state"], "busy")
    self.assertEqual(node.metrics()[
        'fabricwise_measurement_skips_total{reason="busy"}'], 1)
    self.assertEqual(node.daemon.stop(), 0)

  def worker_pid(self, node):
    return int(node.daemon.wait_for("worker says")["line"])

  def gone(self, pid):
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
      try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2]
      except FileNotFoundError:
        return True
      if state == "Z":  # dead; who inherited it reaps late
        return True
      time.sleep(0.01)
    return False

  def test_no_worker_outlives_the_daemon(self):
    # Killed, it can do nothing about it.
    node = self.start("deaf pid hang", "--measure", "scheduled")
    pid = self.worker_pid(node)
    node.daemon.kill()
    self.assertTrue(self.gone(pid))
    # Asked to stop, it takes the worker along first.
    node = self.start("deaf pid probe results=2 hang", "--measure",
                      "on-request")
    client = self.begin(node)
    self.worker_pid(node)  # of the one that looked at the node
    pid = self.worker_pid(node)
    node.daemon.signal(signal.SIGTERM)
    self.assertEqual(node.daemon.wait(), 0)
    _, errors = client.communicate(timeout=PATIENCE_SECONDS)
    self.assertEqual(client.returncode, FAILED)
    self.assertIn("the daemon is stopping", errors)
    self.assertTrue(self.gone(pid))

  def test_a_worker_that_is_named_must_be_there(self):
    node = self.node()
    result = subprocess.run(
        [daemon_test.DAEMON, "--config", node.config, "--database",
         node.database, "--listen", "127.0.0.1:0", "--metrics-listen", "none",
         "--worker", "/nowhere/worker"], capture_output=True, text=True,
        timeout=PATIENCE_SECONDS, check=False)
    self.assertEqual(result.returncode, 1)
    self.assertIn("/nowhere/worker, which is no program", result.stderr)


if __name__ == "__main__":
  CLIENT, WORKER = (str(pathlib.Path(p).resolve()) for p in sys.argv[2:4])
  unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
