// SPDX-License-Identifier: Apache-2.0
//
// Fields of a JSON object, read with their place in every refusal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace fabricwise {

// One value inside a JSON document and the path to it ("results[3].size").
// Borrows the document. All errors are INVALID_ARGUMENT "<file>: <path> is
// <value>; allowed: <what>".
class JsonPlace {
 public:
  JsonPlace(const nlohmann::json& value, std::string file, std::string path)
      : value_(value), file_(std::move(file)), path_(std::move(path)) {}

  // The member of an object; refused where absent.
  absl::StatusOr<JsonPlace> At(absl::string_view key) const;
  // Whether this is an object with that member, and not null.
  bool Has(absl::string_view key) const;
  // The elements of an array.
  absl::StatusOr<std::vector<JsonPlace>> Elements() const;

  absl::StatusOr<std::string> String() const;
  absl::StatusOr<bool> Bool() const;
  // A whole number within [low, high].
  absl::StatusOr<int64_t> Int(int64_t low, int64_t high) const;
  absl::StatusOr<double> Number() const;
  absl::StatusOr<std::vector<std::string>> Strings() const;
  bool IsNull() const { return value_.is_null(); }

  // OK where this is an object with no member but `known`.
  absl::Status CheckOnly(std::initializer_list<absl::string_view> known) const;

  absl::Status Refuse(absl::string_view allowed) const;
  // `status` with this place before its message.
  absl::Status Annotate(const absl::Status& status) const;

 private:
  const nlohmann::json& value_;
  std::string file_, path_;
};

}  // namespace fabricwise
