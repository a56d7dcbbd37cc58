// SPDX-License-Identifier: Apache-2.0
//
// Patterns over module names ("model.layers.3.self_attn.q_proj"), as
// quantization configs use them. They come from outside, so they are matched by
// simulation of an automaton: no recursion over the input, no backtracking,
// and every step is counted.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fabricwise {

class NamePattern {
 public:
  // The part of Python's regular expressions that such lists use: literals,
  // `.`, `\.` and its like, `\d`, `\w`, `[...]`, `(...)`, `(?:...)`, `|`, `*`,
  // `+`, `?`, `^`, `$`. Must match from the start of a name, not to its end (as
  // re.match). INVALID_ARGUMENT naming what is not understood.
  static absl::StatusOr<NamePattern> Regex(absl::string_view text);

  // A run of whole dotted parts of a name, where `*` stands for any text:
  // "model.layers.*.self_attn" matches that module and all in it.
  // INVALID_ARGUMENT where too long.
  static absl::StatusOr<NamePattern> Glob(absl::string_view text);

  // Takes the steps it needs off `steps_left`; where they do not suffice, makes
  // it negative and answers false.
  bool Matches(absl::string_view name, int64_t* steps_left) const;

  static constexpr size_t kMaxBytes = 1024;

 private:
  friend class PatternCompiler;
  enum class Op {
    kAny,      // any byte
    kByte,     // the byte `first`
    kSet,      // any byte of sets_[first]
    kSplit,    // on at both `first` and `second`, relative
    kJump,     // on at `first`, relative
    kAtStart,  // nothing, at the start of the name
    kAtEnd,    // nothing, at its end
    kAccept,
  };
  struct Instruction {
    Op op = Op::kAccept;
    int first = 0, second = 0;
  };
  using Program = std::vector<Instruction>;
  using Bytes = std::bitset<256>;

  NamePattern() = default;

  // Whether the program accepts from byte `start` of the name on.
  bool MatchesAt(absl::string_view name, size_t start,
                 int64_t* steps_left) const;

  Program program_;
  std::vector<Bytes> sets_;
  // Where in a name the program may begin: at its start only, anywhere, or at
  // any of its dotted parts.
  enum class Begin { kName, kAnywhere, kPart };
  Begin begin_ = Begin::kName;
  std::string prefix_;    // what the program begins with
  std::string required_;  // what stands in any name that matches
};

}  // namespace fabricwise
