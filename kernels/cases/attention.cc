// SPDX-License-Identifier: Apache-2.0
//
// Decode attention of one layer on one GPU over a KV cache in bf16: grouped
// heads, or latent with one shared row. Successive operations read caches of
// their own, more than the L2 cache holds, as the layers of a model do; the
// context is cut into as many splits as are fastest. Floor: the KV cache once;
// 2 x batch x context x query heads x (key + value widths) operations.
#include "kernels/device/attention.h"

#include <algorithm>
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
constexpr int kMostSplits = 512;
// A split shorter than this costs more to combine than it helps.
constexpr int64_t kLeastSplitTokens = 64;
// Blocks that a multiprocessor is given one after another; more help nothing.
constexpr int kMostBlocksEach = 16;
constexpr int64_t kMostHeads = 65535;  // blocks of a grid's second dimension
constexpr int kCheckedHeads = 64;
// Probabilities are rounded to bf16, 2^-8 relative, and so is the output.
constexpr float kTolerance = 0.02f;
// Standard deviation of the scores: neither an even softmax, which would hide
// tokens that are left out, nor a single one.
constexpr double kScoreSpread = 2;
// Of a product of two uniform values in [-1, 1), both of variance 1/3.
constexpr double kElementSpread = 1.0 / 3;

class AttentionCase final : public Case {
 public:
  static absl::StatusOr<std::unique_ptr<Case>> Create(const AttentionKey& key,
                                                      Node& node) {
    auto made = std::unique_ptr<AttentionCase>(new AttentionCase(key, node));
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
    next_ = 0;
    int which = 0;
    RETURN_IF_ERROR(Fill(q_, seed, which++));
    for (const DeviceBuffer& cache : caches_.front()) {
      RETURN_IF_ERROR(Fill(cache, seed, which++));
    }
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
          return LaunchCheckAttention(Over(caches_.front()), kCheckedHeads,
                                      seed, kTolerance, count, on);
        }));
    return wrong.Verdict(ToString(MeasurementKey(key_)));
  }

  Floor floor() const override {
    const auto tokens = static_cast<double>(key_.batch * key_.context_tokens);
    const auto qk = static_cast<double>(key_.head_dim);
    const double v = ValueDim(attention_.shape);
    const double row = key_.latent ? qk : qk + v;
    return {.memory_bytes = tokens * static_cast<double>(key_.kv_heads) * row *
                            static_cast<double>(kElement),
            .operations =
                2 * tokens * static_cast<double>(key_.q_heads) * (qk + v)};
  }

 private:
  using Cache = std::vector<DeviceBuffer>;  // keys and, unless latent, values

  AttentionCase(const AttentionKey& key, Node& node) : key_(key), node_(node) {}

  int device() const { return devices_.front(); }

  absl::Status Fill(const DeviceBuffer& buffer, uint64_t seed, int which) {
    RETURN_IF_CUDA_ERROR(
        LaunchFill(buffer.as<__nv_bfloat16>(),
                   static_cast<int64_t>(buffer.size() / kElement), seed, which,
                   0, node_.stream(device())));
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
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    if (key_.context_tokens > kMost / 2 || key_.q_heads > kMostHeads ||
        key_.batch > kMostHeads / key_.q_heads || key_.head_dim > kMost) {
      return absl::UnimplementedError(
          absl::StrCat("at most ", kMostHeads, " heads over all sequences"));
    }
    attention_.shape = {.batch = static_cast<int>(key_.batch),
                        .context_tokens = static_cast<int>(key_.context_tokens),
                        .q_heads = static_cast<int>(key_.q_heads),
                        .kv_heads = static_cast<int>(key_.kv_heads),
                        .qk_dim = static_cast<int>(key_.head_dim),
                        .latent = key_.latent};
    if (DecodeSharedBytes(attention_.shape, 0) == 0) {
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
    RETURN_IF_ERROR(ChooseVariant());
    attention_.scale = static_cast<float>(
        kScoreSpread /
        (kElementSpread * std::sqrt(static_cast<double>(key_.head_dim))));
    const auto heads = static_cast<size_t>(key_.batch * key_.q_heads);
    ASSIGN_OR_RETURN(q_, Create(heads * static_cast<size_t>(key_.head_dim)));
    ASSIGN_OR_RETURN(
        out_, Create(heads * static_cast<size_t>(ValueDim(attention_.shape))));
    RETURN_IF_ERROR(Fill(q_, 0, 0));
    attention_.q = q_.as<__nv_bfloat16>();
    attention_.out = out_.as<__nv_bfloat16>();

    const size_t parts = key_.latent ? 1 : 2;
    const size_t elements = static_cast<size_t>(key_.batch) *
                            static_cast<size_t>(key_.context_tokens) *
                            static_cast<size_t>(key_.kv_heads) *
                            static_cast<size_t>(key_.head_dim);
    const size_t copies =
        RotatedCopies(node_.l2_bytes(device()), parts * elements * kElement);
    for (size_t i = 0; i < copies; ++i) {
      Cache& cache = caches_.emplace_back();
      for (size_t part = 0; part < parts; ++part) {
        ASSIGN_OR_RETURN(DeviceBuffer buffer, Create(elements));
        RETURN_IF_ERROR(Fill(buffer, i, static_cast<int>(part) + 1));
        cache.push_back(std::move(buffer));
      }
    }
    return Choose();
  }

  absl::StatusOr<DeviceBuffer> Create(size_t elements) const {
    return DeviceBuffer::Create(device(), elements * kElement);
  }

  // The first that fits.
  absl::Status ChooseVariant() {
    ASSIGN_OR_RETURN(const size_t shared_bytes, SharedBytesOfABlock(device()));
    while (variant_ < kDecodeVariants &&
           DecodeSharedBytes(attention_.shape, variant_) > shared_bytes) {
      ++variant_;
    }
    if (variant_ < kDecodeVariants) return absl::OkStatus();
    return NoKernelFits(shared_bytes);
  }

  absl::Status Choose() {
    const int64_t blocks = int64_t{kMostBlocksEach} *
                           node_.multiprocessors(device()) /
                           (key_.batch * key_.kv_heads);
    const int most = static_cast<int>(std::clamp<int64_t>(
        std::min(key_.context_tokens / kLeastSplitTokens, blocks), 1,
        kMostSplits));
    ASSIGN_OR_RETURN(
        partial_,
        DeviceBuffer::Create(device(), PartialBytes(attention_.shape, most)));
    attention_.partial = partial_.as<float>();
    float least = std::numeric_limits<float>::infinity();
    int fastest = 1;
    for (int splits = 1; splits <= most; splits *= 2) {
      attention_.splits = splits;
      ASSIGN_OR_RETURN(const float milliseconds,
                       TimeTrials(device(), node_.stream(device()),
                                  [&] { return Launch(); }));
      if (milliseconds < least) {
        least = milliseconds;
        fastest = splits;
      }
    }
    attention_.splits = fastest;
    return absl::OkStatus();
  }

  DecodeAttention Over(const Cache& cache) const {
    DecodeAttention attention = attention_;
    attention.k = cache.front().as<__nv_bfloat16>();
    attention.v = cache.back().as<__nv_bfloat16>();
    return attention;
  }

  absl::Status Launch() {
    RETURN_IF_CUDA_ERROR(LaunchDecodeAttention(Over(caches_[next_]), variant_,
                                               node_.stream(device())));
    next_ = (next_ + 1) % caches_.size();
    return absl::OkStatus();
  }

  AttentionKey key_;
  Node& node_;
  std::vector<int> devices_;
  DecodeAttention attention_;  // less the cache
  DeviceBuffer q_, out_, partial_;
  std::vector<Cache> caches_;
  size_t next_ = 0;
  int variant_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Case>> MakeAttentionCase(const AttentionKey& key,
                                                        Node& node) {
  return AttentionCase::Create(key, node);
}

}  // namespace fabricwise
