// SPDX-License-Identifier: Apache-2.0
//
// out[m,n] = a[m,k] x w[n,k]^T through cuBLASLt, in bf16 or fp8 (e4m3), bf16
// out, fp32 sums; of the library's first few choices the fastest. Successive
// products use weights of their own, more than the L2 cache holds, as the
// layers of a model do. Floor: a, w and out once; 2 m n k operations.
#include <algorithm>
#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "kernels/case.h"
#include "kernels/cases/check.h"
#include "kernels/cases/trial.h"
#include "kernels/device/data.h"

namespace fabricwise {
namespace {

// What engines give cuBLASLt on Hopper, and NVIDIA recommends there.
constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr int kChoices = 8;
constexpr int64_t kCheckedElements = 4096;
// bf16 output: 2^-8 relative; sums of k random terms lose less than 1 % of
// their norm in any order of fp32 addition.
constexpr float kTolerance = 0.03f;

absl::Status ToStatus(cublasStatus_t status, absl::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string message =
      absl::StrCat(std::string(what), ": ", cublasLtGetStatusString(status));
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
    return absl::UnimplementedError(message);
  }
  return absl::InternalError(message);
}

#define RETURN_IF_CUBLAS_ERROR(call) RETURN_IF_ERROR(ToStatus((call), #call))

template <typename T, auto kDestroy>
struct Destroy {
  void operator()(T* handle) const { kDestroy(handle); }
};
using Operation = std::unique_ptr<
    cublasLtMatmulDescOpaque_t,
    Destroy<cublasLtMatmulDescOpaque_t, cublasLtMatmulDescDestroy>>;
using Layout = std::unique_ptr<
    cublasLtMatrixLayoutOpaque_t,
    Destroy<cublasLtMatrixLayoutOpaque_t, cublasLtMatrixLayoutDestroy>>;
using Preference = std::unique_ptr<
    cublasLtMatmulPreferenceOpaque_t,
    Destroy<cublasLtMatmulPreferenceOpaque_t, cublasLtMatmulPreferenceDestroy>>;

absl::StatusOr<Layout> MakeLayout(cudaDataType type, int64_t rows,
                                  int64_t columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  RETURN_IF_CUBLAS_ERROR(
      cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(rows),
                                 static_cast<uint64_t>(columns), rows));
  return Layout(layout);
}

class GemmCase final : public Case {
 public:
  static absl::StatusOr<std::unique_ptr<Case>> Create(const GemmKey& key,
                                                      Node& node, int device) {
    auto made = std::unique_ptr<GemmCase>(new GemmCase(key, node, device));
    RETURN_IF_ERROR(made->Prepare());
    return made;
  }

  const std::vector<int>& devices() const override { return devices_; }

  absl::Status Enqueue(int count) override {
    CurrentDevice current(device());
    for (int i = 0; i < count; ++i) {
      RETURN_IF_ERROR(Multiply(weights_[next_], algorithm_));
      next_ = (next_ + 1) % weights_.size();
    }
    return absl::OkStatus();
  }

  absl::Status Verify(uint64_t seed) override {
    CurrentDevice current(device());
    const cudaStream_t stream = node_.stream(device());
    next_ = 0;
    RETURN_IF_ERROR(Fill(a_, key_.m * key_.k, seed, 0));
    RETURN_IF_ERROR(Fill(weights_.front(), key_.n * key_.k, seed, 1));
    RETURN_IF_CUDA_ERROR(
        cudaMemsetAsync(out_.data(), kPoison, out_.size(), stream));
    RETURN_IF_ERROR(Enqueue(1));
    WrongCount wrong;
    RETURN_IF_ERROR(wrong.Check(
        device(), stream, [&](unsigned long long* count, cudaStream_t on) {
          return LaunchCheckProduct(a_.data(), weights_.front().data(),
                                    out_.as<__nv_bfloat16>(), key_.m, key_.n,
                                    key_.k, fp8(),
                                    std::min(kCheckedElements, key_.m * key_.n),
                                    seed, kTolerance, count, on);
        }));
    return wrong.Verdict(ToString(MeasurementKey(key_)));
  }

  Floor floor() const override {
    const auto m = static_cast<double>(key_.m);
    const auto n = static_cast<double>(key_.n);
    const auto k = static_cast<double>(key_.k);
    return {.memory_bytes =
                (m * k + n * k) * element() + m * n * sizeof(__nv_bfloat16),
            .operations = 2 * m * n * k};
  }

 private:
  GemmCase(const GemmKey& key, Node& node, int device)
      : key_(key), node_(node), devices_({device}) {}

  int device() const { return devices_.front(); }
  bool fp8() const { return key_.format == NumberFormat::kFp8; }
  double element() const { return fp8() ? 1 : 2; }

  absl::Status Fill(const DeviceBuffer& buffer, int64_t count, uint64_t seed,
                    int which) {
    const cudaStream_t stream = node_.stream(device());
    if (fp8()) {
      RETURN_IF_CUDA_ERROR(
          LaunchFillFp8(buffer.data(), count, seed, which, stream));
    } else {
      RETURN_IF_CUDA_ERROR(LaunchFill(buffer.as<__nv_bfloat16>(), count, seed,
                                      which, 0, stream));
    }
    return absl::OkStatus();
  }

  absl::Status Prepare() {
    if (key_.format != NumberFormat::kBf16 && !fp8()) {
      return absl::UnimplementedError(
          absl::StrCat("products in ", std::string(ToString(key_.format)),
                       " are not measured; bf16 and fp8 are"));
    }
    constexpr int kFp8Capability = 89;
    constexpr int64_t kFp8Unit = 16;  // cuBLASLt's, for every dimension
    if (fp8() && node_.compute_capability(device()) < kFp8Capability) {
      return absl::FailedPreconditionError("fp8 needs compute capability 8.9");
    }
    if (fp8() && (key_.n % kFp8Unit != 0 || key_.k % kFp8Unit != 0)) {
      return absl::UnimplementedError(
          "fp8 products need n and k in multiples of 16");
    }
    CurrentDevice current(device());
    ASSIGN_OR_RETURN(handle_, node_.CublasLt(device()));

    const auto bytes = [&](int64_t count) {
      return static_cast<size_t>(static_cast<double>(count) * element());
    };
    const size_t weight = bytes(key_.n * key_.k);
    const size_t copies = RotatedCopies(node_.l2_bytes(device()), weight);
    ASSIGN_OR_RETURN(a_,
                     DeviceBuffer::Create(device(), bytes(key_.m * key_.k)));
    for (size_t i = 0; i < copies; ++i) {
      ASSIGN_OR_RETURN(DeviceBuffer w, DeviceBuffer::Create(device(), weight));
      RETURN_IF_ERROR(Fill(w, key_.n * key_.k, i, 1));
      weights_.push_back(std::move(w));
    }
    RETURN_IF_ERROR(Fill(a_, key_.m * key_.k, 0, 0));
    ASSIGN_OR_RETURN(out_, DeviceBuffer::Create(
                               device(), static_cast<size_t>(key_.m * key_.n) *
                                             sizeof(__nv_bfloat16)));
    ASSIGN_OR_RETURN(workspace_,
                     DeviceBuffer::Create(device(), kWorkspaceBytes));

    // Column-major: out^T[n,m] = (w^T)^T[n,k] x a^T[k,m].
    const cudaDataType type = fp8() ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
    cublasLtMatmulDesc_t operation = nullptr;
    RETURN_IF_CUBLAS_ERROR(
        cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    operation_.reset(operation);
    const cublasOperation_t transpose = CUBLAS_OP_T;
    RETURN_IF_CUBLAS_ERROR(cublasLtMatmulDescSetAttribute(
        operation, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof(transpose)));
    ASSIGN_OR_RETURN(w_layout_, MakeLayout(type, key_.k, key_.n));
    ASSIGN_OR_RETURN(a_layout_, MakeLayout(type, key_.k, key_.m));
    ASSIGN_OR_RETURN(out_layout_, MakeLayout(CUDA_R_16BF, key_.n, key_.m));
    return Choose();
  }

  absl::Status Choose() {
    cublasLtMatmulPreference_t preference = nullptr;
    RETURN_IF_CUBLAS_ERROR(cublasLtMatmulPreferenceCreate(&preference));
    const Preference owned(preference);
    RETURN_IF_CUBLAS_ERROR(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspaceBytes,
        sizeof(kWorkspaceBytes)));
    cublasLtMatmulHeuristicResult_t choices[kChoices];
    int found = 0;
    RETURN_IF_CUBLAS_ERROR(cublasLtMatmulAlgoGetHeuristic(
        handle_, operation_.get(), w_layout_.get(), a_layout_.get(),
        out_layout_.get(), out_layout_.get(), preference, kChoices, choices,
        &found));
    if (found == 0) {
      return absl::UnimplementedError(
          "cuBLASLt has no kernel for this product");
    }
    float least = std::numeric_limits<float>::infinity();
    for (int i = 0; i < found; ++i) {
      const cublasLtMatmulAlgo_t& algorithm = choices[i].algo;
      size_t trial = 0;
      const auto milliseconds =
          TimeTrials(device(), node_.stream(device()), [&] {
            return Multiply(weights_[trial++ % weights_.size()], algorithm);
          });
      if (!milliseconds.ok()) continue;
      if (*milliseconds < least) {
        least = *milliseconds;
        algorithm_ = algorithm;
      }
    }
    return absl::OkStatus();
  }

  absl::Status Multiply(const DeviceBuffer& weight,
                        const cublasLtMatmulAlgo_t& algorithm) {
    const float one = 1, zero = 0;
    return ToStatus(
        cublasLtMatmul(handle_, operation_.get(), &one, weight.data(),
                       w_layout_.get(), a_.data(), a_layout_.get(), &zero,
                       out_.data(), out_layout_.get(), out_.data(),
                       out_layout_.get(), &algorithm, workspace_.data(),
                       workspace_.size(), node_.stream(device())),
        "cublasLtMatmul");
  }

  GemmKey key_;
  Node& node_;
  std::vector<int> devices_;
  cublasLtHandle_t handle_ = nullptr;
  Operation operation_;
  Layout w_layout_, a_layout_, out_layout_;
  cublasLtMatmulAlgo_t algorithm_{};
  DeviceBuffer a_, out_, workspace_;
  std::vector<DeviceBuffer> weights_;
  size_t next_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Case>> MakeGemmCase(const GemmKey& key,
                                                   Node& node, int device) {
  return GemmCase::Create(key, node, device);
}

}  // namespace fabricwise
