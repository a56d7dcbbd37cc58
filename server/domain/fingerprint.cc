// SPDX-License-Identifier: Apache-2.0
#include "server/domain/fingerprint.h"

#include <type_traits>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace fabricwise {
namespace {

// FNV-1a, 64 bits: small, and its constants are fixed for ever
// (http://www.isthe.com/chongo/tech/comp/fnv/).
class Fnv1a {
 public:
  // Integers go in as eight bytes, least significant first.
  void Add(int64_t value) {
    for (int byte = 0; byte < 8; ++byte) {
      AddByte(static_cast<uint8_t>(static_cast<uint64_t>(value) >> (8 * byte)));
    }
  }

  // Text goes in behind its length, so that no two lists run together alike.
  void Add(absl::string_view text) {
    Add(static_cast<int64_t>(text.size()));
    for (const char c : text) AddByte(static_cast<uint8_t>(c));
  }

  template <typename T>
  void AddAll(const std::vector<T>& items) {
    Add(static_cast<int64_t>(items.size()));
    for (const auto& item : items) {
      if constexpr (std::is_convertible_v<T, std::string>) {
        Add(absl::string_view(item));
      } else {
        Add(static_cast<int64_t>(item));
      }
    }
  }

  uint64_t value() const { return hash_; }

 private:
  void AddByte(uint8_t byte) {
    hash_ = (hash_ ^ byte) * uint64_t{1099511628211u};
  }

  uint64_t hash_ = uint64_t{14695981039346656037u};
};

}  // namespace

std::string FingerprintId(const Fingerprint& fingerprint) {
  Fnv1a hash;
  hash.Add(static_cast<int64_t>(fingerprint.gpus.size()));
  for (const Gpu& gpu : fingerprint.gpus) {
    hash.Add(gpu.name);
    hash.Add(gpu.uuid);
    hash.Add(gpu.memory_bytes);
    hash.Add(static_cast<int64_t>(gpu.compute_capability));
  }
  hash.Add(fingerprint.driver_version);
  hash.Add(fingerprint.cuda_version);
  hash.Add(fingerprint.nccl_version);
  hash.AddAll(fingerprint.nccl_environment);
  hash.Add(fingerprint.fabric);
  hash.Add(static_cast<int64_t>(fingerprint.peer_access.size()));
  for (const auto& row : fingerprint.peer_access) hash.AddAll(row);
  hash.Add(static_cast<int64_t>(fingerprint.nvlinks.size()));
  for (const auto& row : fingerprint.nvlinks) hash.AddAll(row);
  hash.AddAll(fingerprint.facts);
  return absl::StrFormat("%016x", hash.value());
}

}  // namespace fabricwise
