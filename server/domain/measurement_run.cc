// SPDX-License-Identifier: Apache-2.0
#include "server/domain/measurement_run.h"

namespace fabricwise {

absl::string_view ToString(RunKind kind) {
  switch (kind) {
    case RunKind::kProbe:
      return "probe";
    case RunKind::kQuick:
      return "quick";
    case RunKind::kFull:
      return "full";
  }
  return "";
}

}  // namespace fabricwise
