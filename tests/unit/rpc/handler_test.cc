// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/handler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/profile/profile_file.h"
#include "tests/support/bad_requests.h"
#include "tests/support/fake_backend.h"
#include "tests/support/fake_clock.h"
#include "tests/support/synthetic_profile.h"

namespace fabricwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class HandlerTest : public ::testing::Test {
 protected:
  // The answer to `request`, parsed.
  absl::StatusOr<v1::RecommendParallelismResponse> Recommend(
      const v1::RecommendParallelismRequest& request) {
    const auto bytes = handler_.RecommendParallelism(
        request.SerializeAsString(), absl::InfiniteFuture());
    if (!bytes.ok()) return bytes.status();
    v1::RecommendParallelismResponse response;
    EXPECT_TRUE(response.ParseFromString(**bytes));
    return response;
  }

  absl::Status Measure(const v1::RunMeasurementRequest& request) {
    messages_.clear();
    end_.reset();
    return handler_.RunMeasurement(
        request, {},
        [this](v1::RunMeasurementResponse message) {
          messages_.push_back(std::move(message));
        },
        [this](const absl::Status& status) { end_ = status; });
  }

  SnapshotHolder snapshots_;
  std::vector<v1::RunMeasurementResponse> messages_;  // of the last Measure
  std::optional<absl::Status> end_;                   // likewise
  FakeBackend backend_;
  FakeClock clock_;
  Handler handler_{&snapshots_, &backend_, &clock_, Handler::Options()};
};

TEST_F(HandlerTest, WithoutAProfileSaysSoAndHowToGetOne) {
  const auto answer = Recommend(GoodRequest());
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(answer.status().message(),
            "no profile is loaded: import one with ImportProfile, or start the "
            "daemon with one");
  v1::GetNodeProfileResponse profile;
  EXPECT_EQ(handler_.GetNodeProfile({}, &profile).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(HandlerTest, AnAnswerIsFoundAgainUntilTheSnapshotChanges) {
  snapshots_.Set(SampleProfile("first"));
  const std::string request = GoodRequest().SerializeAsString();
  EXPECT_EQ(handler_.FindRecommendation(request), nullptr);
  const auto answer =
      handler_.RecommendParallelism(request, absl::InfiniteFuture());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(handler_.FindRecommendation(request), *answer)
      << "the same bytes, not a copy";
  EXPECT_EQ(handler_.FindSweep(request), nullptr)
      << "another method's request may have the same bytes";

  snapshots_.Set(SampleProfile("second"));
  EXPECT_EQ(handler_.FindRecommendation(request), nullptr);
  const auto again = Recommend(GoodRequest());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->grounds().profile(), "second");
}

TEST_F(HandlerTest, SweepsAreKeptToo) {
  snapshots_.Set(SampleProfile("node"));
  v1::SweepConcurrencyRequest sweep;
  *sweep.mutable_question() = GoodRequest();
  const std::string request = sweep.SerializeAsString();
  const auto answer =
      handler_.SweepConcurrency(request, absl::InfiniteFuture());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(handler_.FindSweep(request), *answer);
  v1::SweepConcurrencyResponse response;
  ASSERT_TRUE(response.ParseFromString(**answer));
  EXPECT_EQ(response.points_size(), 10);
}

TEST_F(HandlerTest, ARefusalIsNotKept) {
  snapshots_.Set(SampleProfile("node"));
  auto request = GoodRequest();
  request.mutable_workload()->set_concurrency(0);
  EXPECT_EQ(Recommend(request).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(handler_.FindRecommendation(request.SerializeAsString()), nullptr);
}

TEST_F(HandlerTest, WorkIsNotBegunAfterTheDeadline) {
  snapshots_.Set(SampleProfile("node"));
  const std::string request = GoodRequest().SerializeAsString();
  const absl::Time deadline = clock_.Now() + absl::Milliseconds(5);
  EXPECT_TRUE(handler_.RecommendParallelism(request, deadline).ok());
  clock_.Advance(absl::Milliseconds(5));
  const auto late = handler_.RecommendParallelism(request, deadline);
  EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(late.status().message(), "the deadline passed before the answer");
  EXPECT_EQ(handler_.SweepConcurrency("", deadline).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(HandlerTest, BytesThatAreNoRequestAreRefused) {
  snapshots_.Set(SampleProfile("node"));
  for (const std::string& bytes : {std::string("\xff\xff\xff"),
                                   // field 7, current_plan, not UTF-8
                                   std::string("\x3a\x01\xff")}) {
    const auto answer =
        handler_.RecommendParallelism(bytes, absl::InfiniteFuture());
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(answer.status().message()),
                HasSubstr("fabricwise.v1.RecommendParallelismRequest"));
  }
}

TEST_F(HandlerTest, AWatchTellsTheFirstAnswerAndThenOnlyChanges) {
  const auto with_fabric = [](double factor) {
    ProfileData data = SampleProfileData("node");
    for (Measurement& measurement : data.measurements) {
      if (std::holds_alternative<CollectiveKey>(measurement.key)) {
        measurement.statistics.median_seconds *= factor;
      }
    }
    return data;
  };
  snapshots_.Set(*Profile::Build(with_fabric(0.01)));
  v1::WatchRecommendationRequest request;
  *request.mutable_question() = GoodRequest();
  const auto watch = handler_.WatchRecommendation(request);
  ASSERT_TRUE(watch.ok());

  auto next = (*watch)->Next();
  ASSERT_TRUE(next.ok()) << next.status();
  ASSERT_TRUE(next->has_value());
  EXPECT_EQ((*next)->reason(), "first answer");
  EXPECT_NE((*next)->answer().plans(0).plan().mode(), "2xTP1")
      << "the fabric costs next to nothing";

  next = (*watch)->Next();
  ASSERT_TRUE(next.ok());
  EXPECT_FALSE(next->has_value()) << "nothing has changed";

  snapshots_.Set(*Profile::Build(with_fabric(0.01)));
  next = (*watch)->Next();
  ASSERT_TRUE(next.ok());
  EXPECT_FALSE(next->has_value()) << "the same profile again";

  ProfileData later = with_fabric(0.01);
  later.as_of += absl::Hours(1);
  snapshots_.Set(*Profile::Build(std::move(later)));
  next = (*watch)->Next();
  ASSERT_TRUE(next.ok());
  ASSERT_TRUE(next->has_value());
  EXPECT_EQ((*next)->reason(), "new grounds");

  snapshots_.Set(*Profile::Build(with_fabric(1000)));
  next = (*watch)->Next();
  ASSERT_TRUE(next.ok());
  ASSERT_TRUE(next->has_value());
  EXPECT_EQ((*next)->reason(), "new first plan");
  EXPECT_EQ((*next)->answer().plans(0).plan().mode(), "2xTP1");
}

TEST_F(HandlerTest, AWatchEndsWithWhatNewGroundsCannotAnswer) {
  snapshots_.Set(SampleProfile("node"));
  v1::WatchRecommendationRequest request;
  *request.mutable_question() = GoodRequest();
  const auto watch = handler_.WatchRecommendation(request);
  ASSERT_TRUE(watch.ok());
  ASSERT_TRUE((*watch)->Next().ok());
  ProfileData bare = SampleProfileData("bare");
  bare.measurements.resize(1);
  snapshots_.Set(*Profile::Build(std::move(bare)));
  EXPECT_EQ((*watch)->Next().status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(HandlerTest, AWatchNeedsAQuestion) {
  EXPECT_EQ(handler_.WatchRecommendation({}).status().message(),
            "question is absent; allowed: a question with model and workload");
}

TEST_F(HandlerTest, TheProfileIsGivenInEveryView) {
  snapshots_.Set(SampleProfile("node"));
  v1::GetNodeProfileRequest request;
  v1::GetNodeProfileResponse response;
  ASSERT_TRUE(handler_.GetNodeProfile(request, &response).ok());
  EXPECT_EQ(response.profile().name(), "node");
  EXPECT_GT(response.profile().curves_size(), 0);
  EXPECT_TRUE(response.profile().profile_file().empty());

  request.set_view(v1::PROFILE_VIEW_FILE);
  response.Clear();
  ASSERT_TRUE(handler_.GetNodeProfile(request, &response).ok());
  const auto data = ReadProfile("file", response.profile().profile_file());
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->measurements.size(),
            SampleProfileData("node").measurements.size());

  request.set_view(static_cast<v1::ProfileView>(9));
  EXPECT_EQ(handler_.GetNodeProfile(request, &response).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(HandlerTest, MeasurementsComeFromTheStoreByPages) {
  backend_.page->measurements = {
      {7, SampleProfileData("x").measurements.front()}};
  backend_.page->next_page_token = "next";
  v1::ListMeasurementsRequest request;
  request.set_page_token("this");
  request.set_key_prefix("all_reduce/");
  v1::ListMeasurementsResponse response;
  ASSERT_TRUE(handler_.ListMeasurements(request, &response).ok());
  EXPECT_EQ(backend_.asked_page_size, 100) << "the default";
  EXPECT_EQ(backend_.asked_page_token, "this");
  EXPECT_EQ(backend_.asked_key_prefix, "all_reduce/");
  ASSERT_EQ(response.measurements_size(), 1);
  EXPECT_EQ(response.measurements(0).id(), 7);
  EXPECT_EQ(response.measurements(0).key(), "all_reduce/n2/nccl/graph/1024B");
  EXPECT_EQ(response.next_page_token(), "next");

  request.set_page_size(1000);
  EXPECT_TRUE(handler_.ListMeasurements(request, &response).ok());
  EXPECT_EQ(backend_.asked_page_size, 1000);
}

TEST_F(HandlerTest, OddPagesAreRefused) {
  v1::ListMeasurementsRequest request;
  v1::ListMeasurementsResponse response;
  request.set_page_size(1001);
  EXPECT_EQ(handler_.ListMeasurements(request, &response).message(),
            "page_size is 1001; allowed: 1 to 1000");
  request.set_page_size(-1);
  EXPECT_EQ(handler_.ListMeasurements(request, &response).message(),
            "page_size is -1; allowed: 1 to 1000");
  request.clear_page_size();
  request.set_key_prefix(std::string(257, 'x'));
  const absl::Status status = handler_.ListMeasurements(request, &response);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "key_prefix is 257 bytes long; allowed: at most 256 bytes");
  request.clear_key_prefix();
  backend_.page = absl::InvalidArgumentError("page_token is odd");
  EXPECT_EQ(handler_.ListMeasurements(request, &response),
            backend_.page.status());
}

TEST_F(HandlerTest, MeasuringNeedsAWorker) {
  const absl::Status status = Measure({});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("no measuring worker is installed"));
}

TEST_F(HandlerTest, AnOddMeasurementIsRefusedBeforeAnythingElse) {
  v1::RunMeasurementRequest request;
  request.set_kind(static_cast<v1::MeasurementKind>(3));
  EXPECT_EQ(Measure(request).message(),
            "kind is 3; allowed: MEASUREMENT_KIND_QUICK, "
            "MEASUREMENT_KIND_FULL");
  request.clear_kind();
  for (int i = 0; i < 65; ++i) request.add_key_prefixes("x");
  EXPECT_EQ(Measure(request).message(),
            "key_prefixes is 65 of them; allowed: at most 64");
  request.clear_key_prefixes();
  request.add_key_prefixes(std::string(257, 'x'));
  EXPECT_EQ(Measure(request).message(),
            "key_prefixes is 257 bytes long; allowed: at most 256 bytes");
  request.clear_key_prefixes();
  request.mutable_budget()->set_nanos(999'999'999);
  EXPECT_THAT(std::string(Measure(request).message()), HasSubstr("budget"));
  request.mutable_budget()->set_seconds(3600);
  EXPECT_THAT(std::string(Measure(request).message()),
              HasSubstr("allowed: 1 s to 1 h"));
}

TEST_F(HandlerTest, ARunGetsTheOrderAndTellsItsProgress) {
  backend_.run_status = absl::OkStatus();
  v1::RunMeasurementRequest request;
  request.set_kind(v1::MEASUREMENT_KIND_FULL);
  request.add_key_prefixes("launch/");
  request.mutable_budget()->set_seconds(30);
  ASSERT_TRUE(Measure(request).ok());
  ASSERT_TRUE(backend_.run_order.has_value());
  EXPECT_EQ(backend_.run_order->kind, RunKind::kFull);
  EXPECT_THAT(backend_.run_order->key_prefixes, ElementsAre("launch/"));
  EXPECT_EQ(backend_.run_order->budget, absl::Seconds(30));

  Measurement measured;
  measured.key = LaunchKey{};
  measured.statistics.median_seconds = 1e-6;
  backend_.run_listener.on_progress(
      {.done_count = 0, .total_count = 1, .key = "launch/graph_node"});
  backend_.run_listener.on_progress({.done_count = 1,
                                     .total_count = 1,
                                     .key = "launch/graph_node",
                                     .measurement = measured});
  backend_.run_listener.on_end(
      {.kept_count = 1, .profile_changed = true, .note = "no fp8"});
  ASSERT_EQ(messages_.size(), 3u);
  EXPECT_FALSE(messages_[0].has_measurement());
  EXPECT_EQ(messages_[0].key(), "launch/graph_node");
  EXPECT_EQ(messages_[1].measurement().median_seconds(), 1e-6);
  EXPECT_EQ(messages_[1].measurement().id(), 0) << "not stored yet";
  EXPECT_EQ(messages_[2].done_count(), 1);
  EXPECT_TRUE(messages_[2].profile_changed());
  EXPECT_EQ(messages_[2].note(), "no fp8");
  EXPECT_EQ(end_, absl::OkStatus());
}

TEST_F(HandlerTest, ARunThatFailedSaysWhetherItChangedTheProfile) {
  backend_.run_status = absl::OkStatus();
  ASSERT_TRUE(Measure({}).ok());
  const absl::Status busy = absl::FailedPreconditionError("GPUs are busy");
  backend_.run_listener.on_end({.status = busy});
  EXPECT_THAT(messages_, IsEmpty());
  EXPECT_EQ(end_, busy);

  ASSERT_TRUE(Measure({}).ok());
  backend_.run_listener.on_end({.status = busy, .profile_changed = true});
  ASSERT_EQ(messages_.size(), 1u);
  EXPECT_TRUE(messages_[0].profile_changed());
  EXPECT_EQ(end_, busy);
}

TEST_F(HandlerTest, ADiagnosisIsALookAtTheNode) {
  v1::DiagnoseNodeResponse response;
  std::optional<absl::Status> end;
  const auto on_end = [&](const absl::Status& status) { end = status; };
  handler_.DiagnoseNode({}, {}, &response, on_end);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code(), absl::StatusCode::kFailedPrecondition);

  // The look takes its time.
  backend_.run_status = absl::OkStatus();
  end.reset();
  handler_.DiagnoseNode({}, {}, &response, on_end);
  EXPECT_FALSE(end.has_value());
  EXPECT_EQ(backend_.run_order->kind, RunKind::kProbe);
  NodeProbe probe;
  probe.time = absl::FromUnixSeconds(77);
  probe.busy = true;
  probe.fingerprint.fabric = "pcie";
  probe.findings = {{.kind = FindingKind::kIommu,
                     .severity = Severity::kWarning,
                     .subject = "node",
                     .detail = "on",
                     .remedy = "off"}};
  backend_.last_probe = probe;
  backend_.run_listener.on_end({});
  EXPECT_EQ(end, absl::OkStatus());
  EXPECT_EQ(response.probe_time().seconds(), 77);
  EXPECT_TRUE(response.busy());
  EXPECT_EQ(response.fingerprint().fabric(), "pcie");
  ASSERT_EQ(response.findings_size(), 1);
  EXPECT_EQ(response.findings(0).kind(), "iommu");
  EXPECT_EQ(response.findings(0).severity(), v1::FINDING_SEVERITY_WARNING);
  EXPECT_EQ(response.findings(0).remedy(), "off");

  // While a run is under way, what that saw.
  backend_.run_status = absl::AbortedError("another run is under way");
  response.Clear();
  handler_.DiagnoseNode({}, {}, &response, on_end);
  EXPECT_EQ(end, absl::OkStatus());
  EXPECT_EQ(response.probe_time().seconds(), 77);

  // A look that failed shows nothing old.
  backend_.run_status = absl::OkStatus();
  response.Clear();
  handler_.DiagnoseNode({}, {}, &response, on_end);
  backend_.run_listener.on_end({.status = absl::InternalError("died")});
  EXPECT_EQ(end, absl::InternalError("died"));
  EXPECT_FALSE(response.has_probe_time());
}

TEST_F(HandlerTest, RemembersWhichModelsWereAskedAbout) {
  snapshots_.Set(SampleProfile("node"));
  ASSERT_TRUE(Recommend(GoodRequest()).ok());
  ASSERT_TRUE(Recommend(GoodRequest()).ok());
  v1::RecommendParallelismRequest unknown = GoodRequest();
  unknown.mutable_model()->set_preset("no such model");
  EXPECT_FALSE(Recommend(unknown).ok());
  const std::vector<v1::Model> models = handler_.recent_models().Get();
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models[0].SerializeAsString(),
            GoodRequest().model().SerializeAsString());
}

TEST(RecentModelsTest, KeepsTheLastOnesNewestFirst) {
  RecentModels models;
  v1::Model model;
  for (int i = 0; i < 20; ++i) {
    model.set_preset(std::to_string(i));
    models.Add(model.SerializeAsString());
  }
  model.set_preset("10");
  models.Add(model.SerializeAsString());
  model.set_hugging_face_config(std::string(RecentModels::kMostBytes, 'x'));
  models.Add(model.SerializeAsString());
  const std::vector<v1::Model> kept = models.Get();
  ASSERT_EQ(kept.size(), RecentModels::kMost);
  EXPECT_EQ(kept[0].preset(), "10");
  EXPECT_EQ(kept[1].preset(), "19");
  EXPECT_EQ(kept.back().preset(), "4");
}

TEST_F(HandlerTest, AnImportIsStoredAndThenInUse) {
  v1::ImportProfileRequest request;
  request.set_profile_file(WriteProfile(SampleProfileData("imported")));
  v1::ImportProfileResponse response;
  const absl::Status status =
      handler_.ImportProfile(request, absl::InfiniteFuture(), &response);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(backend_.stored, ElementsAre("imported"));
  EXPECT_EQ(snapshots_.Get()->profile->name(), "imported");
  EXPECT_EQ(response.profile().name(), "imported");
  EXPECT_EQ(response.profile().curves_size(), 0) << "a summary";
  EXPECT_TRUE(Recommend(GoodRequest()).ok());
}

TEST_F(HandlerTest, WhatCannotBeImportedChangesNothing) {
  snapshots_.Set(SampleProfile("old"));
  const std::string good = WriteProfile(SampleProfileData("new"));
  const auto import = [this](const std::string& file) {
    v1::ImportProfileRequest request;
    request.set_profile_file(file);
    v1::ImportProfileResponse response;
    return handler_.ImportProfile(request, absl::InfiniteFuture(), &response);
  };

  EXPECT_EQ(import("").message(),
            "profile_file is empty; allowed: the content of a profile file");
  const absl::Status truncated = import(good.substr(0, good.size() / 2));
  EXPECT_EQ(truncated.code(), absl::StatusCode::kInvalidArgument) << truncated;
  EXPECT_THAT(std::string(truncated.message()), HasSubstr("profile_file"));

  std::string newer = good;
  const std::string version = absl::StrCat("\"version\": ", kProfileVersion);
  const size_t at = newer.find(version);
  ASSERT_NE(at, std::string::npos);
  newer.replace(at, version.size(),
                absl::StrCat("\"version\": ", kProfileVersion + 1));
  const absl::Status refused = import(newer);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("version"));

  backend_.store_status = absl::ResourceExhaustedError("the disk is full");
  EXPECT_EQ(import(good), backend_.store_status);

  EXPECT_THAT(backend_.stored, IsEmpty());
  EXPECT_EQ(snapshots_.Get()->profile->name(), "old");
}

TEST_F(HandlerTest, AProfileOfAnotherNodeIsTakenOnlyWhereThatIsSaid) {
  backend_.node_fingerprint_id = "0123456789abcdef";
  v1::ImportProfileRequest request;
  request.set_profile_file(WriteProfile(SampleProfileData("other")));
  v1::ImportProfileResponse response;
  const absl::Status status =
      handler_.ImportProfile(request, absl::InfiniteFuture(), &response);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("allow_other_node"));
  EXPECT_EQ(snapshots_.Get(), nullptr);
  request.set_allow_other_node(true);
  EXPECT_TRUE(
      handler_.ImportProfile(request, absl::InfiniteFuture(), &response).ok());
}

TEST_F(HandlerTest, AnImportAfterItsDeadlineIsNotStored) {
  v1::ImportProfileRequest request;
  request.set_profile_file(WriteProfile(SampleProfileData("late")));
  v1::ImportProfileResponse response;
  EXPECT_EQ(handler_.ImportProfile(request, clock_.Now(), &response).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(backend_.stored, IsEmpty());
}

TEST_F(HandlerTest, StatusTellsWhatTheDaemonIsAndWhyItDoesNotServe) {
  backend_.state.version = "1.2.3";
  backend_.state.start_time = absl::FromUnixSeconds(1'700'000'000);
  backend_.state.measurement_count = 5;
  v1::GetStatusResponse status;
  ASSERT_TRUE(handler_.GetStatus({}, &status).ok());
  EXPECT_EQ(status.version(), "1.2.3");
  EXPECT_EQ(status.start_time().seconds(), 1'700'000'000);
  EXPECT_FALSE(status.serving());
  EXPECT_THAT(status.reason(), HasSubstr("no profile is loaded"));
  EXPECT_EQ(status.scheduler_state(), "no worker");
  EXPECT_EQ(status.measurement_count(), 5);

  snapshots_.Set(SampleProfile("node"));
  status.Clear();
  ASSERT_TRUE(handler_.GetStatus({}, &status).ok());
  EXPECT_TRUE(status.serving());
  EXPECT_EQ(status.reason(), "");
  EXPECT_EQ(status.profile(), "node");
  EXPECT_EQ(status.fingerprint(), snapshots_.Get()->profile->fingerprint_id());
  EXPECT_GT(status.as_of_time().seconds(), 0);
  EXPECT_EQ(status.snapshot_count(), 1);
}

TEST_F(HandlerTest, ShippedModelsAreListed) {
  v1::ListModelsResponse response;
  ASSERT_TRUE(handler_.ListModels({}, &response).ok());
  EXPECT_EQ(response.models_size(), 34);
}

}  // namespace
}  // namespace fabricwise
