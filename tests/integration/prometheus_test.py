#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes real daemons; rules, alerts and dashboards on it.

prometheus_test.py FABRICWISED FABRICWISE SCRIPTED_WORKER [unittest arguments]
"""

import contextlib
import copy
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

import daemon_test
import dashboards
from daemon_test import PATIENCE_SECONDS

CLIENT, WORKER = "", ""
ROOT = daemon_test.ROOT
RULES = ROOT / "deploy/prometheus"
RECORDED = ROOT / "deploy/profiles/h200x2-p2p-worker.json"
SEED = ROOT / "deploy/profiles/seed-8x-rtx-pro-6000.json"
NEEDED = ("prometheus", "promtool")
MISSING = [name for name in NEEDED if not shutil.which(name)]

# What the runs replay, and what becomes of it: all-reduces a hundred times as slow
# make tensor parallelism the wrong choice.
STEADY = f"probe replay={RECORDED} done"
SLOWED = f"probe slow=all_reduce/:100 replay={RECORDED} done"
BASELINE_RUNS = 3
SCENARIO = ("chat: model=Qwen3-8B concurrency=1 objective=latency "
            "engine=vllm")


def free_port():
  with socket.create_server(("127.0.0.1", 0)) as taken:
    return taken.getsockname()[1]


def promtool(*arguments, **how):
  return subprocess.run(["promtool", *map(str, arguments)], text=True,
                        capture_output=True, check=False,
                        timeout=PATIENCE_SECONDS, **how)


def rule_names(kind):
  return re.findall(rf"^ *- {kind}: (\S+)$",
                    (RULES / "fabricwise.rules.yml").read_text(), re.M)


def known_metrics():
  documented = re.findall(r"^\| `(\w+)` \| (\w+)",
                          (ROOT / "docs/metrics.md").read_text(), re.M)
  names = {name for name, _ in documented} | set(rule_names("record"))
  for name, kind in documented:
    if kind == "histogram":
      names |= {name + "_bucket", name + "_sum", name + "_count"}
  return names


class RulesTest(unittest.TestCase):
  """What is in the files, without a server."""

  @unittest.skipIf(MISSING, f"not installed: {MISSING}")
  def test_promtool_takes_configuration_and_rules_and_their_tests_pass(self):
    for arguments in (("check", "config", "prometheus.yml"),
                      ("check", "rules", "fabricwise.rules.yml"),
                      ("test", "rules", "fabricwise.rules.test.yml")):
      result = promtool(*arguments, cwd=RULES)
      self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

  def test_every_alert_is_tested_and_documented(self):
    alerts = rule_names("alert")
    self.assertGreater(len(alerts), 10)
    tests = (RULES / "fabricwise.rules.test.yml").read_text()
    documented = re.findall(r"^\| `(\w+)` \|",
                            (ROOT / "docs/alerts.md").read_text(), re.M)
    self.assertEqual(documented, alerts)
    for alert in alerts:
      self.assertRegex(tests, rf"alertname: {alert}\n +eval_time: \w+\n"
                              " +exp_alerts:")

  def test_rules_use_metrics_that_there_are(self):
    text = (RULES / "fabricwise.rules.yml").read_text()
    names = set(re.findall(r"\b(?:fabricwise|process)[_:][\w:]+", text))
    self.assertEqual(names - known_metrics(), set())

  def test_dashboards_are_as_grafana_reads_them(self):
    loaded = dashboards.load()
    self.assertEqual(set(loaded), {"fleet.json", "node.json", "advice.json"})
    self.assertEqual(len({d["uid"] for d in loaded.values()}), len(loaded))
    for name, dashboard in loaded.items():
      self.assertEqual(dashboards.problems(dashboard, known_metrics()), [],
                       name)

  def test_a_bad_dashboard_is_noticed(self):
    good = dashboards.load()["node.json"]
    panel = len(good["panels"]) - 1
    for change, message in (
        (lambda d: d["panels"][panel].update(id=1), "one id"),
        (lambda d: d["panels"][panel]["gridPos"].update(x=20), "off the grid"),
        (lambda d: d["panels"][panel].update(
            gridPos=d["panels"][panel - 1]["gridPos"]), "on top of another"),
        (lambda d: d["panels"][panel]["fieldConfig"]["defaults"].update(
            unit="furlongs"), "no unit"),
        (lambda d: d["panels"][panel]["targets"][0].update(
            expr='fabricwise_no_such_metric{instance="$node"}'),
         "no metric fabricwise_no_such_metric"),
        (lambda d: d["panels"][panel]["targets"][0].update(
            expr='fabricwise_drifted{instance="$nod"}'), "undefined"),
        (lambda d: d["templating"]["list"].pop(), "undefined"),
        (lambda d: d["panels"][panel].update(type="graph"), "panel type"),
    ):
      bad = copy.deepcopy(good)
      change(bad)
      self.assertIn(message,
                    "; ".join(dashboards.problems(bad, known_metrics())))


class Prometheus:
  """A server that scrapes once a second."""

  def __init__(self, folder, targets):
    config = (RULES / "prometheus.yml").read_text()
    for old, new in (("15s", "1s"), ("- fabricwise.rules.yml",
                                     f"- {RULES}/fabricwise.rules.yml"),
                     ('["127.0.0.1:7411"]', json.dumps(targets))):
      assert old in config, old
      config = config.replace(old, new)
    path = folder / "prometheus.yml"
    path.write_text(config)
    self.url = f"http://127.0.0.1:{free_port()}"
    self.process = subprocess.Popen(
        ["prometheus", f"--config.file={path}", "--log.level=warn",
         f"--storage.tsdb.path={folder}/tsdb",
         f"--web.listen-address={self.url.removeprefix('http://')}"],
        stdin=subprocess.DEVNULL)

  def query(self, expression):
    """The series of an instant query: [(labels, value)]."""
    url = f"{self.url}/api/v1/query?" + urllib.parse.urlencode(
        {"query": expression})
    try:
      with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
        result = json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:
      raise AssertionError(f"{expression}: {error.read().decode()}") from error
    return [(s["metric"], float(s["value"][1])) for s in result]

  def wait_for(self, expression):
    """The same, once there are any."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
      with contextlib.suppress(urllib.error.URLError, ConnectionError):
        if series := self.query(expression):
          return series
      time.sleep(0.2)
    raise AssertionError(f"no {expression} within {PATIENCE_SECONDS} s")

  def stop(self):
    self.process.terminate()
    self.process.wait(PATIENCE_SECONDS)


@unittest.skipIf(MISSING, f"not installed: {MISSING}")
class PrometheusTest(unittest.TestCase):
  """A node whose fabric gets slow, beside a recorded one."""

  def start(self, name, *flags):
    port = self.ports.setdefault(name, free_port())
    daemon = daemon_test.Daemon(
        "--config", self.config, "--database", self.folder / f"{name}.db",
        "--listen", "127.0.0.1:0", "--metrics-listen", f"127.0.0.1:{port}",
        "--loopback-role", "operator", "--scenario", SCENARIO, *flags,
        env={**os.environ, "SCRIPTED_WORKER": str(self.script)}).started()
    self.addCleanup(daemon.process.stderr.close)
    self.addCleanup(daemon._reader.join)
    self.addCleanup(daemon.kill)
    return daemon

  def start_node(self):
    return self.start("node", "--worker", WORKER, "--reference-profile",
                      RECORDED)

  def client(self, daemon, *arguments):
    result = subprocess.run(
        [CLIENT, *arguments, "--target", daemon.tcp()], text=True,
        capture_output=True, check=False, timeout=PATIENCE_SECONDS,
        stdin=subprocess.DEVNULL)
    self.assertEqual(result.returncode, 0, result.stderr)

  def setUp(self):
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = pathlib.Path(folder.name)
    self.config = self.folder / "d.conf"
    self.config.write_text("")
    self.script = self.folder / "script"
    self.script.write_text(STEADY)
    self.ports = {}

  def test_a_slowed_curve_alarms_flips_advice_and_shows_in_every_panel(self):
    seed = self.start("seed", "--worker", "none", "--profile", SEED)
    node = self.start_node()
    # A new node measures itself, quickly and fully.
    self.assertEqual(node.wait_for("run ended")["kind"], "quick")
    self.assertEqual(node.wait_for("run ended")["kind"], "full")
    for _ in range(BASELINE_RUNS - 1):
      self.client(node, "measure")

    # What a restart takes along.
    self.assertEqual(node.stop(), 0)
    node = self.start_node()
    server = Prometheus(self.folder, [f"127.0.0.1:{port}"
                                      for port in self.ports.values()])
    self.addCleanup(server.stop)
    me = f'instance="127.0.0.1:{self.ports["node"]}"'
    server.wait_for(f"fabricwise_drift_ratio{{{me}}}")
    self.assertEqual(
        {value for _, value in server.query("fabricwise_drift_ratio")}, {1})
    self.assertEqual(server.query("fabricwise_drifted == 1"), [])
    [(before, _)] = server.wait_for(f"fabricwise_scenario_mode_info{{{me}}}")
    self.assertEqual(server.query('ALERTS{alertstate="firing"}'), [])
    result = promtool("check", "metrics", input=node.scrape()[1])
    self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    # The fabric gets slow.
    self.script.write_text(SLOWED)
    self.client(node, "measure")
    for _ in range(2):
      for daemon, model in ((node, "Qwen3-8B"), (seed, "Kimi-K2.5")):
        subprocess.run([CLIENT, "recommend", "--model", model, "--concurrency",
                        "8", "--target", daemon.tcp()], check=False,
                       capture_output=True, timeout=PATIENCE_SECONDS)
    drift = {labels["subject"] for labels, _ in server.wait_for(
        f'ALERTS{{alertname="FabricwiseDrift", alertstate="firing", {me}}}')}
    self.assertIn("all_reduce/n2/nccl/graph", drift)
    self.assertTrue(all(s.startswith("all_reduce/") for s in drift), drift)
    server.wait_for('ALERTS{alertname="FabricwiseAdviceFlipped", '
                    f'alertstate="firing", scenario="chat", {me}}}')
    server.wait_for(f'fabricwise_scenario_mode_info{{{me}, '
                    f'mode!="{before["mode"]}"}}')
    # It looks again, to see whether that lasts.
    while "differs from those before" not in node.wait_for("run begins")["why"]:
      pass
    self.check_panels(server)

    # The node loses a link: another node, without a baseline yet.
    self.script.write_text(STEADY.replace("probe", "down"))
    self.client(node, "measure")
    server.wait_for('ALERTS{alertname="FabricwiseFingerprintChanged", '
                    f'alertstate="firing", {me}}}')
    server.wait_for(f"absent(fabricwise_drift_ratio{{{me}}})")
    server.wait_for(f'fabricwise_scenario_mode_info{{{me}, '
                    f'mode="{before["mode"]}"}}')

  def check_panels(self, server):
    targets = [f"127.0.0.1:{port}" for port in self.ports.values()]
    choices = {"node": targets, "curve": ["all_reduce/n2/nccl/graph"],
               "size": ["65536"], "scenario": [".*"],
               "__rate_interval": ["1m"]}
    empty = []
    for name, dashboard in dashboards.load().items():
      for panel, target in dashboards.queries(dashboard):
        where = f"{name}: {panel['title']}"
        series = []
        deadline = time.monotonic() + 10
        while not series and time.monotonic() < deadline:
          for node in choices["node"]:
            expression = target["expr"].replace("$node", node)
            for variable, values in choices.items():
              expression = expression.replace("$" + variable, values[0])
            series += server.query(expression)
        if not series:
          empty.append(where)
          continue
        labels = set().union(*(metric for metric, _ in series))
        self.assertLessEqual(
            set(re.findall(r"{{(\w+)}}", target["legendFormat"])), labels,
            where)
        for variable in dashboards.variables(dashboard).values():
          if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)",
                                         variable["definition"]).groups()
            found = server.query(metric.replace("$node", choices["node"][1]))
            self.assertTrue(any(label in m for m, _ in found), variable)
    self.assertEqual(empty, [])


if __name__ == "__main__":
  CLIENT, WORKER = (str(pathlib.Path(p).resolve()) for p in sys.argv[2:4])
  unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
