// SPDX-License-Identifier: Apache-2.0
//
// What tables of plans have in common: columns, marks, the line above. Pure.
#pragma once

#include <string>
#include <vector>

#include "client/render/style.h"
#include "client/render/table.h"
#include "client/render/units.h"
#include "fabricwise/v1/advisor.pb.h"

namespace fabricwise {

// Marks that the style has.
std::string Dot(const Style& style);
std::string Dash(const Style& style);
std::string AtMost(const Style& style);
std::string AtLeast(const Style& style);

// " MODEL, LOAD", wrapped.
std::string Heading(const Style& style, const std::string& model,
                    const std::string& load);

// What of a question decides what its table tells.
struct Kind {
  bool latency = false;
  bool prefill = false;
  bool communication = false;

  // Whether plans are told apart by the time of a step, not by a rate.
  bool by_time() const { return latency || (communication && !prefill); }
};

Kind KindOf(const v1::RecommendParallelismRequest& question);

// A plan's mode, marked where its engine's rules are in doubt.
std::string ModeCell(const v1::PlanAdvice& plan);

// Whether a term of the plan is an upper bound, which the contract tells by an
// interval without a lower end: then times are at most, rates at least so.
bool IsBound(const v1::PlanAdvice& plan);

// What the marks of bounds stand for, and which terms are why; empty where no
// plan is one.
std::string RenderUpperBounds(const Style& style,
                              const std::vector<const v1::PlanAdvice*>& plans);

// What the marks stand for, once for each engine.
std::string RenderCaveats(const Style& style,
                          const std::vector<const v1::PlanAdvice*>& plans);

// How much worse (or better) `plan` is than `first`, by what was asked for:
// "-3.1 %" tokens per second, or "+3.1 %" time per token or of communication.
std::string VersusFirst(const Kind& kind, const v1::PlanAdvice& plan,
                        const v1::PlanAdvice& first);

// GPUs, rate, times, interval and memory of plans, times in units that suit all
// of them. Of communication alone there is no rate, as a step takes more.
class PlanColumns {
 public:
  PlanColumns(const Kind& kind,
              const std::vector<const v1::PlanAdvice*>& plans);

  const Kind& kind() const { return kind_; }

  void AddTo(std::vector<Column>* columns) const;
  void AddTo(const Style& style, const v1::PlanAdvice& plan, Paint paint,
             std::vector<Cell>* row) const;

 private:
  Kind kind_;
  TimeUnit tpot_, ttft_;
};

}  // namespace fabricwise
