// SPDX-License-Identifier: Apache-2.0
//
// What commands that start a server have in common.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/domain/fingerprint.h"
#include "server/domain/model_shape.h"
#include "server/domain/workload.h"

namespace fabricwise {

// `text` as one word of a POSIX shell. Names come from files that nobody
// checked; commands are pasted.
std::string ShellWord(const std::string& text);

// The model's repository as one word; "MODEL" where it has none.
std::string ModelWord(const ModelShape& model);

// "CUDA_VISIBLE_DEVICES=4,5,6,7".
std::string VisibleDevices(absl::Span<const int> gpus);

// The settings of NCCL that the node's curves were measured under, as
// "NCCL_NAME=value": they hold for engines under the same only.
std::vector<std::string> NcclSettings(const Fingerprint& node);

// Adds "NAME=value" unless it is there.
void SetVariable(absl::string_view variable,
                 std::vector<std::string>& environment);

// Most sequences that one of `schedulers` has in flight; at least one.
int64_t SequencesEach(const Workload& workload, int64_t schedulers);

}  // namespace fabricwise
