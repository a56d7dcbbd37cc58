// SPDX-License-Identifier: Apache-2.0
#include "server/recommend/ranking.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace fabricwise {
namespace {

// Times as in the ranking: misses before seconds.
struct Time {
  bool misses = false;
  double seconds = 0;
};

bool Better(const Time& a, const Time& b) {
  if (a.misses != b.misses) return b.misses;
  return a.seconds < b.seconds;
}

Time TimeOf(const Score& score) { return {score.misses, score.seconds}; }

// Whether `time` is within `margin` of `best`, which is no worse.
bool Within(const Time& time, const Time& best, double margin) {
  return time.misses == best.misses &&
         time.seconds <= best.seconds * (1 + margin);
}

double MarginOf(const Contestant& contestant) {
  return contestant.running ? kSwitchMargin : kTieRatio;
}

// Negative: `a` is preferred among equals, 0: neither.
int ComparePreference(const Contestant& a, const Contestant& b) {
  if (a.gpus != b.gpus) return a.gpus < b.gpus ? -1 : 1;
  if (a.complexity != b.complexity) return a.complexity < b.complexity ? -1 : 1;
  return 0;
}

// First, of `count` contestants; `index`: by which the earlier of two that are
// alike in all goes first.
template <typename ContestantAt, typename ScoreAt, typename IndexOf>
std::optional<size_t> FirstOf(size_t count, const ContestantAt& contestant,
                              const ScoreAt& score, const IndexOf& index,
                              const Plan* held) {
  std::optional<Time> least;
  for (size_t i = 0; i < count; ++i) {
    if (score(i).runs &&
        (!least.has_value() || Better(TimeOf(score(i)), *least))) {
      least = TimeOf(score(i));
    }
  }
  std::optional<size_t> first, first_held, running;
  const auto take = [&](size_t i, std::optional<size_t>& so_far) {
    const int preference =
        so_far.has_value()
            ? ComparePreference(contestant(i), contestant(*so_far))
            : -1;
    if (preference > 0) return;
    if (preference < 0 || score(i).seconds < score(*so_far).seconds ||
        (score(i).seconds == score(*so_far).seconds &&
         index(i) < index(*so_far))) {
      so_far = i;
    }
  };
  for (size_t i = 0; i < count; ++i) {
    if (!score(i).runs ||
        !Within(TimeOf(score(i)), *least, MarginOf(contestant(i)))) {
      continue;
    }
    if (contestant(i).running) {
      if (!running.has_value() || index(i) < index(*running)) running = i;
      continue;
    }
    take(i, first);
    if (held != nullptr && contestant(i).plan == *held) take(i, first_held);
  }
  if (running.has_value()) return running;
  return first_held.has_value() ? first_held : first;
}

class Search {
 public:
  Search(absl::Span<const Contestant> contestants,
         absl::FunctionRef<Score(size_t, int64_t)> score)
      : contestants_(contestants), score_(score) {}

  std::vector<Change> Between(int64_t low, int64_t high,
                              absl::Span<const int64_t> asked) {
    std::vector<Look> looks(contestants_.size());
    for (size_t i = 0; i < looks.size(); ++i) looks[i] = {low, score_(i, low)};
    for (int64_t at = low; at < high;) {
      int64_t next = std::min(kLookFactor * at, high);
      const auto above = std::upper_bound(asked.begin(), asked.end(), at);
      if (above != asked.end()) next = std::min(next, *above);
      Field field = FieldOf(looks, at, next);
      if (at == low) held_ = First(field, &Entry::low);
      Descend(std::move(field), at, next);
      at = next;
    }
    return std::move(changes_);
  }

 private:
  struct Look {
    int64_t at = 0;
    Score score;
  };

  // A contestant from one concurrency to another.
  struct Entry {
    size_t index = 0;
    Score low, high;

    bool Always() const { return low.runs && high.runs; }
    bool Never() const { return !low.runs && !high.runs; }
    bool MayMiss() const { return low.misses || high.misses; }
    // What begins to run on the way may be anything there.
    bool WillMiss() const {
      return low.runs && low.misses && (high.misses || !high.runs);
    }
    Time Worst() const {
      return {MayMiss(), std::max(low.seconds, high.seconds)};
    }
  };
  using Field = std::vector<Entry>;

  // Those that may stand first somewhere from `low` to `high`. `looks`: the
  // last ones, at `low` or below it; becomes those at `high`.
  Field FieldOf(std::vector<Look>& looks, int64_t low, int64_t high) {
    const double slack = Slack(low, high);
    Field field;
    field.reserve(looks.size());
    std::optional<Entry> ahead;
    // Of those that need not be looked at.
    std::vector<bool> known(looks.size()), out(looks.size());
    // The shortest at the last look goes first, so that others can be left out.
    std::vector<size_t> order(looks.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const Score &x = looks[a].score, &y = looks[b].score;
      if (x.runs != y.runs) return x.runs;
      return Better(TimeOf(x), TimeOf(y));
    });
    const auto is_out = [&](size_t i, const Entry* faster) {
      if (!ahead.has_value()) return false;
      const Score& last = looks[i].score;
      const Time at_best{last.misses, last.seconds / kFall};
      if (last.runs && Better(ahead->Worst(), at_best) &&
          !Within(at_best, ahead->Worst(), MarginOf(contestants_[i]))) {
        return true;
      }
      if (faster == nullptr || !faster->Always() || ahead->MayMiss()) {
        return false;
      }
      Entry at_least{.index = i, .low = faster->low, .high = faster->high};
      for (Score* score : {&at_least.low, &at_least.high}) {
        score->misses = false;
        score->seconds /= kFall;
        score->part_seconds = {};
      }
      return SurelyBeyond(at_least, *ahead, slack);
    };
    std::vector<size_t> place(looks.size());  // in the field
    const auto take = [&](auto& self, size_t i) -> void {
      if (known[i]) return;
      known[i] = true;
      const Entry* faster = nullptr;
      if (const auto j = contestants_[i].faster; j.has_value()) {
        self(self, *j);
        if (!out[*j]) faster = &field[place[*j]];
      }
      out[i] = is_out(i, faster);
      if (out[i]) return;
      Look& look = looks[i];
      if (look.at < low) {
        look = {.at = low, .score = score_(i, low)};
        out[i] = is_out(i, nullptr);
        if (out[i]) return;
      }
      place[i] = field.size();
      const Entry& entry =
          field.emplace_back(Entry{i, look.score, score_(i, high)});
      look = {.at = high, .score = entry.high};
      if (entry.Always() &&
          (!ahead.has_value() || Better(entry.Worst(), ahead->Worst()))) {
        ahead = entry;
      }
    };
    for (const size_t i : order) take(take, i);
    return field;
  }

  // Appends the changes in (low, high] to changes_; at `low`, held_ is first.
  void Descend(Field field, int64_t low, int64_t high) {
    const double slack = Slack(low, high);
    Narrow(field, slack);
    const bool last = high - low == 1;
    if (!last && Holds(field, slack)) return;
    if (last || high - low <= low / kFinestStretch) {
      const std::optional<size_t> to = First(field, &Entry::high);
      if (Same(held_, to)) {
        held_ = to;
        return;
      }
      if (last) {
        changes_.push_back({high, held_, to});
        held_ = to;
        return;
      }
    }
    const int64_t middle = low + (high - low) / 2;
    Field above = field;
    for (size_t i = 0; i < field.size(); ++i) {
      field[i].high = above[i].low = score_(field[i].index, middle);
    }
    Descend(std::move(field), low, middle);
    Descend(std::move(above), middle, high);
  }

  // How far two may part or meet between the two.
  static double Slack(int64_t low, int64_t high) {
    return kStray * static_cast<double>(high - low) / static_cast<double>(low);
  }

  // Leaves out what can nowhere be within its margin of the first.
  void Narrow(Field& field, double slack) const {
    std::optional<Entry> ahead;
    for (const Entry& entry : field) {
      if (entry.Always() &&
          (!ahead.has_value() || Better(entry.Worst(), ahead->Worst()))) {
        ahead = entry;
      }
    }
    std::erase_if(field, [&](const Entry& entry) {
      return entry.Never() ||
             (ahead.has_value() && SurelyBeyond(entry, *ahead, slack));
    });
  }

  // Whether what is held stays first throughout, or none runs anywhere.
  bool Holds(const Field& field, double slack) const {
    if (!held_.has_value()) return field.empty();
    const Plan& held = contestants_[*held_].plan;
    return std::any_of(field.begin(), field.end(), [&](const Entry& entry) {
      return entry.Always() && Of(entry).plan == held &&
             std::all_of(field.begin(), field.end(), [&](const Entry& other) {
               return Of(other).plan == held ||
                      StaysBefore(entry, other, slack);
             });
    });
  }

  // Whether `held`, which always runs, is nowhere left for `other`.
  bool StaysBefore(const Entry& held, const Entry& other, double slack) const {
    if (Of(other).running && !SurelyBeyond(other, held, slack)) return false;
    return SurelyWithin(held, other, MarginOf(Of(held)), slack);
  }

  // Of two that run all the way, what they have in common at both ends.
  struct Common {
    double low = 0, high = 0;
  };
  Common CommonOf(const Entry& a, const Entry& b) const {
    Common common;
    if (!a.Always() || !b.Always()) return common;
    for (size_t part = 0; part < kScoreParts; ++part) {
      const int number = Of(a).parts[part];
      if (number == 0 || number != Of(b).parts[part]) continue;
      common.low += a.low.part_seconds[part];
      common.high += a.high.part_seconds[part];
    }
    return common;
  }

  // Whether `a` is everywhere within `margin` of `b`, or before it.
  bool SurelyWithin(const Entry& a, const Entry& b, double margin,
                    double slack) const {
    if (a.index == b.index) return a.Always();
    if (!a.Always() || !b.low.runs) return false;
    if (a.MayMiss() && !b.WillMiss()) return false;
    if (!a.MayMiss() && b.WillMiss()) return true;
    // With nothing in common it would be harder, with all of it no easier than:
    if (a.low.seconds > (1 + margin) * b.low.seconds) return false;
    const Common common = CommonOf(a, b);
    const auto within = [&](double of_a, double of_b, double of_both) {
      return (1 + slack) * (of_a - of_both) <=
             (1 + margin) * (of_b - of_both) + margin * of_both;
    };
    if (!b.high.runs) {
      // It stops on the way, where the other may have become slow.
      return kFall * a.Worst().seconds <= (1 + margin) * b.low.seconds;
    }
    return within(a.low.seconds, b.low.seconds, common.low) &&
           within(a.high.seconds, b.high.seconds, common.high);
  }

  // Whether `entry` is everywhere further behind `ahead`, which always runs,
  // than its margin.
  bool SurelyBeyond(const Entry& entry, const Entry& ahead,
                    double slack) const {
    if (entry.index == ahead.index || !entry.low.runs) return false;
    if (ahead.MayMiss() && !entry.WillMiss()) return false;
    if (!ahead.MayMiss() && entry.WillMiss()) return true;
    const double margin = MarginOf(Of(entry));
    // However much the two have in common:
    if (entry.low.seconds <= (1 + margin) * ahead.low.seconds) return false;
    const Common common = CommonOf(entry, ahead);
    const auto beyond = [&](double time, double of_ahead, double of_both) {
      return time - of_both >
             (1 + margin) * (1 + slack) * (of_ahead - of_both) +
                 margin * of_both;
    };
    if (!entry.high.runs) {
      // It stops on the way, where the other may have become slow.
      return entry.low.seconds > (1 + margin) * kFall * ahead.Worst().seconds;
    }
    return beyond(entry.low.seconds, ahead.low.seconds, common.low) &&
           beyond(entry.high.seconds, ahead.high.seconds, common.high);
  }

  std::optional<size_t> First(const Field& field, Score Entry::*end) const {
    const std::optional<size_t> place = FirstOf(
        field.size(),
        [&](size_t i) -> const Contestant& { return Of(field[i]); },
        [&](size_t i) -> const Score& { return field[i].*end; },
        [&](size_t i) { return field[i].index; },
        held_.has_value() ? &contestants_[*held_].plan : nullptr);
    if (!place.has_value()) return std::nullopt;
    return field[*place].index;
  }

  bool Same(const std::optional<size_t>& a,
            const std::optional<size_t>& b) const {
    if (!a.has_value() || !b.has_value()) return a == b;
    return contestants_[*a].plan == contestants_[*b].plan;
  }

  const Contestant& Of(const Entry& entry) const {
    return contestants_[entry.index];
  }

  const absl::Span<const Contestant> contestants_;
  const absl::FunctionRef<Score(size_t, int64_t)> score_;
  std::optional<size_t> held_;  // first at the last concurrency that is done
  std::vector<Change> changes_;
};

}  // namespace

std::optional<size_t> First(absl::Span<const Contestant> contestants,
                            absl::Span<const Score> scores, const Plan* held) {
  return FirstOf(
      scores.size(),
      [&](size_t i) -> const Contestant& { return contestants[i]; },
      [&](size_t i) -> const Score& { return scores[i]; },
      [](size_t i) { return i; }, held);
}

std::vector<Change> FindChanges(absl::Span<const Contestant> contestants,
                                int64_t low, int64_t high,
                                absl::FunctionRef<Score(size_t, int64_t)> score,
                                absl::Span<const int64_t> asked) {
  return Search(contestants, score).Between(low, high, asked);
}

}  // namespace fabricwise
