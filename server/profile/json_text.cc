// SPDX-License-Identifier: Apache-2.0
#include "server/profile/json_text.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/argument.h"

namespace fabricwise {
namespace {

using nlohmann::json;

constexpr size_t kMaxShownBytes = 64;

// The deepest nesting, counted before anything is built.
int Depth(absl::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

absl::StatusOr<json> ParseJsonObject(absl::string_view what,
                                     absl::string_view text, size_t max_bytes) {
  if (text.size() > max_bytes) {
    return NotAllowed(what, absl::StrCat(text.size(), " bytes long"),
                      absl::StrCat("at most ", max_bytes));
  }
  if (Depth(text) > kMaxJsonDepth) {
    return NotAllowed(what, absl::StrCat("nested ", Depth(text), " deep"),
                      absl::StrCat("at most ", kMaxJsonDepth));
  }
  std::vector<std::set<std::string>> keys;
  std::string twice;
  const auto watch = [&](int, json::parse_event_t event, json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
        keys.emplace_back();
        break;
      case json::parse_event_t::object_end:
        keys.pop_back();
        break;
      case json::parse_event_t::key:
        if (!keys.back().insert(parsed.get<std::string>()).second &&
            twice.empty()) {
          twice = parsed.get<std::string>();
        }
        break;
      case json::parse_event_t::array_start:
      case json::parse_event_t::array_end:
      case json::parse_event_t::value:
        break;
    }
    return true;
  };
  json object;
  try {
    object = json::parse(text.begin(), text.end(), watch);
  } catch (const json::parse_error& error) {
    return absl::InvalidArgumentError(
        error.byte > text.size()
            ? absl::StrCat(what, " is not JSON: it ends after ", text.size(),
                           " bytes, before its object does")
            : absl::StrCat(what, " is not JSON: error at byte ", error.byte,
                           " of ", text.size()));
  } catch (const json::exception&) {
    // The one other kind while parsing: a number beyond what a double holds.
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has a number out of range"));
  }
  if (!object.is_object()) {
    return NotAllowed(what, object.type_name(), "a JSON object");
  }
  if (!twice.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has the key ", Quoted(twice), " twice"));
  }
  return object;
}

std::string Shown(const json& value) {
  // Invalid UTF-8 cannot get past the parser, but `replace` cannot throw.
  const std::string text =
      value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() <= kMaxShownBytes) return text;
  return absl::StrCat(text.substr(0, kMaxShownBytes), "...");
}

const json* Find(const json& object, absl::string_view key) {
  const auto it = object.find(std::string(key));
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

}  // namespace fabricwise
