// SPDX-License-Identifier: Apache-2.0
#include "server/profile/quantization.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/base/argument.h"
#include "server/base/status_macros.h"
#include "server/domain/model_shape.h"
#include "server/profile/json_text.h"

namespace fabricwise {
namespace {

using nlohmann::json;

constexpr absl::string_view kField = "quantization_config";
constexpr absl::string_view kMethods =
    "fp8, fbgemm_fp8, compressed-tensors, awq, gptq, mxfp4, modelopt";
// The one block that kFp8Block stands for.
constexpr int64_t kFp8BlockSide = 128;
// A look-up of a plain name, in steps of a pattern.
constexpr int64_t kStepsPerLookup = 8;
// Values to a scale, by definition of the two 4-bit floats.
constexpr int64_t kNvfp4Group = 16, kMxfp4Group = 32;

std::string Path(absl::string_view key) {
  return absl::StrCat(kField, ".", key);
}

absl::Status Odd(absl::string_view key, const json* value,
                 absl::string_view allowed) {
  return NotAllowed(Path(key), value == nullptr ? "missing" : Shown(*value),
                    allowed);
}

// The text at `key`; empty where absent.
absl::StatusOr<std::string> Text(const json& object, absl::string_view key) {
  const json* value = Find(object, key);
  if (value == nullptr) return std::string();
  if (!value->is_string()) return Odd(key, value, "a text");
  return value->get<std::string>();
}

const json* FirstOf(const json& object,
                    std::initializer_list<absl::string_view> keys) {
  for (const absl::string_view key : keys) {
    if (const json* value = Find(object, key)) return value;
  }
  return nullptr;
}

bool IsInteger(const json* value, int64_t expected) {
  return value != nullptr && value->is_number_integer() && *value == expected;
}

absl::Status CheckBlock(absl::string_view key, const json& block) {
  if (block.is_array() && block.size() == 2 &&
      IsInteger(&block[0], kFp8BlockSide) &&
      IsInteger(&block[1], kFp8BlockSide)) {
    return absl::OkStatus();
  }
  return Odd(key, &block, "[128,128]");
}

absl::StatusOr<WeightFormat> Int4Group(absl::string_view key,
                                       const json* group_size) {
  const std::string allowed =
      absl::StrCat(kMinGroupSize, " to ", kMaxGroupSize);
  if (group_size == nullptr || !group_size->is_number_integer()) {
    return Odd(key, group_size, allowed);
  }
  if (*group_size < kMinGroupSize || *group_size > kMaxGroupSize) {
    return Odd(key, group_size, allowed);
  }
  return WeightFormat{NumberFormat::kInt4Group, group_size->get<int64_t>()};
}

// The `weights` of one group of compressed-tensors.
absl::StatusOr<WeightFormat> GroupFormat(absl::string_view path,
                                         const json& weights) {
  const auto key = [&](absl::string_view name) {
    return absl::StrCat(path, ".", name);
  };
  const json* bits = Find(weights, "num_bits");
  const json* type = Find(weights, "type");
  const json* group_size = Find(weights, "group_size");
  const json* strategy = Find(weights, "strategy");
  if (type != nullptr && *type == "int" && IsInteger(bits, 4)) {
    return Int4Group(key("group_size"), group_size);
  }
  if (type != nullptr && *type == "float" && IsInteger(bits, 8)) {
    if (strategy != nullptr && *strategy == "block") {
      const json* block = Find(weights, "block_structure");
      if (block == nullptr)
        return Odd(key("block_structure"), block, "[128,128]");
      RETURN_IF_ERROR(CheckBlock(key("block_structure"), *block));
      return WeightFormat{NumberFormat::kFp8Block};
    }
    if (strategy != nullptr &&
        (*strategy == "tensor" || *strategy == "channel")) {
      return WeightFormat{NumberFormat::kFp8};
    }
    return Odd(key("strategy"), strategy, "tensor, channel, block");
  }
  if (type != nullptr && *type == "float" && IsInteger(bits, 4)) {
    if (IsInteger(group_size, kNvfp4Group)) {
      return WeightFormat{NumberFormat::kNvfp4};
    }
    if (IsInteger(group_size, kMxfp4Group)) {
      return WeightFormat{NumberFormat::kMxfp4};
    }
    return Odd(key("group_size"), group_size, "16, 32");
  }
  return Odd(path, &weights,
             "num_bits 4 of type int or float, or 8 of type float");
}

absl::StatusOr<NumberFormat> KvCacheFormat(const json& config) {
  if (const json* algorithm = Find(config, "kv_cache_quant_algo")) {
    if (*algorithm == "FP8") return NumberFormat::kFp8;
    if (*algorithm == "NVFP4") return NumberFormat::kNvfp4;
    return Odd("kv_cache_quant_algo", algorithm, "FP8, NVFP4");
  }
  if (const json* scheme = Find(config, "kv_cache_scheme")) {
    if (scheme->is_object()) {
      const json* type = Find(*scheme, "type");
      const json* bits = Find(*scheme, "num_bits");
      if (type != nullptr && *type == "float") {
        if (IsInteger(bits, 8)) return NumberFormat::kFp8;
        if (IsInteger(bits, 4)) return NumberFormat::kNvfp4;
      }
    }
    return Odd("kv_cache_scheme", scheme, "num_bits 8 or 4 of type float");
  }
  return NumberFormat::kBf16;
}

}  // namespace

absl::Status NameSet::AddAll(absl::string_view field, const json& list) {
  if (!list.is_array()) {
    return NotAllowed(field, Shown(list), "a list of names");
  }
  for (const json& entry : list) {
    if (!entry.is_string()) {
      return NotAllowed(field, Shown(entry), "a list of names");
    }
    const absl::Status added = Add(entry.get_ref<const std::string&>());
    if (!added.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": ", added.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status NameSet::Add(absl::string_view entry) {
  if (absl::ConsumePrefix(&entry, "re:")) return AddRegex(entry);
  if (absl::StrContains(entry, '*')) {
    ASSIGN_OR_RETURN(NamePattern pattern, NamePattern::Glob(entry));
    patterns_.push_back(std::move(pattern));
    return absl::OkStatus();
  }
  // Written for substring search: "model.layers.0." means all of that layer.
  absl::ConsumePrefix(&entry, ".");
  absl::ConsumeSuffix(&entry, ".");
  if (entry.empty()) return absl::OkStatus();
  longest_plain_ = std::max(
      longest_plain_, 1 + int64_t{std::count(entry.begin(), entry.end(), '.')});
  plain_.insert(std::string(entry));
  return absl::OkStatus();
}

absl::Status NameSet::AddRegex(absl::string_view pattern) {
  ASSIGN_OR_RETURN(NamePattern compiled, NamePattern::Regex(pattern));
  patterns_.push_back(std::move(compiled));
  return absl::OkStatus();
}

bool NameSet::Matches(absl::string_view name, int64_t* steps_left) const {
  if (!plain_.empty()) {
    for (size_t begin = 0; begin < name.size();) {
      int64_t parts = 0;
      for (size_t end = begin; end < name.size() && parts < longest_plain_;
           ++parts) {
        if ((*steps_left -= kStepsPerLookup) < 0) return false;
        end = std::min(name.find('.', end + 1), name.size());
        if (plain_.contains(name.substr(begin, end - begin))) return true;
      }
      begin = std::min(name.find('.', begin), name.size() - 1) + 1;
    }
  }
  return std::any_of(patterns_.begin(), patterns_.end(),
                     [&](const NamePattern& pattern) {
                       return pattern.Matches(name, steps_left);
                     });
}

absl::StatusOr<Quantization> Quantization::Parse(const json& config) {
  if (!config.is_object()) {
    return NotAllowed(kField, Shown(config), "an object");
  }
  Quantization made;
  ASSIGN_OR_RETURN(const std::string method, Text(config, "quant_method"));
  if (method == "fp8") {
    RETURN_IF_ERROR(made.ParseFp8(config));
  } else if (method == "fbgemm_fp8") {
    made.QuantizeAll({NumberFormat::kFp8});
  } else if (method == "compressed-tensors") {
    RETURN_IF_ERROR(made.ParseCompressedTensors(config));
  } else if (method == "awq" || method == "gptq") {
    RETURN_IF_ERROR(made.ParseInt4(config));
  } else if (method == "mxfp4") {
    // vllm/model_executor/layers/quantization/mxfp4.py: only fused experts.
    made.rules_.push_back({{NumberFormat::kMxfp4}});
    RETURN_IF_ERROR(made.rules_.back().targets.Add("experts"));
  } else if (method == "modelopt" || method == "modelopt_fp4") {
    RETURN_IF_ERROR(made.ParseModelOpt(config));
  } else {
    return Odd("quant_method", Find(config, "quant_method"), kMethods);
  }
  RETURN_IF_ERROR(made.ParseIgnored(config));
  ASSIGN_OR_RETURN(made.kv_cache_format_, KvCacheFormat(config));
  return made;
}

void Quantization::QuantizeAll(WeightFormat format) {
  rules_.push_back({.format = format, .everything = true});
}

absl::Status Quantization::ParseFp8(const json& config) {
  if (const json* block = Find(config, "weight_block_size")) {
    RETURN_IF_ERROR(CheckBlock("weight_block_size", *block));
    QuantizeAll({NumberFormat::kFp8Block});
  } else {
    QuantizeAll({NumberFormat::kFp8});
  }
  return absl::OkStatus();
}

absl::Status Quantization::ParseCompressedTensors(const json& config) {
  const json* groups = Find(config, "config_groups");
  if (groups == nullptr || !groups->is_object() || groups->empty()) {
    return Odd("config_groups", groups, "an object with one group or more");
  }
  std::vector<Rule> by_class;
  for (const auto& [name, group] : groups->items()) {
    const std::string path = absl::StrCat("config_groups.", name);
    if (!group.is_object()) return Odd(path, &group, "an object");
    const json* weights = Find(group, "weights");
    if (weights == nullptr || !weights->is_object()) {
      return Odd(absl::StrCat(path, ".weights"), weights, "an object");
    }
    Rule rule;
    ASSIGN_OR_RETURN(rule.format,
                     GroupFormat(absl::StrCat(path, ".weights"), *weights));
    const json* targets = Find(group, "targets");
    const std::string field = Path(absl::StrCat(path, ".targets"));
    if (targets == nullptr) return NotAllowed(field, "missing", "a list");
    RETURN_IF_ERROR(rule.targets.AddAll(field, *targets));
    for (const json& target : *targets) {
      if (target == "Linear") rule.everything = true;
    }
    // A module named outright goes before its class.
    (rule.everything ? by_class : rules_).push_back(std::move(rule));
  }
  std::move(by_class.begin(), by_class.end(), std::back_inserter(rules_));
  return absl::OkStatus();
}

absl::Status Quantization::ParseInt4(const json& config) {
  const json* bits = FirstOf(config, {"bits", "w_bit"});
  if (!IsInteger(bits, 4)) return Odd("bits", bits, "4");
  Rule rule = {.everything = true};
  ASSIGN_OR_RETURN(
      rule.format,
      Int4Group("group_size", FirstOf(config, {"group_size", "q_group_size"})));
  if (const json* blocks = Find(config, "modules_in_block_to_quantize")) {
    rule.everything = false;
    const std::string field = Path("modules_in_block_to_quantize");
    if (!blocks->is_array()) {
      return NotAllowed(field, Shown(*blocks), "a list of lists of names");
    }
    for (const json& block : *blocks) {
      RETURN_IF_ERROR(rule.targets.AddAll(field, block));
    }
  }
  rules_.push_back(std::move(rule));
  return ParseDynamic(config);
}

// GPTQModel: "-:pattern" leaves modules out; "+:pattern" or a bare pattern
// gives them another format.
absl::Status Quantization::ParseDynamic(const json& config) {
  const json* dynamic = Find(config, "dynamic");
  if (dynamic == nullptr) return absl::OkStatus();
  if (!dynamic->is_object()) return Odd("dynamic", dynamic, "an object");
  for (const auto& [key, value] : dynamic->items()) {
    absl::string_view pattern = key;
    if (!absl::ConsumePrefix(&pattern, "-:")) {
      return NotAllowed(Path("dynamic"), Quoted(key),
                        "only patterns that begin with -:");
    }
    const absl::Status added = ignored_.AddRegex(pattern);
    if (!added.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(Path("dynamic"), ": ", added.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status Quantization::ParseModelOpt(const json& config) {
  const json* algorithm = Find(config, "quant_algo");
  if (algorithm != nullptr && *algorithm == "NVFP4") {
    QuantizeAll({NumberFormat::kNvfp4});
  } else if (algorithm != nullptr && *algorithm == "FP8") {
    QuantizeAll({NumberFormat::kFp8});
  } else {
    return Odd("quant_algo", algorithm, "FP8, NVFP4");
  }
  return absl::OkStatus();
}

absl::Status Quantization::ParseIgnored(const json& config) {
  for (const absl::string_view key :
       {"ignore", "ignored_layers", "modules_to_not_convert",
        "exclude_modules"}) {
    if (const json* list = Find(config, key)) {
      RETURN_IF_ERROR(ignored_.AddAll(Path(key), *list));
    }
  }
  return absl::OkStatus();
}

bool Quantization::IsUniform() const {
  return ignored_.empty() && (rules_.empty() || rules_.front().everything);
}

absl::StatusOr<WeightFormat> Quantization::FormatOf(
    absl::Span<const std::string> names) {
  const auto in = [&](const NameSet& set) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& n) {
      return set.Matches(n, &steps_left_);
    });
  };
  WeightFormat format;
  if (!in(ignored_)) {
    for (const Rule& rule : rules_) {
      if (!rule.everything && !in(rule.targets)) continue;
      format = rule.format;
      break;
    }
  }
  if (steps_left_ >= 0) return format;
  return absl::InvalidArgumentError(
      absl::StrCat(kField, " has patterns that take over ", kMaxSteps,
                   " steps to match; allowed: fewer or simpler patterns"));
}

}  // namespace fabricwise
