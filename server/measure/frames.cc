// SPDX-License-Identifier: Apache-2.0
#include "server/measure/frames.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status_macros.h"

namespace fabricwise {
namespace {

using worker::v1::WorkerFrame;

constexpr size_t kLengthBytes = 4;

size_t ReadLength(absl::string_view bytes) {
  size_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= size_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return length;
}

}  // namespace

absl::Status FrameDecoder::Add(absl::string_view bytes,
                               std::vector<WorkerFrame>* frames) {
  if (error_.ok()) error_ = Take(bytes, frames);
  if (!error_.ok()) pending_.clear();
  return error_;
}

absl::Status FrameDecoder::Take(absl::string_view bytes,
                                std::vector<WorkerFrame>* frames) {
  while (!bytes.empty()) {
    if (done_) {
      return absl::InternalError(
          absl::StrCat("bytes follow Done, which was frame ", count_ - 1));
    }
    // First the length alone, so that a monstrous one is never waited for.
    size_t want = kLengthBytes;
    if (pending_.size() >= kLengthBytes) want += ReadLength(pending_);
    const size_t more = std::min(want - pending_.size(), bytes.size());
    pending_.append(bytes.data(), more);
    bytes.remove_prefix(more);
    if (pending_.size() < want) return absl::OkStatus();
    const size_t length = ReadLength(pending_);
    if (length > kMaxFrameBytes) {
      return absl::InternalError(absl::StrCat("frame ", count_, " is ", length,
                                              " bytes long; allowed: at most ",
                                              kMaxFrameBytes));
    }
    if (pending_.size() < kLengthBytes + length) continue;
    WorkerFrame frame;
    if (!frame.ParseFromArray(pending_.data() + kLengthBytes,
                              static_cast<int>(length))) {
      return absl::InternalError(
          absl::StrCat("frame ", count_, " of ", length,
                       " bytes is no WorkerFrame: its encoding is broken, or a "
                       "text in it is not UTF-8"));
    }
    pending_.clear();
    RETURN_IF_ERROR(Check(frame));
    ++count_;
    done_ = frame.has_done();
    frames->push_back(std::move(frame));
  }
  return absl::OkStatus();
}

absl::Status FrameDecoder::Check(const WorkerFrame& frame) const {
  if (frame.sequence() != count_) {
    return absl::InternalError(
        absl::StrCat("frame ", count_, " bears the number ", frame.sequence()));
  }
  if (frame.body_case() == WorkerFrame::BODY_NOT_SET) {
    return absl::InternalError(
        absl::StrCat("frame ", count_, " says nothing that is known here"));
  }
  if (frame.has_probe() != (count_ == 0)) {
    return absl::InternalError(
        count_ == 0 ? "the first frame is not the Probe"
                    : absl::StrCat("frame ", count_, " is a second Probe"));
  }
  return absl::OkStatus();
}

absl::Status FrameDecoder::Finish() const {
  if (!error_.ok()) return error_;
  if (!pending_.empty()) {
    return absl::InternalError(absl::StrCat("the frames end ", pending_.size(),
                                            " bytes into frame ", count_));
  }
  if (!done_) {
    return absl::InternalError(
        absl::StrCat("the frames end without Done, after ", count_));
  }
  return absl::OkStatus();
}

std::string EncodeFrame(const WorkerFrame& frame) {
  const std::string body = frame.SerializeAsString();
  std::string bytes;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    bytes += static_cast<char>((body.size() >> (8 * i)) & 0xFF);
  }
  return bytes + body;
}

}  // namespace fabricwise
