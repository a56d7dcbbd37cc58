// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace fabricwise {
namespace {

// Fields of /proc/PID/stat after the name in parentheses (proc(5) counts from
// 1; "state", its third, is the first here).
constexpr size_t kThreads = 17;
constexpr size_t kVirtualBytes = 20;
constexpr size_t kResidentPages = 21;

absl::Duration FromTimeval(const timeval& time) {
  return absl::DurationFromTimeval(time);
}

}  // namespace

absl::StatusOr<ProcessFacts> ReadProcessFacts() {
  ProcessFacts facts;
  std::string line;
  std::ifstream file("/proc/self/stat");
  std::getline(file, line);
  // The name may hold spaces and parentheses; the last one ends it.
  const size_t name_end = line.rfind(") ");
  if (name_end == std::string::npos) {
    return absl::UnavailableError("/proc/self/stat cannot be read");
  }
  const std::vector<std::string> fields =
      absl::StrSplit(line.substr(name_end + 2), ' ');
  int64_t resident_pages = 0;
  if (fields.size() <= kResidentPages ||
      !absl::SimpleAtoi(fields[kThreads], &facts.threads) ||
      !absl::SimpleAtoi(fields[kVirtualBytes], &facts.virtual_bytes) ||
      !absl::SimpleAtoi(fields[kResidentPages], &resident_pages)) {
    return absl::UnavailableError("/proc/self/stat has an unknown form");
  }
  facts.resident_bytes = resident_pages * sysconf(_SC_PAGESIZE);

  rusage usage;
  rlimit limit;
  if (getrusage(RUSAGE_SELF, &usage) != 0 ||
      getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return absl::UnavailableError("the kernel tells no resource use");
  }
  facts.cpu_time = FromTimeval(usage.ru_utime) + FromTimeval(usage.ru_stime);
  facts.max_files = static_cast<int64_t>(limit.rlim_cur);

  std::error_code error;
  const std::filesystem::directory_iterator open_files("/proc/self/fd", error);
  if (error) return absl::UnavailableError("/proc/self/fd cannot be read");
  // The listing itself holds one open.
  facts.open_files = std::distance(begin(open_files), end(open_files)) - 1;
  return facts;
}

}  // namespace fabricwise
