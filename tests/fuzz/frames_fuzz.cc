// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a worker's frames: the same frames and the same end, whether the
// bytes come at once or one by one.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "server/measure/frames.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using fabricwise::FrameDecoder;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  std::vector<fabricwise::worker::v1::WorkerFrame> whole, pieces;
  FrameDecoder at_once, one_by_one;
  const absl::Status status = at_once.Add(bytes, &whole);
  for (const char c : bytes) {
    (void)one_by_one.Add(absl::string_view(&c, 1), &pieces);
  }
  if (one_by_one.Finish() != at_once.Finish()) std::abort();
  if (!status.ok() && at_once.Finish() != status) std::abort();
  if (whole.size() != pieces.size()) std::abort();
  for (size_t i = 0; i < whole.size(); ++i) {
    if (whole[i].sequence() != i) std::abort();
    if (whole[i].has_probe() != (i == 0)) std::abort();
    if (whole[i].has_done() && i + 1 != whole.size()) std::abort();
  }
  return 0;
}
