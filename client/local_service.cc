// SPDX-License-Identifier: Apache-2.0
#include "client/local_service.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/file.h"
#include "server/base/status_macros.h"
#include "server/profile/profile_file.h"
#include "server/rpc/answer.h"
#include "server/rpc/convert.h"

namespace fabricwise {
namespace {

namespace fs = std::filesystem;

// Where shipped profiles lie: where the asker says, beside an installed or a
// just-built program, in the tree that one stands in.
std::vector<fs::path> ProfileFolders() {
  std::vector<fs::path> folders;
  if (const char* said = std::getenv("FABRICWISE_PROFILES")) {
    folders.emplace_back(said);
  }
  std::error_code error;
  fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    fs::path folder = program.parent_path();
    folders.push_back(folder / "../share/fabricwise/profiles");
    folders.push_back(folder / "../../../deploy/profiles");
  }
  folders.emplace_back("deploy/profiles");
  return folders;
}

std::vector<std::string> ShippedProfiles() {
  std::vector<std::string> names;
  for (const fs::path& folder : ProfileFolders()) {
    std::error_code error;
    for (const fs::directory_entry& entry :
         fs::directory_iterator(folder, error)) {
      if (entry.path().extension() == ".json") {
        names.push_back(entry.path().stem().string());
      }
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

absl::StatusOr<std::string> FindProfile(const std::string& name) {
  std::error_code error;
  if (name == "-" || fs::exists(name, error)) return name;
  // A path that leads nowhere must not be taken for another profile's name.
  if (name.find('/') == std::string::npos) {
    for (const fs::path& folder : ProfileFolders()) {
      fs::path file = folder / absl::StrCat(name, ".json");
      if (fs::exists(file, error)) return file.string();
    }
  }
  std::vector<std::string> names = ShippedProfiles();
  return absl::NotFoundError(absl::StrCat(
      "no profile \"", name, "\": no such file, and none shipped by that name",
      names.empty() ? ""
                    : absl::StrCat("; shipped: ", absl::StrJoin(names, ", "))));
}

absl::Status NeedsDaemon(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " needs a daemon; a profile cannot do it"));
}

class LocalService final : public Service {
 public:
  explicit LocalService(std::shared_ptr<const Profile> profile)
      : profile_(std::move(profile)) {}

  absl::StatusOr<v1::RecommendParallelismResponse> Recommend(
      const v1::RecommendParallelismRequest& request) override {
    v1::RecommendParallelismResponse response;
    RETURN_IF_ERROR(Answer(request, *profile_, &response));
    return response;
  }

  absl::StatusOr<v1::SweepConcurrencyResponse> Sweep(
      const v1::SweepConcurrencyRequest& request) override {
    v1::SweepConcurrencyResponse response;
    RETURN_IF_ERROR(Answer(request, *profile_, &response));
    return response;
  }

  absl::StatusOr<v1::NodeProfile> GetProfile(v1::ProfileView view) override {
    v1::NodeProfile message;
    ToProto(*profile_, view, &message);
    if (view == v1::PROFILE_VIEW_FILE) {
      message.set_profile_file(WriteProfile(profile_->data()));
    }
    return message;
  }

  absl::Status Watch(
      const v1::WatchRecommendationRequest&,
      const std::function<bool(const v1::WatchRecommendationResponse&)>&)
      override {
    return NeedsDaemon("watch");
  }
  absl::StatusOr<v1::GetStatusResponse> GetStatus() override {
    return NeedsDaemon("status");
  }
  absl::Status RunMeasurement(
      const v1::RunMeasurementRequest&,
      const std::function<bool(const v1::RunMeasurementResponse&)>&) override {
    return NeedsDaemon("measure");
  }
  absl::StatusOr<v1::DiagnoseNodeResponse> Diagnose() override {
    return NeedsDaemon("look at a node");
  }
  absl::StatusOr<v1::NodeProfile> ImportProfile(
      const v1::ImportProfileRequest&) override {
    return NeedsDaemon("import into a daemon");
  }

 private:
  const std::shared_ptr<const Profile> profile_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Profile>> LoadProfile(
    const std::string& name) {
  ASSIGN_OR_RETURN(std::string path, FindProfile(name));
  ASSIGN_OR_RETURN(std::string content,
                   ReadFile(path, static_cast<int64_t>(kMaxProfileBytes)));
  absl::StatusOr<ProfileData> data = ReadProfile(path, content);
  if (!data.ok()) {
    // Also a file of a newer version is the asker's to replace.
    return absl::InvalidArgumentError(data.status().message());
  }
  return Profile::Build(*std::move(data));
}

std::unique_ptr<Service> AnswerFrom(std::shared_ptr<const Profile> profile) {
  return std::make_unique<LocalService>(std::move(profile));
}

}  // namespace fabricwise
