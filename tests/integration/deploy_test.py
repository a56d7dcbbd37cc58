#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What deploy/ says is what the daemon takes and what its supervisors accept.

deploy_test.py PATH_OF_FABRICWISED PROJECT_VERSION [unittest arguments]
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

DAEMON, VERSION = "", ""
ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd/fabricwised.service"
# The schemas of Kubernetes' own API, from a Python package; ./dev puts it there.
SCHEMAS = ROOT / "build/kubernetes-validate"
# systemd-analyze's exposure, 0 (best) to 10; "OK" ends at 5.
MOST_EXPOSURE = 2.5


def manifests():
  return [document
          for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
          for document in yaml.safe_load_all(path.read_text())]


def manifest(kind):
  found, = [one for one in manifests() if one["kind"] == kind]
  return found


def run(*command):
  return subprocess.run(command, capture_output=True, text=True, timeout=60,
                        stdin=subprocess.DEVNULL)


class KubernetesTest(unittest.TestCase):

  def setUp(self):
    self.pod = manifest("DaemonSet")["spec"]["template"]["spec"]
    self.daemon, = self.pod["containers"]

  def test_manifests_fit_the_api_schemas(self):
    if not SCHEMAS.is_dir():
      self.skipTest(f"no {SCHEMAS}: ./dev test fetches it, given a network")
    sys.path.insert(0, str(SCHEMAS))
    import kubernetes_validate
    checked = 0
    for document in manifests():
      # Of a cluster's extensions, the schema is with the cluster.
      if document["apiVersion"].startswith("monitoring.coreos.com/"):
        continue
      kubernetes_validate.validate(document, "1.29", strict=True)
      checked += 1
    self.assertEqual(checked, 3)

  def test_the_daemon_takes_the_configuration(self):
    text = manifest("ConfigMap")["data"]["fabricwised.conf"]
    self.assertIn("/etc/fabricwise-tls/tls.crt", text)
    with tempfile.TemporaryDirectory() as folder:
      # Files for TLS are looked at when they are loaded, not here.
      config = pathlib.Path(folder, "fabricwised.conf")
      config.write_text(text)
      printed = run(DAEMON, "--config", str(config), "--print-config")
    self.assertEqual(printed.returncode, 0, printed.stderr)
    self.assertIn("listen = 0.0.0.0:7410", printed.stdout)

  def test_every_mount_has_its_volume_and_every_volume_its_use(self):
    volumes = {volume["name"] for volume in self.pod["volumes"]}
    mounts = {mount["name"]
              for container in self.pod["containers"] + self.pod["initContainers"]
              for mount in container["volumeMounts"]}
    self.assertEqual(volumes, mounts)

  def test_ports_are_those_of_the_configuration(self):
    text = manifest("ConfigMap")["data"]["fabricwised.conf"]
    ports = {port["name"]: port["containerPort"] for port in self.daemon["ports"]}
    self.assertIn(f"\nlisten = 0.0.0.0:{ports['grpc']}\n", text)
    self.assertIn(f"\nmetrics-listen = 0.0.0.0:{ports['metrics']}\n", text)
    served = {port["name"]: port["port"]
              for port in manifest("Service")["spec"]["ports"]}
    self.assertEqual(served, ports)
    scraped, = manifest("PodMonitor")["spec"]["podMetricsEndpoints"]
    self.assertEqual(scraped["port"], "metrics")

  def test_selectors_find_the_pods(self):
    labels = manifest("DaemonSet")["spec"]["template"]["metadata"]["labels"]
    self.assertEqual(manifest("DaemonSet")["spec"]["selector"]["matchLabels"],
                     labels)
    self.assertEqual(manifest("Service")["spec"]["selector"], labels)
    monitor = manifest("PodMonitor")["spec"]
    self.assertEqual(monitor["selector"]["matchLabels"], labels)
    # The job that rules and dashboards name.
    self.assertEqual(labels[monitor["jobLabel"]], "fabricwise")

  def test_images_are_of_this_version(self):
    for container in self.pod["containers"] + self.pod["initContainers"]:
      self.assertEqual(container["image"], f"fabricwise:{VERSION}")
    dockerfile = (DEPLOY / "container/Dockerfile").read_text()
    self.assertIn(f"-t fabricwise:{VERSION} .", dockerfile)

  def test_the_daemon_needs_no_rights(self):
    self.assertIs(self.pod["automountServiceAccountToken"], False)
    self.assertIs(self.pod["securityContext"]["runAsNonRoot"], True)
    security = self.daemon["securityContext"]
    self.assertEqual(security["capabilities"], {"drop": ["ALL"]})
    self.assertIs(security["readOnlyRootFilesystem"], True)
    self.assertIs(security["allowPrivilegeEscalation"], False)
    user = self.pod["securityContext"]["runAsUser"]
    self.assertRegex((DEPLOY / "container/Dockerfile").read_text(),
                     rf"useradd .*--uid {user} ")


class SystemdTest(unittest.TestCase):

  def setUp(self):
    if not shutil.which("systemd-analyze"):
      self.skipTest("no systemd-analyze on this machine")

  def test_every_line_of_the_unit_is_understood(self):
    with tempfile.TemporaryDirectory() as folder:
      # The program is looked for as well.
      unit = pathlib.Path(folder, UNIT.name)
      unit.write_text(UNIT.read_text().replace("/usr/bin/fabricwised", DAEMON))
      checked = run("systemd-analyze", "verify", "--man=no", str(unit))
    # Of this unit alone: a machine's own units may have faults.
    remarks = [line for line in checked.stderr.splitlines() if UNIT.name in line]
    self.assertEqual(remarks, [])

  def test_the_unit_exposes_little(self):
    checked = run("systemd-analyze", "security", "--offline=true", str(UNIT))
    exposure = re.search(r"exposure level for \S+: ([0-9.]+)", checked.stdout)
    self.assertIsNotNone(exposure, checked.stdout + checked.stderr)
    self.assertLessEqual(float(exposure[1]), MOST_EXPOSURE)


if __name__ == "__main__":
  DAEMON, VERSION = sys.argv[1:3]
  unittest.main(argv=sys.argv[:1] + sys.argv[3:])
