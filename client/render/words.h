// SPDX-License-Identifier: Apache-2.0
//
// The contract's enums and messages in the words of the terminal.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/render/style.h"
#include "fabricwise/v1/advisor.pb.h"
#include "fabricwise/v1/model.pb.h"
#include "google/protobuf/timestamp.pb.h"

namespace fabricwise {

// "measured", "interpolated", ...; "" for unspecified.
std::string Words(v1::Basis basis);
Paint PaintOf(v1::Basis basis);

// "vllm", "reference", ...; "any" for unspecified.
std::string Words(v1::Engine engine);

// The epoch for an absent timestamp.
absl::Time TimeOf(const google::protobuf::Timestamp& timestamp);

// What was asked, in one line: "64 sequences, 1,024 in + 1,024 out, ...".
// `concurrency` says how many sequences, or "" to leave them out.
std::string DescribeLoad(const v1::RecommendParallelismRequest& question,
                         const std::string& concurrency);

// "TP8 up to 15 sequences, DP8+EP8 from 16, none from 128". Empty for no flip.
std::string DescribeFlips(
    const google::protobuf::RepeatedPtrField<v1::FlipPoint>& flips);

// What an answer rests on: profile, fingerprint, ages, and where `with_notes`
// all that is to be known of it, else how much that is.
std::string RenderGrounds(const Style& style, const v1::Grounds& grounds,
                          absl::Time now, bool with_notes);

// "a, b, c and 5 more": at most `most` items, 0 for all.
std::string JoinSome(const std::vector<std::string>& items, size_t most);

}  // namespace fabricwise
