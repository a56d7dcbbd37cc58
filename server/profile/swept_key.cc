// SPDX-License-Identifier: Apache-2.0
#include "server/profile/swept_key.h"

#include <utility>

namespace fabricwise {
namespace {

// The text with the number that ends just before `tail` from the end replaced.
SweptKey StarBefore(std::string text, absl::string_view tail, int64_t size) {
  const size_t end = text.rfind(tail.data(), std::string::npos, tail.size());
  size_t begin = end;
  while (text[begin - 1] >= '0' && text[begin - 1] <= '9') --begin;
  text.replace(begin, end - begin, "*");
  return {std::move(text), size};
}

SweptKey Split(const CollectiveKey& key, std::string text) {
  return StarBefore(std::move(text), "B", key.size_bytes);
}
SweptKey Split(const MemoryKey& key, std::string text) {
  return StarBefore(std::move(text), "B", key.size_bytes);
}
SweptKey Split(const GemmKey& key, std::string text) {
  return StarBefore(std::move(text), "n", key.m);
}
SweptKey Split(const AttentionKey& key, std::string text) {
  return StarBefore(std::move(text), "/", key.context_tokens);
}
SweptKey Split(const ExpertsKey& key, std::string text) {
  return StarBefore(std::move(text), "", key.tokens);
}
SweptKey Split(const ExchangeKey& key, std::string text) {
  return StarBefore(std::move(text), "", key.tokens_per_rank);
}
SweptKey Split(const LaunchKey&, std::string text) {
  return {std::move(text), 0};
}

}  // namespace

SweptKey SplitSweptSize(const MeasurementKey& key) {
  return std::visit([&](const auto& k) { return Split(k, ToString(key)); },
                    key);
}

}  // namespace fabricwise
