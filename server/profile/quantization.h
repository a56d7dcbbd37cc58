// SPDX-License-Identifier: Apache-2.0
//
// Which weights of a checkpoint are stored how: the quantization_config of a
// Hugging Face config.json, asked by module name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "nlohmann/json.hpp"
#include "server/domain/number_format.h"
#include "server/profile/name_pattern.h"

namespace fabricwise {

// A set of module names as such configs list them: plain names (a run of whole
// dotted parts), globs with `*`, and "re:" patterns.
class NameSet {
 public:
  // INVALID_ARGUMENT naming the pattern that is not understood.
  absl::Status Add(absl::string_view entry);
  absl::Status AddRegex(absl::string_view pattern);
  // All entries of a JSON list; the message begins with `field`.
  absl::Status AddAll(absl::string_view field, const nlohmann::json& list);

  bool Matches(absl::string_view name, int64_t* steps_left) const;
  bool empty() const { return plain_.empty() && patterns_.empty(); }

 private:
  absl::flat_hash_set<std::string> plain_;
  int64_t longest_plain_ = 0;  // in dotted parts
  std::vector<NamePattern> patterns_;
};

// Not safe for use from several threads.
class Quantization {
 public:
  // Of a quantization_config object. Understands the quant_methods fp8,
  // fbgemm_fp8, compressed-tensors, awq, gptq, mxfp4, modelopt (FP8, NVFP4).
  // INVALID_ARGUMENT naming the key that is missing or not understood, an
  // unknown method among them.
  static absl::StatusOr<Quantization> Parse(const nlohmann::json& config);

  // Nothing quantized.
  Quantization() = default;

  // How the module that goes by any of `names` is stored. INVALID_ARGUMENT
  // where all matching together has taken more than kMaxSteps steps.
  absl::StatusOr<WeightFormat> FormatOf(absl::Span<const std::string> names);

  // Whether FormatOf has the same answer for every name.
  bool IsUniform() const;

  NumberFormat kv_cache_format() const { return kv_cache_format_; }

  // About a quarter of a second; real lists over 100 layers take 1 % of it.
  static constexpr int64_t kMaxSteps = 50'000'000;

 private:
  // Modules that `targets` names, or all where `everything`.
  struct Rule {
    WeightFormat format;
    bool everything = false;
    NameSet targets;
  };

  absl::Status ParseFp8(const nlohmann::json& config);
  absl::Status ParseCompressedTensors(const nlohmann::json& config);
  absl::Status ParseInt4(const nlohmann::json& config);
  absl::Status ParseModelOpt(const nlohmann::json& config);
  absl::Status ParseIgnored(const nlohmann::json& config);
  absl::Status ParseDynamic(const nlohmann::json& config);
  void QuantizeAll(WeightFormat format);

  std::vector<Rule> rules_;
  NameSet ignored_;
  NumberFormat kv_cache_format_ = NumberFormat::kBf16;
  int64_t steps_left_ = kMaxSteps;
};

}  // namespace fabricwise
