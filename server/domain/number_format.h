// SPDX-License-Identifier: Apache-2.0
//
// How weights, KV-cache entries and messages are stored, and what a value
// costs.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fabricwise {

enum class NumberFormat {
  kBf16,
  kFp8Block,   // 8-bit float, one fp32 scale per 128x128 block
  kFp8,        // 8-bit float, one scale per channel or tensor
  kInt4Group,  // 4-bit integer, one 16-bit scale per group
  kMxfp4,      // 4-bit float, one 8-bit scale per 32 values
  kNvfp4,      // 4-bit float, one 8-bit scale per 16 values
};

// A format and, for kInt4Group, its group size (values that share a scale; 0
// elsewhere).
struct WeightFormat {
  NumberFormat number = NumberFormat::kBf16;
  int64_t group_size = 0;

  friend bool operator==(const WeightFormat&, const WeightFormat&) = default;
};

// Bytes of one weight including its share of the scales (bf16 2; fp8 block 1 +
// 4/16384; int4 0.5 + 2/group; mxfp4 0.5 + 1/32; nvfp4 0.5 + 1/16).
double BytesPerWeight(const WeightFormat& format);

// "bf16", "fp8_block", "fp8", "int4_group", "mxfp4", "nvfp4".
absl::string_view ToString(NumberFormat format);
absl::StatusOr<NumberFormat> ParseNumberFormat(absl::string_view text);

}  // namespace fabricwise
