#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The walls between modules, and the tree's hygiene.

Reads every source and CMakeLists.txt and fails on an include or a link that the
tables below do not allow. Each rule is also tried on a planted violation, so
that a wall that has fallen silent is noticed.
"""

import pathlib
import re
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent

PURE_BASE = {"base", "domain", "profile"}
CORE = PURE_BASE | {"engines", "model", "recommend"}
# Module -> the modules of ours that it may include, besides itself.
MODULES = {
    "base": set(),
    "domain": {"base"},
    "profile": {"base", "domain"},
    "engines": PURE_BASE,
    "model": PURE_BASE,
    "recommend": CORE,
    "measure": {"base", "domain", "worker proto"},
    "store": {"base", "domain"},
    "rpc": CORE | {"public proto"},
    "metrics": PURE_BASE,
    "daemon": CORE | {"measure", "store", "rpc", "metrics", "public proto",
                      "worker proto"},
    "client": CORE | {"public proto"},
    "kernels": {"base", "domain", "worker proto"},
    "public proto": set(),
    "worker proto": set(),
}
# Files of a module that others may include all the same: the conversion of an
# answer to its public form serves the daemon and the client's in-process mode.
OPEN_FILES = {("client", "server/rpc/answer.h"),
              ("client", "server/rpc/convert.h")}
OPEN_TARGETS = {("client", "fabricwise_convert")}

# Outside library -> (header, CMake target, modules that may use it).
LIBRARIES = {
    "Abseil": (r"absl/", r"absl::", set(MODULES)),
    "JSON": (r"nlohmann/", r"nlohmann_json::", {"profile"}),
    "SQLite": (r"sqlite3\.h", r"SQLite", {"store"}),
    "Protobuf": (r"google/protobuf/", r"protobuf::",
                 {"measure", "rpc", "daemon", "client", "kernels",
                  "public proto", "worker proto"}),
    "gRPC": (r"grpc(pp|\+\+)?/|.*\.grpc\.pb\.h", r"gRPC::|fabricwise_v1_grpc",
             {"rpc", "daemon", "client", "public proto"}),
    "OpenSSL": (r"openssl/", r"OpenSSL::", {"rpc"}),
    "prometheus-cpp": (r"prometheus/", r"prometheus-cpp::",
                       {"metrics", "daemon"}),
    "CLI11": (r"CLI/", r"CLI11::", {"daemon", "client"}),
    "spdlog": (r"spdlog/", r"spdlog::", {"daemon"}),
    "CUDA, NCCL, NVML": (r"cu(da|blas|pti|rand|sparse)\w*\.h|cuda/|nccl\.h"
                         r"|nvml\.h|nvtx3?/|cub/|thrust/|cooperative_groups",
                         r"CUDA::|nccl|nvml", {"kernels"}),
    "GoogleTest, Benchmark": (r"(gtest|gmock|benchmark)/",
                              r"GTest::|benchmark::", set()),
}
POSIX = r"(sys|linux|netinet|arpa|net)/"

# Values in, values out: what decides must be replayable from a file.
PURE = {"profile", "engines", "model", "recommend"}
IMPURE = (r"(thread|jthread|future|fstream|filesystem|iostream|chrono)$|"
          r"(unistd|fcntl|signal|pthread|dirent)\.h|" + POSIX +
          r"|absl/time/clock\.h|server/base/clock\.h|server/base/log\.h")

# An empty file that includes grpcpp.h costs seconds: few files pay that.
MOST_GRPC_FILES = 8

CODE = {".h", ".cc", ".cu", ".cuh"}
WITH_SPDX = CODE | {".py", ".sh", ".cmake", ".proto", ".yml", ".yaml"}
TEXT = WITH_SPDX | {".txt", ".md", ".json", ".service", ".toml", ""}
MACHINE_PATH = re.compile(r"(?<![\w.$}/-])/(work|root|home/\w+)/")


def files(root):
  """Every file of the tree but what is built or belongs to tools."""
  for path in sorted(root.iterdir()):
    if path.name in (".git", ".cache", "build", "__pycache__"):
      continue
    if path.is_dir():
      yield from files(path)
    else:
      yield path


def module_of(name):
  """The module of a path or of an included header; None if not ours."""
  parts = name.split("/")
  if parts[0] == "server" and len(parts) > 2:
    return parts[1]
  if parts[0] in ("client", "kernels", "tests") and len(parts) > 1:
    return parts[0]
  if parts[0] == "proto" or name.startswith("fabricwise/"):
    return "worker proto" if "worker/" in name else "public proto"
  return None


def check_include(name, module, header):
  """What is wrong with `header` in file `name` of `module`, or None."""
  other = module_of(header)
  if other and other not in MODULES and other != "tests":
    return f"no module {other}"
  if module in PURE and re.match(IMPURE, header):
    return f"{module} is pure: no clock, thread, file or log"
  for library, (pattern, _, users) in LIBRARIES.items():
    if re.match(pattern, header):
      if module == "tests":
        if library.startswith("CUDA") and not name.startswith("tests/gpu/"):
          return f"{library} only in tests/gpu"
      elif module not in users:
        return f"{module} may not use {library}"
      elif library == "gRPC" and not name.endswith(".cc"):
        return "gRPC only in a .cc"
      elif library == "gRPC" and name.startswith("server/rpc/handler"):
        return "handlers know no transport"
      if other is None:
        return None
      break
  else:
    if other is None and "/" in header and not re.match(POSIX, header):
      return "an outside library that no rule names"
  if module == "tests" or other in (None, module):
    return None
  if other in MODULES[module] or (module, header) in OPEN_FILES:
    return None
  return f"{module} may not include {other}"


def check_includes(root):
  problems, grpc_files = [], []
  for path in files(root):
    name = path.relative_to(root).as_posix()
    module = module_of(name)
    if path.suffix not in CODE or module is None:
      continue
    if module not in MODULES and module != "tests":
      problems.append(f"{name}: no module {module}; add it to the tables")
      continue
    text = path.read_text(encoding="utf-8")
    headers = re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', text, re.M)
    for header in headers:
      problem = check_include(name, module, header)
      if problem is None and (path.parent / header).is_file():
        problem = "include from the root of the tree"
      if problem:
        problems.append(f"{name}: {header}: {problem}")
    if module != "tests" and any(
        re.match(LIBRARIES["gRPC"][0], header) for header in headers):
      grpc_files.append(name)
  if len(grpc_files) > MOST_GRPC_FILES:
    problems.append(f"gRPC in {len(grpc_files)} files, at most "
                    f"{MOST_GRPC_FILES}: {', '.join(grpc_files)}")
  return problems


CMAKE_CALL = re.compile(
    r"^\s*(fabricwise_library|fabricwise_program|generated_library"
    r"|target_link_libraries)\(\s*(\w+)([^)]*)\)", re.M)


def cmake_calls(root):
  """(file name, module, command, target, named targets), a call each."""
  for path in files(root):
    name = path.relative_to(root).as_posix()
    module = module_of(name)
    if path.name != "CMakeLists.txt" or module not in MODULES:
      continue
    text = re.sub(r"#.*", "", path.read_text(encoding="utf-8"))
    for command, target, rest in CMAKE_CALL.findall(text):
      depends = rest if command == "target_link_libraries" else (
          rest.partition("DEPENDS")[2])
      if module == "public proto" and "worker" in target:
        module_here = "worker proto"
      else:
        module_here = module
      yield name, module_here, command, target, depends.split()


def check_links(root):
  calls = list(cmake_calls(root))
  owner = {target: module for _, module, command, target, _ in calls
           if command != "target_link_libraries"}
  problems = []
  for name, module, _, target, depends in calls:
    for depend in depends:
      where = f"{name}: {target} links {depend}"
      for library, (_, pattern, users) in LIBRARIES.items():
        if re.match(pattern, depend) and module not in users:
          problems.append(f"{where}: {module} may not use {library}")
      other = owner.get(depend, module)
      if other != module and other not in MODULES[module] and (
          (module, depend) not in OPEN_TARGETS):
        problems.append(f"{where}: {module} may not link {other}")
  return problems


def check_hygiene(root):
  problems = []
  for path in files(root):
    name = path.relative_to(root).as_posix()
    if path.suffix not in TEXT or path.name == "LICENSE" or (
        name.startswith("tests/data/")):
      continue
    text = path.read_text(encoding="utf-8")
    script = path.suffix == "" and text.startswith("#!")
    if path.suffix in WITH_SPDX or script or path.name == "CMakeLists.txt":
      if "SPDX-License-Identifier: Apache-2.0" not in text[:200]:
        problems.append(f"{name}: no SPDX line at its head")
    if path.suffix in (".h", ".cuh") and "#pragma once" not in text:
      problems.append(f"{name}: no #pragma once")
    for found in MACHINE_PATH.finditer(text):
      line = text.count("\n", 0, found.start()) + 1
      problems.append(f"{name}:{line}: a path of one machine: {found[0]}")
  return problems


def check_fuzz(root):
  """Every fuzz target is built and replayed, none forgotten."""
  folder = root / "tests" / "fuzz"
  built = folder / "CMakeLists.txt"
  listed = set(re.findall(r"fabricwise_fuzz\(\s*(\w+)",
                          built.read_text(encoding="utf-8"))
               if built.exists() else [])
  there = {path.name[:-len("_fuzz.cc")] for path in folder.glob("*_fuzz.cc")}
  return [f"tests/fuzz/{name}_fuzz.cc: not in tests/fuzz/CMakeLists.txt"
          for name in sorted(there - listed)]


CHECKS = (check_includes, check_links, check_hygiene, check_fuzz)
HEAD = "// SPDX-License-Identifier: Apache-2.0\n"
CMAKE = "# SPDX-License-Identifier: Apache-2.0\n"


def planted(name, content):
  """What the checks say of a tree that holds only this file."""
  with tempfile.TemporaryDirectory() as folder:
    root = pathlib.Path(folder)
    # A library of a module above, for link rules to point at.
    for path, text in {
        "server/daemon/CMakeLists.txt":
            CMAKE + "fabricwise_library(fabricwise_daemon SOURCES a.cc)",
        name: content,
    }.items():
      (root / path).parent.mkdir(parents=True, exist_ok=True)
      (root / path).write_text(text, encoding="utf-8")
    return [problem for check in CHECKS for problem in check(root)]


class Tree(unittest.TestCase):
  """The tree as it is."""

  def test_is_not_empty(self):
    self.assertGreater(len(list(files(ROOT))), 20)

  def test_includes_follow_the_table(self):
    self.assertEqual(check_includes(ROOT), [])

  def test_links_follow_the_table(self):
    self.assertEqual(check_links(ROOT), [])

  def test_files_are_clean(self):
    self.assertEqual(check_hygiene(ROOT), [])

  def test_fuzz_targets_are_built(self):
    self.assertEqual(check_fuzz(ROOT), [])


class Planted(unittest.TestCase):
  """Violations that must be found, and look-alikes that must not."""

  def assert_found(self, name, content, word):
    problems = planted(name, content)
    self.assertEqual(len(problems), 1, problems)
    self.assertIn(word, problems[0])

  def include(self, name, header):
    return name, f"{HEAD}#include <{header}>\n"

  def test_include_upwards(self):
    self.assert_found(*self.include("server/base/a.cc", "server/domain/plan.h"),
                      "base may not include domain")
    self.assert_found(*self.include("server/store/a.cc", "server/rpc/a.h"),
                      "store may not include rpc")
    self.assert_found(*self.include("client/a.cc", "server/daemon/config.h"),
                      "client may not include daemon")

  def test_proto_in_the_pure_middle(self):
    self.assert_found(
        *self.include("server/model/a.cc", "fabricwise/v1/model.pb.h"),
        "model may not include public proto")

  def test_private_proto_in_the_client(self):
    self.assert_found(
        *self.include("client/a.cc", "fabricwise/worker/v1/worker.pb.h"),
        "client may not include worker proto")

  def test_outside_library_in_the_wrong_module(self):
    for name, header in (("server/rpc/a.cc", "nlohmann/json.hpp"),
                         ("server/daemon/a.cc", "sqlite3.h"),
                         ("server/daemon/a.cc", "cuda_runtime.h"),
                         ("server/daemon/a.cc", "nccl.h"),
                         ("server/daemon/a.cc", "nvml.h"),
                         ("server/rpc/a.cc", "prometheus/counter.h"),
                         ("kernels/a.cc", "grpcpp/grpcpp.h"),
                         ("server/domain/a.cc", "gtest/gtest.h")):
      with self.subTest(header=header):
        self.assert_found(*self.include(name, header), "may not use")

  def test_cuda_in_a_test_without_a_gpu(self):
    self.assert_found(*self.include("tests/unit/a.cc", "nccl.h"),
                      "only in tests/gpu")

  def test_grpc_in_a_header_or_handler(self):
    self.assert_found("server/rpc/service.h",
                      HEAD + "#pragma once\n#include <grpcpp/grpcpp.h>\n",
                      "only in a .cc")
    self.assert_found(*self.include("server/rpc/handler.cc",
                                    "fabricwise/v1/advisor.grpc.pb.h"),
                      "no transport")

  def test_clock_thread_or_file_in_the_pure_middle(self):
    for header in ("thread", "fstream", "absl/time/clock.h", "sys/stat.h"):
      with self.subTest(header=header):
        self.assert_found(*self.include("server/engines/a.cc", header), "pure")

  def test_unknown_library_or_module(self):
    self.assert_found(*self.include("server/base/a.cc", "boost/any.hpp"),
                      "no rule names")
    self.assert_found(*self.include("server/new/a.cc", "vector"), "no module")

  def test_link_upwards(self):
    self.assert_found(
        "server/base/CMakeLists.txt",
        CMAKE + "fabricwise_library(b SOURCES b.cc DEPENDS fabricwise_daemon)",
        "base may not link daemon")

  def test_link_of_a_library_in_the_wrong_module(self):
    self.assert_found(
        "server/daemon/x/CMakeLists.txt",
        CMAKE + "target_link_libraries(fabricwise_daemon PRIVATE CUDA::cudart)",
        "may not use CUDA")

  def test_hygiene(self):
    self.assert_found("server/base/a.cc", "int a;\n", "no SPDX")
    self.assert_found("server/base/a.h", HEAD, "#pragma once")
    self.assert_found("docs/a.md", "see /" + "root/notes\n", "one machine")

  def test_forgotten_fuzz_target(self):
    self.assert_found("tests/fuzz/mode_fuzz.cc", HEAD, "not in tests/fuzz")

  def test_what_is_allowed_passes(self):
    for name, header in (("server/profile/a.cc", "nlohmann/json.hpp"),
                         ("server/profile/a.cc", "server/domain/plan.h"),
                         ("server/rpc/service.cc", "grpcpp/grpcpp.h"),
                         ("server/measure/a.cc", "sys/socket.h"),
                         ("client/a.cc", "server/rpc/convert.h"),
                         ("kernels/a.cu", "cuda_runtime.h"),
                         ("tests/unit/a.cc", "gmock/gmock.h")):
      with self.subTest(header=header):
        self.assertEqual(planted(*self.include(name, header)), [])


if __name__ == "__main__":
  unittest.main()
