// SPDX-License-Identifier: Apache-2.0
//
// The flags that say what is asked, and the request that they make.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fabricwise/v1/advisor.pb.h"

namespace fabricwise {

struct QuestionFlags {
  std::string model;
  std::string config;  // path of a Hugging Face config.json
  std::optional<int64_t> input_tokens, output_tokens, context_tokens;
  std::optional<int64_t> gpus, extra_all_reduces;
  std::vector<int64_t> gpu_indices;
  std::string plan_options;
  std::optional<double> routing_skew, ttft_ms, tpot_ms, host_us;
  int phase = 0, engine = 0, objective = 0, scope = 0;  // of the proto's enums
  bool ignore_memory = false;
  std::string current_mode;
  std::optional<int64_t> max_plans;
};

// `flags` must outlive the parsing of `app`.
void AddModelFlags(CLI::App& app, std::string* model, std::string* config);
void AddQuestionFlags(CLI::App& app, QuestionFlags* flags);

// --max-plans, for answers about one concurrency.
CLI::Option* AddMaxPlans(CLI::App& app, QuestionFlags* flags);

// --concurrency: whole numbers with commas between them; the help of a command
// that compares at one alone says so by `several` false.
CLI::Option* AddConcurrency(CLI::App& app, std::vector<int64_t>* concurrency,
                            bool several);

// The request without a concurrency. INVALID_ARGUMENT or NOT_FOUND: neither or
// both of --model and --config, a config that cannot be read, a count that the
// contract has no room for.
absl::StatusOr<v1::RecommendParallelismRequest> ToRequest(
    const QuestionFlags& flags);

// An error about a field of the request with the flag that set it in front:
// "workload.concurrency is 0; ..." becomes "--concurrency: workload....".
absl::Status NameTheFlag(const absl::Status& status);

}  // namespace fabricwise
