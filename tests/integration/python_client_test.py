#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A client that is not ours: Python's grpc, with stubs made from the protos and
with what reflection gives, calls every RPC of the real daemon.

python_client_test.py FABRICWISED PROTOC GRPC_PYTHON_PLUGIN [unittest arguments]
"""

import json
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
import unittest

import grpc
from google.protobuf import descriptor_pb2
from google.protobuf import descriptor_pool
from google.protobuf import json_format
from google.protobuf import message_factory

DAEMON, PROTOC, PLUGIN = sys.argv[1:4]
ROOT = pathlib.Path(__file__).resolve().parents[2]
PROFILE = ROOT / "deploy/profiles/h200x2-p2p.json"
OTHER_PROFILE = ROOT / "deploy/profiles/h200x2-shm.json"
TIMEOUT_SECONDS = 60
MIB = 1 << 20

STUBS = tempfile.TemporaryDirectory()


def make_stubs():
  """Generated Python modules for the public protos, as any user would."""
  for include, names in (
      (ROOT / "proto", ["fabricwise/v1/model.proto",
                        "fabricwise/v1/advisor.proto",
                        "fabricwise/v1/profiler.proto"]),
      (ROOT / "tests/data/proto", ["health.proto", "reflection.proto"])):
    subprocess.run(
        [PROTOC, f"-I{include}", f"--python_out={STUBS.name}",
         f"--grpc_python_out={STUBS.name}",
         f"--plugin=protoc-gen-grpc_python={PLUGIN}", *names], check=True)
  sys.path.insert(0, STUBS.name)


make_stubs()
# pylint: disable=wrong-import-position
from fabricwise.v1 import advisor_pb2
from fabricwise.v1 import advisor_pb2_grpc
from fabricwise.v1 import model_pb2
from fabricwise.v1 import profiler_pb2
from fabricwise.v1 import profiler_pb2_grpc
import health_pb2
import health_pb2_grpc
import reflection_pb2
import reflection_pb2_grpc


class Daemon:
  """A daemon on a free port, with a log line for each address."""

  def __init__(self, folder, *arguments):
    self.process = subprocess.Popen(
        [DAEMON, "--log-format", "json", "--config", folder / "d.conf",
         "--database", folder / "d.db", "--listen", "127.0.0.1:0",
         "--loopback-role", "operator",
         "--metrics-listen", "none", *map(str, arguments)],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL, text=True)
    lines = queue.Queue()
    self._reader = threading.Thread(
        target=lambda: [lines.put(line) for line in self.process.stderr])
    self._reader.start()
    self.address = None
    seen = []
    while '"started"' not in (seen[-1] if seen else ""):
      seen.append(lines.get(timeout=TIMEOUT_SECONDS))
      record = json.loads(seen[-1])
      if record["event"] == "listening":
        self.address = record["address"]

  def stop(self):
    self.process.terminate()
    code = self.process.wait(TIMEOUT_SECONDS)
    self._reader.join()
    self.process.stderr.close()
    return code


def question(**workload):
  workload.setdefault("concurrency", 8)
  return advisor_pb2.RecommendParallelismRequest(
      model=model_pb2.Model(preset="Qwen3-30B-A3B"),
      workload=model_pb2.Workload(**workload),
      limits=model_pb2.Limits(ignore_memory=True))


class PythonClientTest(unittest.TestCase):

  @classmethod
  def setUpClass(cls):
    cls.folder = tempfile.TemporaryDirectory()
    folder = pathlib.Path(cls.folder.name)
    (folder / "d.conf").write_text("")
    cls.daemon = Daemon(folder, "--profile", PROFILE)
    cls.channel = grpc.insecure_channel(cls.daemon.address)
    cls.advisor = advisor_pb2_grpc.ParallelismAdvisorStub(cls.channel)
    cls.profiler = profiler_pb2_grpc.NodeProfilerStub(cls.channel)

  @classmethod
  def tearDownClass(cls):
    cls.channel.close()
    code = cls.daemon.stop()
    cls.folder.cleanup()
    assert code == 0, code

  def refused(self, code, pattern, call):
    with self.assertRaises(grpc.RpcError) as caught:
      call()
    self.assertEqual(caught.exception.code(), code,
                     caught.exception.details())
    self.assertRegex(caught.exception.details(), pattern)

  def recommend(self, request):
    return self.advisor.RecommendParallelism(request, timeout=TIMEOUT_SECONDS)

  # Every RPC.

  def test_recommend_parallelism(self):
    answer = self.recommend(question())
    self.assertEqual(answer.plans[0].plan.gpus, 2)
    self.assertGreater(answer.plans[0].tpot_seconds, 0)
    self.assertGreater(len(answer.plans[0].terms), 3)
    self.assertEqual(answer.grounds.profile, "h200x2-p2p")
    self.assertEqual(answer.model.num_experts, 128)
    again = self.recommend(question())
    self.assertEqual(answer, again)
    as_json = json_format.MessageToDict(answer,
                                        preserving_proto_field_name=True)
    self.assertIn("mode", as_json["plans"][0]["plan"])
    self.assertIn("output_tokens_per_second", as_json["plans"][0])

  def test_sweep_concurrency(self):
    answer = self.advisor.SweepConcurrency(
        advisor_pb2.SweepConcurrencyRequest(question=question(),
                                            concurrencies=[1, 16, 256]),
        timeout=TIMEOUT_SECONDS)
    self.assertEqual([p.concurrency for p in answer.points], [1, 16, 256])
    for point in answer.points:
      self.assertTrue(point.plans, point.unanswered)

  def test_watch_recommendation_follows_an_import(self):
    stream = self.advisor.WatchRecommendation(
        advisor_pb2.WatchRecommendationRequest(question=question()),
        timeout=TIMEOUT_SECONDS)
    first = next(stream)
    self.assertEqual(first.reason, "first answer")
    try:
      self.profiler.ImportProfile(
          profiler_pb2.ImportProfileRequest(
              profile_file=OTHER_PROFILE.read_bytes()),
          timeout=TIMEOUT_SECONDS)
      second = next(stream)
      self.assertIn(second.reason, ("new grounds", "new first plan"))
      self.assertEqual(second.answer.grounds.profile, "h200x2-shm")
      self.assertNotEqual(first.answer.grounds.fingerprint,
                          second.answer.grounds.fingerprint)
    finally:
      stream.cancel()
      answer = self.profiler.ImportProfile(
          profiler_pb2.ImportProfileRequest(
              profile_file=PROFILE.read_bytes()),
          timeout=TIMEOUT_SECONDS)
    self.assertEqual(answer.profile.name, "h200x2-p2p")

  def test_list_models(self):
    answer = self.advisor.ListModels(advisor_pb2.ListModelsRequest(),
                                     timeout=TIMEOUT_SECONDS)
    self.assertEqual(len(answer.models), 34)
    for shape in answer.models:
      self.assertGreater(shape.hidden_size, 0)

  def test_get_node_profile(self):
    answer = self.profiler.GetNodeProfile(
        profiler_pb2.GetNodeProfileRequest(
            view=profiler_pb2.PROFILE_VIEW_FILE),
        timeout=TIMEOUT_SECONDS)
    self.assertEqual(answer.profile.name, "h200x2-p2p")
    self.assertEqual(len(answer.profile.fingerprint.gpus), 2)
    self.assertIn("all_reduce/n2/nccl/graph",
                  [curve.key for curve in answer.profile.curves])
    self.assertIn(b"fabricwise.profile", answer.profile.profile_file)

  def test_list_measurements_page_by_page(self):
    seen, token = [], ""
    while True:
      page = self.profiler.ListMeasurements(
          profiler_pb2.ListMeasurementsRequest(
              page_size=7, page_token=token, key_prefix="all_reduce/"),
          timeout=TIMEOUT_SECONDS)
      self.assertLessEqual(len(page.measurements), 7)
      seen += page.measurements
      token = page.next_page_token
      if not token:
        break
    self.assertGreater(len(seen), 14)
    ids = [measurement.id for measurement in seen]
    self.assertEqual(ids, sorted(set(ids), reverse=True))
    for measurement in seen:
      self.assertTrue(measurement.key.startswith("all_reduce/"))
      self.assertGreater(measurement.median_seconds, 0)
    self.refused(
        grpc.StatusCode.INVALID_ARGUMENT, "page_token",
        lambda: self.profiler.ListMeasurements(
            profiler_pb2.ListMeasurementsRequest(page_token="no such page"),
            timeout=TIMEOUT_SECONDS))

  def test_run_measurement_without_a_worker(self):
    self.refused(
        grpc.StatusCode.FAILED_PRECONDITION, "worker",
        lambda: list(self.profiler.RunMeasurement(
            profiler_pb2.RunMeasurementRequest(), timeout=TIMEOUT_SECONDS)))

  def test_diagnose_node_without_a_worker(self):
    self.refused(
        grpc.StatusCode.FAILED_PRECONDITION, "worker",
        lambda: self.profiler.DiagnoseNode(
            profiler_pb2.DiagnoseNodeRequest(), timeout=TIMEOUT_SECONDS))

  def test_import_profile_that_is_cut_off(self):
    file = PROFILE.read_bytes()
    self.refused(
        grpc.StatusCode.INVALID_ARGUMENT, "profile_file",
        lambda: self.profiler.ImportProfile(
            profiler_pb2.ImportProfileRequest(
                profile_file=file[:len(file) // 2]),
            timeout=TIMEOUT_SECONDS))

  def test_get_status(self):
    status = self.profiler.GetStatus(profiler_pb2.GetStatusRequest(),
                                     timeout=TIMEOUT_SECONDS)
    self.assertTrue(status.serving, status.reason)
    self.assertEqual(status.profile, "h200x2-p2p")
    self.assertTrue(status.version)
    self.assertGreater(status.start_time.seconds, 1_700_000_000)
    self.assertGreater(status.measurement_count, 100)

  def test_no_rpc_is_left_out(self):
    """A new RPC needs a call here."""
    called = {name for name in dir(self) if name.startswith("test_")}
    for service in (advisor_pb2.DESCRIPTOR.services_by_name.values(),
                    profiler_pb2.DESCRIPTOR.services_by_name.values()):
      for rpc in next(iter(service)).methods:
        words = "".join("_" + c.lower() if c.isupper() else c
                        for c in rpc.name)
        self.assertTrue(any(name.startswith("test" + words)
                            for name in called), rpc.name)

  # Bad input.

  def test_bad_input_is_refused_in_words(self):
    request = question()
    request.model.preset = "Kimi-K2.6"
    self.refused(grpc.StatusCode.NOT_FOUND, r"Kimi-K2\.5",
                 lambda: self.recommend(request))
    request.model.hugging_face_config = '{"hidden_size": 40'
    self.refused(grpc.StatusCode.INVALID_ARGUMENT,
                 "model.hugging_face_config: .*JSON",
                 lambda: self.recommend(request))
    for concurrency in (0, -1, 10**9, 2**63 - 1):
      self.refused(grpc.StatusCode.INVALID_ARGUMENT,
                   f"^workload.concurrency is {concurrency}; "
                   "allowed: 1 to 1000000$",
                   lambda: self.recommend(question(concurrency=concurrency)))
    request = question()
    request.limits.max_tpot_seconds = float("nan")
    self.refused(grpc.StatusCode.INVALID_ARGUMENT,
                 "limits.max_tpot_seconds is nan",
                 lambda: self.recommend(request))
    request = question()
    request.model.hugging_face_config = " " * (64 * MIB)
    self.refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "larger than max",
                 lambda: self.recommend(request))

  def test_a_deadline_is_kept(self):
    self.refused(
        grpc.StatusCode.DEADLINE_EXCEEDED, "(?i)deadline",
        lambda: self.advisor.RecommendParallelism(question(), timeout=1e-9))

  # Health and reflection.

  def test_health(self):
    health = health_pb2_grpc.HealthStub(self.channel)
    for service in ("", "fabricwise.v1.ParallelismAdvisor",
                    "fabricwise.v1.NodeProfiler"):
      answer = health.Check(health_pb2.HealthCheckRequest(service=service),
                            timeout=TIMEOUT_SECONDS)
      self.assertEqual(answer.status, health_pb2.HealthCheckResponse.SERVING)
    watch = health.Watch(health_pb2.HealthCheckRequest(),
                         timeout=TIMEOUT_SECONDS)
    self.assertEqual(next(watch).status,
                     health_pb2.HealthCheckResponse.SERVING)
    watch.cancel()
    self.refused(grpc.StatusCode.NOT_FOUND, ".*",
                 lambda: health.Check(
                     health_pb2.HealthCheckRequest(service="no.such"),
                     timeout=TIMEOUT_SECONDS))

  def reflect(self, **request):
    stub = reflection_pb2_grpc.ServerReflectionStub(self.channel)
    return next(stub.ServerReflectionInfo(
        iter([reflection_pb2.ServerReflectionRequest(**request)]),
        timeout=TIMEOUT_SECONDS))

  def test_reflection_is_enough_to_ask(self):
    """No proto at hand: descriptors, messages and the call from the server."""
    listed = {service.name for service in self.reflect(
        list_services="").list_services_response.service}
    self.assertLessEqual({"fabricwise.v1.ParallelismAdvisor",
                          "fabricwise.v1.NodeProfiler"}, listed)

    pool = descriptor_pool.DescriptorPool()
    added = set()

    def add(answer):
      for serialized in answer.file_descriptor_response.file_descriptor_proto:
        file = descriptor_pb2.FileDescriptorProto.FromString(serialized)
        if file.name in added:
          continue
        added.add(file.name)
        for dependency in file.dependency:
          add(self.reflect(file_by_filename=dependency))
        pool.Add(file)

    add(self.reflect(
        file_containing_symbol="fabricwise.v1.ParallelismAdvisor"))
    method = pool.FindServiceByName(
        "fabricwise.v1.ParallelismAdvisor").methods_by_name[
            "RecommendParallelism"]
    factory = message_factory.MessageFactory(pool)
    request_class = factory.GetPrototype(method.input_type)
    response_class = factory.GetPrototype(method.output_type)
    request = json_format.ParseDict(
        {"model": {"preset": "Llama-3.1-8B"}, "workload": {"concurrency": 4},
         "limits": {"ignore_memory": True}}, request_class())
    call = self.channel.unary_unary(
        "/fabricwise.v1.ParallelismAdvisor/RecommendParallelism",
        request_class.SerializeToString, response_class.FromString)
    answer = call(request, timeout=TIMEOUT_SECONDS)
    self.assertTrue(answer.plans[0].plan.mode)


if __name__ == "__main__":
  unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
