// SPDX-License-Identifier: Apache-2.0
//
// Attention of prompts of one layer on one GPU, in bf16 and causal: each
// sequence's query tokens are the last of its context. Grouped heads, or latent
// as engines run it on prompts: expanded, so that every query head has keys of
// 192 and values of 128 of its own (the expansion is a product and priced as
// one). Of our kernels the fastest is taken. Floor: 2 x query heads x (key +
// value widths) operations for each pair of a query and a token that it sees.
#include "kernels/device/prompt_attention.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/case.h"
#include "kernels/cases/check.h"
#include "kernels/cases/trial.h"
#include "kernels/device/data.h"

namespace fabricwise {
namespace {

constexpr size_t kElement = sizeof(__nv_bfloat16);
constexpr int kCheckedRows = 64;
// Probabilities are rounded to bf16, 2^-8 relative, and so is the output.
constexpr float kTolerance = 0.02f;
// Standard deviation of the scores: neither an even softmax, which would hide
// tokens that are left out, nor a single one.
constexpr double kScoreSpread = 2;
// Of a product of two uniform values in [-1, 1), both of variance 1/3.
constexpr double kElementSpread = 1.0 / 3;
// Of the models whose heads expand to the widths that are measured.
constexpr int64_t kLatentDim = 576;
// Tokens over all sequences times heads and widths stay far from 64 bits.
constexpr int64_t kMostTokens = int64_t{1} << 24;

class PromptAttentionCase final : public Case {
 public:
  static absl::StatusOr<std::unique_ptr<Case>> Create(const AttentionKey& key,
                                                      Node& node) {
    auto made = std::unique_ptr<PromptAttentionCase>(
        new PromptAttentionCase(key, node));
    RETURN_IF_ERROR(made->Prepare());
    return made;
  }

  const std::vector<int>& devices() const override { return devices_; }

  absl::Status Enqueue(int count) override {
    CurrentDevice current(device());
    for (int i = 0; i < count; ++i) RETURN_IF_ERROR(Launch());
    return absl::OkStatus();
  }

  absl::Status Verify(uint64_t seed) override {
    CurrentDevice current(device());
    const cudaStream_t stream = node_.stream(device());
    RETURN_IF_ERROR(Fill(seed));
    RETURN_IF_CUDA_ERROR(
        cudaMemsetAsync(out_.data(), kPoison, out_.size(), stream));
    RETURN_IF_ERROR(Enqueue(1));
    WrongCount wrong;
    RETURN_IF_ERROR(wrong.Check(
        device(), stream, [&](unsigned long long* count, cudaStream_t on) {
          if (const cudaError_t error = LaunchCheckWritten(
                  attention_.out, static_cast<int64_t>(out_.size() / kElement),
                  count, on);
              error != cudaSuccess) {
            return error;
          }
          return LaunchCheckPromptAttention(attention_, kCheckedRows, seed,
                                            kTolerance, count, on);
        }));
    return wrong.Verdict(ToString(MeasurementKey(key_)));
  }

  Floor floor() const override {
    const PromptShape& shape = attention_.shape;
    const auto queries = static_cast<double>(key_.query_tokens);
    const double pairs =
        static_cast<double>(key_.batch) * queries *
        (static_cast<double>(key_.context_tokens) - (queries - 1) / 2);
    return {
        .memory_bytes = static_cast<double>(q_.size() + k_.size() + v_.size()) +
                        static_cast<double>(out_.size()),
        .operations = 2 * pairs * shape.q_heads * (shape.qk_dim + shape.v_dim)};
  }

 private:
  PromptAttentionCase(const AttentionKey& key, Node& node)
      : key_(key), node_(node) {}

  int device() const { return devices_.front(); }

  absl::Status Fill(uint64_t seed) {
    int which = 0;
    for (const DeviceBuffer* buffer : {&q_, &k_, &v_}) {
      RETURN_IF_CUDA_ERROR(
          LaunchFill(buffer->as<__nv_bfloat16>(),
                     static_cast<int64_t>(buffer->size() / kElement), seed,
                     which++, 0, node_.stream(device())));
    }
    return absl::OkStatus();
  }

  absl::Status Check() {
    if (key_.kv_format != NumberFormat::kBf16) {
      return absl::UnimplementedError(
          absl::StrCat("attention over ", std::string(ToString(key_.kv_format)),
                       " is not measured; over bf16 it is"));
    }
    if (key_.q_heads % key_.kv_heads != 0 ||
        (key_.latent && key_.kv_heads != 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat(key_.q_heads, " query heads over ", key_.kv_heads,
                       " KV heads; allowed: multiples, latent over 1"));
    }
    constexpr int64_t kMostHeads = 65535;
    if (key_.q_heads > kMostHeads || key_.batch > kMostTokens ||
        key_.context_tokens > kMostTokens / key_.batch) {
      return absl::UnimplementedError(absl::StrCat(
          "at most ", kMostTokens, " tokens and ", kMostHeads, " heads"));
    }
    PromptShape& shape = attention_.shape;
    shape = {.batch = static_cast<int>(key_.batch),
             .query_tokens = static_cast<int>(key_.query_tokens),
             .context_tokens = static_cast<int>(key_.context_tokens),
             .q_heads = static_cast<int>(key_.q_heads),
             .kv_heads = static_cast<int>(key_.kv_heads)};
    if (key_.latent && key_.head_dim == kLatentDim) {
      shape.kv_heads = shape.q_heads;
      shape.qk_dim = kExpandedKeyDim;
      shape.v_dim = kExpandedValueDim;
    } else if (!key_.latent && key_.head_dim <= kMostHeads) {
      shape.qk_dim = shape.v_dim = static_cast<int>(key_.head_dim);
    }
    if (PromptSharedBytes(shape, 0) == 0) {
      return absl::UnimplementedError(
          absl::StrCat("heads of ", key_.head_dim,
                       "; there are kernels for 64, 128 and 256, latent 576"));
    }
    return absl::OkStatus();
  }

  absl::Status Prepare() {
    RETURN_IF_ERROR(Check());
    devices_ = {node_.devices().front()};
    CurrentDevice current(device());
    const PromptShape& shape = attention_.shape;
    attention_.scale = static_cast<float>(
        kScoreSpread /
        (kElementSpread * std::sqrt(static_cast<double>(shape.qk_dim))));
    const int64_t queries = key_.batch * key_.query_tokens * shape.q_heads;
    const int64_t rows = key_.batch * key_.context_tokens * shape.kv_heads;
    ASSIGN_OR_RETURN(q_, Create(queries * shape.qk_dim));
    ASSIGN_OR_RETURN(k_, Create(rows * shape.qk_dim));
    ASSIGN_OR_RETURN(v_, Create(rows * shape.v_dim));
    ASSIGN_OR_RETURN(out_, Create(queries * shape.v_dim));
    attention_.q = q_.as<__nv_bfloat16>();
    attention_.k = k_.as<__nv_bfloat16>();
    attention_.v = v_.as<__nv_bfloat16>();
    attention_.out = out_.as<__nv_bfloat16>();
    RETURN_IF_ERROR(Fill(0));
    return Choose();
  }

  absl::StatusOr<DeviceBuffer> Create(int64_t elements) const {
    return DeviceBuffer::Create(device(),
                                static_cast<size_t>(elements) * kElement);
  }

  absl::Status Choose() {
    ASSIGN_OR_RETURN(const size_t shared_bytes, SharedBytesOfABlock(device()));
    float least = std::numeric_limits<float>::infinity();
    int fastest = -1;
    for (int variant = 0; variant < kPromptVariants; ++variant) {
      if (PromptSharedBytes(attention_.shape, variant) > shared_bytes) continue;
      variant_ = variant;
      ASSIGN_OR_RETURN(const float milliseconds,
                       TimeTrials(device(), node_.stream(device()),
                                  [&] { return Launch(); }));
      if (milliseconds < least) {
        least = milliseconds;
        fastest = variant;
      }
    }
    if (fastest < 0) return NoKernelFits(shared_bytes);
    variant_ = fastest;
    return absl::OkStatus();
  }

  absl::Status Launch() {
    RETURN_IF_CUDA_ERROR(
        LaunchPromptAttention(attention_, variant_, node_.stream(device())));
    return absl::OkStatus();
  }

  AttentionKey key_;
  Node& node_;
  std::vector<int> devices_;
  PromptAttention attention_;
  DeviceBuffer q_, k_, v_, out_;
  int variant_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Case>> MakePromptAttentionCase(
    const AttentionKey& key, Node& node) {
  return PromptAttentionCase::Create(key, node);
}

}  // namespace fabricwise
