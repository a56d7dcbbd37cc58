#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The real daemon, started, asked, scraped, stopped and killed.

daemon_test.py PATH_OF_FABRICWISED [unittest arguments]
"""

import contextlib
import http.client
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import grpc

DAEMON = str(pathlib.Path(sys.argv[1]).resolve()) if len(sys.argv) > 1 else ""
ROOT = pathlib.Path(__file__).resolve().parents[2]
PROFILE = ROOT / "deploy/profiles/h200x2-p2p.json"
OTHER_PROFILE = ROOT / "deploy/profiles/h200x2-shm.json"
# For what takes milliseconds on an idle machine: a loaded one has its time.
PATIENCE_SECONDS = 60
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"  # HealthCheckResponse


def field(number, payload):
  """A length-delimited protobuf field."""
  size, length = len(payload), b""
  while size > 127:
    length += bytes([size & 127 | 128])
    size >>= 7
  return bytes([number << 3 | 2]) + length + bytes([size]) + payload


def question(preset, concurrency):
  """A RecommendParallelismRequest."""
  return (field(1, field(2, preset.encode())) +
          field(2, b"\x08" + bytes([concurrency])))


def raw(message):
  return message


class Daemon:
  """A running fabricwised, its log and ways to ask it."""

  def __init__(self, *arguments, env=None, user=None):
    self.process = subprocess.Popen(
        [DAEMON, "--log-format", "json", *map(str, arguments)],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL, env=env, user=user, group=user)
    self.events = []
    self._arrived = queue.Queue()
    self._reader = threading.Thread(target=self._read, daemon=True)
    self._reader.start()

  def _read(self):
    for line in self.process.stderr:
      self._arrived.put(json.loads(line))
    self._arrived.put(None)

  def wait_for(self, event):
    """The next log record of this event."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
      record = self._arrived.get(timeout=max(0, deadline - time.monotonic()))
      if record is None:
        raise AssertionError(
            f"the daemon ended without {event!r}: {self.events}")
      self.events.append(record)
      if record["event"] == event:
        return record

  def started(self):
    self.wait_for("started")
    return self

  def addresses(self, event="listening"):
    return [r["address"] for r in self.events if r["event"] == event]

  def tcp(self):
    return next(a for a in self.addresses() if not a.startswith("unix:"))

  def call(self, method, request=b"", service="fabricwise.v1.NodeProfiler",
           address=None):
    with grpc.insecure_channel(address or self.tcp()) as channel:
      return channel.unary_unary(f"/{service}/{method}", raw, raw)(
          request, timeout=PATIENCE_SECONDS, wait_for_ready=True)

  def health(self):
    return self.call("Check", service="grpc.health.v1.Health")

  def scrape(self, path="/metrics"):
    host, port = self.addresses("serving metrics")[0].rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port),
                                            timeout=PATIENCE_SECONDS)
    with contextlib.closing(connection):
      connection.request("GET", path)
      answer = connection.getresponse()
      return answer.status, answer.read().decode()

  def signal(self, number):
    self.process.send_signal(number)

  def wait(self):
    return self.process.wait(PATIENCE_SECONDS)

  def stop(self):
    self.signal(signal.SIGTERM)
    return self.wait()

  def kill(self):
    self.process.kill()
    self.wait()


class DaemonTest(unittest.TestCase):

  def setUp(self):
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = pathlib.Path(folder.name)
    self.socket = self.folder / "d.sock"
    self.config = self.folder / "d.conf"
    self.config.write_text("")

  def options(self, *more, metrics="none"):
    return ("--config", self.config, "--database", self.folder / "d.db",
            "--listen", f"unix:{self.socket}", "--listen", "127.0.0.1:0",
            "--metrics-listen", metrics, *more)

  def start(self, *more, **options):
    return self.launch(*self.options(*more, **options)).started()

  def launch(self, *arguments, **how):
    daemon = Daemon(*arguments, **how)
    self.addCleanup(daemon.process.stderr.close)
    self.addCleanup(daemon._reader.join)
    self.addCleanup(daemon.kill)
    return daemon

  def run_briefly(self, *arguments):
    return subprocess.run([DAEMON, *map(str, arguments)], timeout=60,
                          capture_output=True, text=True, check=False)

  def refused(self, code, *arguments):
    """The last line of a daemon that must not start."""
    result = self.run_briefly(*arguments)
    self.assertEqual(result.returncode, code, result.stderr)
    return result.stderr.strip().splitlines()[-1]

  # A profile and what becomes of it.

  def test_without_a_profile_it_runs_but_does_not_serve(self):
    daemon = self.start()
    self.assertEqual(daemon.health(), NOT_SERVING)
    with self.assertRaises(grpc.RpcError) as caught:
      daemon.call("GetNodeProfile")
    self.assertEqual(caught.exception.code(),
                     grpc.StatusCode.FAILED_PRECONDITION)
    self.assertEqual(daemon.stop(), 0)

  def test_profile_file_is_kept_over_kill(self):
    daemon = self.start("--profile", PROFILE)
    self.assertEqual(daemon.health(), SERVING)
    before = daemon.call("GetNodeProfile")
    self.assertIn(b"h200x2-p2p", before)
    daemon.kill()
    daemon = self.start()
    self.assertEqual(daemon.health(), SERVING)
    self.assertEqual(daemon.call("GetNodeProfile"), before)
    daemon.kill()
    # The same file again adds nothing to the store.
    count = self.stored_measurements()
    self.start("--profile", PROFILE).kill()
    self.assertEqual(self.stored_measurements(), count)
    self.assertGreater(count, 100)

  def stored_measurements(self):
    with contextlib.closing(sqlite3.connect(self.folder / "d.db")) as database:
      self.assertEqual(
          database.execute("PRAGMA integrity_check").fetchone()[0], "ok")
      return database.execute("SELECT count(*) FROM measurements").fetchone()[0]

  def test_imported_profile_is_kept_once_acknowledged(self):
    daemon = self.start()
    self.assertEqual(daemon.health(), NOT_SERVING)
    answer = daemon.call("ImportProfile", field(1, OTHER_PROFILE.read_bytes()),
                         address=f"unix:{self.socket}")
    self.assertIn(b"h200x2-shm", answer)
    daemon.kill()
    daemon = self.start()
    self.assertEqual(daemon.health(), SERVING)
    self.assertIn(b"h200x2-shm", daemon.call("GetStatus"))
    # What --profile names wins over what was in use.
    daemon.stop()
    daemon = self.start("--profile", PROFILE)
    self.assertIn(b"h200x2-p2p", daemon.call("GetStatus"))

  def test_profile_file_that_is_none_stops_the_start(self):
    bad = self.folder / "bad.json"
    bad.write_text(PROFILE.read_text()[:5000])
    self.assertIn(str(bad),
                  self.refused(1, *self.options("--profile", bad)))
    newer = json.loads(PROFILE.read_text())
    newer["version"] = 99
    bad.write_text(json.dumps(newer))
    self.assertRegex(self.refused(1, *self.options("--profile", bad)), "99")
    self.assertIn("/absent.json: no such file",
                  self.refused(1, *self.options("--profile", "/absent.json")))
    # Nothing of it was kept.
    self.assertEqual(self.start().health(), NOT_SERVING)

  # Metrics.

  def test_metrics_are_those_of_the_document_and_follow_what_happens(self):
    daemon = self.start("--profile", PROFILE, metrics="127.0.0.1:0")
    for _ in range(3):
      daemon.call("GetStatus")
    status, text = daemon.scrape()
    self.assertEqual(status, 200)
    documented = set(re.findall(r"^\| `(\w+)`",
                                (ROOT / "docs/metrics.md").read_text(), re.M))
    exported = set(re.findall(r"^# TYPE (\w+)", text, re.M))
    self.assertEqual({n for n in exported if not n.startswith("exposer_")},
                     documented)
    values = dict(re.findall(r"^([^#\s]\S*) (\S+)$", text, re.M))
    self.assertEqual(
        values['fabricwise_requests_total{method="GetStatus",code="OK"}'], "3")
    self.assertEqual(
        values['fabricwise_request_duration_seconds_count{method="GetStatus"}'],
        "3")
    self.assertEqual(values["fabricwise_profile_loaded"], "1")
    self.assertEqual(values["fabricwise_profile_swaps_total"], "1")
    self.assertGreater(float(values["fabricwise_stored_measurements"]), 100)
    self.assertLess(float(values["process_resident_memory_bytes"]), 100 << 20)
    self.assertTrue(any(
        name.startswith('fabricwise_curve_seconds{curve="all_reduce/n2/nccl/'
                        'graph",') and 'size_bytes="16384"' in name
        for name in values))
    self.assertEqual(daemon.scrape("/other")[0], 404)
    self.assertEqual(daemon.stop(), 0)

  def wait_for_metric(self, daemon, line):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while line not in daemon.scrape()[1].splitlines():
      self.assertLess(time.monotonic(), deadline, line)
      time.sleep(0.05)

  def test_scenarios_are_answered_and_taken_over_by_sighup(self):
    self.config.write_text("scenario = one: model=Qwen3-8B concurrency=8\n")
    daemon = self.start("--profile", PROFILE, metrics="127.0.0.1:0")
    self.wait_for_metric(daemon,
                         'fabricwise_scenario_answered{scenario="one"} 1')
    self.config.write_text("scenario = two: model=Qwen3-8B concurrency=8\n")
    daemon.signal(signal.SIGHUP)
    self.wait_for_metric(daemon,
                         'fabricwise_scenario_answered{scenario="two"} 1')
    self.assertNotIn('scenario="one"', daemon.scrape()[1])
    self.assertEqual(daemon.stop(), 0)

  def test_a_reference_is_compared_with_and_must_be_one(self):
    daemon = self.start("--profile", OTHER_PROFILE, "--reference-profile",
                        PROFILE, metrics="127.0.0.1:0")
    deadline = time.monotonic() + PATIENCE_SECONDS
    ratio = None
    while ratio is None:
      self.assertLess(time.monotonic(), deadline)
      ratio = re.search(r'^fabricwise_curve_reference_ratio{curve="all_reduce/'
                        r'n2/nccl/graph"} (\S+)$', daemon.scrape()[1], re.M)
    # Over host memory instead of NVLink.
    self.assertGreater(float(ratio[1]), 2)
    self.assertEqual(daemon.stop(), 0)
    self.assertIn("reference-profile: /absent.json: no such file",
                  self.refused(1, *self.options("--reference-profile",
                                                "/absent.json")))

  # The end.

  def test_its_many_threads_share_few_arenas(self):
    daemon = self.start("--profile", PROFILE, metrics="127.0.0.1:0")
    daemon.call("RecommendParallelism", question("Qwen3-8B", 8),
                "fabricwise.v1.ParallelismAdvisor")
    daemon.scrape()
    # An arena of malloc: 64 MiB of addresses from a multiple of that, in use
    # from the start up to somewhere. The first is elsewhere.
    size = 64 << 20
    used = {}
    process = pathlib.Path("/proc", str(daemon.process.pid))
    for line in (process / "maps").read_text().splitlines():
      addresses, access = line.split()[:2]
      begin, end = (int(text, 16) for text in addresses.split("-"))
      used[begin] = end, access
    arenas = [
        begin for begin, (end, access) in used.items()
        if begin % size == 0 and access == "rw-p" and
        used.get(end) == (begin + size, "---p")]
    self.assertGreater(len(list((process / "task").iterdir())), 6)
    self.assertGreater(len(arenas), 0)
    self.assertLess(len(arenas), 4)

  def test_sigterm_ends_watches_and_exits_with_success(self):
    daemon = self.start("--profile", PROFILE)
    with grpc.insecure_channel(daemon.tcp()) as channel:
      watch = channel.unary_stream(
          "/fabricwise.v1.ParallelismAdvisor/WatchRecommendation", raw, raw)(
              field(1, question("Llama-3.1-8B", 4)), timeout=PATIENCE_SECONDS)
      self.assertTrue(next(watch))
      daemon.signal(signal.SIGTERM)
      with self.assertRaises(grpc.RpcError) as caught:
        next(watch)
      self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
    self.assertEqual(daemon.wait(), 0)
    self.assertFalse(self.socket.exists())

  @contextlib.contextmanager
  def stuck_call(self, daemon):
    """A call whose answer is never read: a drain must wait for it."""
    def frame(kind, flags, stream, payload):
      return (len(payload).to_bytes(3, "big") + bytes([kind, flags]) +
              stream.to_bytes(4, "big") + payload)

    def header(name, value):  # a literal, in no table
      return bytes([0, len(name)]) + name + bytes([len(value)]) + value

    headers = b"".join(header(*pair) for pair in (
        (b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"it"),
        (b":path", b"/fabricwise.v1.NodeProfiler/GetNodeProfile"),
        (b"content-type", b"application/grpc"), (b"te", b"trailers")))
    request = b"\x08\x03"  # PROFILE_VIEW_FILE
    body = b"\0" + len(request).to_bytes(4, "big") + request
    host, port = daemon.tcp().rsplit(":", 1)
    with socket.create_connection((host, int(port)), PATIENCE_SECONDS) as client:
      client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") +
                     frame(1, 4, 1, headers) + frame(0, 1, 1, body))
      # Without leave for more the server sends 64 KiB of what is longer.
      seen = 0
      while seen < 32 << 10:
        chunk = client.recv(1 << 10)
        self.assertTrue(chunk, "the daemon hung up")
        seen += len(chunk)
      yield

  def test_drain_is_bounded_by_its_budget(self):
    daemon = self.start("--profile", PROFILE, "--drain-seconds", "0.3")
    with self.stuck_call(daemon):
      self.assertEqual(daemon.stop(), 0)

  def test_drain_waits_for_no_connection_without_a_call(self):
    daemon = self.start("--profile", PROFILE, "--drain-seconds", "3600")
    request = b"\x08\x03"  # PROFILE_VIEW_FILE
    get = "/fabricwise.v1.NodeProfiler/GetNodeProfile"
    health = "/grpc.health.v1.Health/Watch"
    with contextlib.ExitStack() as stack:
      for _ in range(3):
        channel = stack.enter_context(grpc.insecure_channel(daemon.tcp()))
        channel.unary_unary(get, raw, raw)(request, timeout=PATIENCE_SECONDS)
      # One that says nothing yet, and one that only watches the health.
      stack.enter_context(socket.create_connection(
          ("127.0.0.1", int(daemon.tcp().rsplit(":", 1)[1])), PATIENCE_SECONDS))
      channel = stack.enter_context(grpc.insecure_channel(daemon.tcp()))
      watch = channel.unary_stream(health, raw, raw)(
          b"", timeout=PATIENCE_SECONDS)
      self.assertEqual(next(watch), SERVING)
      self.assertEqual(daemon.stop(), 0)

  def test_second_signal_exits_at_once(self):
    daemon = self.start("--profile", PROFILE, "--drain-seconds", "3600")
    with self.stuck_call(daemon):
      daemon.signal(signal.SIGTERM)
      daemon.wait_for("stopping")
      daemon.signal(signal.SIGINT)
      self.assertEqual(daemon.wait(), 128 + signal.SIGINT)

  def test_signals_that_mean_nothing_are_ignored(self):
    daemon = self.start()
    for number in (signal.SIGUSR1, signal.SIGUSR2):
      daemon.signal(number)
      self.assertEqual(daemon.wait_for("signal ignored")["signal"],
                       signal.Signals(number).name)
    daemon.signal(signal.SIGPIPE)
    daemon.call("GetStatus")
    self.assertEqual(daemon.stop(), 0)

  # Where it listens and what it keeps.

  def test_unix_socket_is_the_owners_and_the_groups(self):
    daemon = self.start()
    self.assertEqual(stat.S_IMODE(self.socket.stat().st_mode), 0o660)
    self.assertEqual((self.folder / "d.db").stat().st_mode & 0o027, 0)
    daemon.call("GetStatus", address=f"unix:{self.socket}")

  def test_socket_of_a_killed_daemon_is_taken_over(self):
    self.start().kill()
    self.assertTrue(self.socket.exists())
    daemon = self.start()
    daemon.call("GetStatus", address=f"unix:{self.socket}")

  def test_second_daemon_is_refused_and_the_first_unharmed(self):
    first = self.start()
    self.assertIn("another process has it open",
                  self.refused(1, *self.options()))
    other = ("--config", self.config, "--database", self.folder / "other.db",
             "--metrics-listen", "none")
    self.assertIn(f"another process listens on {self.socket}",
                  self.refused(1, *other, "--listen", f"unix:{self.socket}"))
    self.assertIn(f"cannot listen on {first.tcp()}",
                  self.refused(1, *other, "--listen", first.tcp()))
    first.call("GetStatus", address=f"unix:{self.socket}")

  def test_metrics_port_in_use_stops_the_start(self):
    with socket.create_server(("127.0.0.1", 0)) as taken:
      address = f"127.0.0.1:{taken.getsockname()[1]}"
      self.assertIn(f"metrics-listen: cannot listen on {address}",
                    self.refused(1, *self.options(metrics=address)))

  def test_file_in_the_sockets_place_is_left_alone(self):
    self.socket.write_text("precious")
    self.assertIn("is not a socket", self.refused(1, *self.options()))
    self.assertEqual(self.socket.read_text(), "precious")

  def test_database_of_another_program_is_left_alone(self):
    with contextlib.closing(sqlite3.connect(self.folder / "d.db")) as database:
      database.execute("CREATE TABLE theirs (a)")
    self.assertIn("another program's SQLite database",
                  self.refused(1, *self.options()))

  def test_another_user_needs_no_option_but_home(self):
    nobody = 65534
    user = nobody if os.getuid() == 0 else None
    home, runtime = self.folder / "home", self.folder / "run"
    for made in (home, runtime):
      made.mkdir()
      if user:
        shutil.chown(made, user)
    self.folder.chmod(0o755)
    env = {"HOME": str(home), "XDG_RUNTIME_DIR": str(runtime)}
    daemon = self.launch("--config", self.config, "--listen",
                         f"unix:{runtime}/fabricwise/fabricwised.sock",
                         "--metrics-listen", "none", env=env,
                         user=user).started()
    daemon.call("GetStatus",
                address=f"unix:{runtime}/fabricwise/fabricwised.sock")
    self.assertTrue((home / ".local/state/fabricwise/store.db").exists())
    self.assertEqual(daemon.stop(), 0)

  # The configuration.

  def test_mistakes_in_the_configuration_stop_the_start(self):
    for text, message in {
        "lissten = unix:/a":
            "d.conf:1: there is no option 'lissten'; nearest: listen",
        "\ndrain-seconds = soon":
            "d.conf:2: drain-seconds is 'soon'; allowed: 0 to 3600",
        "listen = 0.0.0.0:7410":
            "d.conf:1: listen is '0.0.0.0:7410'; allowed: unix:PATH, "
            "127.0.0.1:PORT, [::1]:PORT; for others give tls-cert",
        "what": "d.conf:1: the line is 'what'; allowed: NAME = VALUE",
    }.items():
      self.config.write_text(text)
      self.assertIn(message, self.refused(2, "--config", self.config))
    self.config.write_text("")
    self.assertIn("command line: ", self.refused(2, "--lissten", "x"))
    self.assertIn("/absent: no such file",
                  self.refused(2, "--config", "/absent"))

  def test_printed_configuration_starts_the_same_daemon(self):
    printed = self.run_briefly(*self.options("--log-level", "error",
                                             "--print-config"))
    self.assertEqual(printed.returncode, 0, printed.stderr)
    self.config.write_text(printed.stdout)
    again = self.run_briefly("--config", self.config, "--print-config")
    self.assertEqual(again.stdout, printed.stdout)
    self.assertIn(f"listen = unix:{self.socket}\n", printed.stdout)

  def test_version_and_metrics_are_printed(self):
    self.assertRegex(self.run_briefly("--version").stdout,
                     r"^fabricwised \d+\.\d+\.\d+\n$")
    self.assertEqual(self.run_briefly("--print-metrics").stdout,
                     (ROOT / "docs/metrics.md").read_text())


if __name__ == "__main__":
  if not os.access(DAEMON, os.X_OK):
    sys.exit(__doc__)
  unittest.main(argv=sys.argv[:1] + sys.argv[2:])
