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

// " MODEL, LOAD", wrapped.
std::string Heading(const Style& style, const std::string& model,
                    const std::string& load);

// What of a question decides what its table tells.
struct Kind {
  bool latency = false;
  bool prefill = false;
  bool communication = false;
};

Kind KindOf(const v1::RecommendParallelismRequest& question);

// A plan's mode, marked where its engine's rules are in doubt.
std::string ModeCell(const v1::PlanAdvice& plan);

// What the marks stand for, once for each engine.
std::string RenderCaveats(const Style& style,
                          const std::vector<const v1::PlanAdvice*>& plans);

// How much worse (or better) `plan` is than `first`, by what was asked for:
// "-3.1 %" tokens per second, or "+3.1 %" time per token.
std::string VersusFirst(const Kind& kind, const v1::PlanAdvice& plan,
                        const v1::PlanAdvice& first);

// GPUs, rate, times, interval and memory of plans, times in units that suit all
// of them.
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
