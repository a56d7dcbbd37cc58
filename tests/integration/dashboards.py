# SPDX-License-Identifier: Apache-2.0
"""The dashboards of deploy/grafana as Grafana would read them, without it."""

import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/grafana"
PANEL_TYPES = {"row", "stat", "timeseries", "bargauge", "table",
               "state-timeline"}
# Of Grafana's unit ids, those in use.
UNITS = {"none", "s", "bytes", "Bps", "percentunit", "reqps"}
# Variables that Grafana itself defines.
BUILT_IN = {"__rate_interval"}
COLUMNS = 24
MOST_UID = 40
# Since Grafana 10.
SCHEMA_VERSION = 39


def load():
  return {path.name: json.loads(path.read_text())
          for path in sorted(FOLDER.glob("*.json"))}


def panels(dashboard):
  """All that show something: rows are only headings."""
  return [p for p in dashboard["panels"] if p["type"] != "row"]


def queries(dashboard):
  for panel in panels(dashboard):
    for target in panel["targets"]:
      yield panel, target


def metrics(expression):
  """Names of series in a query."""
  bare = re.sub(r'"[^"]*"', "", expression)
  bare = re.sub(r"\b(by|on|ignoring|group_left|group_right|without)\s*"
                r"\([^)]*\)|\[[^]]*\]", "", bare)
  bare = re.sub(r"\{[^}]*\}", "", bare)
  return {name for name in re.findall(r"[a-z_:][\w:]*(?!\s*\()\b", bare)
          if "_" in name or ":" in name} - {"histogram_quantile"}


def variables(dashboard):
  return {v["name"]: v for v in dashboard["templating"]["list"]}


def used_variables(dashboard):
  text = json.dumps(dashboard)
  return set(re.findall(r"\$\{?(\w+)", text))


def overlap(a, b):
  return (a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"] and
          a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"])


def problems(dashboard, known_metrics):
  """What Grafana would not take, or would show wrongly."""
  found = []
  if dashboard["schemaVersion"] != SCHEMA_VERSION:
    found.append(f"schemaVersion is {dashboard['schemaVersion']}")
  if not re.fullmatch(rf"[\w-]{{1,{MOST_UID}}}", dashboard["uid"]):
    found.append(f"uid is {dashboard['uid']}")
  if "id" in dashboard:
    found.append("id is one database's own")
  ids = [p["id"] for p in dashboard["panels"]]
  if len(set(ids)) != len(ids):
    found.append("two panels have one id")
  places = [p["gridPos"] for p in dashboard["panels"]]
  for i, place in enumerate(places):
    if place["x"] < 0 or place["w"] < 1 or place["x"] + place["w"] > COLUMNS:
      found.append(f"panel {ids[i]} is off the grid")
    if any(overlap(place, other) for other in places[:i]):
      found.append(f"panel {ids[i]} is on top of another")
  for panel in dashboard["panels"]:
    if panel["type"] not in PANEL_TYPES:
      found.append(f"panel type {panel['type']}")
    if not panel["title"]:
      found.append(f"panel {panel['id']} has no title")
  for panel in panels(dashboard):
    name = panel["title"]
    if panel["fieldConfig"]["defaults"]["unit"] not in UNITS:
      found.append(f"{name}: no unit of Grafana's")
    if not panel["description"]:
      found.append(f"{name}: no description")
    references = [t["refId"] for t in panel["targets"]]
    if not references or len(set(references)) != len(references):
      found.append(f"{name}: refIds {references}")
    for part in [panel, *panel["targets"]]:
      if part["datasource"] != {"type": "prometheus", "uid": "${datasource}"}:
        found.append(f"{name}: a datasource of its own")
  for panel, target in queries(dashboard):
    for metric in metrics(target["expr"]) - known_metrics:
      found.append(f"{panel['title']}: no metric {metric}")
    if "$node" not in target["expr"]:
      found.append(f"{panel['title']}: not of the chosen node")
  defined, used = set(variables(dashboard)), used_variables(dashboard)
  if used - defined - BUILT_IN:
    found.append(f"undefined variables {used - defined - BUILT_IN}")
  if defined - used:
    found.append(f"unused variables {defined - used}")
  for name in ("datasource", "node"):
    if name not in defined:
      found.append(f"no variable {name}")
  return found
