// SPDX-License-Identifier: Apache-2.0
#include "server/profile/json_fields.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "server/base/argument.h"
#include "server/base/status_macros.h"
#include "server/profile/json_text.h"

namespace fabricwise {

absl::StatusOr<JsonPlace> JsonPlace::At(absl::string_view key) const {
  if (!value_.is_object()) return Refuse("an object");
  const nlohmann::json* member = Find(value_, key);
  if (member == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_, ": ", path_.empty() ? "the file" : path_, " lacks ",
                     Quoted(key)));
  }
  return JsonPlace(
      *member, file_,
      path_.empty() ? std::string(key) : absl::StrCat(path_, ".", key));
}

bool JsonPlace::Has(absl::string_view key) const {
  return value_.is_object() && Find(value_, key) != nullptr;
}

absl::StatusOr<std::vector<JsonPlace>> JsonPlace::Elements() const {
  if (!value_.is_array()) return Refuse("an array");
  std::vector<JsonPlace> elements;
  elements.reserve(value_.size());
  for (const nlohmann::json& element : value_) {
    elements.emplace_back(element, file_,
                          absl::StrCat(path_, "[", elements.size(), "]"));
  }
  return elements;
}

absl::StatusOr<std::string> JsonPlace::String() const {
  if (!value_.is_string()) return Refuse("a string");
  return value_.get<std::string>();
}

absl::StatusOr<bool> JsonPlace::Bool() const {
  if (!value_.is_boolean()) return Refuse("true or false");
  return value_.get<bool>();
}

absl::StatusOr<int64_t> JsonPlace::Int(int64_t low, int64_t high) const {
  // The library keeps numbers from 2^63 on as unsigned.
  const bool fits =
      value_.is_number_integer() &&
      (!value_.is_number_unsigned() ||
       value_.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()});
  if (fits) {
    const auto number = value_.get<int64_t>();
    if (number >= low && number <= high) return number;
  }
  return Refuse(absl::StrCat("a whole number from ", low, " to ", high));
}

absl::StatusOr<double> JsonPlace::Number() const {
  if (!value_.is_number()) return Refuse("a number");
  return value_.get<double>();
}

absl::StatusOr<std::vector<std::string>> JsonPlace::Strings() const {
  ASSIGN_OR_RETURN(const std::vector<JsonPlace> elements, Elements());
  std::vector<std::string> strings;
  for (const JsonPlace& element : elements) {
    ASSIGN_OR_RETURN(std::string text, element.String());
    strings.push_back(std::move(text));
  }
  return strings;
}

absl::Status JsonPlace::CheckOnly(
    std::initializer_list<absl::string_view> known) const {
  if (!value_.is_object()) return Refuse("an object");
  for (const auto& member : value_.items()) {
    if (std::find(known.begin(), known.end(), member.key()) == known.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(file_, ": ", path_.empty() ? "the file" : path_,
                       " has the unknown field ", Quoted(member.key())));
    }
  }
  return absl::OkStatus();
}

absl::Status JsonPlace::Refuse(absl::string_view allowed) const {
  return NotAllowed(absl::StrCat(file_, ": ", path_), Shown(value_), allowed);
}

absl::Status JsonPlace::Annotate(const absl::Status& status) const {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(file_, ": ", path_, ": ", status.message()));
}

}  // namespace fabricwise
