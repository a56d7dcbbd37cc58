#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who may ask the real daemon for what: TLS, roles, limits, and a new reading of
the configuration. Certificates are made by openssl.

access_test.py FABRICWISED FABRICWISE [unittest arguments]
"""

import contextlib
import os
import pathlib
import re
import resource
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
import unittest

import grpc

import daemon_test
from daemon_test import (OTHER_PROFILE, PATIENCE_SECONDS, PROFILE, SERVING,
                         field, question, raw)

CLIENT = ""
SERVER_NAME = "node.fabricwise.example"
REFUSED, UNREACHABLE = 1, 2  # the client's exit codes
ADVISOR = "fabricwise.v1.ParallelismAdvisor"
PROFILER = "fabricwise.v1.NodeProfiler"


class Authority:
  """A CA that vouches for whom it is told to."""

  def __init__(self, folder, name):
    self.folder = pathlib.Path(folder) / name
    self.folder.mkdir()
    self.certificate = self.folder / "ca.pem"
    self.key = self.folder / "ca.key"
    self.openssl("req", "-x509", *self.new_key(self.key), "-subj",
                 f"/CN={name}", "-days", "2", "-out", self.certificate)

  @staticmethod
  def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True,
                   capture_output=True, timeout=PATIENCE_SECONDS)

  @staticmethod
  def new_key(path):
    return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
            "-nodes", "-keyout", path)

  def issue(self, name, san=None, days=2):
    """(key, certificate) of this common name."""
    key, certificate = (self.folder / f"{name}.{end}" for end in ("key", "pem"))
    request, extensions = (self.folder / f"{name}.{end}"
                           for end in ("csr", "ext"))
    extensions.write_text(f"subjectAltName={san}\n" if san else "")
    self.openssl("req", *self.new_key(key), "-subj", f"/CN={name}", "-out",
                 request)
    self.openssl("x509", "-req", "-in", request, "-CA", self.certificate,
                 "-CAkey", self.key, "-CAcreateserial", "-days", days,
                 "-extfile", extensions, "-out", certificate)
    return key, certificate

  def issue_between(self, name, not_before, not_after):
    """The same for these dates, as YYYYMMDDHHMMSSZ."""
    key, certificate = (self.folder / f"{name}.{end}" for end in ("key", "pem"))
    request, settings, index, serial = (
        self.folder / f"{name}.{end}"
        for end in ("csr", "cnf", "index", "serial"))
    index.write_text("")
    serial.write_text("01")
    settings.write_text(
        f"[ca]\ndefault_ca = d\n[d]\ndatabase = {index}\nserial = {serial}\n"
        f"new_certs_dir = {self.folder}\ndefault_md = sha256\npolicy = p\n"
        "[p]\ncommonName = supplied\n")
    self.openssl("req", *self.new_key(key), "-subj", f"/CN={name}", "-out",
                 request)
    self.openssl("ca", "-batch", "-config", settings, "-cert", self.certificate,
                 "-keyfile", self.key, "-in", request, "-startdate", not_before,
                 "-enddate", not_after, "-notext", "-out", certificate)
    return key, certificate

  def server(self):
    return self.issue("server", f"DNS:{SERVER_NAME}")


class AccessTest(unittest.TestCase):

  @classmethod
  def setUpClass(cls):
    folder = tempfile.TemporaryDirectory()
    cls.addClassCleanup(folder.cleanup)
    cls.ours = Authority(folder.name, "ours")
    cls.theirs = Authority(folder.name, "theirs")
    cls.server = cls.ours.server()
    cls.reader = cls.ours.issue("reader", "DNS:s1.schedulers.example")
    cls.operator = cls.ours.issue("operator", "URI:spiffe://cluster/ops/alice")
    cls.nobody = cls.ours.issue("nobody", "DNS:s1.elsewhere.example")
    cls.expired = cls.ours.issue("expired", "URI:spiffe://cluster/ops/bob",
                                 days=-1)
    cls.forged = cls.theirs.issue("forged", "URI:spiffe://cluster/ops/alice")

  def setUp(self):
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = pathlib.Path(folder.name)
    self.socket = self.folder / "d.sock"
    self.config = self.folder / "d.conf"

  def start(self, config="", *flags, env=None):
    self.config.write_text(config)
    self.daemon = daemon_test.Daemon(
        "--config", self.config, "--database", self.folder / "d.db",
        "--listen", f"unix:{self.socket}", "--metrics-listen", "127.0.0.1:0",
        "--worker", "none", "--profile", PROFILE, *flags, env=env)
    for cleanup in (self.daemon.process.stderr.close, self.daemon._reader.join,
                    self.daemon.kill):
      self.addCleanup(cleanup)
    self.daemon.started()

  def start_tls(self):
    """With files of its own, which may be replaced."""
    self.start("", *self.tls_flags())
    self.port = self.daemon.tcp().rsplit(":", 1)[1]

  def tls_flags(self):
    self.files = [self.folder / name for name in ("key", "cert", "ca")]
    self.install(self.ours, self.server)
    return ("--listen", "0.0.0.0:0", "--tls-key", self.files[0], "--tls-cert",
            self.files[1], "--tls-client-ca", self.files[2],
            "--tls-look-again-seconds", "1", "--tls-reader",
            "dns:*.schedulers.example", "--tls-operator",
            "uri:spiffe://cluster/ops/*")

  def install(self, authority, server):
    for source, path in zip((*server, authority.certificate), self.files):
      self.put(path, source.read_text())

  @staticmethod
  def put(path, text):
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)

  @contextlib.contextmanager
  def channel(self, identity=None, authority=None):
    """A connection of its own over TLS."""
    key, certificate = identity or (None, None)
    credentials = grpc.ssl_channel_credentials(
        (authority or self.ours).certificate.read_bytes(),
        key and key.read_bytes(), certificate and certificate.read_bytes())
    with grpc.secure_channel(
        f"127.0.0.1:{self.port}", credentials,
        (("grpc.ssl_target_name_override", SERVER_NAME),
         ("grpc.use_local_subchannel_pool", 1))) as channel:
      yield channel

  @staticmethod
  def ask(channel, method, request=b"", service=PROFILER):
    return channel.unary_unary(f"/{service}/{method}", raw, raw)(
        request, timeout=PATIENCE_SECONDS)

  def denied(self, code, pattern, call):
    with self.assertRaises(grpc.RpcError) as caught:
      call()
    self.assertEqual(caught.exception.code(), code, caught.exception.details())
    self.assertRegex(caught.exception.details(), pattern)
    return caught.exception

  def local(self, method, request=b""):
    return self.daemon.call(method, request, address=f"unix:{self.socket}")

  # TLS.

  def test_certificates_decide_what_may_be_asked(self):
    self.start_tls()
    listening = [e for e in self.daemon.events if e["event"] == "listening"]
    self.assertEqual([e["tls"] for e in listening], ["no", "yes"])
    imported = field(1, OTHER_PROFILE.read_bytes())
    with self.channel(self.reader) as channel:
      self.assertIn(b"h200x2-p2p", self.ask(channel, "GetStatus"))
      self.assertTrue(self.ask(channel, "RecommendParallelism",
                               question("Llama-3.1-8B", 4), ADVISOR))
      self.assertEqual(
          self.ask(channel, "Check", service="grpc.health.v1.Health"), SERVING)
      for method in ("ImportProfile", "DiagnoseNode", "RunMeasurement"):
        self.denied(grpc.StatusCode.PERMISSION_DENIED,
                    f"^{method} needs the role operator; this caller's is "
                    r"reader \(tls-operator\)$",
                    lambda: self.ask(channel, method, imported))
    with self.channel(self.operator) as channel:
      self.assertIn(b"h200x2-shm", self.ask(channel, "ImportProfile", imported))
    with self.channel(self.nobody) as channel:
      for service, method in ((PROFILER, "GetStatus"),
                              ("grpc.health.v1.Health", "Check"),
                              ("grpc.reflection.v1alpha.ServerReflection",
                               "ServerReflectionInfo")):
        self.denied(grpc.StatusCode.PERMISSION_DENIED,
                    f"^/{re.escape(service)}/{method} needs the role reader; "
                    "this certificate has none, by its names "
                    "dns:'s1.elsewhere.example', cn:'nobody'",
                    lambda: self.ask(channel, method, service=service))

  def test_certificates_out_of_their_dates_are_told(self):
    expired = self.ours.issue_between("past", "20200102030405Z",
                                      "20210203040506Z")
    early = self.ours.issue_between("early", "20900102030405Z",
                                    "20910203040506Z")
    self.server = expired
    self.start_tls()
    warnings = [e for e in self.daemon.events if e["level"] == "warning"
                and e["event"].startswith("certificate")]
    self.assertEqual(
        [(e["event"], e["option"], e["not_after"]) for e in warnings],
        [("certificate has expired", "tls-cert", "2021-02-03T04:05:06+00:00")])
    dates = self.certificate_dates()
    self.assertEqual(dates["not_before", "tls-cert"], 1577934245)
    self.assertEqual(dates["not_after", "tls-cert"], 1612325106)
    self.assertGreater(dates["not_after", "tls-client-ca"], time.time())

    self.install(self.ours, early)
    warning = self.daemon.wait_for("certificate is not valid yet")
    self.assertEqual((warning["level"], warning["option"],
                      warning["not_before"]),
                     ("warning", "tls-cert", "2090-01-02T03:04:05+00:00"))
    self.assertEqual(self.certificate_dates()["not_before", "tls-cert"],
                     3787009445)
    # A good one is taken without a warning, and serves.
    self.install(self.ours, type(self).server)
    self.until_answered(self.reader, self.ours)
    self.assertGreater(self.certificate_dates()["not_after", "tls-cert"],
                       time.time())

  def certificate_dates(self):
    _, text = self.daemon.scrape()
    return {(edge, option): float(value) for edge, option, value in re.findall(
        r'^fabricwise_certificate_(\w+)_timestamp_seconds{option="(.*)"} (\S+)$',
        text, re.M)}

  def test_strangers_do_not_get_through(self):
    self.start_tls()
    for identity in (None, self.expired, self.forged):
      with self.channel(identity) as channel:
        self.denied(grpc.StatusCode.UNAVAILABLE, ".",
                    lambda: self.ask(channel, "GetStatus"))
    # Nor does a daemon that is not ours get to a client.
    with self.channel(self.reader, self.theirs) as channel:
      self.denied(grpc.StatusCode.UNAVAILABLE, ".",
                  lambda: self.ask(channel, "GetStatus"))
    with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
      self.denied(grpc.StatusCode.UNAVAILABLE, ".",
                  lambda: self.ask(channel, "GetStatus"))
    # What they try is told in the log, and does not fill it.
    for _ in range(50):
      with socket.create_connection(("127.0.0.1", self.port)) as junk:
        junk.sendall(b"GET / HTTP/1.1\r\n\r\n")
        junk.settimeout(PATIENCE_SECONDS)
        with contextlib.suppress(ConnectionError):
          while junk.recv(4096):
            pass
    self.local("GetStatus")
    self.assertEqual(self.daemon.stop(), 0)
    self.daemon.wait_for("stopped")
    told = [e for e in self.daemon.events if e["event"] == "grpc says"]
    self.assertTrue(0 < len(told) <= 10, told)

  def test_new_certificates_are_taken_and_open_streams_go_on(self):
    self.start_tls()
    new_reader = self.theirs.issue("new", "DNS:s2.schedulers.example")
    with self.channel(self.reader) as channel:
      watch = channel.unary_stream(f"/{ADVISOR}/WatchRecommendation", raw, raw)(
          field(1, question("Llama-3.1-8B", 4)))
      self.assertTrue(next(watch))
      self.install(self.theirs, self.theirs.server())
      self.until_answered(new_reader, self.theirs)
      with self.channel(self.reader) as late:
        self.denied(grpc.StatusCode.UNAVAILABLE, ".",
                    lambda: self.ask(late, "GetStatus"))
      # The connection that was open is served on, old calls and new ones.
      self.assertTrue(self.ask(channel, "GetStatus"))
      self.local("ImportProfile", field(1, OTHER_PROFILE.read_bytes()))
      self.assertIn(b"h200x2-shm", next(watch))
      watch.cancel()

  def test_files_that_went_bad_leave_the_last_good_ones_in_use(self):
    self.start_tls()
    key, certificate, ca = self.files

    def emptied(path):
      self.put(path, "")

    def folder(path):
      path.unlink()
      path.mkdir()

    def another(path):
      self.put(path, self.operator[0].read_text())

    def junk(path):
      self.put(path, "-----BEGIN CERTIFICATE-----\njunk\n"
                     "-----END CERTIFICATE-----\n")

    def half_written(path):
      more = self.theirs.certificate.read_text()
      self.put(path, path.read_text() + more[:len(more) // 2])

    for spoilt, how, told in (
        (certificate, emptied, f"tls-cert is {certificate}; allowed: a PEM"),
        (key, emptied, f"tls-key is {key}; allowed: a PEM"),
        (certificate, folder, f"tls-cert is {certificate}; allowed: a PEM"),
        (key, pathlib.Path.unlink, f"tls-key is {key}; allowed: a PEM"),
        (key, another, f"tls-key is {key}; allowed: the private key"),
        (ca, junk, f"tls-client-ca is {ca}; allowed: a PEM"),
        (ca, half_written, f"tls-client-ca is {ca}; allowed: a PEM"),
        (ca, pathlib.Path.unlink, f"tls-client-ca is {ca}; allowed: a PEM")):
      with self.subTest(told, how=how.__name__):
        how(spoilt)
        error = self.daemon.wait_for(
            "certificates not read, serving with the former ones")
        self.assertIn(told, error["reason"])
        self.assertTrue(self.answered(self.reader, self.ours))
        if spoilt.is_dir():
          spoilt.rmdir()
        self.install(self.ours, self.server)
        self.daemon.wait_for("certificates read")
        self.assertTrue(self.answered(self.reader, self.ours))
    errors = [e for e in self.daemon.events if e["level"] == "error"]
    self.assertEqual(len(errors), 8)
    new_reader = self.theirs.issue("new", "DNS:s2.schedulers.example")
    self.install(self.theirs, self.theirs.server())
    self.until_answered(new_reader, self.theirs)
    self.assertFalse(self.answered(self.reader, self.theirs))
    self.assertEqual(self.daemon.stop(), 0)

  def answered(self, identity, authority):
    with self.channel(identity, authority) as channel:
      try:
        return self.ask(channel, "GetStatus") != b""
      except grpc.RpcError as error:
        self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE)
        return False

  def until_answered(self, identity, authority):
    end = time.monotonic() + PATIENCE_SECONDS
    while not self.answered(identity, authority):
      self.assertLess(time.monotonic(), end)
      time.sleep(0.1)

  def test_client_speaks_tls_by_flags_and_by_environment(self):
    self.start_tls()

    def run(*arguments, **variables):
      return subprocess.run(
          [CLIENT, *arguments, "--target", f"127.0.0.1:{self.port}"],
          capture_output=True, text=True, timeout=PATIENCE_SECONDS,
          stdin=subprocess.DEVNULL, env={**os.environ, **variables})

    key, certificate = map(str, self.reader)
    authority = str(self.ours.certificate)
    flags = ("--tls-ca", authority, "--tls-cert", certificate, "--tls-key", key,
             "--tls-server-name", SERVER_NAME)
    variables = {"FABRICWISE_TLS_CA": authority,
                 "FABRICWISE_TLS_CERT": certificate,
                 "FABRICWISE_TLS_KEY": key,
                 "FABRICWISE_TLS_SERVER_NAME": SERVER_NAME}
    for asked in (run("status", *flags), run("status", **variables)):
      self.assertEqual((asked.returncode, asked.stderr), (0, ""))
      self.assertIn("h200x2-p2p", asked.stdout)
    denied = run("profile", "import", str(OTHER_PROFILE), *flags)
    self.assertEqual(denied.returncode, REFUSED)
    self.assertIn("ImportProfile needs the role operator", denied.stderr)
    for arguments in ((), flags[:2], flags[:6]):  # the last: another name
      lost = run("status", *arguments)
      self.assertEqual(lost.returncode, UNREACHABLE, arguments)
      self.assertEqual(lost.stderr.count("\n"), 1, lost.stderr)

  def test_files_that_cannot_serve_stop_the_start(self):
    key, certificate = self.server
    other_key = self.operator[0]
    absent, junk = self.folder / "absent", self.folder / "junk"
    junk.write_text("junk")
    for files, message in {
        (absent, certificate, self.ours.certificate):
            f"tls-key is {absent}; allowed: a PEM file that this user may read",
        (key, self.folder, self.ours.certificate):
            f"tls-cert is {self.folder}; allowed: a PEM file",
        (other_key, certificate, self.ours.certificate):
            f"tls-key is {other_key}; allowed: the private key",
        (key, junk, self.ours.certificate):
            f"of the certificate in tls-cert, {junk}",
        (key, certificate, junk):
            f"tls-client-ca is {junk}; allowed: a PEM file with a CA's",
    }.items():
      self.assertIn(message, self.refused(
          1, "--listen", "0.0.0.0:0", "--tls-key", files[0], "--tls-cert",
          files[1], "--tls-client-ca", files[2], "--tls-reader", "cn:a"))

  def test_other_machines_are_not_served_in_plain_text(self):
    self.config.write_text("\nlisten = 0.0.0.0:7410\n")
    self.assertIn(
        f"{self.config}:2: listen is '0.0.0.0:7410'; allowed: unix:PATH, "
        "127.0.0.1:PORT, [::1]:PORT; for others give tls-cert, tls-key and "
        "tls-client-ca", self.refused(2))

  def refused(self, code, *flags):
    if not self.config.exists():
      self.config.write_text("")
    result = subprocess.run(
        [daemon_test.DAEMON, "--config", self.config, "--database",
         self.folder / "d.db", "--metrics-listen", "none", "--worker", "none",
         *flags], capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    self.assertEqual(result.returncode, code, result.stderr)
    return result.stderr.strip().splitlines()[-1]

  # UNIX sockets and loopback.

  def test_loopback_reads_and_the_socket_may_do_all(self):
    self.start("", "--listen", "127.0.0.1:0")
    imported = field(1, OTHER_PROFILE.read_bytes())
    self.daemon.call("GetStatus")
    self.denied(grpc.StatusCode.PERMISSION_DENIED,
                r"ImportProfile .* is reader \(loopback-role\)$",
                lambda: self.daemon.call("ImportProfile", imported))
    self.assertIn(b"h200x2-shm", self.local("ImportProfile", imported))

  def test_socket_has_the_mode_and_group_it_is_given(self):
    group = 54321 if os.geteuid() == 0 else os.getegid()
    self.start(f"socket-mode = 0600\nsocket-group = {group}\n")
    self.assertEqual(stat.S_IMODE(self.socket.stat().st_mode), 0o600)
    self.assertEqual(self.socket.stat().st_gid, group)
    self.local("GetStatus")

  # A new reading of the configuration.

  def metric(self):
    _, text = self.daemon.scrape()
    return re.search(r"^fabricwise_config_read_well (\S+)$", text, re.M)[1]

  def reload(self, text, event):
    self.config.write_text(text)
    self.daemon.signal(signal.SIGHUP)
    return self.daemon.wait_for(event)

  def changes(self, event):
    return {e["option"]: e["value"]
            for e in self.daemon.events if e["event"] == event}

  def test_sighup_takes_over_what_needs_no_restart(self):
    self.start("slow-threads = 1\n", "--listen", "127.0.0.1:0")
    imported = field(1, OTHER_PROFILE.read_bytes())
    self.reload("slow-threads = 2\nlog-level = debug\n"
                "loopback-role = operator\noperator-calls-per-minute = 1\n",
                "configuration read")
    self.assertEqual(self.changes("option changed"),
                     {"log-level": "debug", "loopback-role": "operator",
                      "operator-calls-per-minute": "1"})
    self.assertEqual(self.changes("option needs a restart"),
                     {"slow-threads": "2"})
    self.daemon.call("ImportProfile", imported)
    error = self.denied(grpc.StatusCode.RESOURCE_EXHAUSTED,
                        "ImportProfile: too many calls of operators; try again "
                        r"in .* \(operator-calls-per-minute\)$",
                        lambda: self.daemon.call("ImportProfile", imported))
    trailers = dict(error.trailing_metadata())
    self.assertGreater(int(trailers["grpc-retry-pushback-ms"]), 0)
    # What is taken out of the file is as it was.
    self.reload("slow-threads = 1\n", "configuration read")
    self.denied(grpc.StatusCode.PERMISSION_DENIED, "reader",
                lambda: self.daemon.call("ImportProfile", imported))
    self.assertEqual(self.metric(), "1")

  def test_sighup_with_a_mistake_changes_nothing_and_says_so(self):
    self.start("operator-calls-per-minute = 1\n")
    failed = self.reload("operator-calls-per-minute = 0\nlog-level = loud\n",
                         "configuration not read, keeping the old one")
    self.assertEqual(failed["reason"],
                     f"{self.config}:2: log-level is 'loud'; allowed: debug, "
                     "info, warning, error")
    self.assertEqual(self.metric(), "0")
    imported = field(1, OTHER_PROFILE.read_bytes())
    self.local("ImportProfile", imported)
    self.denied(grpc.StatusCode.RESOURCE_EXHAUSTED, ".",
                lambda: self.local("ImportProfile", imported))
    self.reload("operator-calls-per-minute = 0\n", "configuration read")
    self.assertEqual(self.metric(), "1")
    for _ in range(3):
      self.local("ImportProfile", imported)
    self.assertEqual(self.daemon.stop(), 0)

  # The service manager.

  def start_managed(self, *flags):
    """Under a service manager; gives a function for its next message of a kind,
    before which there is none but that all is well."""
    inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    self.addCleanup(inbox.close)
    inbox.settimeout(PATIENCE_SECONDS)
    path = self.folder / "notify"
    inbox.bind(str(path))
    self.start("", *flags,
               env={**os.environ, "NOTIFY_SOCKET": str(path),
                    "WATCHDOG_USEC": "200000"})

    def told(kind):
      while True:
        message = inbox.recv(4096).decode()
        if message.startswith(f"{kind}=1\n"):
          return message
        self.assertTrue(message.startswith("WATCHDOG=1\n"), message)

    told.inbox = inbox
    return told

  def test_service_manager_is_told(self):
    told = self.start_managed()
    self.assertEqual(told("READY"), "READY=1\nSTATUS=advising from h200x2-p2p")
    for _ in range(3):
      self.assertEqual(told("WATCHDOG"),
                       "WATCHDOG=1\nSTATUS=advising from h200x2-p2p")
    self.daemon.signal(signal.SIGHUP)
    self.assertRegex(told("RELOADING"), r"^RELOADING=1\nMONOTONIC_USEC=\d+$")
    told("READY")
    told("WATCHDOG")
    self.daemon.signal(signal.SIGTERM)
    told("STOPPING")
    self.assertEqual(self.daemon.wait(), 0)

  def test_watchdog_hears_nothing_while_calls_are_stuck(self):
    told = self.start_managed()
    told("READY")
    with contextlib.closing(sqlite3.connect(self.folder / "d.db")) as other:
      # The store waits for this lock, and the thread for long calls with it.
      other.execute("BEGIN IMMEDIATE")
      with grpc.insecure_channel(f"unix:{self.socket}") as channel:
        stuck = channel.unary_unary(f"/{PROFILER}/ImportProfile", raw,
                                    raw).future(
                                        field(1, OTHER_PROFILE.read_bytes()))
        self.until_stuck("calls")
        other.rollback()
        self.assertIn(b"h200x2-shm", stuck.result(PATIENCE_SECONDS))
    while "h200x2-shm" not in told("WATCHDOG"):
      pass

  def until_stuck(self, part):
    while self.daemon.wait_for("no sign of life")["part"] != part:
      pass

  def test_watchdog_hears_nothing_once_a_listener_is_deaf(self):
    told = self.start_managed("--listen", "127.0.0.1:0")
    told("READY")
    told("WATCHDOG")
    address = self.daemon.tcp()
    host, port = address.rsplit(":", 1)
    process = self.daemon.process.pid
    limits = resource.prlimit(process, resource.RLIMIT_NOFILE)
    resource.prlimit(process, resource.RLIMIT_NOFILE, (0, limits[1]))
    # A connection for which there is no descriptor: gRPC then listens no more.
    with socket.create_connection((host, int(port)), PATIENCE_SECONDS):
      self.until_stuck(f"connections to unix:{self.socket}")
    resource.prlimit(process, resource.RLIMIT_NOFILE, limits)
    self.until_stuck(f"connections to {address}")
    self.local("GetStatus")
    told.inbox.settimeout(0)
    with contextlib.suppress(BlockingIOError):
      while True:
        told.inbox.recv(4096)
    for _ in range(3):
      self.until_stuck(f"connections to {address}")
    with self.assertRaises(BlockingIOError):
      told.inbox.recv(4096)

  def test_watchdog_looks_at_tls_too_and_leaves_no_trace_in_the_log(self):
    told = self.start_managed(*self.tls_flags())
    told("READY")
    for _ in range(3):
      told("WATCHDOG")
    self.assertEqual(self.daemon.stop(), 0)
    self.daemon.wait_for("stopped")
    self.assertEqual([e for e in self.daemon.events
                      if e["event"] == "grpc says"], [])


if __name__ == "__main__":
  daemon_test.DAEMON, CLIENT = (str(pathlib.Path(each).resolve())
                                for each in sys.argv[1:3])
  unittest.main(argv=sys.argv[:1] + sys.argv[3:])
