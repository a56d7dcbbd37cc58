// SPDX-License-Identifier: Apache-2.0
#include "server/domain/number_format.h"

#include <array>

#include "server/base/argument.h"

namespace fabricwise {
namespace {

constexpr std::array kFormats = {NumberFormat::kBf16,  NumberFormat::kFp8Block,
                                 NumberFormat::kFp8,   NumberFormat::kInt4Group,
                                 NumberFormat::kMxfp4, NumberFormat::kNvfp4};

// Values that share a scale, and the bytes of that scale, by definition of each
// format.
constexpr double kFp8BlockValues = 128 * 128, kFp8BlockScaleBytes = 4;
constexpr double kInt4ScaleBytes = 2;
constexpr double kMxfp4Values = 32, kNvfp4Values = 16, kFp4ScaleBytes = 1;

}  // namespace

double BytesPerWeight(const WeightFormat& format) {
  switch (format.number) {
    case NumberFormat::kBf16:
      return 2;
    case NumberFormat::kFp8Block:
      return 1 + kFp8BlockScaleBytes / kFp8BlockValues;
    case NumberFormat::kFp8:
      return 1;
    case NumberFormat::kInt4Group:
      return 0.5 +
             (format.group_size > 0
                  ? kInt4ScaleBytes / static_cast<double>(format.group_size)
                  : 0);
    case NumberFormat::kMxfp4:
      return 0.5 + kFp4ScaleBytes / kMxfp4Values;
    case NumberFormat::kNvfp4:
      return 0.5 + kFp4ScaleBytes / kNvfp4Values;
  }
  return 2;
}

absl::string_view ToString(NumberFormat format) {
  switch (format) {
    case NumberFormat::kBf16:
      return "bf16";
    case NumberFormat::kFp8Block:
      return "fp8_block";
    case NumberFormat::kFp8:
      return "fp8";
    case NumberFormat::kInt4Group:
      return "int4_group";
    case NumberFormat::kMxfp4:
      return "mxfp4";
    case NumberFormat::kNvfp4:
      return "nvfp4";
  }
  return "unknown";
}

absl::StatusOr<NumberFormat> ParseNumberFormat(absl::string_view text) {
  for (const NumberFormat format : kFormats) {
    if (text == ToString(format)) return format;
  }
  return NotAllowed("number format", Quoted(text),
                    "bf16, fp8_block, fp8, int4_group, mxfp4, nvfp4");
}

}  // namespace fabricwise
