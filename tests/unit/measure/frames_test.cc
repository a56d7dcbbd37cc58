// SPDX-License-Identifier: Apache-2.0
#include "server/measure/frames.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fabricwise {
namespace {

using testing::HasSubstr;
using worker::v1::WorkerFrame;

WorkerFrame Probe() {
  WorkerFrame frame;
  frame.mutable_probe()->set_driver_version("580.1");
  return frame;
}
WorkerFrame Progress(const std::string& key) {
  WorkerFrame frame;
  frame.mutable_progress()->set_key(key);
  return frame;
}
WorkerFrame Done() {
  WorkerFrame frame;
  frame.mutable_done()->set_gpu_milliseconds(7);
  return frame;
}

// Numbered from 0.
std::string Stream(std::vector<WorkerFrame> frames) {
  std::string bytes;
  for (size_t i = 0; i < frames.size(); ++i) {
    frames[i].set_sequence(i);
    bytes += EncodeFrame(frames[i]);
  }
  return bytes;
}

struct Decoded {
  std::vector<WorkerFrame> frames;
  absl::Status added, finished;
};

Decoded Decode(const std::string& bytes) {
  Decoded decoded;
  FrameDecoder decoder;
  decoded.added = decoder.Add(bytes, &decoded.frames);
  decoded.finished = decoder.Finish();
  return decoded;
}

TEST(Frames, ComeWholeHoweverTheBytesArrive) {
  const std::string bytes =
      Stream({Probe(), Progress("a"), Progress("b"), Done()});
  for (size_t portion = 1; portion <= bytes.size(); ++portion) {
    FrameDecoder decoder;
    std::vector<WorkerFrame> frames;
    for (size_t at = 0; at < bytes.size(); at += portion) {
      const std::string part = bytes.substr(at, portion);
      ASSERT_TRUE(decoder.Add(part, &frames).ok());
    }
    EXPECT_TRUE(decoder.Finish().ok());
    EXPECT_TRUE(decoder.done());
    ASSERT_EQ(frames.size(), 4u);
    EXPECT_EQ(frames[0].probe().driver_version(), "580.1");
    EXPECT_EQ(frames[2].progress().key(), "b");
    EXPECT_EQ(frames[3].done().gpu_milliseconds(), 7);
  }
}

TEST(Frames, AMonstrousLengthIsRefusedBeforeItsBytesCome) {
  const std::string gibibyte("\x00\x00\x00\x40", 4);
  const Decoded decoded = Decode(Stream({Probe()}) + gibibyte);
  EXPECT_EQ(decoded.frames.size(), 1u);
  EXPECT_EQ(decoded.added.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(decoded.added.message(),
            "frame 1 is 1073741824 bytes long; allowed: at most 4194304");
  EXPECT_EQ(decoded.finished, decoded.added);
}

TEST(Frames, TheLongestThatIsAllowedPasses) {
  WorkerFrame frame = Probe();
  std::string& text = *frame.mutable_probe()->mutable_driver_version();
  text.assign(kMaxFrameBytes, 'x');
  text.resize(kMaxFrameBytes - (frame.ByteSizeLong() - kMaxFrameBytes));
  ASSERT_EQ(frame.ByteSizeLong(), kMaxFrameBytes);
  EXPECT_TRUE(Decode(EncodeFrame(frame)).added.ok());
  text += "x";
  EXPECT_FALSE(Decode(EncodeFrame(frame)).added.ok());
}

TEST(Frames, ThatAreNoneAreRefused) {
  const std::string garbage("\x04\x00\x00\x00\xFF\xFF\xFF\xFF", 8);
  const Decoded decoded = Decode(garbage);
  EXPECT_EQ(decoded.added.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(decoded.added.message()),
              HasSubstr("frame 0 of 4 bytes is no WorkerFrame"));
}

TEST(Frames, OutOfOrderAreRefused) {
  struct Case {
    std::string bytes;
    const char* message;
  };
  WorkerFrame late = Progress("a");
  late.set_sequence(2);
  WorkerFrame again = Progress("a");
  again.set_sequence(0);
  const std::string probe = Stream({Probe()});
  const Case cases[] = {
      {probe + EncodeFrame(late), "frame 1 bears the number 2"},
      {probe + EncodeFrame(again), "frame 1 bears the number 0"},
      {Stream({Progress("a")}), "the first frame is not the Probe"},
      {Stream({Done()}), "the first frame is not the Probe"},
      {Stream({Probe(), Probe()}), "frame 1 is a second Probe"},
      {Stream({Probe(), WorkerFrame()}),
       "frame 1 says nothing that is known here"},
      {Stream({Probe(), Done(), Progress("a")}),
       "bytes follow Done, which was frame 1"},
  };
  for (const Case& c : cases) {
    const Decoded decoded = Decode(c.bytes);
    EXPECT_EQ(decoded.added.code(), absl::StatusCode::kInternal);
    EXPECT_EQ(decoded.added.message(), c.message);
  }
}

TEST(Frames, ThatEndTooSoonAreNotFinished) {
  const std::string bytes = Stream({Probe(), Progress("a"), Done()});
  for (size_t length = 0; length < bytes.size(); ++length) {
    const Decoded decoded = Decode(bytes.substr(0, length));
    EXPECT_TRUE(decoded.added.ok());
    EXPECT_EQ(decoded.finished.code(), absl::StatusCode::kInternal);
  }
  EXPECT_EQ(Decode("").finished.message(),
            "the frames end without Done, after 0");
  EXPECT_EQ(Decode(bytes.substr(0, 3)).finished.message(),
            "the frames end 3 bytes into frame 0");
}

TEST(Frames, AnErrorStays) {
  FrameDecoder decoder;
  std::vector<WorkerFrame> frames;
  const absl::Status error = decoder.Add(Stream({Done()}), &frames);
  EXPECT_FALSE(error.ok());
  EXPECT_EQ(decoder.Add(Stream({Probe()}), &frames), error);
  EXPECT_TRUE(frames.empty());
}

}  // namespace
}  // namespace fabricwise
