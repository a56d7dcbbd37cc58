// SPDX-License-Identifier: Apache-2.0
#include "server/engines/launch.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace fabricwise {

std::string ShellWord(const std::string& text) {
  const bool plain =
      !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
               absl::string_view("._-/:").find(c) != absl::string_view::npos;
      });
  return plain ? text
               : absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}),
                              "'");
}

std::string ModelWord(const ModelShape& model) {
  return model.repository.empty() ? "MODEL" : ShellWord(model.repository);
}

std::string VisibleDevices(absl::Span<const int> gpus) {
  return absl::StrCat("CUDA_VISIBLE_DEVICES=", absl::StrJoin(gpus, ","));
}

namespace {

// A variable of NCCL that sets something. Container images note NCCL's version
// in one; logs are no matter. Names are checked: they become part of commands.
bool IsSetting(absl::string_view variable) {
  const absl::string_view name = variable.substr(0, variable.find('='));
  return name.size() < variable.size() && absl::StartsWith(name, "NCCL_") &&
         name != "NCCL_VERSION" && !absl::StartsWith(name, "NCCL_DEBUG") &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isupper(static_cast<unsigned char>(c)) ||
                  absl::ascii_isdigit(static_cast<unsigned char>(c)) ||
                  c == '_';
         });
}

}  // namespace

std::vector<std::string> NcclSettings(const Fingerprint& node) {
  std::vector<std::string> settings;
  std::copy_if(node.nccl_environment.begin(), node.nccl_environment.end(),
               std::back_inserter(settings), IsSetting);
  return settings;
}

void SetVariable(absl::string_view variable,
                 std::vector<std::string>& environment) {
  if (std::find(environment.begin(), environment.end(), variable) ==
      environment.end()) {
    environment.emplace_back(variable);
  }
}

int64_t SequencesEach(const Workload& workload, int64_t schedulers) {
  return std::max<int64_t>(
      1, (workload.concurrency + schedulers - 1) / schedulers);
}

}  // namespace fabricwise
