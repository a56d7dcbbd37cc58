// SPDX-License-Identifier: Apache-2.0
//
// The worker's side of the talk, taken from bytes as they arrive: frames behind
// their length (proto/fabricwise/worker/v1/worker.proto).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "fabricwise/worker/v1/worker.pb.h"

namespace fabricwise {

// A longer frame is refused before any of it is kept.
inline constexpr size_t kMaxFrameBytes = size_t{4} << 20;

// Holds at most one frame's bytes. Not thread-safe.
class FrameDecoder {
 public:
  // Takes `bytes` and appends the frames that they complete to `frames`: a
  // Probe, then any of Progress, Result and Skip, then Done and nothing more,
  // numbered from 0 without a gap. INTERNAL names the frame that is off and
  // why; it is then given for ever, and frames before it have been appended.
  absl::Status Add(absl::string_view bytes,
                   std::vector<worker::v1::WorkerFrame>* frames);

  // To be asked when no more bytes will come: OK after Done. INTERNAL: the
  // stream ends in the middle of a frame, or before Done.
  absl::Status Finish() const;

  // Frames so far.
  uint64_t count() const { return count_; }
  bool done() const { return done_; }

 private:
  absl::Status Take(absl::string_view bytes,
                    std::vector<worker::v1::WorkerFrame>* frames);
  absl::Status Check(const worker::v1::WorkerFrame& frame) const;

  std::string pending_;  // of an unfinished frame, its length included
  uint64_t count_ = 0;
  bool done_ = false;
  absl::Status error_;
};

// A frame as the worker sends it, length and all.
std::string EncodeFrame(const worker::v1::WorkerFrame& frame);

}  // namespace fabricwise
