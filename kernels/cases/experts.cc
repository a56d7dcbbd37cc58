// SPDX-License-Identifier: Apache-2.0
//
// The routed experts of one MoE layer on the fullest rank of a shard, in bf16:
// gate and up product with SiLU-and-mul, then the down product, over token
// copies that already lie expert by expert. Routing is drawn once for a key,
// the same on any node. Only the weights of the experts hit exist, in as many
// copies as make them more than the L2 cache holds, as the layers of a model
// do. Of our kernels the fastest is taken for each product. Floor: those
// weights, the token copies, what is between, and the output once; 6 x rows x
// hidden x intermediate operations.
#include "kernels/device/experts.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "kernels/case.h"
#include "kernels/cases/check.h"
#include "kernels/cases/trial.h"
#include "kernels/device/data.h"
#include "kernels/load/routing.h"

namespace fabricwise {
namespace {

constexpr size_t kElement = sizeof(__nv_bfloat16);
constexpr uint64_t kRoutingSeed = 1;
constexpr int64_t kCheckedElements = 4096;
// Of the norm of the terms: rounding to bf16 is 2^-8 relative, of sums that
// come to several norms; fp32 sums of random terms lose far less.
constexpr float kTolerance = 0.03f;

// Which kernels are worth a trial: tiles of a few times more rows than experts
// have waste their work, tiles of a fraction read weights over and over.
constexpr int64_t kMostPadding = 8, kMostReading = 8;
bool WorthATrial(int tile_rows, int64_t most_rows) {
  return (tile_rows <= most_rows * kMostPadding ||
          tile_rows == GroupedTile(0, false).rows) &&
         tile_rows * kMostReading >=
             std::min<int64_t>(
                 most_rows,
                 int64_t{GroupedTile(kGroupedVariants - 1, false).rows} *
                     kMostReading);
}

class ExpertsCase final : public Case {
 public:
  static absl::StatusOr<std::unique_ptr<Case>> Create(const ExpertsKey& key,
                                                      Node& node) {
    auto made = std::unique_ptr<ExpertsCase>(new ExpertsCase(key, node));
    RETURN_IF_ERROR(made->Prepare());
    return made;
  }

  const std::vector<int>& devices() const override { return devices_; }

  absl::Status Enqueue(int count) override {
    CurrentDevice current(device());
    for (int i = 0; i < count; ++i) {
      for (Product& product : products_) RETURN_IF_ERROR(Launch(product));
    }
    return absl::OkStatus();
  }

  absl::Status Verify(uint64_t seed) override {
    CurrentDevice current(device());
    const cudaStream_t stream = node_.stream(device());
    int which = 0;
    RETURN_IF_ERROR(Fill(in_, rows_ * key_.hidden_size, seed, which++));
    for (Product& product : products_) {
      product.next = 0;
      RETURN_IF_ERROR(Fill(product.weights.front(),
                           product.expert_elements * Hit(), seed, which++));
      RETURN_IF_CUDA_ERROR(cudaMemsetAsync(product.out.data(), kPoison,
                                           product.out.size(), stream));
    }
    RETURN_IF_ERROR(Enqueue(1));
    WrongCount wrong;
    for (const Product& product : products_) {
      const GroupedProduct& of = product.arguments;
      RETURN_IF_ERROR(wrong.Check(
          device(), stream, [&](unsigned long long* count, cudaStream_t on) {
            if (const cudaError_t error =
                    LaunchCheckWritten(of.out, rows_ * of.columns, count, on);
                error != cudaSuccess) {
              return error;
            }
            return LaunchCheckGrouped(
                of.in, product.weights.front().as<__nv_bfloat16>(), of.out,
                expert_of_.as<int32_t>(), rows_, of.columns, of.k, of.gated,
                std::min(kCheckedElements, rows_ * of.columns), seed,
                kTolerance, count, on);
          }));
    }
    return wrong.Verdict(ToString(MeasurementKey(key_)));
  }

  Floor floor() const override {
    const auto rows = static_cast<double>(rows_);
    const auto hidden = static_cast<double>(key_.hidden_size);
    const auto local = static_cast<double>(intermediate_);
    const double weights = 3 * hidden * local * static_cast<double>(Hit());
    return {.memory_bytes = static_cast<double>(kElement) *
                            (weights + 2 * rows * (hidden + local)),
            .operations = 6 * rows * hidden * local};
  }

  ExpertsObserved experts() const override {
    return {.rows_local = rows_, .experts_hit = Hit()};
  }

 private:
  struct Product {
    GroupedProduct arguments;  // less the weights
    int64_t expert_elements = 0;
    std::vector<DeviceBuffer> weights;
    DeviceBuffer out, tiles;
    int variant = 0;
    size_t next = 0;
  };

  ExpertsCase(const ExpertsKey& key, Node& node) : key_(key), node_(node) {}

  int device() const { return devices_.front(); }
  int64_t Hit() const { return static_cast<int64_t>(rows_of_.size()); }

  absl::Status Fill(const DeviceBuffer& buffer, int64_t count, uint64_t seed,
                    int which) {
    RETURN_IF_CUDA_ERROR(LaunchFill(buffer.as<__nv_bfloat16>(), count, seed,
                                    which, 0, node_.stream(device())));
    return absl::OkStatus();
  }

  absl::Status Check() const {
    if (key_.format != WeightFormat{.number = NumberFormat::kBf16}) {
      return absl::UnimplementedError(
          absl::StrCat("experts in ", std::string(ToString(key_.format.number)),
                       " are not measured; bf16 are"));
    }
    constexpr int64_t kUnit = 8;  // elements of a 16-byte copy
    if (key_.num_experts % key_.expert_parallel != 0 ||
        key_.intermediate_size % (key_.moe_tp * kUnit) != 0 ||
        key_.hidden_size % kUnit != 0) {
      return absl::UnimplementedError(
          "experts are cut evenly, into widths that are multiples of 8");
    }
    // Rows are counted in 32 bits.
    if (key_.tokens >
        std::numeric_limits<int32_t>::max() / key_.experts_per_token) {
      return absl::UnimplementedError("more than 2^31 token copies");
    }
    return absl::OkStatus();
  }

  absl::Status Prepare() {
    RETURN_IF_ERROR(Check());
    devices_ = {node_.devices().front()};
    CurrentDevice current(device());
    intermediate_ = key_.intermediate_size / key_.moe_tp;
    rows_of_ = DrawFullestRank({.num_experts = key_.num_experts,
                                .experts_per_token = key_.experts_per_token,
                                .ranks = key_.expert_parallel,
                                .tokens = key_.tokens,
                                .skew = key_.skew_alpha},
                               kRoutingSeed);
    rows_ = std::accumulate(rows_of_.begin(), rows_of_.end(), int64_t{0});
    ASSIGN_OR_RETURN(in_, Create(rows_ * key_.hidden_size));
    RETURN_IF_ERROR(Fill(in_, rows_ * key_.hidden_size, 0, 0));
    RETURN_IF_ERROR(PrepareExpertOf());

    Product& up = products_[0];
    Product& down = products_[1];
    up.arguments = {.in = in_.as<__nv_bfloat16>(),
                    .columns = intermediate_,
                    .k = key_.hidden_size,
                    .gated = true};
    RETURN_IF_ERROR(PrepareProduct(up));
    down.arguments = {.in = up.arguments.out,
                      .columns = key_.hidden_size,
                      .k = intermediate_};
    RETURN_IF_ERROR(PrepareProduct(down));
    for (Product& product : products_) RETURN_IF_ERROR(Choose(product));
    return absl::OkStatus();
  }

  absl::StatusOr<DeviceBuffer> Create(int64_t elements) const {
    return DeviceBuffer::Create(device(),
                                static_cast<size_t>(elements) * kElement);
  }

  absl::Status PrepareExpertOf() {
    std::vector<int32_t> expert_of;
    for (size_t expert = 0; expert < rows_of_.size(); ++expert) {
      expert_of.insert(expert_of.end(), static_cast<size_t>(rows_of_[expert]),
                       static_cast<int32_t>(expert));
    }
    return Upload(expert_of, expert_of_);
  }

  template <typename T>
  absl::Status Upload(const std::vector<T>& values, DeviceBuffer& to) const {
    const size_t bytes = values.size() * sizeof(T);
    ASSIGN_OR_RETURN(to, DeviceBuffer::Create(device(), bytes));
    RETURN_IF_CUDA_ERROR(
        cudaMemcpy(to.data(), values.data(), bytes, cudaMemcpyHostToDevice));
    return absl::OkStatus();
  }

  absl::Status PrepareProduct(Product& product) {
    GroupedProduct& of = product.arguments;
    product.expert_elements = (of.gated ? 2 : 1) * of.columns * of.k;
    ASSIGN_OR_RETURN(product.out, Create(rows_ * of.columns));
    of.out = product.out.as<__nv_bfloat16>();
    const int64_t elements = product.expert_elements * Hit();
    const size_t copies = RotatedCopies(
        node_.l2_bytes(device()), static_cast<size_t>(elements) * kElement);
    for (size_t i = 0; i < copies; ++i) {
      ASSIGN_OR_RETURN(DeviceBuffer weights, Create(elements));
      RETURN_IF_ERROR(Fill(weights, elements, i, of.gated ? 1 : 2));
      product.weights.push_back(std::move(weights));
    }
    return absl::OkStatus();
  }

  absl::Status Cut(Product& product) const {
    const TileShape shape =
        GroupedTile(product.variant, product.arguments.gated);
    const std::vector<ExpertTile> tiles = CutIntoTiles(
        rows_of_, product.arguments.columns, shape.rows, shape.columns);
    RETURN_IF_ERROR(Upload(tiles, product.tiles));
    product.arguments.tiles = product.tiles.as<ExpertTile>();
    product.arguments.tile_count = static_cast<int64_t>(tiles.size());
    return absl::OkStatus();
  }

  absl::Status Launch(Product& product) {
    GroupedProduct arguments = product.arguments;
    arguments.weights = product.weights[product.next].as<__nv_bfloat16>();
    product.next = (product.next + 1) % product.weights.size();
    RETURN_IF_CUDA_ERROR(LaunchGroupedProduct(arguments, product.variant,
                                              node_.stream(device())));
    return absl::OkStatus();
  }

  absl::Status Choose(Product& product) {
    const int64_t most_rows =
        *std::max_element(rows_of_.begin(), rows_of_.end());
    float least = std::numeric_limits<float>::infinity();
    int fastest = 0;
    for (int variant = 0; variant < kGroupedVariants; ++variant) {
      const bool gated = product.arguments.gated;
      if (!WorthATrial(GroupedTile(variant, gated).rows, most_rows)) continue;
      product.variant = variant;
      RETURN_IF_ERROR(Cut(product));
      ASSIGN_OR_RETURN(const float milliseconds,
                       TimeTrials(device(), node_.stream(device()),
                                  [&] { return Launch(product); }));
      if (milliseconds < least) {
        least = milliseconds;
        fastest = variant;
      }
    }
    product.variant = fastest;
    return Cut(product);
  }

  ExpertsKey key_;
  Node& node_;
  std::vector<int> devices_;
  int64_t intermediate_ = 0, rows_ = 0;
  std::vector<int64_t> rows_of_;  // of the experts hit
  DeviceBuffer in_, expert_of_;
  Product products_[2];
};

}  // namespace

absl::StatusOr<std::unique_ptr<Case>> MakeExpertsCase(const ExpertsKey& key,
                                                      Node& node) {
  return ExpertsCase::Create(key, node);
}

}  // namespace fabricwise
