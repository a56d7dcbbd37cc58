// SPDX-License-Identifier: Apache-2.0
#include "server/domain/fingerprint.h"

#include <functional>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fabricwise {
namespace {

Fingerprint Node() {
  return {.gpus = {{.name = "NVIDIA H200",
                    .uuid = "GPU-1",
                    .memory_bytes = 150'754'820'096,
                    .compute_capability = 90},
                   {.name = "NVIDIA H200",
                    .uuid = "GPU-2",
                    .memory_bytes = 150'754'820'096,
                    .compute_capability = 90}},
          .driver_version = "580.82",
          .cuda_version = "13.0",
          .nccl_version = "2.28.3",
          .nccl_environment = {"NCCL_P2P_DISABLE=1"},
          .fabric = "shm",
          .peer_access = {{true, true}, {true, true}},
          .nvlinks = {{0, 18}, {18, 0}},
          .facts = {"ecc=on"}};
}

// Expected values from an FNV-1a written apart from this program.
TEST(FingerprintIdTest, IsStableOverVersionsOfThisProgram) {
  EXPECT_EQ(FingerprintId(Fingerprint{}), "3ecb33e15783bec5");
  EXPECT_EQ(FingerprintId(Node()), "d0cf890a84b59124");
}

TEST(FingerprintIdTest, IsEqualForEqualFingerprints) {
  EXPECT_EQ(FingerprintId(Node()), FingerprintId(Node()));
}

TEST(FingerprintIdTest, ChangesWithEveryField) {
  const std::vector<std::function<void(Fingerprint&)>> changes = {
      [](Fingerprint& f) { f.gpus.pop_back(); },
      [](Fingerprint& f) { f.gpus[1].name = "NVIDIA H100"; },
      [](Fingerprint& f) { f.gpus[1].uuid = "GPU-3"; },
      [](Fingerprint& f) { f.gpus[1].memory_bytes = -1; },
      [](Fingerprint& f) { f.gpus[1].compute_capability = 100; },
      [](Fingerprint& f) { f.driver_version = "580.83"; },
      [](Fingerprint& f) { f.cuda_version = "13.1"; },
      [](Fingerprint& f) { f.nccl_version = "2.28.4"; },
      [](Fingerprint& f) { f.nccl_environment.clear(); },
      [](Fingerprint& f) { f.nccl_environment.push_back(""); },
      [](Fingerprint& f) { f.fabric = "net"; },
      [](Fingerprint& f) { f.peer_access[0][1] = false; },
      [](Fingerprint& f) { f.peer_access.clear(); },
      [](Fingerprint& f) { f.nvlinks[0][1] = 17; },
      [](Fingerprint& f) { f.nvlinks.clear(); },
      [](Fingerprint& f) { f.facts = {"ecc=off"}; },
      // The same bytes, otherwise divided over fields.
      [](Fingerprint& f) {
        f.driver_version = "580.821";
        f.cuda_version = "3.0";
      },
      [](Fingerprint& f) { std::swap(f.nccl_environment, f.facts); },
  };
  std::set<std::string> ids = {FingerprintId(Node())};
  for (const auto& change : changes) {
    Fingerprint changed = Node();
    change(changed);
    ids.insert(FingerprintId(changed));
  }
  EXPECT_EQ(ids.size(), changes.size() + 1);
  for (const std::string& id : ids) {
    EXPECT_THAT(id, testing::MatchesRegex("[0-9a-f]+"));
    EXPECT_EQ(id.size(), 16u);
  }
}

}  // namespace
}  // namespace fabricwise
