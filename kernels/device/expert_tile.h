// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace fabricwise {

// A block's share of a grouped product: rows first_row.. of the input, all of
// one expert, times columns first_column.. of its weights.
struct ExpertTile {
  int32_t expert = 0;
  int32_t first_row = 0;
  int32_t rows = 0;
  int32_t first_column = 0;
};

}  // namespace fabricwise
