// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/read_file.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace fabricwise {

absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     size_t most_bytes) {
  std::error_code error;
  const auto kind = std::filesystem::status(path, error).type();
  if (kind == std::filesystem::file_type::not_found) {
    return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  }
  if (kind != std::filesystem::file_type::regular || path.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a plain file"));
  }
  if (access(path.c_str(), R_OK) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": this user may not read it"));
  }
  std::ifstream file(path, std::ios::binary);
  // One byte more than allowed tells a file that is too long.
  std::string text(most_bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file && !file.eof()) {
    return absl::UnavailableError(absl::StrCat(path, ": cannot be read"));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > most_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": longer than ", most_bytes, " bytes"));
  }
  return text;
}

}  // namespace fabricwise
