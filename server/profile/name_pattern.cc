// SPDX-License-Identifier: Apache-2.0
#include "server/profile/name_pattern.h"

#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/base/argument.h"
#include "server/base/status_macros.h"

namespace fabricwise {

// Recursive descent over a pattern; each piece compiles to a program of its
// own, and pieces are joined by copying.
class PatternCompiler {
 public:
  using Op = NamePattern::Op;
  using Program = NamePattern::Program;
  using Bytes = NamePattern::Bytes;

  explicit PatternCompiler(absl::string_view text) : text_(text) {}

  absl::StatusOr<NamePattern> Regex() {
    if (text_.size() > NamePattern::kMaxBytes) return TooLong();
    // Most begin with `.*` and some words: those are found by searching for
    // the words, many times faster than by simulation.
    constexpr absl::string_view kAnything = ".*";
    if (absl::StartsWith(text_, kAnything)) {
      at_ = kAnything.size();
      Next('?');
      ASSIGN_OR_RETURN(Program rest, Sequence(0));
      if (at_ == text_.size()) {
        NamePattern pattern = Finish(std::move(rest));
        pattern.begin_ = NamePattern::Begin::kAnywhere;
        if (!pattern.prefix_.empty()) return pattern;
      }
      at_ = 0;
      sets_.clear();
    }
    ASSIGN_OR_RETURN(Program program, Alternatives(0));
    if (at_ < text_.size()) return Refuse("an unmatched )");
    return Finish(std::move(program));
  }

  absl::StatusOr<NamePattern> Glob() {
    if (text_.size() > NamePattern::kMaxBytes) return TooLong();
    const Program any = Star(One(Op::kAny));
    Program program;
    for (const char c : text_) Append(&program, c == '*' ? any : Byte(c));
    // The end of the name, or of a part of it.
    Append(&program, Optional(Join(Byte('.'), any)));
    program.push_back({.op = Op::kAtEnd});
    NamePattern pattern = Finish(std::move(program));
    pattern.begin_ = NamePattern::Begin::kPart;
    for (const absl::string_view run : absl::StrSplit(text_, '*')) {
      if (run.size() > pattern.required_.size() && run != pattern.prefix_) {
        pattern.required_ = std::string(run);
      }
    }
    return pattern;
  }

 private:
  // Deep enough for any list seen, shallow enough for any stack.
  static constexpr int kMaxDepth = 16;

  NamePattern Finish(Program program) {
    NamePattern pattern;
    for (const auto& instruction : program) {
      if (instruction.op != Op::kByte) break;
      pattern.prefix_ += static_cast<char>(instruction.first);
    }
    program.push_back({.op = Op::kAccept});
    pattern.program_ = std::move(program);
    pattern.sets_ = std::move(sets_);
    return pattern;
  }

  static Program One(Op op) { return {{.op = op}}; }
  static Program Byte(char c) {
    return {{.op = Op::kByte, .first = static_cast<unsigned char>(c)}};
  }
  Program Set(const Bytes& bytes) {
    sets_.push_back(bytes);
    return {{.op = Op::kSet, .first = static_cast<int>(sets_.size()) - 1}};
  }
  static void Append(Program* program, const Program& more) {
    program->insert(program->end(), more.begin(), more.end());
  }
  static Program Join(Program first, const Program& second) {
    Append(&first, second);
    return first;
  }
  static int Size(const Program& program) {
    return static_cast<int>(program.size());
  }
  static Program Optional(const Program& body) {
    return Join({{.op = Op::kSplit, .first = 1, .second = Size(body) + 1}},
                body);
  }
  static Program Star(const Program& body) {
    return Join(
        Join({{.op = Op::kSplit, .first = 1, .second = Size(body) + 2}}, body),
        {{.op = Op::kJump, .first = -Size(body) - 1}});
  }
  static Program Plus(const Program& body) {
    return Join(body, {{.op = Op::kSplit, .first = -Size(body), .second = 1}});
  }
  static Program Either(const Program& left, const Program& right) {
    Program program = {
        {.op = Op::kSplit, .first = 1, .second = Size(left) + 2}};
    Append(&program, left);
    program.push_back({.op = Op::kJump, .first = Size(right) + 1});
    return Join(std::move(program), right);
  }

  absl::Status Refuse(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(
        "pattern ", Quoted(text_), " has ", what, " at byte ", at_,
        "; allowed: literals . \\. \\d \\w [] () (?:) | * + ? ^ $"));
  }
  absl::Status TooLong() const {
    return NotAllowed(absl::StrCat("pattern ", Quoted(text_)),
                      absl::StrCat(text_.size(), " bytes long"),
                      absl::StrCat("at most ", NamePattern::kMaxBytes));
  }

  bool Next(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  absl::StatusOr<Program> Alternatives(int depth) {
    ASSIGN_OR_RETURN(Program program, Sequence(depth));
    while (Next('|')) {
      ASSIGN_OR_RETURN(const Program other, Sequence(depth));
      program = Either(program, other);
    }
    return program;
  }

  absl::StatusOr<Program> Sequence(int depth) {
    Program program;
    while (at_ < text_.size() && text_[at_] != '|' && text_[at_] != ')') {
      ASSIGN_OR_RETURN(Program piece, Piece(depth));
      bool repeated = false;
      for (;; repeated = true) {
        Program (*make)(const Program&) = Next('*')   ? Star
                                          : Next('+') ? Plus
                                          : Next('?') ? Optional
                                                      : nullptr;
        if (make == nullptr) break;
        if (repeated) return Refuse("a repeated repetition");
        piece = make(piece);
        Next('?');  // lazy: other order of search, same names
      }
      Append(&program, piece);
    }
    return program;
  }

  absl::StatusOr<Program> Piece(int depth) {
    const char c = text_[at_];
    switch (c) {
      case '(':
        return Group(depth);
      case '[':
        return Class();
      case '\\':
        return Escape();
      case '{':
        return Refuse("a counted repetition");
      case '*':
      case '+':
      case '?':
        return Refuse("nothing to repeat");
      default:
        break;
    }
    ++at_;
    if (c == '.') return One(Op::kAny);
    if (c == '^') return One(Op::kAtStart);
    if (c == '$') return One(Op::kAtEnd);
    return Byte(c);
  }

  absl::StatusOr<Program> Group(int depth) {
    if (depth >= kMaxDepth) return Refuse("groups nested too deep");
    Next('(');
    if (Next('?') && !Next(':')) return Refuse("an unknown kind of group");
    ASSIGN_OR_RETURN(Program program, Alternatives(depth + 1));
    if (!Next(')')) return Refuse("an unmatched (");
    return program;
  }

  absl::StatusOr<Program> Escape() {
    ASSIGN_OR_RETURN(const Bytes bytes, EscapedBytes());
    return Set(bytes);
  }

  absl::StatusOr<Bytes> EscapedBytes() {
    Next('\\');
    if (at_ >= text_.size()) return Refuse("nothing after \\");
    const unsigned char c = static_cast<unsigned char>(text_[at_]);
    Bytes bytes;
    if (c == 'd' || c == 'w') {
      for (size_t i = 0; i < bytes.size(); ++i) {
        const auto byte = static_cast<unsigned char>(i);
        bytes[i] = absl::ascii_isdigit(byte) ||
                   (c == 'w' && (absl::ascii_isalpha(byte) || byte == '_'));
      }
    } else if (absl::ascii_ispunct(c)) {
      bytes.set(c);
    } else {
      return Refuse("an unknown escape");
    }
    ++at_;
    return bytes;
  }

  absl::StatusOr<Program> Class() {
    Next('[');
    const bool negated = Next('^');
    Bytes bytes;
    bool first = true;
    while (first || !Next(']')) {
      first = false;
      if (at_ >= text_.size()) return Refuse("an unmatched [");
      if (text_[at_] == '\\') {
        ASSIGN_OR_RETURN(const Bytes escaped, EscapedBytes());
        bytes |= escaped;
        continue;
      }
      const auto low = static_cast<unsigned char>(text_[at_++]);
      auto high = low;
      if (at_ + 1 < text_.size() && text_[at_] == '-' &&
          text_[at_ + 1] != ']') {
        high = static_cast<unsigned char>(text_[at_ + 1]);
        if (high < low || high == '\\') return Refuse("an odd range");
        at_ += 2;
      }
      for (int byte = low; byte <= high; ++byte) {
        bytes.set(static_cast<size_t>(byte));
      }
    }
    return Set(negated ? ~bytes : bytes);
  }

  absl::string_view text_;
  size_t at_ = 0;
  std::vector<Bytes> sets_;
};

absl::StatusOr<NamePattern> NamePattern::Regex(absl::string_view text) {
  return PatternCompiler(text).Regex();
}

absl::StatusOr<NamePattern> NamePattern::Glob(absl::string_view text) {
  return PatternCompiler(text).Glob();
}

bool NamePattern::Matches(absl::string_view name, int64_t* steps_left) const {
  if (--*steps_left < 0 || !absl::StrContains(name, required_)) return false;
  if (begin_ == Begin::kName) {
    return absl::StartsWith(name, prefix_) && MatchesAt(name, 0, steps_left);
  }
  for (size_t at = name.find(prefix_); at != absl::string_view::npos;
       at = name.find(prefix_, at + 1)) {
    if (begin_ == Begin::kPart && at > 0 && name[at - 1] != '.') continue;
    if (MatchesAt(name, at, steps_left)) return true;
  }
  return false;
}

bool NamePattern::MatchesAt(absl::string_view name, size_t start,
                            int64_t* steps_left) const {
  // All places in the program that the bytes so far can lead to.
  std::vector<int> places, next, stack;
  // seen[place] == at + 1: already followed at this byte.
  std::vector<size_t> seen(program_.size(), 0);
  places.push_back(0);
  for (size_t at = start; at <= name.size() && !places.empty(); ++at) {
    next.clear();
    stack = places;
    while (!stack.empty()) {
      if (--*steps_left < 0) return false;
      const int place = stack.back();
      stack.pop_back();
      size_t& mark = seen[static_cast<size_t>(place)];
      if (mark == at + 1) continue;
      mark = at + 1;
      const Instruction& instruction = program_[static_cast<size_t>(place)];
      switch (instruction.op) {
        case Op::kAny:
          if (at < name.size()) next.push_back(place + 1);
          break;
        case Op::kByte:
          if (at < name.size() &&
              static_cast<unsigned char>(name[at]) == instruction.first) {
            next.push_back(place + 1);
          }
          break;
        case Op::kSet:
          if (at < name.size() && sets_[static_cast<size_t>(instruction.first)]
                                       [static_cast<unsigned char>(name[at])]) {
            next.push_back(place + 1);
          }
          break;
        case Op::kSplit:
          stack.push_back(place + instruction.first);
          stack.push_back(place + instruction.second);
          break;
        case Op::kJump:
          stack.push_back(place + instruction.first);
          break;
        case Op::kAtStart:
          if (at == 0) stack.push_back(place + 1);
          break;
        case Op::kAtEnd:
          if (at == name.size()) stack.push_back(place + 1);
          break;
        case Op::kAccept:
          return true;
      }
    }
    places.swap(next);
  }
  return false;
}

}  // namespace fabricwise
