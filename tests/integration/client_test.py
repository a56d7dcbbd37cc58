#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The real client against the real daemon, and both against each other.

client_test.py PATH_OF_FABRICWISE PATH_OF_FABRICWISED [unittest arguments]
"""

import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import tempfile
import time
import unittest

CLIENT, DAEMON = "", ""
ROOT = pathlib.Path(__file__).resolve().parents[2]
PROFILE = "deploy/profiles/h200x2-p2p.json"
QUESTION = ["--model", "Qwen3-30B-A3B", "--engine", "reference", "--phase",
            "decode", "--context-tokens", "2048", "--gpus", "2",
            "--ignore-memory"]
LONG_S = 60  # no step takes this long on a machine that works


def run(*arguments, **more):
  return subprocess.run([CLIENT, *arguments], capture_output=True, text=True,
                        timeout=LONG_S, stdin=subprocess.DEVNULL, **more)


def setUpModule():
  os.chdir(ROOT)


class Daemon:
  """A daemon on a socket of its own, from __enter__ to __exit__."""

  def __init__(self, *flags):
    self.folder = tempfile.TemporaryDirectory()
    self.socket = pathlib.Path(self.folder.name, "fw.sock")
    self.target = f"unix://{self.socket}"
    self.flags = flags

  def __enter__(self):
    self.start()
    return self

  def start(self):
    self.process = subprocess.Popen(
        [DAEMON, "--listen", f"unix:{self.socket}", "--metrics-listen", "none",
         "--database", str(pathlib.Path(self.folder.name, "store.db")),
         *self.flags], stdin=subprocess.DEVNULL)
    end = time.monotonic() + LONG_S
    while run("status", "--target", self.target).returncode == 2:
      if self.process.poll() is not None or time.monotonic() > end:
        self.__exit__()
        raise AssertionError("the daemon did not come up")
      time.sleep(0.05)

  def stop(self):
    if self.process.poll() is None:
      self.process.send_signal(signal.SIGTERM)
      self.process.wait(LONG_S)

  def __exit__(self, *_):
    self.stop()
    self.folder.cleanup()


class WithProfile(unittest.TestCase):
  @classmethod
  def setUpClass(cls):
    cls.daemon = Daemon("--profile", PROFILE)
    cls.daemon.__enter__()
    cls.addClassCleanup(cls.daemon.__exit__)

  def both(self, *arguments):
    """The same command against the daemon and in-process."""
    return (run(*arguments, "--target", self.daemon.target),
            run(*arguments, "--profile", PROFILE))

  def assert_same_json(self, *arguments):
    remote, local = self.both(*arguments, "--format", "json")
    self.assertEqual((remote.returncode, remote.stderr), (0, ""))
    self.assertEqual((local.returncode, local.stderr), (0, ""))
    self.assertEqual(remote.stdout, local.stdout)
    again, _ = self.both(*arguments, "--format", "json")
    self.assertEqual(remote.stdout, again.stdout)
    return json.loads(remote.stdout)

  def test_one_concurrency_is_the_same_answer(self):
    answer = self.assert_same_json("recommend", *QUESTION, "--concurrency", "8")
    best = answer["plans"][0]
    self.assertGreater(best["tpot_seconds"], 0)
    self.assertAlmostEqual(sum(t["seconds"] for t in best["terms"]),
                           best["tpot_seconds"], places=9)
    self.assertEqual(answer["grounds"]["profile"], "h200x2-p2p")

  def test_several_concurrencies_are_the_same_sweep(self):
    answer = self.assert_same_json("recommend", *QUESTION, "--concurrency",
                                   "1,8,64")
    self.assertEqual([p["concurrency"] for p in answer["points"]],
                     ["1", "8", "64"])
    self.assert_same_json("sweep", *QUESTION)

  def test_curves_and_profile_are_the_same(self):
    self.assert_same_json("curves", "all_to_all")
    self.assert_same_json("profile", "show")
    remote, local = self.both("profile", "export")
    self.assertEqual(remote.stdout, local.stdout)

  def test_refusals_are_the_same(self):
    for flags in (["--concurrency", "0"], ["--concurrency", "1000000000"],
                  ["--concurrency", "1", "--tpot-ms", "nan"],
                  ["--concurrency", "1", "--gpus", "3"],
                  ["--concurrency", "1", "--routing-skew", "-1"]):
      remote, local = self.both("recommend", "--model", "Qwen3-30B-A3B", *flags)
      self.assertEqual((remote.returncode, remote.stderr),
                       (local.returncode, local.stderr))
      self.assertEqual(remote.returncode, 1, flags)
      self.assertIn(f"fabricwise: {flags[-2]}: ", remote.stderr)
    remote, local = self.both("recommend", "--model", "Qwen9", "--concurrency",
                              "1")
    self.assertEqual((remote.returncode, remote.stderr),
                     (1, local.stderr))
    self.assertIn("nearest", remote.stderr)

  def test_a_repository_is_as_good_as_a_name(self):
    by_name = self.assert_same_json("recommend", *QUESTION, "--concurrency",
                                    "8", "--max-plans", "2")
    self.assertEqual(len(by_name["plans"]), 2)
    question = ["qwen/qwen3-30b-a3b" if word == "Qwen3-30B-A3B" else word
                for word in QUESTION]
    self.assertEqual(by_name, self.assert_same_json(
        "recommend", *question, "--concurrency", "8", "--max-plans", "2"))
    for answer in self.both("recommend", "--model",
                            "meta-llama/Llama-3.1-8B-Instruct", "--engine",
                            "vllm", "--concurrency", "8", "--format", "flags"):
      self.assertEqual((answer.returncode, answer.stderr), (0, ""))
      self.assertIn(" vllm serve meta-llama/Llama-3.1-8B-Instruct ",
                    answer.stdout)
    for answer in self.both("recommend", "--model",
                            "meta-llama/Llama-3.1-8B-Instruct-FP8",
                            "--concurrency", "8"):
      self.assertEqual(answer.returncode, 1)
      self.assertIn("nearest: Llama-3.1-8B, ", answer.stderr)
      self.assertIn("config.json", answer.stderr)

  def test_limits_that_are_missed_are_told(self):
    asked = ["recommend", "--model", "Qwen3-8B", "--concurrency", "64",
             "--objective", "slo", "--tpot-ms"]
    for answer in self.both(*asked, "0.001"):
      self.assertEqual(answer.returncode, 0)
      self.assertRegex(answer.stderr,
                       r"\Afabricwise: no plan meets the limits; the first, \S+:"
                       r" TPOT [0-9.]+ ms is over the limit of 0.00 ms\n\Z")
      self.assertIn("Qwen3-8B", answer.stdout)
    for answer in self.both(*asked, "0.001", "--fail-on-miss"):
      self.assertEqual(answer.returncode, 5)
    for answer in self.both(*asked, "10000", "--fail-on-miss"):
      self.assertEqual((answer.returncode, answer.stderr), (0, ""))
    ranked = run("rank", "--profiles", "h200x2-p2p,h200x2-shm", *asked[1:],
                 "0.001", "--fail-on-miss")
    self.assertEqual(ranked.returncode, 5)
    self.assertIn("fabricwise: no node meets the limits; the first, ",
                  ranked.stderr)

  def test_upper_bounds_are_marked_alike_in_table_and_json(self):
    asked = ["--profile", "h200x2-shm-worker", "--model",
             "Qwen3-235B-A22B-FP8", "--ignore-memory", "--engine", "vllm",
             "--concurrency", "64"]
    answer = json.loads(run("recommend", *asked, "--format", "json").stdout)
    for plan in answer["plans"]:
      self.assertNotIn("tpot_low_seconds", plan["interval"])
      self.assertTrue(any(term["upper_bound"] for term in plan["terms"]))
    rank = ["rank", "--profiles", *asked[1:]]
    for command in (["recommend", *asked], ["sweep", *asked], rank):
      table = run(*command).stdout
      self.assertRegex(table, r"\b2  >= [0-9.,]+  <= [0-9.]+  +<= [0-9.]+ ")
      self.assertIn("\n <= >=        times are at most, tok/s at least ", table)

  def test_communication_has_a_time_and_no_rate(self):
    for command in ("recommend", "sweep"):
      table = run(command, *QUESTION, "--concurrency", "8", "--scope",
                  "communication", "--profile", PROFILE).stdout
      self.assertIn("comm/step ", table)
      self.assertNotIn("tok/s", table)

  def test_a_profile_keeps_its_number_of_gpus(self):
    taken = run("profile", "import", "deploy/profiles/h200x2-p2p-worker.json",
                "--gpus", "8", "--name", "x", "--out", "-")
    self.assertEqual((taken.returncode, taken.stdout), (1, ""))
    self.assertEqual(taken.stderr,
                     "fabricwise: --gpus is 8; allowed: 2, those of "
                     "h200x2-p2p-worker.json\n")

  def test_watch_answers_at_once(self):
    watched = run("watch", *QUESTION, "--concurrency", "8", "--count", "1",
                  "--format", "json", "--target", self.daemon.target)
    self.assertEqual(watched.returncode, 0, watched.stderr)
    first = json.loads(watched.stdout)
    self.assertEqual(first["reason"], "first answer")
    self.assertTrue(first["answer"]["plans"])

  def test_a_pipe_is_plain_and_a_terminal_is_not(self):
    plain = run("recommend", *QUESTION, "--concurrency", "8", "--target",
                self.daemon.target).stdout
    self.assertTrue(plain.isascii())
    rich = on_terminal("recommend", *QUESTION, "--concurrency", "8",
                       "--target", self.daemon.target)
    self.assertIn("\x1b[1mQwen3-30B-A3B", rich)
    self.assertIn("█", rich)
    bare = on_terminal("recommend", *QUESTION, "--concurrency", "8",
                       "--target", self.daemon.target, NO_COLOR="1")
    self.assertNotIn("\x1b", bare)

  def test_a_reader_that_leaves_is_no_error(self):
    piped = subprocess.run(
        ["sh", "-c", '"$0" models list | head -n 1', CLIENT],
        capture_output=True, text=True, timeout=LONG_S)
    self.assertEqual((piped.returncode, piped.stderr), (0, ""))

  def test_output_that_cannot_be_written_is_exit_code_4(self):
    for arguments in (["models", "list"], ["--help"], ["--version"],
                      ["profile", "export", "--profile", PROFILE],
                      ["watch", *QUESTION, "--concurrency", "8", "--target",
                       self.daemon.target]):
      with open("/dev/full", "w") as full:
        written = subprocess.run([CLIENT, *arguments], stdout=full,
                                 stderr=subprocess.PIPE, text=True,
                                 timeout=LONG_S, stdin=subprocess.DEVNULL)
      self.assertEqual((written.returncode, written.stderr),
                       (4, "fabricwise: the output cannot be written\n"),
                       arguments)
    closed = subprocess.run(["sh", "-c", '"$0" models list >&-', CLIENT],
                            capture_output=True, text=True, timeout=LONG_S)
    self.assertEqual(closed.returncode, 4, closed.stderr)

  def test_a_closed_pipe_ends_it_by_the_signal_and_without_a_word(self):
    reader, writer = os.pipe()
    os.close(reader)
    piped = subprocess.run([CLIENT, "models", "list"], stdout=writer,
                           stderr=subprocess.PIPE, text=True, timeout=LONG_S)
    os.close(writer)
    self.assertEqual((piped.returncode, piped.stderr), (-signal.SIGPIPE, ""))


class WithoutProfile(unittest.TestCase):
  def test_nothing_can_be_answered_until_a_profile_is_imported(self):
    with Daemon() as daemon:
      self.assertEqual(run("status", "--target", daemon.target).returncode, 3)
      asked = run("recommend", *QUESTION, "--concurrency", "8", "--target",
                  daemon.target)
      self.assertEqual(asked.returncode, 3)
      self.assertEqual(asked.stdout, "")
      measured = run("measure", "--target", daemon.target)
      self.assertEqual(measured.returncode, 3, measured.stderr)
      self.assertIn("worker", measured.stderr)

      taken = run("profile", "import", PROFILE, "--target", daemon.target)
      self.assertEqual((taken.returncode, taken.stderr), (0, ""))
      self.assertIn("NVIDIA H200", taken.stdout)
      asked = run("recommend", *QUESTION, "--concurrency", "8", "--target",
                  daemon.target)
      self.assertEqual(asked.returncode, 0, asked.stderr)
      self.assertEqual(run("status", "--target", daemon.target).returncode, 0)
      self.assertEqual(
          run("profile", "export", "--target", daemon.target).stdout,
          run("profile", "export", "--profile", PROFILE).stdout)

  def test_watch_goes_on_after_the_daemon_has_restarted(self):
    with Daemon("--profile", PROFILE) as daemon:
      with subprocess.Popen(
          [CLIENT, "watch", *QUESTION, "--concurrency", "8", "--count", "2",
           "--format", "json", "--target", daemon.target],
          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
          stderr=subprocess.PIPE, text=True) as watch:
        first = json.loads(watch.stdout.readline())
        daemon.stop()
        self.assertIn("lost the daemon, trying for 10m to reach it again: ",
                      watch.stderr.readline())
        daemon.start()
        out, err = watch.communicate(timeout=LONG_S)
        self.assertEqual((watch.returncode, err),
                         (0, "fabricwise: connected again\n"))
        self.assertEqual(json.loads(out), first)

  def test_no_daemon_is_exit_code_2(self):
    asked = run("recommend", *QUESTION, "--concurrency", "8", "--target",
                "unix:///nonexistent/fw.sock")
    self.assertEqual(asked.returncode, 2)
    self.assertIn("cannot reach unix:///nonexistent/fw.sock", asked.stderr)


def on_terminal(*arguments, **variables):
  """What the client writes to a terminal."""
  environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8",
                 "COLUMNS": "140", **variables}
  if "NO_COLOR" not in variables:
    environment.pop("NO_COLOR", None)
  ours, theirs = pty.openpty()
  process = subprocess.Popen([CLIENT, *arguments], stdout=theirs,
                             stdin=subprocess.DEVNULL, env=environment)
  os.close(theirs)
  written = b""
  while True:
    try:
      chunk = os.read(ours, 65536)
    except OSError:  # the terminal's other side is closed
      break
    if not chunk:
      break
    written += chunk
  os.close(ours)
  process.wait(LONG_S)
  return written.decode()


if __name__ == "__main__":
  CLIENT, DAEMON = (str(pathlib.Path(each).resolve())
                    for each in sys.argv[1:3])
  unittest.main(argv=sys.argv[:1] + sys.argv[3:])
