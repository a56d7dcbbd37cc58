// SPDX-License-Identifier: Apache-2.0
//
// What the handler takes for one question, without a network: eight GPUs, the
// full plan space of one engine, and of every serving engine at once.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "server/rpc/handler.h"
#include "tests/support/fake_backend.h"
#include "tests/support/synthetic_profile.h"

namespace fabricwise {
namespace {

constexpr int kGpus = 8;

struct Node {
  Node() { snapshots.Set(SampleProfile("node", kGpus)); }

  SnapshotHolder snapshots;
  FakeBackend backend;
  // Nothing is kept: each question is computed.
  Handler uncached{&snapshots, &backend, Clock::Real(), {.cache_bytes = 0}};
  Handler cached{&snapshots, &backend, Clock::Real(), {}};
};

Node& TheNode() {
  static Node* const node = new Node;
  return *node;
}

v1::RecommendParallelismRequest Question(const std::string& preset,
                                         v1::AdviceView view,
                                         v1::Engine engine = v1::ENGINE_VLLM) {
  v1::RecommendParallelismRequest request;
  request.mutable_model()->set_preset(preset);
  request.set_engine(engine);
  request.mutable_workload()->set_concurrency(64);
  request.mutable_limits()->set_ignore_memory(true);
  request.set_view(view);
  return request;
}

double Quantile(std::vector<double>& values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q *
                                    static_cast<double>(values.size() - 1))];
}

// What a question differs in from the one before.
enum class Differs { kConcurrency, kLengths };

void Ask(benchmark::State& state, const std::string& preset,
         v1::AdviceView view, v1::Engine engine = v1::ENGINE_VLLM,
         Differs differs = Differs::kLengths) {
  v1::RecommendParallelismRequest question = Question(preset, view, engine);
  Node& node = TheNode();
  std::vector<double> micros;
  size_t bytes = 0;
  int64_t asked = 0;
  for (auto _ : state) {
    ++asked;
    question.mutable_workload()->set_concurrency(1 + asked % 512);
    if (differs == Differs::kLengths) {
      question.mutable_workload()->set_output_tokens(1024 + asked);
    }
    const std::string request = question.SerializeAsString();
    const absl::Time start = absl::Now();
    const auto answer =
        node.uncached.RecommendParallelism(request, absl::InfiniteFuture());
    micros.push_back(absl::ToDoubleMicroseconds(absl::Now() - start));
    if (!answer.ok()) {
      state.SkipWithError(answer.status().ToString().c_str());
      return;
    }
    bytes = (*answer)->size();
  }
  state.counters["p50_us"] = Quantile(micros, 0.5);
  state.counters["p99_us"] = Quantile(micros, 0.99);
  state.counters["answer_bytes"] = static_cast<double>(bytes);
}

BENCHMARK_CAPTURE(Ask, moe_full, "Qwen3-30B-A3B", v1::ADVICE_VIEW_FULL);
BENCHMARK_CAPTURE(Ask, moe_full_of_other_concurrency, "Qwen3-30B-A3B",
                  v1::ADVICE_VIEW_FULL, v1::ENGINE_VLLM, Differs::kConcurrency);
BENCHMARK_CAPTURE(Ask, moe_basic, "Qwen3-30B-A3B", v1::ADVICE_VIEW_BASIC);
BENCHMARK_CAPTURE(Ask, dense_full, "Llama-3.1-8B", v1::ADVICE_VIEW_FULL);
BENCHMARK_CAPTURE(Ask, dense_basic, "Llama-3.1-8B", v1::ADVICE_VIEW_BASIC);
// However many engines there are, at most 2 ms.
BENCHMARK_CAPTURE(Ask, moe_full_of_all_engines, "Qwen3-30B-A3B",
                  v1::ADVICE_VIEW_FULL, v1::ENGINE_UNSPECIFIED);
BENCHMARK_CAPTURE(Ask, dense_full_of_all_engines, "Llama-3.1-8B",
                  v1::ADVICE_VIEW_FULL, v1::ENGINE_UNSPECIFIED);

void AskAgain(benchmark::State& state) {
  const std::string request =
      Question("Qwen3-30B-A3B", v1::ADVICE_VIEW_FULL).SerializeAsString();
  Node& node = TheNode();
  const auto first =
      node.cached.RecommendParallelism(request, absl::InfiniteFuture());
  if (!first.ok()) {
    state.SkipWithError(first.status().ToString().c_str());
    return;
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(node.cached.FindRecommendation(request));
  }
}
BENCHMARK(AskAgain);
BENCHMARK(AskAgain)->Threads(2);

void GetSnapshot(benchmark::State& state) {
  Node& node = TheNode();
  for (auto _ : state) benchmark::DoNotOptimize(node.snapshots.Get());
}
BENCHMARK(GetSnapshot);
BENCHMARK(GetSnapshot)->Threads(2);

void GetSnapshotNumber(benchmark::State& state) {
  Node& node = TheNode();
  for (auto _ : state) benchmark::DoNotOptimize(node.snapshots.number());
}
BENCHMARK(GetSnapshotNumber)->Threads(2);

void GetSnapshotAtomic(benchmark::State& state) {
  static std::atomic<std::shared_ptr<const Snapshot>> held =
      TheNode().snapshots.Get();
  for (auto _ : state) benchmark::DoNotOptimize(held.load());
}
BENCHMARK(GetSnapshotAtomic);
BENCHMARK(GetSnapshotAtomic)->Threads(2);

void SweepUncached(benchmark::State& state) {
  v1::SweepConcurrencyRequest sweep;
  *sweep.mutable_question() = Question("Qwen3-30B-A3B", v1::ADVICE_VIEW_FULL);
  const std::string request = sweep.SerializeAsString();
  Node& node = TheNode();
  for (auto _ : state) {
    const auto answer =
        node.uncached.SweepConcurrency(request, absl::InfiniteFuture());
    if (!answer.ok()) {
      state.SkipWithError(answer.status().ToString().c_str());
      return;
    }
    state.counters["answer_bytes"] = static_cast<double>((*answer)->size());
  }
}
BENCHMARK(SweepUncached);

}  // namespace
}  // namespace fabricwise
