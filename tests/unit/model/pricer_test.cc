// SPDX-License-Identifier: Apache-2.0
#include "server/model/pricer.h"

#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/domain/model_shape.h"
#include "server/engines/engine.h"
#include "server/engines/recipe_builder.h"
#include "server/profile/preset.h"
#include "tests/support/random_model.h"
#include "tests/support/synthetic_profile.h"

namespace fabricwise {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const ModelShape& Preset(const std::string& name) { return **FindPreset(name); }

Plan PlanOf(const std::string& mode, bool is_moe) {
  return *ParseMode(mode, is_moe);
}

// The GPUs of one replica of `plan`.
std::vector<int> Gpus(const Plan& plan) {
  std::vector<int> gpus(static_cast<size_t>(plan.pipeline * plan.stage_gpus()));
  std::iota(gpus.begin(), gpus.end(), 0);
  return gpus;
}

struct Asked {
  Workload workload = {.concurrency = 16};
  CostScope scope = CostScope::kStep;
  EngineId engine = EngineId::kReference;
  Launch launch = Launch::kGraph;
  double host_seconds = 0;
};

ExplainedPrice Explain(const Profile& profile, const ModelShape& model,
                       const std::string& mode, const Asked& asked = {}) {
  const Plan plan = PlanOf(mode, model.is_moe());
  Recipe recipe =
      GetEngine(asked.engine)
          .MakeRecipe(model, plan, profile.fingerprint(), Gpus(plan));
  recipe.host_seconds = asked.host_seconds;
  Pricer pricer(profile, asked.scope, asked.workload.routing_skew);
  const auto bound = pricer.Bind(recipe);
  return pricer.Explain(*bound, DecodeLoad(asked.workload, plan), asked.launch);
}

StepLoad Admission(const Workload& workload, const Plan& plan,
                   int64_t sequences, double prompt_tokens,
                   double other_tokens) {
  return AdmissionLoad(DecodeLoad(workload, plan), workload, plan, sequences,
                       prompt_tokens, other_tokens);
}

double Sum(const std::vector<Term>& terms) {
  double sum = 0;
  for (const Term& term : terms) sum += term.seconds;
  return sum;
}

const Term* FindTerm(const ExplainedPrice& price, const std::string& name) {
  for (const Term& term : price.terms) {
    if (term.name == name) return &term;
  }
  return nullptr;
}

// A node without the measurements for which `lacks` holds.
std::shared_ptr<const Profile> Without(
    const std::function<bool(const MeasurementKey&)>& lacks) {
  SyntheticNode node;
  node.keep = [&](const MeasurementKey& key) { return !lacks(key); };
  return SyntheticProfile(node);
}

template <typename Key>
bool Is(const MeasurementKey& key) {
  return std::holds_alternative<Key>(key);
}

bool IsCollective(const MeasurementKey& key, CollectiveOp op) {
  const auto* collective = std::get_if<CollectiveKey>(&key);
  return collective != nullptr && collective->op == op;
}

// ---- Worked by hand

TEST(Pricer, PricesOneLayerAsTheSumOfItsKernels) {
  ModelShape model;
  model.hidden_size = 4096;
  model.num_layers = model.num_dense_layers = 1;
  model.vocab_size = 32'000;
  model.num_attention_heads = 32;
  model.num_key_value_heads = 8;
  model.head_dim = model.v_head_dim = 128;
  model.intermediate_size = 16'384;
  ASSERT_TRUE(Validate(model).ok()) << Validate(model);
  const auto profile = SyntheticProfile();
  const ExplainedPrice price = Explain(*profile, model, "TP2",
                                       {.workload = {.concurrency = 16,
                                                     .phase = Phase::kDecode,
                                                     .context_tokens = 1024}});
  ASSERT_TRUE(price.price.answerable);
  // One all-reduce of 16 x 8192 bytes on two GPUs, twice: latency x log2(4) and
  // 2 x bytes / rate. Sizes on the grid are exact.
  const Term* attention = FindTerm(price, "all_reduce attention");
  ASSERT_NE(attention, nullptr);
  EXPECT_EQ(attention->count, 1);
  EXPECT_EQ(attention->size, 16 * 8192);
  EXPECT_EQ(attention->source, "all_reduce/n2/nccl/graph");
  EXPECT_TRUE(attention->communication);
  EXPECT_NEAR(attention->seconds, 10e-6 + 2 * 131'072 / 300e9, 1e-8);
  const Term* down = FindTerm(price, "down projection");
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down->source, "gemm/bf16/n4096k8192");
  EXPECT_EQ(down->standing, Standing::kInterpolated);
  const Term* kv = FindTerm(price, "attention");
  ASSERT_NE(kv, nullptr);
  // 16 sequences of 1024 tokens of 4 local KV heads.
  EXPECT_EQ(kv->size, 16. * 1024 * 4 * 256 * 2);
  EXPECT_EQ(kv->source, "memory/read");
  EXPECT_THAT(kv->note, HasSubstr("attention not measured"));
  EXPECT_NEAR(kv->seconds, 3e-6 + kv->size / 4e12, 1e-9);
  const Term* small = FindTerm(price, "small kernels");
  ASSERT_NE(small, nullptr);
  EXPECT_NEAR(small->seconds, small->count * 1.5e-6, 1e-12);
  EXPECT_NEAR(Sum(price.terms), price.price.seconds, 1e-12);
}

TEST(Pricer, TellsThePartsThatPlansHaveInCommon) {
  const auto profile = SyntheticProfile();
  const ModelShape& model = Preset("Qwen3-30B-A3B");
  Pricer pricer(*profile, CostScope::kStep, 0);
  const auto bind = [&](const Plan& plan, Recipe& recipe) {
    recipe = GetEngine(EngineId::kVllm)
                 .MakeRecipe(model, plan, profile->fingerprint(), Gpus(plan));
    return pricer.Bind(recipe);
  };
  const Plan sliced = PlanOf("TP8", true), whole = PlanOf("TP8+EP8", true),
             split = PlanOf("DP8", true);
  Recipe of_sliced, of_whole, of_split;
  const auto a = bind(sliced, of_sliced), b = bind(whole, of_whole),
             c = bind(split, of_split);
  // What a rank does by itself, and communication; but not the experts.
  constexpr size_t kExperts = kStepParts - 1;
  const Pricer::PartIds ids_of_a = Pricer::Parts(*a);
  for (size_t part = 0; part < kExperts; ++part) {
    EXPECT_EQ(ids_of_a[part], Pricer::Parts(*b)[part]) << part;
  }
  EXPECT_NE(ids_of_a[kExperts], Pricer::Parts(*b)[kExperts]);
  EXPECT_NE(ids_of_a[0], Pricer::Parts(*c)[0]);
  EXPECT_TRUE(Pricer::SameOwnWork(*a, *b));
  EXPECT_FALSE(Pricer::SameOwnWork(*a, *c));

  const StepLoad load = DecodeLoad({.concurrency = 64}, sliced);
  const StepPrice of_a = pricer.Price(*a, load, Launch::kGraph);
  const StepPrice of_b = pricer.Price(*b, load, Launch::kGraph);
  double together = of_sliced.host_seconds;
  for (size_t part = 0; part < kStepParts; ++part) {
    together += of_a.part_seconds[part];
    if (part < kExperts) {
      EXPECT_EQ(of_a.part_seconds[part], of_b.part_seconds[part]) << part;
    }
  }
  EXPECT_NE(of_a.part_seconds[kExperts], of_b.part_seconds[kExperts]);
  EXPECT_NEAR(together / of_a.seconds, 1, 1e-12);
  // In two steps, the first of which is of both.
  const StepPrice again = pricer.Price(
      *b, load, Launch::kGraph, pricer.PriceOwn(*a, load, Launch::kGraph));
  EXPECT_EQ(again.seconds, of_b.seconds);
  EXPECT_EQ(again.sigma_seconds, of_b.sigma_seconds);
}

TEST(Pricer, CountsHostTimeAsStated) {
  const auto profile = SyntheticProfile();
  const ModelShape& model = Preset("Llama-3.1-8B");
  const double without = Explain(*profile, model, "TP2").price.seconds;
  const ExplainedPrice with =
      Explain(*profile, model, "TP2", {.host_seconds = 1e-3});
  EXPECT_NEAR(with.price.seconds, without + 1e-3, 1e-9);
  EXPECT_NEAR(Sum(with.terms), with.price.seconds, 1e-9);
  const Term* host = FindTerm(with, "host");
  ASSERT_NE(host, nullptr);
  EXPECT_TRUE(host->stated);
  EXPECT_EQ(host->seconds, 1e-3);
}

TEST(Pricer, OfCommunicationAloneNeedsAndCountsNothingElse) {
  const auto profile = Without(
      [](const MeasurementKey& key) { return !Is<CollectiveKey>(key); });
  const ModelShape& kimi = Preset("Kimi-K2.5");
  const ExplainedPrice price =
      Explain(*profile, kimi, "TP8",
              {.scope = CostScope::kCommunication, .host_seconds = 1});
  ASSERT_TRUE(price.price.answerable);
  for (const Term& term : price.terms) EXPECT_TRUE(term.communication);
  EXPECT_NEAR(Sum(price.terms), price.price.seconds, 1e-12);
  EXPECT_LT(price.price.seconds, 1);
  EXPECT_EQ(Explain(*profile, kimi, "TP1", {.scope = CostScope::kCommunication})
                .price.seconds,
            0);
}

// A step of Llama-3.1-8B on one GPU.
ExplainedPrice ExplainOnOne(const Profile& profile, const StepLoad& load) {
  const Recipe recipe = GetEngine(EngineId::kReference)
                            .MakeRecipe(Preset("Llama-3.1-8B"), {},
                                        profile.fingerprint(), Gpus({}));
  Pricer pricer(profile, CostScope::kStep, 0);
  const auto bound = pricer.Bind(recipe);
  return pricer.Explain(*bound, load, Launch::kGraph);
}

TEST(Pricer, CarriesPromptTokensBesideWhatDecodes) {
  const auto profile = SyntheticProfile();
  const Workload workload{.input_tokens = 2048};
  const ExplainedPrice with =
      ExplainOnOne(*profile, Admission(workload, {}, 16, 128, 0));
  const ExplainedPrice without =
      ExplainOnOne(*profile, DecodeLoad(DecodeLoad(workload, {}), {}, 16));
  EXPECT_EQ(FindTerm(with, "gate and up projection")->size, 16 + 128);
  EXPECT_EQ(FindTerm(without, "gate and up projection")->size, 16);
  EXPECT_EQ(FindTerm(with, "attention of prompts")->size, 128);
  EXPECT_EQ(FindTerm(without, "attention of prompts"), nullptr);
  EXPECT_EQ(FindTerm(with, "attention")->seconds,
            FindTerm(without, "attention")->seconds);
  EXPECT_GT(with.price.seconds, without.price.seconds);
}

// ---- What stands in for what

TEST(Pricer, MarksAFormatThatAWiderOneStandsInFor) {
  const auto profile = Without([](const MeasurementKey& key) {
    const auto* experts = std::get_if<ExpertsKey>(&key);
    return experts != nullptr &&
           experts->format.number == NumberFormat::kInt4Group;
  });
  const ExplainedPrice price =
      Explain(*profile, Preset("Kimi-K2.5"), "TP8+EP8");
  const Term* experts = FindTerm(price, "experts");
  ASSERT_NE(experts, nullptr);
  EXPECT_EQ(experts->source, "experts/bf16/h7168i2048e384k8/tp1ep8");
  EXPECT_THAT(experts->note, HasSubstr("a wider format stands in"));
  EXPECT_EQ(experts->standing, Standing::kExtrapolated);
  EXPECT_TRUE(experts->upper_bound);
  EXPECT_TRUE(price.price.upper_bound);
  const ExplainedPrice known =
      Explain(*SyntheticProfile(), Preset("Kimi-K2.5"), "TP8+EP8");
  EXPECT_EQ(FindTerm(known, "experts")->source,
            "experts/int4_group:32/h7168i2048e384k8/tp1ep8");
  EXPECT_EQ(FindTerm(known, "experts")->note, "");
  EXPECT_FALSE(FindTerm(known, "experts")->upper_bound);
  EXPECT_FALSE(known.price.upper_bound);
  EXPECT_LT(FindTerm(known, "experts")->relative_sigma,
            experts->relative_sigma);
}

TEST(Pricer, MarksProductsOfAFormatThatWasNotMeasured) {
  ModelShape model = Preset("Llama-3.1-8B");
  for (NumberFormat format :
       {NumberFormat::kInt4Group, NumberFormat::kMxfp4, NumberFormat::kNvfp4}) {
    model.dense_weights = {format, format == NumberFormat::kInt4Group ? 32 : 0};
    const ExplainedPrice price = Explain(*SyntheticProfile(), model, "TP1");
    const Term* down = FindTerm(price, "down projection");
    ASSERT_NE(down, nullptr);
    EXPECT_EQ(down->source, "gemm/bf16/n4096k14336");
    EXPECT_THAT(down->note, HasSubstr("a wider format stands in"));
  }
  model.dense_weights = {NumberFormat::kFp8};
  EXPECT_EQ(
      FindTerm(Explain(*SyntheticProfile(), model, "TP1"), "down projection")
          ->source,
      "gemm/fp8_block/n4096k14336");
}

TEST(Pricer, MarksTheOtherLaunch) {
  const auto profile = Without([](const MeasurementKey& key) {
    const auto* collective = std::get_if<CollectiveKey>(&key);
    return collective != nullptr && collective->launch == Launch::kGraph;
  });
  const Term term = *FindTerm(Explain(*profile, Preset("Llama-3.1-8B"), "TP2"),
                              "all_reduce attention");
  EXPECT_EQ(term.source, "all_reduce/n2/nccl/eager");
  EXPECT_EQ(term.note, "measured with the other kind of launch");
  const Term meant = *FindTerm(Explain(*profile, Preset("Llama-3.1-8B"), "TP2",
                                       {.launch = Launch::kEager}),
                               "all_reduce attention");
  EXPECT_EQ(meant.note, "");
}

TEST(Pricer, CountsWhatRunsInOneKindOfStepThereAlone) {
  const auto profile = SyntheticProfile();
  const ModelShape& kimi = Preset("Kimi-K2.5");
  const auto terms = [&](Launch launch) {
    return Explain(*profile, kimi, "DP8+EP8",
                   {.engine = EngineId::kSglang, .launch = launch});
  };
  const ExplainedPrice decoding = terms(Launch::kGraph);
  const ExplainedPrice prompts = terms(Launch::kEager);
  const char* const gather = "all_gather feed-forward tokens";
  const char* const sum = "all_reduce feed-forward tokens";
  EXPECT_NE(FindTerm(decoding, gather), nullptr);
  EXPECT_EQ(FindTerm(decoding, sum), nullptr);
  EXPECT_EQ(FindTerm(prompts, gather), nullptr);
  EXPECT_NE(FindTerm(prompts, sum), nullptr);
  for (const ExplainedPrice* price : {&decoding, &prompts}) {
    EXPECT_NEAR(Sum(price->terms) / price->price.seconds, 1, 1e-9);
  }
  // The head sees the rows of all eight ranks.
  EXPECT_EQ(FindTerm(decoding, "output head")->size, 16);
}

TEST(Pricer, TakesTheEnginesKernelWithinItsLimitAndNcclBeyond) {
  ProfileData data = SyntheticProfileData({});
  for (int64_t size = 1024; size <= 256 << 20; size *= 4) {
    Measurement& measurement = data.measurements.emplace_back();
    measurement.key =
        CollectiveKey{.op = CollectiveOp::kAllReduce,
                      .group = {.size = 8},
                      .implementation = CollectiveImpl::kVllmCustom,
                      .size_bytes = size};
    measurement.statistics.median_seconds =
        4e-6 + static_cast<double>(size) / 100e9;
  }
  const auto profile = BuildOrDie(std::move(data));
  const ModelShape& model = Preset("Llama-3.1-70B");
  const auto source = [&](int64_t concurrency, const Profile& of) {
    return *FindTerm(Explain(of, model, "TP8",
                             {.workload = {.concurrency = concurrency,
                                           .phase = Phase::kDecode},
                              .engine = EngineId::kVllm}),
                     "all_reduce attention");
  };
  EXPECT_EQ(source(16, *profile).source, "all_reduce/n8/vllm_custom/graph");
  EXPECT_EQ(source(16, *profile).note, "");
  // 64 MiB is 4096 rows of hidden size 8192.
  EXPECT_EQ(source(4096, *profile).source, "all_reduce/n8/vllm_custom/graph");
  EXPECT_EQ(source(4097, *profile).source, "all_reduce/n8/nccl/graph");
  EXPECT_EQ(source(4097, *profile).note, "");
}

// What an all-reduce of 64 KiB among eight takes of these curves, by a kernel
// of each kind.
struct StandIn {
  std::vector<std::pair<CollectiveImpl, double>> measured;  // microseconds
  CollectiveKernel kernel;
  const char* source;
  const char* note;
  bool upper_bound;
};

TEST(Pricer, TakesTheNearestMeasuredKernelForOneThatIsNot) {
  using enum CollectiveImpl;
  using Kernel = CollectiveKernel;
  const char* const ours = "ours of its kind stands in";
  const char* const bound = "an upper bound, what it passes over for it";
  const StandIn rows[] = {
      {{{kVllmCustom, 9}, {kOneShot, 5}, {kNccl, 20}},
       Kernel::kOneShot,
       "vllm_custom",
       "",
       false},
      {{{kOneShot, 30}, {kTwoShot, 12}, {kNccl, 20}},
       Kernel::kOneShot,
       "one_shot",
       ours,
       false},
      {{{kOneShot, 5}, {kTwoShot, 12}, {kNccl, 20}},
       Kernel::kTwoShot,
       "two_shot",
       ours,
       false},
      {{{kNcclSymmetric, 8}, {kTwoShot, 6}, {kNccl, 20}},
       Kernel::kMulticast,
       "nccl_symmetric",
       ours,
       false},
      {{{kTwoShot, 12}, {kNccl, 20}},
       Kernel::kMulticast,
       "two_shot",
       bound,
       true},
      {{{kTwoShot, 25}, {kNccl, 20}}, Kernel::kMulticast, "nccl", bound, true},
      {{{kTwoShot, 12}, {kNccl, 20}},
       Kernel::kOneShot,
       "two_shot",
       bound,
       true},
      {{{kNccl, 20}}, Kernel::kTwoShot, "nccl", bound, true},
      {{{kVllmCustom, 9}},
       Kernel::kLibrary,
       "vllm_custom",
       "another kernel of the engine",
       false},
  };
  for (const StandIn& row : rows) {
    ProfileData data =
        SyntheticProfileData({.keep = [](const MeasurementKey& key) {
          return !IsCollective(key, CollectiveOp::kAllReduce);
        }});
    for (const auto& [implementation, microseconds] : row.measured) {
      Measurement& measurement = data.measurements.emplace_back();
      measurement.key = CollectiveKey{.op = CollectiveOp::kAllReduce,
                                      .group = {.size = 8},
                                      .implementation = implementation,
                                      .size_bytes = 1 << 16};
      measurement.statistics.median_seconds = microseconds * 1e-6;
    }
    const auto profile = BuildOrDie(std::move(data));
    Recipe recipe;
    recipe.collectives.push_back(
        {.name = "all_reduce",
         .group_size = 8,
         .steps = {{CollectiveOp::kAllReduce, 1 << 16, TokenBasis::kRank}},
         .paths = {{CollectiveImpl::kVllmCustom, row.kernel, 1 << 20},
                   {CollectiveImpl::kNccl}},
         .count = 1});
    if (row.kernel == Kernel::kLibrary) {
      recipe.collectives[0].paths[0].max_bytes = 1 << 10;
    }
    Pricer pricer(*profile, CostScope::kCommunication, 0);
    const auto bound_recipe = pricer.Bind(recipe);
    const ExplainedPrice price = pricer.Explain(
        *bound_recipe,
        DecodeLoad({.concurrency = 1, .phase = Phase::kDecode}, recipe.plan),
        Launch::kGraph);
    ASSERT_EQ(price.terms.size(), 1u) << row.source;
    const Term& term = price.terms[0];
    EXPECT_EQ(term.source,
              absl::StrCat("all_reduce/n8/", row.source, "/graph"));
    EXPECT_THAT(term.note, HasSubstr(row.note));
    EXPECT_EQ(term.note.empty(), std::string(row.note).empty()) << term.note;
    EXPECT_EQ(term.upper_bound, row.upper_bound) << row.source;
    EXPECT_EQ(price.price.upper_bound, row.upper_bound) << row.source;
  }
}

TEST(Pricer, PassesOnThatACollectiveIsAnUpperBound) {
  Recipe recipe;
  recipe.collectives.push_back(
      {.name = "all_gather",
       .group_size = 8,
       .steps = {{CollectiveOp::kAllGather, 4096, TokenBasis::kStage}},
       .paths = {{CollectiveImpl::kNccl}},
       .note = "faster in truth",
       .upper_bound = true,
       .count = 1});
  const auto profile = SyntheticProfile();
  Pricer pricer(*profile, CostScope::kCommunication, 0);
  const ExplainedPrice price = pricer.Explain(
      *pricer.Bind(recipe), DecodeLoad({.concurrency = 8}, recipe.plan),
      Launch::kGraph);
  EXPECT_TRUE(price.price.upper_bound);
  ASSERT_EQ(price.terms.size(), 1u);
  EXPECT_TRUE(price.terms[0].upper_bound);
  EXPECT_EQ(price.terms[0].note, "faster in truth");
}

// ---- Groups by name, and several at once

// Adds a point of 16 tokens of 4 KiB to the curve of `key`.
void AddPoint(CollectiveKey key, double microseconds, ProfileData& data) {
  Measurement& measurement = data.measurements.emplace_back();
  key.size_bytes = 16 * 4096;
  measurement.key = key;
  measurement.statistics.median_seconds = microseconds * 1e-6;
}

// One collective of `tokens` of 4 KiB under `plan`.
Term OneTerm(const Profile& profile, const Plan& plan, CollectiveOp op,
             int group_size, const Site& site,
             Section section = Section::kLayers, int64_t tokens = 16) {
  Recipe recipe{.plan = plan, .num_layers = plan.pipeline};
  recipe.collectives.push_back({.name = "it",
                                .group_size = group_size,
                                .steps = {{op, 4096, TokenBasis::kRank}},
                                .paths = {{CollectiveImpl::kNccl}},
                                .count = 1,
                                .section = section});
  Pricer pricer(profile, CostScope::kCommunication, 0);
  const auto bound = pricer.Bind(recipe, site);
  const ExplainedPrice price = pricer.Explain(
      *bound,
      DecodeLoad(DecodeLoad({.phase = Phase::kDecode}, plan), plan, tokens),
      Launch::kGraph, site.replicas);
  EXPECT_EQ(price.terms.size(), 1u);
  return price.terms.empty() ? Term{} : price.terms[0];
}

TEST(Groups, AreLookedUpByNameWhereTheyWereMeasured) {
  using enum CollectiveOp;
  ProfileData data = SyntheticProfileData({});
  AddPoint({.op = kSendRecv, .group = {2, "2,5"}}, 900, data);
  AddPoint({.op = kAllReduce, .group = {4, "1,3,5,7"}}, 800, data);
  AddPoint({.op = kAllReduce, .group = {2, "1,3"}}, 700, data);
  const auto profile = BuildOrDie(std::move(data));
  const Plan stages{.pipeline = 2, .attention_tp = 2};
  const Term across = OneTerm(*profile, stages, kSendRecv, 2,
                              {.tensor_group = {"1,3"}, .neighbours = {"2,5"}},
                              Section::kBoundary);
  EXPECT_EQ(across.source, "send_recv/n2[2,5]/nccl/graph");
  EXPECT_NEAR(across.seconds / across.count, 900e-6, 1e-12);
  EXPECT_EQ(OneTerm(*profile, stages, kSendRecv, 2, {.neighbours = {"0,1"}},
                    Section::kBoundary)
                .source,
            "send_recv/n2/nccl/graph");
  const Plan ranks{.attention_dp = 2, .attention_tp = 2};
  const Site odd{.tensor_group = {"1,3"}, .stage = {"1,3,5,7"}};
  EXPECT_EQ(OneTerm(*profile, ranks, kAllReduce, 2, odd).source,
            "all_reduce/n2[1,3]/nccl/graph");
  EXPECT_EQ(OneTerm(*profile, ranks, kAllReduce, 4, odd).source,
            "all_reduce/n4[1,3,5,7]/nccl/graph");
  // Neither a tensor-parallel group nor a stage.
  EXPECT_EQ(OneTerm(*profile, {.attention_dp = 2, .attention_tp = 4},
                    kAllReduce, 2, odd)
                .source,
            "all_reduce/n2/nccl/graph");
}

TEST(Groups, AreMarkedWhereTheirCurveIsOfOtherLinks) {
  using enum CollectiveOp;
  ProfileData data = SyntheticProfileData({});
  AddPoint({.op = kAllReduce, .group = {2, "1,3"}}, 700, data);
  const auto profile = BuildOrDie(std::move(data));
  const Plan plan{.attention_tp = 2};
  const auto note = [&](const Site::Group& group, int replicas = 1) {
    return OneTerm(*profile, plan, kAllReduce, 2,
                   {.replicas = replicas, .stage = group})
        .note;
  };
  const char* const otherwise = "measured on GPUs that are linked otherwise";
  EXPECT_EQ(note({"5,7", true}), otherwise);
  EXPECT_EQ(note({"", true}), otherwise);
  EXPECT_EQ(note({"", true}, 4), otherwise);
  EXPECT_EQ(note({"5,7", false}), "");
  EXPECT_EQ(note({"1,3", true}), "");  // measured on these very two
}

TEST(Groups, ThatAreBusyAtOnceHaveCurvesOfTheirOwn) {
  ProfileData data = SyntheticProfileData({});
  AddPoint({.op = CollectiveOp::kAllReduce,
            .group = {.size = 2},
            .concurrent_groups = 4},
           555, data);
  const auto profile = BuildOrDie(std::move(data));
  const auto one = [&](const Plan& plan, int replicas, int64_t tokens = 16) {
    return OneTerm(*profile, plan, CollectiveOp::kAllReduce, 2,
                   {.replicas = replicas}, Section::kLayers, tokens);
  };
  const Plan pair{.attention_tp = 2};
  for (const Term& term :
       {one(pair, 4), one({.attention_dp = 2, .attention_tp = 2}, 2),
        one({.pipeline = 4, .attention_tp = 2}, 1)}) {
    EXPECT_EQ(term.source, "all_reduce/n2/nccl/graph/x4");
    EXPECT_EQ(term.note, "");
  }
  const char* const note = "measured with no other group busy at once";
  EXPECT_EQ(one(pair, 1).source, "all_reduce/n2/nccl/graph");
  EXPECT_EQ(one(pair, 1).note, "");
  EXPECT_EQ(one(pair, 2).source, "all_reduce/n2/nccl/graph");
  EXPECT_EQ(one(pair, 2).note, note);
  // Beyond the reach of that curve.
  EXPECT_EQ(one(pair, 4, 1000).source, "all_reduce/n2/nccl/graph");
  EXPECT_EQ(one(pair, 4, 1000).note, note);
}

TEST(Pricer, NamesWhatANodeCanMeasureWhereNoKernelIs) {
  const auto profile = Without([](const MeasurementKey& key) {
    return IsCollective(key, CollectiveOp::kAllReduce);
  });
  EXPECT_THAT(Explain(*profile, Preset("Llama-3.1-70B"), "TP8",
                      {.engine = EngineId::kVllm})
                  .missing,
              Contains(HasSubstr("all_reduce/n8/nccl/graph/")));
}

TEST(Pricer, RunsTheNormsByThemselvesAfterLongAllReduces) {
  const auto profile = SyntheticProfile();
  const auto norms = [&](int64_t concurrency) {
    const ExplainedPrice price = Explain(
        *profile, Preset("Llama-3.1-70B"), "TP8",
        {.workload = {.concurrency = concurrency, .phase = Phase::kDecode},
         .engine = EngineId::kVllm});
    const Term* term = FindTerm(price, "norms after long all-reduces");
    return term == nullptr ? Term{} : *term;
  };
  // 512 KiB is 32 rows of hidden size 8192.
  EXPECT_EQ(norms(32).count, 0);
  EXPECT_EQ(norms(33).count, 160);
  EXPECT_NEAR(norms(33).seconds, 160 * 1.5e-6, 1e-12);
}

TEST(Pricer, TakesOneAllReduceForAScatterAndAGather) {
  const auto profile = Without([](const MeasurementKey& key) {
    const auto* collective = std::get_if<CollectiveKey>(&key);
    return IsCollective(key, CollectiveOp::kReduceScatter) &&
           collective->group.size == 4;
  });
  const ModelShape& kimi = Preset("Kimi-K2.5");
  const std::string name = "reduce_scatter + all_gather attention";
  const ExplainedPrice stand_in = Explain(*profile, kimi, "DP2xTP4+EP8");
  ASSERT_TRUE(stand_in.price.answerable);
  EXPECT_EQ(FindTerm(stand_in, name)->source, "all_reduce/n4/nccl/graph");
  EXPECT_THAT(FindTerm(stand_in, name)->note, HasSubstr("stands in"));
  EXPECT_THAT(
      FindTerm(Explain(*SyntheticProfile(), kimi, "DP2xTP4+EP8"), name)->note,
      Not(HasSubstr("stands in")));
}

TEST(Pricer, TakesAnAllToAllOfTwoForAStageBoundary) {
  const ModelShape& llama = Preset("Llama-3.1-70B");
  const std::string name = "send_recv stage boundary";
  const auto no_send_recv = [](const MeasurementKey& key) {
    return IsCollective(key, CollectiveOp::kSendRecv);
  };
  const auto profile = Without(no_send_recv);
  const Asked asked{.workload = {.concurrency = 16, .phase = Phase::kDecode}};
  const ExplainedPrice price = Explain(*profile, llama, "PP2xTP4", asked);
  ASSERT_TRUE(price.price.answerable);
  EXPECT_TRUE(price.price.upper_bound);
  const Term* term = FindTerm(price, name);
  ASSERT_NE(term, nullptr);
  EXPECT_EQ(term->source, "all_to_all/n2/nccl/graph");
  EXPECT_EQ(term->size, 8 * 2 * 8192 * 2 / 4);
  EXPECT_TRUE(term->upper_bound);
  EXPECT_THAT(term->note, HasSubstr("an upper bound"));
  const ExplainedPrice measured =
      Explain(*SyntheticProfile(), llama, "PP2xTP4", asked);
  EXPECT_FALSE(measured.price.upper_bound);
  EXPECT_GE(term->seconds, FindTerm(measured, name)->seconds);
  // Without either, what is missing is the message itself.
  EXPECT_THAT(Explain(*Without([&](const MeasurementKey& key) {
                return no_send_recv(key) ||
                       IsCollective(key, CollectiveOp::kAllToAll);
              }),
                      llama, "PP2xTP4", asked)
                  .missing,
              ElementsAre(HasSubstr("send_recv/n2/nccl/graph")));
}

TEST(Pricer, ReadsMeasuredAttentionFromItsTable) {
  ProfileData data = SyntheticProfileData({});
  for (int64_t query : {1, 128}) {
    Measurement& measurement = data.measurements.emplace_back();
    measurement.key = AttentionKey{.batch = query == 1 ? 16 : 1,
                                   .query_tokens = query,
                                   // 128 tokens that see 512 in the mean.
                                   .context_tokens = query == 1 ? 1536 : 576,
                                   .q_heads = 32,
                                   .kv_heads = 8,
                                   .head_dim = 128};
    measurement.statistics.median_seconds = 77e-6;
  }
  const auto profile = BuildOrDie(std::move(data));
  const ExplainedPrice price = ExplainOnOne(
      *profile,
      Admission(
          {.concurrency = 16, .input_tokens = 1024, .output_tokens = 1024}, {},
          16, 128, 0));
  const Term* decode = FindTerm(price, "attention");
  ASSERT_NE(decode, nullptr);
  EXPECT_EQ(decode->source, "attention");
  EXPECT_EQ(decode->note, "");
  const Term* prompts = FindTerm(price, "attention of prompts");
  ASSERT_NE(prompts, nullptr);
  EXPECT_EQ(prompts->source, "attention");
  EXPECT_NEAR(prompts->seconds, 32 * 77e-6, 1e-9);
}

TEST(Pricer, ReadsPromptsByTheTokensThatTheySee) {
  ProfileData data = SyntheticProfileData({});
  // 8,192 tokens: eight prompts of 1,024, or one.
  for (const auto& [batch, query] : {std::pair(8, 1024), std::pair(1, 8192)}) {
    Measurement& measurement = data.measurements.emplace_back();
    measurement.key = AttentionKey{.batch = batch,
                                   .query_tokens = query,
                                   .context_tokens = query,
                                   .q_heads = 32,
                                   .kv_heads = 8,
                                   .head_dim = 128};
    measurement.statistics.median_seconds = batch == 8 ? 1e-3 : 5e-3;
  }
  const auto profile = BuildOrDie(std::move(data));
  const auto prompts = [&](int64_t input) {
    const ExplainedPrice price = ExplainOnOne(
        *profile, Admission({.input_tokens = input}, {}, 0, 8192, 0));
    return *FindTerm(price, "attention of prompts");
  };
  EXPECT_NEAR(prompts(1024).seconds, 32 * 1e-3, 1e-9);
  EXPECT_NEAR(prompts(8192).seconds, 32 * 5e-3, 1e-9);
  EXPECT_EQ(prompts(8192).standing, Standing::kMeasured);
  EXPECT_EQ(prompts(2048).standing, Standing::kInterpolated);
  EXPECT_GT(prompts(2048).seconds, 32 * 1e-3);
  EXPECT_LT(prompts(2048).seconds, 32 * 5e-3);
}

TEST(Pricer, ScalesPromptsOfOtherWidthsThanWereMeasured) {
  ProfileData data = SyntheticProfileData({});
  Measurement& measurement = data.measurements.emplace_back();
  measurement.key = AttentionKey{.latent = true,
                                 .batch = 8,
                                 .query_tokens = 1024,
                                 .context_tokens = 1024,
                                 .q_heads = 8,
                                 .kv_heads = 1,
                                 .head_dim = 576};
  measurement.statistics.median_seconds = 1e-3;
  const auto profile = BuildOrDie(std::move(data));
  const auto prompts = [&](int64_t nope_dim) {
    ModelShape model = Preset("Kimi-K2.5");
    model.qk_nope_head_dim = nope_dim;
    const Plan plan = PlanOf("TP8", model.is_moe());
    const Recipe recipe =
        GetEngine(EngineId::kReference)
            .MakeRecipe(model, plan, profile->fingerprint(), Gpus(plan));
    Pricer pricer(*profile, CostScope::kStep, 0);
    const ExplainedPrice price = pricer.Explain(
        *pricer.Bind(recipe), PromptLoad({.input_tokens = 1024}, plan, 8192),
        Launch::kGraph);
    const Term* term = FindTerm(price, "attention of prompts");
    return term == nullptr ? Term() : *term;
  };
  const Term usual = prompts(128);  // 192 with the rotary part
  EXPECT_EQ(usual.source, "attention");
  const Term wider = prompts(448);  // 512: twice the 320 of keys and values
  EXPECT_NEAR(wider.seconds / usual.seconds, 2, 1e-9);
  EXPECT_EQ(wider.standing, Standing::kExtrapolated);
  EXPECT_GT(wider.relative_sigma, 0.19);
}

TEST(Pricer, PricesAttentionOfPromptsAsProductsOfEqualOperations) {
  // Decode attention is measured, that of prompts is not.
  ProfileData data = SyntheticProfileData({});
  Measurement& decode = data.measurements.emplace_back();
  decode.key = AttentionKey{.batch = 16,
                            .context_tokens = 8192,
                            .q_heads = 32,
                            .kv_heads = 8,
                            .head_dim = 128};
  decode.statistics.median_seconds = 77e-6;
  const auto profile = BuildOrDie(std::move(data));
  const auto seconds = [&](int64_t input, double chunk) {
    const ExplainedPrice price = ExplainOnOne(
        *profile, Admission({.input_tokens = input}, {}, 0, chunk, 0));
    const Term* term = FindTerm(price, "attention of prompts");
    EXPECT_EQ(term->source, "gemm/bf16");
    EXPECT_EQ(term->standing, Standing::kExtrapolated);
    EXPECT_THAT(term->note, HasSubstr("products of equal operations"));
    EXPECT_GE(term->relative_sigma, 0.2);
    return term->seconds;
  };
  // Causal: a token of the prompt sees half of it. Two products of 32 heads of
  // 128, of 32 layers, each with a kernel's own cost.
  const double half = 8192. / 2;
  EXPECT_NEAR(seconds(8192, 8192),
              32 * (2 * 3e-6 + 2 * 8192 * half * 32 * (128 + 128) / 600e12),
              0.05 * seconds(8192, 8192));
  // In proportion to the tokens and to the context that they see.
  EXPECT_NEAR(seconds(8192, 4096) / seconds(8192, 8192), 0.5, 0.03);
  EXPECT_NEAR(seconds(4096, 8192) / seconds(8192, 8192), 0.5, 0.03);
}

// A node on which DeepEP dispatches for as long as said, and combines for half
// as long again, whatever the number of tokens.
ProfileData WithDeepEp(int64_t num_experts, double dispatch_seconds) {
  ProfileData data = SyntheticProfileData({});
  for (ExchangeStage stage :
       {ExchangeStage::kDispatch, ExchangeStage::kCombine}) {
    for (int64_t tokens : {1, 512}) {
      Measurement& measurement = data.measurements.emplace_back();
      measurement.key = ExchangeKey{.stage = stage,
                                    .group = {.size = 8},
                                    .hidden_size = 7168,
                                    .num_experts = num_experts,
                                    .experts_per_token = 8,
                                    .tokens_per_rank = tokens};
      measurement.statistics.median_seconds =
          dispatch_seconds * (stage == ExchangeStage::kDispatch ? 1 : 1.5);
    }
  }
  return data;
}

TEST(Pricer, PricesALibrarysExchangeByItsTwoStages) {
  ProfileData data = WithDeepEp(384, 20e-6);
  const Asked asked{.workload = {.concurrency = 64, .phase = Phase::kDecode},
                    .engine = EngineId::kVllm};
  const std::string mode = "DP8+EP8:deepep-ll";
  const ModelShape& kimi = Preset("Kimi-K2.5");
  const auto profile = BuildOrDie(data);
  const Term* term = nullptr;
  const ExplainedPrice price = Explain(*profile, kimi, mode, asked);
  ASSERT_NE(term = FindTerm(price, "expert dispatch and combine"), nullptr);
  // Tokens for int4 experts go out in bf16, the curve is of fp8.
  const double ratio = (16. + 2 * 7168) / (16 + 7168 + 4 * 56);
  EXPECT_NEAR(term->seconds, 60 * (20e-6 * ratio + 30e-6), 1e-9);
  EXPECT_TRUE(term->upper_bound);
  EXPECT_THAT(term->note, HasSubstr("bf16"));
  EXPECT_EQ(term->size, 8);
  EXPECT_EQ(term->source,
            "exchange/deepep_low_latency/dispatch/n8/h7168e384k8");

  data.measurements.pop_back();
  data.measurements.pop_back();
  EXPECT_THAT(Explain(*BuildOrDie(data), kimi, mode, asked).missing,
              ElementsAre("exchange/deepep_low_latency/combine/n8/"
                          "h7168e384k8/t8"));
  EXPECT_THAT(Explain(*SyntheticProfile(), kimi, mode, asked).missing,
              ElementsAre("exchange/deepep_low_latency/dispatch/n8/"
                          "h7168e384k8/t8",
                          "exchange/deepep_low_latency/combine/n8/"
                          "h7168e384k8/t8"));
}

TEST(Pricer, TakesTheCurveOfDeepEpAsItIsForExpertsInFp8Blocks) {
  const ExplainedPrice price =
      Explain(*BuildOrDie(WithDeepEp(256, 20e-6)), Preset("DeepSeek-V3"),
              "DP8+EP8:deepep-ll",
              {.workload = {.concurrency = 64, .phase = Phase::kDecode},
               .engine = EngineId::kVllm});
  const Term* term = FindTerm(price, "expert dispatch and combine");
  ASSERT_NE(term, nullptr);
  EXPECT_NEAR(term->seconds, 58 * 50e-6, 1e-9);
  EXPECT_FALSE(term->upper_bound);
}

// ---- Two-batch overlap

ExplainedPrice InTwoBatches(double dispatch_seconds, const std::string& mode,
                            int64_t concurrency,
                            CostScope scope = CostScope::kStep) {
  return Explain(*BuildOrDie(WithDeepEp(256, dispatch_seconds)),
                 Preset("DeepSeek-V3"), mode,
                 {.workload = {.concurrency = concurrency,
                               .phase = Phase::kDecode,
                               .context_tokens = 2048},
                  .scope = scope,
                  .engine = EngineId::kVllm,
                  .host_seconds = 1e-3});
}

TEST(TwoBatchOverlap, HidesTheShorterBehindTheLonger) {
  const std::string plain = "DP8+EP8:deepep-ll", overlap = plain + "+tbo";
  for (const double dispatch : {20e-6, 2e-3}) {
    const ExplainedPrice halves = InTwoBatches(dispatch, overlap, 1024);
    ASSERT_TRUE(halves.price.answerable);
    EXPECT_NEAR(Sum(halves.terms), halves.price.seconds, 1e-12);
    EXPECT_EQ(halves.price.standing, Standing::kExtrapolated);
    // The layers of half the sequences without overlap, and what runs once.
    const ExplainedPrice half = InTwoBatches(dispatch, plain, 512);
    const ExplainedPrice whole = InTwoBatches(dispatch, plain, 1024);
    const double exchange =
        FindTerm(half, "expert dispatch and combine")->seconds;
    const double rest = half.price.seconds - exchange -
                        FindTerm(half, "output head")->seconds - 1e-3;
    const double once = FindTerm(whole, "output head")->seconds + 1e-3;
    EXPECT_NEAR(
        halves.price.seconds,
        once + 2 * std::max(exchange, rest) + std::min(exchange, rest) / 58,
        1e-9);
    const Term* term = FindTerm(halves, "expert dispatch and combine");
    ASSERT_NE(term, nullptr);
    EXPECT_EQ(term->count, 2 * 58);
    const Term* other = FindTerm(halves, "experts");
    ASSERT_NE(other, nullptr);
    const bool exchange_is_hidden = exchange < rest;
    EXPECT_EQ(exchange_is_hidden, dispatch < 1e-3);
    EXPECT_THAT((exchange_is_hidden ? term : other)->note,
                HasSubstr("is not measured, and not counted"));
    EXPECT_THAT((exchange_is_hidden ? other : term)->note,
                Not(HasSubstr("not counted")));
  }
}

TEST(TwoBatchOverlap, IsForStepsOfEnoughTokensOfARank) {
  const std::string plain = "DP8+EP8:deepep-ll", overlap = plain + "+tbo";
  EXPECT_EQ(InTwoBatches(20e-6, overlap, 8 * 31).price.seconds,
            InTwoBatches(20e-6, plain, 8 * 31).price.seconds);
  EXPECT_NE(InTwoBatches(20e-6, overlap, 8 * 32).price.seconds,
            InTwoBatches(20e-6, plain, 8 * 32).price.seconds);
}

TEST(TwoBatchOverlap, HidesNoCommunicationWhereNothingElseCounts) {
  const std::string plain = "DP8+EP8:deepep-ll";
  EXPECT_EQ(InTwoBatches(20e-6, plain + "+tbo", 1024, CostScope::kCommunication)
                .price.seconds,
            InTwoBatches(20e-6, plain, 1024, CostScope::kCommunication)
                .price.seconds);
}

TEST(TwoBatchOverlap, NamesWhatIsMissing) {
  EXPECT_THAT(
      Explain(*SyntheticProfile(), Preset("DeepSeek-V3"),
              "DP8+EP8:deepep-ll+tbo",
              {.workload = {.concurrency = 1024, .phase = Phase::kDecode},
               .engine = EngineId::kVllm})
          .missing,
      ElementsAre("exchange/deepep_low_latency/dispatch/n8/h7168e256k8/t64",
                  "exchange/deepep_low_latency/combine/n8/h7168e256k8/t64"));
}

TEST(Fp8Dispatch, GathersPromptsInFewerBytesWithTwoKernelsMore) {
  const auto explain = [](const std::string& mode, Launch launch) {
    return Explain(*SyntheticProfile(), Preset("Kimi-K2.5"), mode,
                   {.workload = {.concurrency = 64, .phase = Phase::kDecode},
                    .engine = EngineId::kSglang,
                    .launch = launch});
  };
  const ExplainedPrice eager = explain("DP8+EP8+fp8d", Launch::kEager);
  const Term* gather = FindTerm(eager, "all_gather feed-forward tokens");
  ASSERT_NE(gather, nullptr);
  EXPECT_EQ(gather->size, 64 * (7168 + 4 * 56));
  EXPECT_THAT(gather->note, HasSubstr("rounded"));
  EXPECT_EQ(FindTerm(eager, "all_reduce feed-forward tokens"), nullptr);
  const Term* kernels = FindTerm(eager, "small kernels of eager steps");
  ASSERT_NE(kernels, nullptr);
  EXPECT_EQ(kernels->count, 2 * 61);
  // Steps that decode alone gather as ever.
  EXPECT_EQ(explain("DP8+EP8+fp8d", Launch::kGraph).price.seconds,
            explain("DP8+EP8", Launch::kGraph).price.seconds);
}

// ---- What is missing

TEST(Pricer, NamesEveryMissingMeasurementByItsKey) {
  const auto nothing = Without([](const MeasurementKey&) { return true; });
  const Asked asked{.workload = {.concurrency = 2'000'000 / 2,
                                 .input_tokens = 4096,
                                 .output_tokens = 16}};
  for (const char* name : {"Kimi-K2.5", "Llama-3.1-70B", "gpt-oss-120b",
                           "Qwen3-Next-80B-A3B", "DeepSeek-V3.2"}) {
    const ModelShape& model = Preset(name);
    for (const char* mode : {"TP8", "PP2xTP4", "PP8"}) {
      const ExplainedPrice price = Explain(*nothing, model, mode, asked);
      EXPECT_FALSE(price.price.answerable);
      EXPECT_THAT(price.terms, IsEmpty());
      EXPECT_THAT(price.missing, Contains("launch/graph_node"));
      for (const std::string& missing : price.missing) {
        const auto key = ParseMeasurementKey(missing);
        EXPECT_TRUE(key.ok()) << missing << ": " << key.status();
        EXPECT_EQ(key.ok() ? ToString(*key) : "", missing);
      }
      EXPECT_EQ(
          std::set<std::string>(price.missing.begin(), price.missing.end())
              .size(),
          price.missing.size());
    }
  }
}

TEST(Pricer, NamesOnlyWhatIsMissing) {
  const auto no_all_gather = Without([](const MeasurementKey& key) {
    return IsCollective(key, CollectiveOp::kAllGather);
  });
  const Asked asked{.workload = {.concurrency = 32, .phase = Phase::kDecode}};
  EXPECT_THAT(
      Explain(*no_all_gather, Preset("Kimi-K2.5"), "DP8+EP8", asked).missing,
      ElementsAre("all_gather/n8/nccl/graph/458752B"));
  EXPECT_TRUE(Explain(*no_all_gather, Preset("Kimi-K2.5"), "TP8", asked)
                  .price.answerable);
}

TEST(Pricer, DoesNotNeedWhatAStepDoesNotDo) {
  // Prompts alone decode nothing and update no state of a decoding sequence.
  const auto no_memory =
      Without([](const MeasurementKey& key) { return Is<MemoryKey>(key); });
  const ModelShape& model = Preset("Qwen3-Next-80B-A3B");
  const Plan plan = PlanOf("TP2", true);
  const Workload workload{.concurrency = 4, .phase = Phase::kPrefill};
  Pricer pricer(*no_memory, CostScope::kStep, 0);
  const Recipe recipe =
      GetEngine(EngineId::kReference)
          .MakeRecipe(model, plan, no_memory->fingerprint(), Gpus(plan));
  const auto bound = pricer.Bind(recipe);
  const ExplainedPrice price =
      pricer.Explain(*bound, PromptLoad(workload, plan, 2048), Launch::kEager);
  EXPECT_TRUE(price.price.answerable)
      << ::testing::PrintToString(price.missing);
}

// ---- Pipelines

TEST(Pipeline, FillsUpWithAsManyMicroBatchesAsStages) {
  const auto profile = SyntheticProfile();
  const ModelShape& model = Preset("Llama-3.1-70B");  // 80 layers
  const auto at = [&](const char* mode, int64_t concurrency) {
    return Explain(*profile, model, mode,
                   {.workload = {.concurrency = concurrency,
                                 .phase = Phase::kDecode}})
        .price;
  };
  // One sequence goes through all stages in turn: the same layers, and seven
  // boundaries.
  const StepPrice alone = at("PP8", 1);
  EXPECT_EQ(alone.seconds, alone.through_seconds);
  EXPECT_GT(alone.seconds, at("TP1", 1).seconds);
  EXPECT_NEAR(alone.seconds, at("TP1", 1).seconds, 1e-3);
  // Eight keep all stages busy: the slowest stage, eight times over.
  const StepPrice full = at("PP8", 8);
  EXPECT_NEAR(full.seconds, 8 * full.slowest_stage_seconds, 1e-12);
  EXPECT_GE(full.seconds, full.through_seconds);
  EXPECT_NEAR(full.seconds, alone.seconds, 0.01 * alone.seconds);
}

TEST(Pipeline, WaitsForTheStageWithMoreLayers) {
  const auto profile = SyntheticProfile();
  const ModelShape& kimi = Preset("Kimi-K2.5");  // 61 layers: 16, 16, 16, 13
  const ExplainedPrice price =
      Explain(*profile, kimi, "PP4",
              {.workload = {.concurrency = 4, .phase = Phase::kDecode}});
  EXPECT_NEAR(FindTerm(price, "experts")->count, 4 * 60. * 16 / 61, 1e-9);
  EXPECT_NEAR(Sum(price.terms), price.price.seconds, 1e-12);
}

// ---- Properties

// The time of one step; negative where it cannot be told.
struct Step {
  ModelShape model;
  Plan plan;
  Recipe recipe;
  StepLoad load;
  Launch launch;
};

Step RandomStep(std::mt19937& random, const Profile& profile) {
  while (true) {
    Step step{.model = RandomModel(random)};
    const int t = 1 << RandomBetween(random, 0, 3);
    const int d = step.model.is_moe() ? (1 << RandomBetween(random, 0, 3)) : 1;
    const int p = static_cast<int>(RandomBetween(random, 1, 8));
    if (p * t * d > profile.gpu_count()) continue;
    step.plan = {.replicas = static_cast<int>(RandomBetween(random, 1, 4)),
                 .pipeline = p,
                 .attention_dp = d,
                 .attention_tp = t};
    if (step.model.is_moe()) {
      step.plan.expert_parallel = RandomBetween(random, 0, 1) == 0 ? 1 : t * d;
      step.plan.moe_tp = t * d / step.plan.expert_parallel;
    }
    if (d > 1) step.plan.transport = ExpertTransport::kAllGatherReduceScatter;
    const Engine& engine =
        GetEngine(RandomBetween(random, 0, 1) == 0 ? EngineId::kReference
                                                   : EngineId::kVllm);
    const std::vector<int> gpus = Gpus(step.plan);
    if (engine.Refusal(step.model, step.plan, profile.fingerprint(), gpus)) {
      continue;
    }
    step.recipe =
        engine.MakeRecipe(step.model, step.plan, profile.fingerprint(), gpus);
    const Workload workload{.concurrency = RandomBetween(random, 1, 2000),
                            .phase = RandomBetween(random, 0, 1) == 0
                                         ? Phase::kDecode
                                         : Phase::kSteadyState,
                            .input_tokens = RandomBetween(random, 1, 16'000),
                            .output_tokens = RandomBetween(random, 1, 4'000)};
    step.launch =
        RandomBetween(random, 0, 1) == 0 ? Launch::kGraph : Launch::kEager;
    switch (RandomBetween(random, 0, 2)) {
      case 0:
        step.load = DecodeLoad(workload, step.plan);
        break;
      case 1:
        step.load = Admission(workload, step.plan, 16, 2048, 16);
        break;
      case 2:
        step.load = PromptLoad(workload, step.plan, 4096);
        break;
    }
    return step;
  }
}

TEST(AnyStep, IsTheSumOfItsTerms) {
  const auto profile = SyntheticProfile();
  std::mt19937 random(23);
  int answered = 0;
  for (int i = 0; i < 500; ++i) {
    const Step step = RandomStep(random, *profile);
    Pricer pricer(*profile, CostScope::kStep, 0);
    const auto bound = pricer.Bind(step.recipe);
    const ExplainedPrice price = pricer.Explain(*bound, step.load, step.launch);
    if (!price.price.answerable) {
      EXPECT_THAT(price.missing, Not(IsEmpty())) << ModeName(step.plan);
      for (const std::string& missing : price.missing) {
        EXPECT_TRUE(ParseMeasurementKey(missing).ok()) << missing;
      }
      continue;
    }
    ++answered;
    const StepPrice& total = price.price;
    EXPECT_THAT(price.missing, IsEmpty());
    EXPECT_NEAR(Sum(price.terms) / total.seconds, 1, 1e-9)
        << ModeName(step.plan);
    EXPECT_GT(total.seconds, 0);
    EXPECT_TRUE(std::isfinite(total.seconds));
    EXPECT_TRUE(std::isfinite(total.sigma_seconds));
    EXPECT_GE(total.sigma_seconds, 0);
    EXPECT_LT(total.sigma_seconds, total.seconds);
    EXPECT_LE(total.slowest_stage_seconds, total.through_seconds * 1.0000001);
    for (const Term& term : price.terms) {
      EXPECT_GT(term.seconds, 0) << term.name;
      EXPECT_GT(term.count, 0) << term.name;
      EXPECT_FALSE(term.source.empty()) << term.name;
      EXPECT_TRUE(std::isfinite(term.relative_sigma)) << term.name;
      EXPECT_LE(Worse(term.standing, total.standing), total.standing)
          << term.name;
    }
    EXPECT_EQ(pricer.Price(*bound, step.load, step.launch).seconds,
              total.seconds);
  }
  EXPECT_GT(answered, 250);
}

TEST(AnyStep, IsNeverSlowerOnAFasterNode) {
  const SyntheticNode slow;
  SyntheticNode faster_fabric = slow, faster_memory = slow;
  faster_fabric.fabric_bytes_per_second *= 3;
  faster_fabric.fabric_latency_seconds /= 2;
  faster_memory.memory_bytes_per_second *= 1.5;
  const auto base = SyntheticProfile(slow);
  const auto fabric = SyntheticProfile(faster_fabric);
  const auto memory = SyntheticProfile(faster_memory);
  std::mt19937 random(29);
  int compared = 0;
  for (int i = 0; i < 300; ++i) {
    const Step step = RandomStep(random, *base);
    const auto seconds = [&](const Profile& profile) {
      Pricer pricer(profile, CostScope::kStep, 0);
      const auto bound = pricer.Bind(step.recipe);
      const StepPrice price = pricer.Price(*bound, step.load, step.launch);
      return price.answerable ? price.seconds : -1;
    };
    const double before = seconds(*base);
    if (before < 0) continue;
    ++compared;
    EXPECT_LE(seconds(*fabric), before * (1 + 1e-9)) << ModeName(step.plan);
    // Experts of a shard that was not measured are told to 11 % by another's.
    const double spread = step.model.is_moe() ? 0.11 : 1e-9;
    EXPECT_LE(seconds(*memory), before * (1 + spread)) << ModeName(step.plan);
  }
  EXPECT_GT(compared, 150);
}

// One pricer for many plans and loads remembers prices; none may leak from one
// question into another.
TEST(Pricer, AnswersEachStepAsAPricerOfItsOwnWould) {
  const auto profile = SyntheticProfile();
  std::mt19937 random(31);
  const ModelShape& model = Preset("Kimi-K2.5");
  const Workload base{.input_tokens = 700, .output_tokens = 300};
  Pricer shared(*profile, CostScope::kStep, 0);
  std::vector<Recipe> recipes;
  for (const char* mode : {"TP8", "TP8+EP8", "DP8+EP8", "DP2xTP4+EP8",
                           "PP2xTP4", "PP8", "TP2", "TP1"}) {
    const Plan plan = PlanOf(mode, true);
    recipes.push_back(
        GetEngine(EngineId::kReference)
            .MakeRecipe(model, plan, profile->fingerprint(), Gpus(plan)));
  }
  std::vector<std::shared_ptr<const Pricer::Bound>> bounds;
  for (const Recipe& recipe : recipes) bounds.push_back(shared.Bind(recipe));
  for (int i = 0; i < 400; ++i) {
    const size_t which = random() % recipes.size();
    const Plan& plan = recipes[which].plan;
    Workload workload = base;
    workload.concurrency = RandomBetween(random, 1, 512);
    const bool admission = RandomBetween(random, 0, 2) == 0;
    const StepLoad load = admission ? Admission(workload, plan, 5, 700, 6)
                                    : DecodeLoad(workload, plan);
    const Launch launch = admission ? Launch::kEager : Launch::kGraph;
    Pricer alone(*profile, CostScope::kStep, 0);
    const auto bound = alone.Bind(recipes[which]);
    const StepPrice expected = alone.Price(*bound, load, launch);
    const StepPrice price = shared.Price(*bounds[which], load, launch);
    ASSERT_EQ(price.answerable, expected.answerable) << ModeName(plan);
    ASSERT_EQ(price.seconds, expected.seconds) << ModeName(plan);
  }
}

TEST(Pricer, AnswersTheLargestQuestionOrNamesWhatItLacks) {
  const auto profile = SyntheticProfile();
  for (const ModelShape& model : Presets()) {
    for (const char* mode : {"TP1", "PP4", "4xPP2"}) {
      const Workload workload{.concurrency = kMaxConcurrency,
                              .input_tokens = kMaxTokens,
                              .output_tokens = 1};
      const ExplainedPrice price =
          Explain(*profile, model, mode, {.workload = workload});
      if (price.price.answerable) {
        EXPECT_TRUE(std::isfinite(price.price.seconds)) << model.name;
      } else {
        EXPECT_THAT(price.missing, Not(IsEmpty())) << model.name;
      }
    }
  }
}

}  // namespace
}  // namespace fabricwise
