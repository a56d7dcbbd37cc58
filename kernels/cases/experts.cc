// SPDX-License-Identifier: Apache-2.0
//
// The routed experts of one MoE layer on the fullest rank of a shard, in bf16
// or in blocks of fp8: gate and up product with SiLU-and-mul, then the down
// product, over token copies that already lie expert by expert; in fp8 each
// product's input is quantised before it. Routing is drawn once for a key, the
// same on any node. Only the weights of the experts hit exist, in as many
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
// The first compute capability that multiplies e4m3.
constexpr int kFp8Major = 8, kFp8Minor = 9;
constexpr uint64_t kRoutingSeed = 1;
constexpr int64_t kCheckedElements = 4096;
// Of the norm of the terms: rounding to bf16 is 2^-8 relative, of sums that
// come to several norms; fp32 sums of random terms lose far less.
constexpr float kTolerance = 0.03f;

// Which kernels are worth a trial: tiles of a few times more rows than experts
// have waste their work, tiles of a fraction read weights over and over.
constexpr int64_t kMostPadding = 8, kMostReading = 8;
bool WorthATrial(const GroupedProduct& product, int variant,
                 int64_t most_rows) {
  const auto rows = [&](int of) { return GroupedTile(product, of).rows; };
  return (rows(variant) <= most_rows * kMostPadding ||
          rows(variant) == rows(0)) &&
         rows(variant) * kMostReading >=
             std::min<int64_t>(
                 most_rows,
                 int64_t{rows(GroupedVariants(product.fp8_block) - 1)} *
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
      for (Product& product : products_) {
        RETURN_IF_ERROR(Quantise(product));
        RETURN_IF_ERROR(Launch(product));
      }
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
      RETURN_IF_ERROR(FillWeights(product.weights.front(), seed, which++));
      for (DeviceBuffer* buffer :
           {&product.out, &product.quantised, &product.in_scales}) {
        if (buffer->size() == 0) continue;
        RETURN_IF_CUDA_ERROR(
            cudaMemsetAsync(buffer->data(), kPoison, buffer->size(), stream));
      }
    }
    RETURN_IF_ERROR(Enqueue(1));
    WrongCount wrong;
    for (const Product& product : products_) {
      const GroupedProduct of = WithWeights(product, product.weights.front());
      RETURN_IF_ERROR(wrong.Check(
          device(), stream, [&](unsigned long long* count, cudaStream_t on) {
            if (const cudaError_t error =
                    LaunchCheckWritten(of.out, rows_ * of.columns, count, on);
                error != cudaSuccess) {
              return error;
            }
            return LaunchCheckGrouped(
                of, expert_of_.as<int32_t>(),
                std::min(kCheckedElements, rows_ * of.columns), seed,
                kTolerance, count, on);
          }));
      if (!Fp8()) continue;
      RETURN_IF_ERROR(wrong.Check(
          device(), stream, [&](unsigned long long* count, cudaStream_t on) {
            return LaunchCheckQuantised(product.in, of.in, of.in_scales, rows_,
                                        of.k, count, on);
          }));
    }
    return wrong.Verdict(ToString(MeasurementKey(key_)));
  }

  Floor floor() const override {
    const auto rows = static_cast<double>(rows_);
    const auto hidden = static_cast<double>(key_.hidden_size);
    const auto local = static_cast<double>(intermediate_);
    const double weights = 3 * hidden * local * static_cast<double>(Hit());
    // Between the products rows are in the format of the weights.
    return {
        .memory_bytes = weights * BytesPerWeight(key_.format) +
                        2 * rows *
                            (hidden * static_cast<double>(kElement) +
                             local * static_cast<double>(Fp8() ? 1 : kElement)),
        .operations = 6 * rows * hidden * local};
  }

  ExpertsObserved experts() const override {
    return {.rows_local = rows_, .experts_hit = Hit()};
  }

 private:
  struct Weights {
    DeviceBuffer values, scales;
  };
  struct Product {
    GroupedProduct arguments;           // less the weights
    const __nv_bfloat16* in = nullptr;  // before it is quantised
    std::vector<Weights> weights;       // copies
    DeviceBuffer out, tiles;
    DeviceBuffer quantised, in_scales;  // of fp8
    int variant = 0;
    size_t next = 0;

    // Of one copy.
    int64_t weight_elements() const {
      return (arguments.gated ? 2 : 1) * arguments.columns * arguments.k;
    }
  };

  ExpertsCase(const ExpertsKey& key, Node& node) : key_(key), node_(node) {}

  int device() const { return devices_.front(); }
  int64_t Hit() const { return static_cast<int64_t>(rows_of_.size()); }
  bool Fp8() const { return key_.format.number == NumberFormat::kFp8Block; }

  absl::Status Fill(const DeviceBuffer& buffer, int64_t count, uint64_t seed,
                    int which) {
    RETURN_IF_CUDA_ERROR(LaunchFill(buffer.as<__nv_bfloat16>(), count, seed,
                                    which, 0, node_.stream(device())));
    return absl::OkStatus();
  }

  absl::Status FillWeights(const Weights& weights, uint64_t seed, int which) {
    const cudaStream_t stream = node_.stream(device());
    const size_t size = weights.values.size();
    if (!Fp8()) {
      return Fill(weights.values, static_cast<int64_t>(size / kElement), seed,
                  which);
    }
    RETURN_IF_CUDA_ERROR(LaunchFillFp8(weights.values.data(),
                                       static_cast<int64_t>(size), seed, which,
                                       stream));
    RETURN_IF_CUDA_ERROR(LaunchFillScales(
        weights.scales.as<float>(),
        static_cast<int64_t>(weights.scales.size() / sizeof(float)), seed,
        which, stream));
    return absl::OkStatus();
  }

  absl::Status Check() const {
    if (key_.format != WeightFormat{.number = NumberFormat::kBf16} &&
        key_.format != WeightFormat{.number = NumberFormat::kFp8Block}) {
      return absl::UnimplementedError(
          absl::StrCat("experts in ", std::string(ToString(key_.format.number)),
                       " are not measured; bf16 and fp8_block are"));
    }
    // Elements of a 16-byte copy, or of a block that has a scale.
    const int64_t unit = Fp8() ? kFp8BlockSide : 8;
    if (key_.num_experts % key_.expert_parallel != 0 ||
        key_.intermediate_size % (key_.moe_tp * unit) != 0 ||
        key_.hidden_size % unit != 0) {
      return absl::UnimplementedError(absl::StrCat(
          "experts are cut evenly, into widths that are multiples of ", unit));
    }
    int major = 0, minor = 0;
    RETURN_IF_CUDA_ERROR(cudaDeviceGetAttribute(
        &major, cudaDevAttrComputeCapabilityMajor, node_.devices().front()));
    RETURN_IF_CUDA_ERROR(cudaDeviceGetAttribute(
        &minor, cudaDevAttrComputeCapabilityMinor, node_.devices().front()));
    if (Fp8() && std::pair(major, minor) < std::pair(kFp8Major, kFp8Minor)) {
      return absl::UnimplementedError(
          absl::StrCat("a GPU of compute capability ", major, ".", minor,
                       " has no products in fp8; from 8.9 on they have"));
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
    up.in = in_.as<__nv_bfloat16>();
    up.arguments.columns = intermediate_;
    up.arguments.k = key_.hidden_size;
    up.arguments.gated = true;
    RETURN_IF_ERROR(PrepareProduct(up));
    down.in = up.arguments.out;
    down.arguments.columns = key_.hidden_size;
    down.arguments.k = intermediate_;
    RETURN_IF_ERROR(PrepareProduct(down));
    for (Product& product : products_) {
      RETURN_IF_ERROR(Quantise(product));
      RETURN_IF_ERROR(Choose(product));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<DeviceBuffer> Create(int64_t elements) const {
    return CreateBytes(elements * static_cast<int64_t>(kElement));
  }
  absl::StatusOr<DeviceBuffer> CreateBytes(int64_t bytes) const {
    return DeviceBuffer::Create(device(), static_cast<size_t>(bytes));
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
    of.rows = rows_;
    of.in = product.in;
    ASSIGN_OR_RETURN(product.out, Create(rows_ * of.columns));
    of.out = product.out.as<__nv_bfloat16>();
    if (Fp8()) {
      of.fp8_block = true;
      ASSIGN_OR_RETURN(product.quantised, CreateBytes(rows_ * of.k));
      ASSIGN_OR_RETURN(
          product.in_scales,
          CreateBytes(rows_ * (of.k / kFp8BlockSide) * int64_t{sizeof(float)}));
      of.in = product.quantised.data();
      of.in_scales = product.in_scales.as<float>();
    }
    const int64_t elements = product.weight_elements() * Hit();
    const int64_t bytes = elements * static_cast<int64_t>(Fp8() ? 1 : kElement);
    const size_t copies =
        RotatedCopies(node_.l2_bytes(device()), static_cast<size_t>(bytes));
    for (size_t i = 0; i < copies; ++i) {
      Weights weights;
      ASSIGN_OR_RETURN(weights.values, CreateBytes(bytes));
      if (Fp8()) {
        ASSIGN_OR_RETURN(
            weights.scales,
            CreateBytes(elements / (kFp8BlockSide * kFp8BlockSide) *
                        int64_t{sizeof(float)}));
      }
      RETURN_IF_ERROR(FillWeights(weights, i, of.gated ? 1 : 2));
      product.weights.push_back(std::move(weights));
    }
    return absl::OkStatus();
  }

  absl::Status Cut(Product& product) const {
    const TileShape shape = GroupedTile(product.arguments, product.variant);
    const std::vector<ExpertTile> tiles = CutIntoTiles(
        rows_of_, product.arguments.columns, shape.rows, shape.columns);
    RETURN_IF_ERROR(Upload(tiles, product.tiles));
    product.arguments.tiles = product.tiles.as<ExpertTile>();
    product.arguments.tile_count = static_cast<int64_t>(tiles.size());
    return absl::OkStatus();
  }

  static GroupedProduct WithWeights(const Product& product,
                                    const Weights& weights) {
    GroupedProduct arguments = product.arguments;
    arguments.weights = weights.values.data();
    arguments.weight_scales = weights.scales.as<float>();
    return arguments;
  }

  absl::Status Quantise(const Product& product) {
    if (!Fp8()) return absl::OkStatus();
    RETURN_IF_CUDA_ERROR(LaunchQuantise(
        product.in, product.quantised.data(), product.in_scales.as<float>(),
        rows_, product.arguments.k, node_.stream(device())));
    return absl::OkStatus();
  }

  absl::Status Launch(Product& product) {
    const GroupedProduct arguments =
        WithWeights(product, product.weights[product.next]);
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
    for (int variant = 0; variant < GroupedVariants(Fp8()); ++variant) {
      if (!WorthATrial(product.arguments, variant, most_rows)) continue;
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
