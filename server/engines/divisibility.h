// SPDX-License-Identifier: Apache-2.0
//
// Why a dimension cannot be divided as a plan asks, in numbers. nullopt
// everywhere: it can.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "server/domain/model_shape.h"
#include "server/domain/number_format.h"
#include "server/domain/plan.h"

namespace fabricwise {

// "num_attention_heads 64 is not a multiple of TP 3".
std::optional<std::string> MultipleRefusal(absl::string_view what,
                                           int64_t value, absl::string_view by,
                                           int64_t divisor);

// "moe_intermediate_size 1536 / TP 8 = 192 is not a multiple of fp8 block 128".
// `parts` divides `width`.
std::optional<std::string> ShareRefusal(absl::string_view what, int64_t width,
                                        absl::string_view by, int64_t parts,
                                        absl::string_view unit_name,
                                        int64_t unit);

// The same by the unit of the weights' format: blocks of 128 for block-wise
// fp8, whose scales are per block; for int4 the group, and the 64 columns of a
// tile of the Marlin kernels, whichever is more. One part is always allowed.
std::optional<std::string> QuantizedShareRefusal(absl::string_view what,
                                                 int64_t width,
                                                 absl::string_view by,
                                                 int64_t parts,
                                                 const WeightFormat& format);

// A plan's own contradictions, common to all engines: heads, KV heads, experts
// and widths that do not divide; fewer layers than stages.
std::optional<std::string> CommonRefusal(const ModelShape& model,
                                         const Plan& plan);

}  // namespace fabricwise
