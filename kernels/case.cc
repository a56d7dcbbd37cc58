// SPDX-License-Identifier: Apache-2.0
#include "kernels/case.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace fabricwise {
namespace {

absl::StatusOr<std::unique_ptr<Case>> MakeCollectiveCase(
    const CollectiveKey& key, Node& node) {
  if (key.launch == Launch::kGraphInterleaved) {
    CollectiveKey alone = key;
    alone.launch = Launch::kGraph;
    ASSIGN_OR_RETURN(std::unique_ptr<Case> collective,
                     MakeCollectiveCase(alone, node));
    return MakeInterleavedCase(std::move(collective), node);
  }
  switch (key.implementation) {
    case CollectiveImpl::kNccl:
      return MakeNcclCase(key, node);
    case CollectiveImpl::kOneShot:
    case CollectiveImpl::kTwoShot:
      return MakePeerCase(key, node);
    case CollectiveImpl::kNcclSymmetric:
    case CollectiveImpl::kVllmCustom:
    case CollectiveImpl::kSglangCustom:
    case CollectiveImpl::kTrtllm:
      break;
  }
  return absl::UnimplementedError(
      absl::StrCat("this worker has no ",
                   std::string(ToString(key.implementation)), " kernels"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Case>> MakeCase(const MeasurementKey& key,
                                               Node& node) {
  RETURN_IF_ERROR(Validate(key));
  if (const auto* collective = std::get_if<CollectiveKey>(&key)) {
    return MakeCollectiveCase(*collective, node);
  }
  if (const auto* gemm = std::get_if<GemmKey>(&key)) {
    return MakeGemmCase(*gemm, node, node.devices().front());
  }
  if (const auto* experts = std::get_if<ExpertsKey>(&key)) {
    return MakeExpertsCase(*experts, node);
  }
  if (const auto* attention = std::get_if<AttentionKey>(&key)) {
    return attention->query_tokens == 1
               ? MakeAttentionCase(*attention, node)
               : MakePromptAttentionCase(*attention, node);
  }
  if (const auto* memory = std::get_if<MemoryKey>(&key)) {
    return MakeMemoryCase(*memory, node);
  }
  if (std::holds_alternative<LaunchKey>(key)) return MakeLaunchCase(node);
  return absl::UnimplementedError(
      absl::StrCat("this worker cannot measure ", ToString(key)));
}

}  // namespace fabricwise
