// SPDX-License-Identifier: Apache-2.0
//
// Early-return macros for absl::Status and absl::StatusOr. Debian 12's Abseil
// ships none; the names are the ones its users know.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns `expr`'s status from the enclosing function unless it is OK.
#define RETURN_IF_ERROR(expr)                                                 \
  do {                                                                        \
    if (absl::Status status_macro_value = (expr); !status_macro_value.ok()) { \
      return status_macro_value;                                              \
    }                                                                         \
  } while (false)

#define FABRICWISE_STATUS_CONCAT_INNER(a, b) a##b
#define FABRICWISE_STATUS_CONCAT(a, b) FABRICWISE_STATUS_CONCAT_INNER(a, b)

// Evaluates `rexpr`, a StatusOr; on OK moves its value into `lhs`, which may be
// a declaration, else returns its status from the enclosing function.
#define ASSIGN_OR_RETURN(lhs, rexpr) \
  FABRICWISE_ASSIGN_OR_RETURN_IMPL(  \
      FABRICWISE_STATUS_CONCAT(status_or_value_, __LINE__), lhs, rexpr)

#define FABRICWISE_ASSIGN_OR_RETURN_IMPL(result, lhs, rexpr) \
  auto result = (rexpr);                                     \
  if (!result.ok()) return std::move(result).status();       \
  lhs = std::move(result).value()
