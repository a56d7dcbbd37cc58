// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/features.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/domain/fingerprint.h"

namespace fabricwise {
namespace {

// Kubernetes: letters, digits, '-', '_' and '.', at both ends a letter or
// digit.
constexpr size_t kMaxLabelValue = 63;

std::string LabelValue(absl::string_view text) {
  std::string value;
  for (const char c : text.substr(0, kMaxLabelValue)) {
    const bool plain = absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                       c == '-' || c == '_';
    value += plain ? c : '.';
  }
  const auto alnum = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c));
  };
  while (!value.empty() && !alnum(value.back())) value.pop_back();
  while (!value.empty() && !alnum(value.front())) value.erase(0, 1);
  return value;
}

void AddLine(absl::string_view name, absl::string_view text,
             std::string& lines) {
  const std::string value = LabelValue(text);
  if (!value.empty()) {
    absl::StrAppend(&lines, "fabricwise.", name, "=", value, "\n");
  }
}

}  // namespace

std::string NodeFeatures(const Profile& profile, const Outlook& outlook) {
  std::string lines;
  AddLine("fabric", profile.fingerprint().fabric, lines);
  AddLine("fingerprint", profile.fingerprint_id(), lines);
  for (const ScenarioAdvice& scenario : outlook.scenarios) {
    if (!scenario.answered) continue;
    AddLine(absl::StrCat("mode.", scenario.name), scenario.mode, lines);
    AddLine(absl::StrCat("engine.", scenario.name), scenario.engine, lines);
  }
  return lines;
}

absl::Status ReplaceFile(const std::string& path, absl::string_view text) {
  const std::filesystem::path target(path);
  const std::string hidden =
      target.parent_path() / absl::StrCat(".", target.filename().string());
  const auto fails = [&](const std::string& what) {
    const int error = errno;
    unlink(hidden.c_str());
    return absl::ErrnoToStatus(error, absl::StrCat("cannot ", what));
  };
  // Never anything but a file, nor by way of a link that somebody laid.
  struct stat there = {};
  if (lstat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot replace ", path, ", which is no plain file"));
  }
  unlink(hidden.c_str());  // of a run that was killed
  constexpr mode_t kReadableByAll = 0644;
  const int file = open(hidden.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                        kReadableByAll);
  if (file < 0) return fails(absl::StrCat("write ", hidden));
  // Readable by whatever user discovers features, whatever the umask.
  const bool written = fchmod(file, kReadableByAll) == 0 &&
                       write(file, text.data(), text.size()) ==
                           static_cast<ssize_t>(text.size()) &&
                       fsync(file) == 0;
  if (!written) {
    const int error = errno;
    close(file);
    errno = error;
    return fails(absl::StrCat("write ", hidden));
  }
  close(file);
  if (rename(hidden.c_str(), path.c_str()) != 0) {
    return fails(absl::StrCat("replace ", path));
  }
  return absl::OkStatus();
}

}  // namespace fabricwise
