// SPDX-License-Identifier: Apache-2.0
//
// Which of the names that there are was meant by one that there is not.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace fabricwise {

// The `count` of `names` that are nearest to `asked`, nearest first; of those
// as near, first come first. By edits, regardless of case; what is added at the
// end of one or missing there counts least. Of `asked` the first 128 bytes
// count.
std::vector<std::string> NearestNames(absl::string_view asked,
                                      const std::vector<std::string>& names,
                                      size_t count);

}  // namespace fabricwise
