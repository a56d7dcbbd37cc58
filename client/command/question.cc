// SPDX-License-Identifier: Apache-2.0
#include "client/command/question.h"

#include <filesystem>
#include <limits>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/command/command.h"
#include "client/file.h"
#include "client/model.h"
#include "server/base/status_macros.h"
#include "server/domain/workload.h"

namespace fabricwise {
namespace {

constexpr double kMillisecond = 1e-3;
constexpr double kMicrosecond = 1e-6;

constexpr char kQuestionGroup[] = "Question";
constexpr char kPreferenceGroup[] = "Preferences";

struct FieldFlag {
  absl::string_view field;
  absl::string_view flag;
};

// Longest field first where one begins another.
constexpr FieldFlag kFieldFlags[] = {
    {"workload.concurrency", "--concurrency"},
    {"concurrencies", "--concurrency"},
    {"workload.input_tokens", "--input-tokens"},
    {"workload.output_tokens", "--output-tokens"},
    {"workload.context_tokens", "--context-tokens"},
    {"workload.routing_skew", "--routing-skew"},
    {"workload.extra_all_reduces", "--extra-all-reduces"},
    {"workload.phase", "--phase"},
    {"limits.max_ttft_seconds", "--ttft-ms"},
    {"limits.max_tpot_seconds", "--tpot-ms"},
    {"limits", "--ttft-ms or --tpot-ms"},
    {"host_seconds_per_step", "--host-us"},
    {"current_plan", "--current-mode"},
    {"gpus.count", "--gpus"},
    {"gpus.indices", "--gpu-indices"},
    {"plan_options", "--plan-options"},
    {"objective", "--objective"},
    {"engine", "--engine"},
    {"cost_scope", "--scope"},
    {"model.hugging_face_config", "--config"},
    {"model.preset", "--model"},
};

// Whole numbers with commas between them; anything else is refused by name.
CLI::Option* AddNumbers(CLI::App& app, const std::string& name,
                        std::vector<int64_t>* numbers,
                        const std::string& allowed,
                        const std::string& description) {
  return app.add_option_function<std::string>(
      name,
      [=](const std::string& text) {
        numbers->clear();
        for (absl::string_view part : absl::StrSplit(text, ',')) {
          int64_t value = 0;
          if (!absl::SimpleAtoi(part, &value)) {
            throw CLI::ValidationError(
                name, absl::StrCat("\"", part,
                                   "\" is no whole number; allowed: ", allowed,
                                   ", with commas between them"));
          }
          numbers->push_back(value);
        }
      },
      description);
}

}  // namespace

void AddModelFlags(CLI::App& app, std::string* model, std::string* config) {
  CLI::Option* preset =
      app.add_option("--model", *model,
                     "Model by name or repository on Hugging Face; `fabricwise "
                     "models list` has them all")
          ->type_name("NAME")
          ->group(kQuestionGroup);
  app.add_option("--config", *config, "Model by its Hugging Face config.json")
      ->type_name("FILE")
      ->excludes(preset)
      ->group(kQuestionGroup);
}

void AddQuestionFlags(CLI::App& app, QuestionFlags* flags) {
  AddModelFlags(app, &flags->model, &flags->config);
  AddChoice(app, "--phase", &flags->phase,
            {{"steady", v1::PHASE_STEADY_STATE},
             {"decode", v1::PHASE_DECODE},
             {"prefill", v1::PHASE_PREFILL}},
            "Part of serving that counts (default steady: decode steps that "
            "carry their share of prompts)")
      ->group(kQuestionGroup);
  AddNumber(app, "--input-tokens", &flags->input_tokens,
            "Tokens of a prompt (default 1024)")
      ->group(kQuestionGroup);
  AddNumber(app, "--output-tokens", &flags->output_tokens,
            "Tokens generated (default 1024)")
      ->group(kQuestionGroup);
  AddNumber(app, "--context-tokens", &flags->context_tokens,
            "KV length of every sequence in --phase decode (default: input + "
            "half of output)")
      ->group(kQuestionGroup);
  AddNumber(app, "--gpus", &flags->gpus,
            "Use exactly this many GPUs (default: any number of the node's)")
      ->group(kQuestionGroup);
  AddNumbers(app, "--gpu-indices", &flags->gpu_indices,
             "indices of GPUs as nvidia-smi shows them",
             "Use these GPUs alone, as nvidia-smi counts them: 0,1,2,3 "
             "(default: all of the node's)")
      ->type_name("I[,I...]")
      ->group(kQuestionGroup);
  AddNumber(app, "--routing-skew", &flags->routing_skew,
            "Power-law exponent of expert popularity, 0 to 2 (default 0)")
      ->group(kQuestionGroup);
  AddNumber(app, "--extra-all-reduces", &flags->extra_all_reduces,
            "All-reduces a step beyond the model's own, as seen in a trace")
      ->group(kQuestionGroup);
  AddNumber(app, "--host-us", &flags->host_us,
            "Host time between two steps (default: the engine's constant)")
      ->group(kQuestionGroup);
  AddChoice(app, "--scope", &flags->scope,
            {{"step", v1::COST_SCOPE_STEP},
             {"communication", v1::COST_SCOPE_COMMUNICATION}},
            "What counts (default step; communication: collectives alone)")
      ->group(kQuestionGroup);

  AddChoice(app, "--engine", &flags->engine,
            {{"any", v1::ENGINE_UNSPECIFIED},
             {"vllm", v1::ENGINE_VLLM},
             {"sglang", v1::ENGINE_SGLANG},
             {"trtllm", v1::ENGINE_TRTLLM},
             {"reference", v1::ENGINE_REFERENCE}},
            "Whose rules hold (default any)")
      ->group(kPreferenceGroup);
  AddChoice(app, "--objective", &flags->objective,
            {{"throughput", v1::OBJECTIVE_THROUGHPUT},
             {"latency", v1::OBJECTIVE_LATENCY},
             {"slo", v1::OBJECTIVE_THROUGHPUT_IN_LIMITS}},
            "What is best (default throughput; slo: throughput within "
            "--ttft-ms and --tpot-ms)")
      ->group(kPreferenceGroup);
  AddNumber(app, "--ttft-ms", &flags->ttft_ms,
            "Longest time to the first token")
      ->group(kPreferenceGroup);
  AddNumber(app, "--tpot-ms", &flags->tpot_ms, "Longest time per output token")
      ->group(kPreferenceGroup);
  app.add_flag("--ignore-memory", flags->ignore_memory,
               "Rank as if GPU memory were free, and mark what does not fit")
      ->group(kPreferenceGroup);
  app.add_option("--plan-options", flags->plan_options,
                 "Look at plans with these too: tbo (two half batches that "
                 "overlap), fp8d (tokens sent in 8 bits)")
      ->type_name("tbo,fp8d")
      ->group(kPreferenceGroup);
  app.add_option("--current-mode", flags->current_mode,
                 "What runs now (\"TP8\"): left only for a clear gain")
      ->type_name("MODE")
      ->group(kPreferenceGroup);
}

CLI::Option* AddMaxPlans(CLI::App& app, QuestionFlags* flags) {
  return AddNumber(app, "--max-plans", &flags->max_plans,
                   "Show at most this many plans, 1 to 1000 (default 8); all "
                   "are ranked")
      ->group(kPreferenceGroup);
}

CLI::Option* AddConcurrency(CLI::App& app, std::vector<int64_t>* concurrency,
                            bool several) {
  return AddNumbers(app, "--concurrency", concurrency,
                    "numbers from 1 to 1000000",
                    several ? "Sequences in flight on the node; several: 1,8,64"
                            : "Sequences in flight on the node")
      ->type_name(several ? "N[,N...]" : "N")
      ->group(kQuestionGroup);
}

absl::StatusOr<v1::RecommendParallelismRequest> ToRequest(
    const QuestionFlags& flags) {
  v1::RecommendParallelismRequest request;
  if (flags.model.empty() == flags.config.empty()) {
    return absl::InvalidArgumentError(
        "--model or --config is required, to say which model is meant");
  }
  if (!flags.model.empty()) {
    request.mutable_model()->set_preset(flags.model);
  } else {
    ASSIGN_OR_RETURN(std::string config,
                     ReadFile(flags.config, kMostConfigBytes));
    std::error_code error;
    request.mutable_model()->set_hugging_face_config(std::move(config));
    // A folder that holds a config.json is a model's, and can be served.
    const auto path = std::filesystem::absolute(flags.config, error);
    if (!error && path.filename() == "config.json") {
      request.mutable_model()->set_repository(
          path.lexically_normal().parent_path().string());
    }
  }
  v1::Workload& workload = *request.mutable_workload();
  workload.set_phase(static_cast<v1::Phase>(flags.phase));
  if (flags.input_tokens) workload.set_input_tokens(*flags.input_tokens);
  if (flags.output_tokens) workload.set_output_tokens(*flags.output_tokens);
  if (flags.context_tokens) workload.set_context_tokens(*flags.context_tokens);
  if (flags.routing_skew) workload.set_routing_skew(*flags.routing_skew);
  if (flags.extra_all_reduces) {
    workload.set_extra_all_reduces(*flags.extra_all_reduces);
  }
  v1::Limits& limits = *request.mutable_limits();
  if (flags.ttft_ms) limits.set_max_ttft_seconds(*flags.ttft_ms * kMillisecond);
  if (flags.tpot_ms) limits.set_max_tpot_seconds(*flags.tpot_ms * kMillisecond);
  limits.set_ignore_memory(flags.ignore_memory);
  request.set_engine(static_cast<v1::Engine>(flags.engine));
  request.set_objective(static_cast<v1::Objective>(flags.objective));
  request.set_cost_scope(static_cast<v1::CostScope>(flags.scope));
  if (flags.gpus) {
    // The field is narrower than what the flag can say.
    if (*flags.gpus < 1 || *flags.gpus > std::numeric_limits<int32_t>::max()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--gpus is ", *flags.gpus,
                       "; allowed: 1 to the number of the node's GPUs"));
    }
    request.mutable_gpus()->set_count(static_cast<int32_t>(*flags.gpus));
  }
  for (const int64_t index : flags.gpu_indices) {
    if (index < 0 || index > std::numeric_limits<int32_t>::max()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--gpu-indices has ", index,
                       "; allowed: 0 to the last of the node's GPUs"));
    }
    request.mutable_gpus()->add_indices(static_cast<int32_t>(index));
  }
  if (!flags.plan_options.empty()) {
    for (absl::string_view name : absl::StrSplit(flags.plan_options, ',')) {
      if (name == "tbo") {
        request.add_plan_options(v1::PLAN_OPTION_TWO_BATCH_OVERLAP);
      } else if (name == "fp8d") {
        request.add_plan_options(v1::PLAN_OPTION_FP8_DISPATCH);
      } else {
        return absl::InvalidArgumentError(
            absl::StrCat("--plan-options: \"", name, "\"; allowed: tbo, fp8d"));
      }
    }
  }
  request.set_current_plan(flags.current_mode);
  if (flags.max_plans) {
    // The field is narrower than what the flag can say.
    if (*flags.max_plans < 1 || *flags.max_plans > kMaxPlans) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--max-plans is ", *flags.max_plans, "; allowed: 1 to ", kMaxPlans));
    }
    request.set_max_plans(static_cast<int32_t>(*flags.max_plans));
  }
  if (flags.host_us) {
    request.set_host_seconds_per_step(*flags.host_us * kMicrosecond);
  }
  return request;
}

absl::Status NameTheFlag(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kInvalidArgument) return status;
  absl::string_view message = status.message();
  for (const FieldFlag& each : kFieldFlags) {
    // A sweep's question is a field of the sweep's request.
    absl::string_view rest = message;
    if (absl::StartsWith(rest, "question.")) rest.remove_prefix(9);
    if (!absl::StartsWith(rest, each.field)) continue;
    return absl::Status(status.code(), absl::StrCat(each.flag, ": ", message));
  }
  return status;
}

}  // namespace fabricwise
