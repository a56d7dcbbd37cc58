// SPDX-License-Identifier: Apache-2.0
#include "client/file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace fabricwise {

absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     int64_t most_bytes) {
  auto refuse = [&](const std::string& why) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read \"", path, "\": ", why));
  };
  std::ifstream file;
  if (path != "-") {
    std::error_code error;
    std::filesystem::file_status status = std::filesystem::status(path, error);
    if (!std::filesystem::exists(status)) {
      return absl::NotFoundError(absl::StrCat("no file \"", path, "\""));
    }
    if (std::filesystem::is_directory(status)) return refuse("a directory");
    file.open(path, std::ios::binary);
    if (!file) return refuse(std::strerror(errno));
  }
  std::istream& in = path == "-" ? std::cin : file;
  std::string content;
  // One byte past the limit tells that there is more; growing with what is
  // there keeps a pipe that says little from costing the whole limit.
  constexpr int64_t kChunkBytes = 64 << 10;
  while (in && static_cast<int64_t>(content.size()) <= most_bytes) {
    size_t before = content.size();
    content.resize(before + static_cast<size_t>(kChunkBytes));
    in.read(content.data() + before, kChunkBytes);
    content.resize(before + static_cast<size_t>(in.gcount()));
  }
  if (static_cast<int64_t>(content.size()) > most_bytes) {
    return refuse(absl::StrCat("over ", most_bytes, " bytes"));
  }
  if (in.bad()) return refuse(std::strerror(errno));
  return content;
}

absl::Status WriteFile(const std::string& path, absl::string_view content) {
  std::error_code error;
  const std::filesystem::file_status status =
      std::filesystem::status(path, error);
  // A device or a pipe is written to; a rename would put a file in its place.
  const bool in_place = std::filesystem::exists(status) &&
                        !std::filesystem::is_regular_file(status);
  // A link stays, and what it points to is replaced.
  std::filesystem::path target = path;
  if (std::filesystem::is_symlink(path, error)) {
    target = std::filesystem::weakly_canonical(path, error);
    if (error) target = path;
  }
  // A reader never sees half of it: written beside, then renamed over.
  std::filesystem::path written = target;
  if (!in_place) written += ".new";
  auto refuse = [&](const std::string& why) {
    std::error_code ignored;
    if (!in_place) std::filesystem::remove(written, ignored);
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write \"", path, "\": ", why));
  };
  std::ofstream file(written, std::ios::binary | std::ios::trunc);
  if (!file) return refuse(std::strerror(errno));
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  if (!file) return refuse(std::strerror(errno));
  if (in_place) return absl::OkStatus();
  std::filesystem::rename(written, target, error);
  if (error) return refuse(error.message());
  return absl::OkStatus();
}

}  // namespace fabricwise
