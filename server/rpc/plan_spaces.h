// SPDX-License-Identifier: Apache-2.0
//
// Plan spaces of models that were asked about lately, kept for the next
// question.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/domain/model_shape.h"
#include "server/profile/profile.h"
#include "server/recommend/plan_space.h"

namespace fabricwise {

// Thread-safe. A space serves one question at a time: threads that ask about
// the same model at once have one each.
class PlanSpaces {
 public:
  // Of seven presets, asked 600 questions of any load (malloc in use, measured
  // in December 2026): on 8 GPUs each takes 0.4 to 2.3 MiB with one engine and
  // 0.9 to 3.9 with all three, so 31 MiB at most; on 2 GPUs 0.1 to 1.0.
  static constexpr size_t kMost = 8;

  // A space with what it borrows.
  struct Entry {
    std::string model_name;  // as the asker names it
    std::shared_ptr<const Profile> profile;
    ModelShape model;
    std::unique_ptr<PlanSpace> space;
  };

  // Held by one question; goes back when that is done.
  class Lease {
   public:
    Lease(PlanSpaces* owner, std::unique_ptr<Entry> entry)
        : owner_(owner), entry_(std::move(entry)) {}
    Lease(Lease&&) = default;
    ~Lease() {
      if (entry_ != nullptr) owner_->Return(std::move(entry_));
    }
    PlanSpace& space() const { return *entry_->space; }

   private:
    PlanSpaces* owner_;
    std::unique_ptr<Entry> entry_;
  };

  // One that is free, else a new one of what `resolve` gives. `model_name`
  // stands for the model: equal names, equal models. Spaces of other profiles
  // make room. Errors of `resolve` and PlanSpace::Create.
  absl::StatusOr<Lease> Get(
      absl::string_view model_name, const PlanScope& scope,
      const std::shared_ptr<const Profile>& profile,
      absl::FunctionRef<absl::StatusOr<ModelShape>()> resolve);

 private:
  void Return(std::unique_ptr<Entry> entry);

  std::mutex mutex_;
  std::vector<std::unique_ptr<Entry>> free_
      ABSL_GUARDED_BY(mutex_);  // last used last
};

}  // namespace fabricwise
