// SPDX-License-Identifier: Apache-2.0
//
// A real server and real clients of it, over TCP and a UNIX socket.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fabricwise/v1/advisor.grpc.pb.h"
#include "fabricwise/v1/profiler.grpc.pb.h"
#include "server/profile/profile_file.h"
#include "server/rpc/handler.h"
#include "server/rpc/service.h"
#include "tests/support/bad_requests.h"
#include "tests/support/fake_backend.h"
#include "tests/support/synthetic_profile.h"

namespace fabricwise {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Ample for any call of these tests, and an end to a hang.
constexpr std::chrono::seconds kPatience(60);

// Its listings wait until they are let go.
class GatedBackend : public FakeBackend {
 public:
  absl::StatusOr<MeasurementPage> ListMeasurements(
      int page_size, const std::string& page_token,
      const std::string& key_prefix) override {
    ++entered;
    if (gated) gate.get_future().wait();
    return FakeBackend::ListMeasurements(page_size, page_token, key_prefix);
  }

  std::atomic<bool> gated = false;
  std::atomic<int> entered = 0;
  std::promise<void> gate;
};

class RecordingObserver : public RequestObserver {
 public:
  void OnRequest(const RequestEvent& event) override {
    EXPECT_GE(event.duration, absl::ZeroDuration());
    std::lock_guard lock(mutex_);
    events_.push_back(absl::StrCat(event.method, " ",
                                   absl::StatusCodeToString(event.code),
                                   event.cached ? " cached" : ""));
  }

  std::vector<std::string> Take() {
    std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> events_;
};

class RpcServerTest : public ::testing::Test {
 protected:
  RpcServerTest()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                absl::StrCat("rpc_server_test.", getpid())) {
    std::filesystem::create_directories(folder_);
    socket_ = absl::StrCat("unix://", (folder_ / "socket").string());
    options_.addresses = {{.address = "127.0.0.1:0"}, {.address = socket_}};
    rules_.loopback_role = Role::kOperator;
    access_.SetRules(rules_);
  }
  ~RpcServerTest() override {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  void Start() {
    auto server = RpcServer::Start(options_, &handler_, &snapshots_, &observer_,
                                   &access_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    Connect(absl::StrCat("127.0.0.1:", server_->ports()[0]));
  }

  void Connect(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    // Channels to one address share connections unless told otherwise.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channel_ = grpc::CreateCustomChannel(
        address, grpc::InsecureChannelCredentials(), arguments);
    advisor_ = v1::ParallelismAdvisor::NewStub(channel_);
    profiler_ = v1::NodeProfiler::NewStub(channel_);
  }

  static std::unique_ptr<grpc::ClientContext> Context() {
    auto context = std::make_unique<grpc::ClientContext>();
    context->set_deadline(std::chrono::system_clock::now() + kPatience);
    return context;
  }

  grpc::Status Recommend(const v1::RecommendParallelismRequest& request,
                         v1::RecommendParallelismResponse* response) {
    return advisor_->RecommendParallelism(Context().get(), request, response);
  }

  grpc::Status Import(const std::string& file) {
    v1::ImportProfileRequest request;
    request.set_profile_file(file);
    v1::ImportProfileResponse response;
    return profiler_->ImportProfile(Context().get(), request, &response);
  }

  // A unary call of bytes.
  grpc::Status Call(const std::string& method, const std::string& request,
                    std::string* response) {
    grpc::GenericStub stub(channel_);
    const grpc::Slice slice(request);
    const grpc::ByteBuffer in(&slice, 1);
    grpc::ByteBuffer out;
    const auto context = Context();
    std::promise<grpc::Status> done;
    stub.UnaryCall(
        context.get(), method, grpc::StubOptions(), &in, &out,
        [&done](grpc::Status status) { done.set_value(std::move(status)); });
    grpc::Status status = done.get_future().get();
    grpc::Slice answer;
    if (status.ok() && out.DumpToSingleSlice(&answer).ok()) {
      response->assign(reinterpret_cast<const char*>(answer.begin()),
                       answer.size());
    }
    return status;
  }

  // What grpc.health.v1 says of `service`.
  std::string Health(const std::string& service) {
    std::string request;
    if (!service.empty()) {
      request = absl::StrCat(
          "\x0a", std::string(1, static_cast<char>(service.size())), service);
    }
    std::string response;
    const grpc::Status status =
        Call("/grpc.health.v1.Health/Check", request, &response);
    if (!status.ok()) return status.error_message();
    if (response == "\x08\x01") return "SERVING";
    if (response == "\x08\x02") return "NOT_SERVING";
    return "odd";
  }

  const std::filesystem::path folder_;
  std::string socket_;
  SnapshotHolder snapshots_;
  GatedBackend backend_;
  RecordingObserver observer_;
  Handler handler_{&snapshots_, &backend_, Clock::Real(), Handler::Options()};
  AccessRules rules_;
  Access access_{rules_, Clock::Real()};
  RpcServerOptions options_;
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::ParallelismAdvisor::Stub> advisor_;
  std::unique_ptr<v1::NodeProfiler::Stub> profiler_;
};

TEST_F(RpcServerTest, EveryRpcAnswersOverTcpAndOverAUnixSocket) {
  snapshots_.Set(SampleProfile("node"));
  Start();
  for (const std::string& address :
       {absl::StrCat("127.0.0.1:", server_->ports()[0]), socket_}) {
    SCOPED_TRACE(address);
    Connect(address);
    v1::RecommendParallelismResponse recommendation;
    EXPECT_TRUE(Recommend(GoodRequest(), &recommendation).ok());
    EXPECT_GT(recommendation.plans_size(), 0);

    v1::SweepConcurrencyRequest sweep;
    *sweep.mutable_question() = GoodRequest();
    v1::SweepConcurrencyResponse points;
    EXPECT_TRUE(
        advisor_->SweepConcurrency(Context().get(), sweep, &points).ok());
    EXPECT_EQ(points.points_size(), 10);

    v1::WatchRecommendationRequest watch;
    *watch.mutable_question() = GoodRequest();
    {
      const auto context = Context();
      const auto stream = advisor_->WatchRecommendation(context.get(), watch);
      v1::WatchRecommendationResponse first;
      EXPECT_TRUE(stream->Read(&first));
      EXPECT_EQ(first.reason(), "first answer");
      context->TryCancel();
      EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
    }

    v1::ListModelsResponse models;
    EXPECT_TRUE(advisor_->ListModels(Context().get(), {}, &models).ok());
    EXPECT_EQ(models.models_size(), 34);

    v1::GetNodeProfileResponse profile;
    EXPECT_TRUE(profiler_->GetNodeProfile(Context().get(), {}, &profile).ok());
    EXPECT_EQ(profile.profile().name(), "node");

    v1::ListMeasurementsResponse measurements;
    EXPECT_TRUE(
        profiler_->ListMeasurements(Context().get(), {}, &measurements).ok());

    {
      const auto context = Context();
      const auto stream = profiler_->RunMeasurement(context.get(), {});
      v1::RunMeasurementResponse progress;
      EXPECT_FALSE(stream->Read(&progress));
      const grpc::Status status = stream->Finish();
      EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
      EXPECT_THAT(status.error_message(), HasSubstr("no measuring worker"));
    }

    v1::DiagnoseNodeResponse diagnosis;
    EXPECT_EQ(
        profiler_->DiagnoseNode(Context().get(), {}, &diagnosis).error_code(),
        grpc::StatusCode::FAILED_PRECONDITION);

    EXPECT_TRUE(Import(WriteProfile(SampleProfileData("node"))).ok());

    v1::GetStatusResponse status;
    EXPECT_TRUE(profiler_->GetStatus(Context().get(), {}, &status).ok());
    EXPECT_TRUE(status.serving());
  }
}

// Runs what it is asked to on a thread of its own, as the daemon does.
class RunningBackend : public FakeBackend {
 public:
  absl::Status StartRun(const RunOrder&, std::stop_token stop,
                        RunListener listener) override {
    thread_ = std::jthread([this, stop, listener] {
      Measurement measured;
      measured.key = LaunchKey{};
      measured.statistics.median_seconds = 1e-6;
      for (int i = 1; i <= messages; ++i) {
        listener.on_progress({.done_count = i,
                              .total_count = messages,
                              .key = "launch/graph_node",
                              .measurement = measured});
      }
      if (until_stopped) {
        std::promise<void> stopped;
        const std::stop_callback on_stop(stop, [&] { stopped.set_value(); });
        stopped.get_future().wait();
        was_stopped.set_value();
      }
      listener.on_end(result);
    });
    return absl::OkStatus();
  }

  int messages = 0;
  bool until_stopped = false;
  std::promise<void> was_stopped;
  RunResult result;

 private:
  std::jthread thread_;
};

class RunStreamTest : public RpcServerTest {
 protected:
  void StartRunning() {
    auto server = RpcServer::Start(options_, &running_handler_, &snapshots_,
                                   &observer_, &access_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    Connect(absl::StrCat("127.0.0.1:", server_->ports()[0]));
  }

  ~RunStreamTest() override { server_.reset(); }

  RunningBackend running_;
  Handler running_handler_{&snapshots_, &running_, Clock::Real(),
                           Handler::Options()};
};

TEST_F(RunStreamTest, EveryMeasurementArrivesInOrderThenTheEnd) {
  running_.messages = 2000;  // far more than any buffer of gRPC's holds
  running_.result = {.kept_count = 2000, .profile_changed = true};
  StartRunning();
  const auto context = Context();
  const auto stream = profiler_->RunMeasurement(context.get(), {});
  v1::RunMeasurementResponse message;
  for (int i = 1; i <= running_.messages; ++i) {
    ASSERT_TRUE(stream->Read(&message));
    ASSERT_EQ(message.done_count(), i);
    ASSERT_TRUE(message.has_measurement());
  }
  ASSERT_TRUE(stream->Read(&message));
  EXPECT_TRUE(message.profile_changed());
  EXPECT_FALSE(stream->Read(&message));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(RunStreamTest, ACallerWhoGoesEndsTheRun) {
  running_.messages = 1;
  running_.until_stopped = true;
  running_.result = {.status = absl::CancelledError("the run was cancelled")};
  StartRunning();
  const auto context = Context();
  const auto stream = profiler_->RunMeasurement(context.get(), {});
  v1::RunMeasurementResponse message;
  ASSERT_TRUE(stream->Read(&message));
  context->TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  running_.was_stopped.get_future().wait();
}

TEST_F(RunStreamTest, AFailedRunGivesItsStatus) {
  running_.result = {.status = absl::InternalError("the worker died")};
  StartRunning();
  const auto context = Context();
  const auto stream = profiler_->RunMeasurement(context.get(), {});
  v1::RunMeasurementResponse message;
  EXPECT_FALSE(stream->Read(&message));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(status.error_message(), "the worker died");
}

TEST_F(RunStreamTest, ADiagnosisWaitsForTheLook) {
  running_.last_probe = NodeProbe{.time = absl::FromUnixSeconds(5)};
  StartRunning();
  v1::DiagnoseNodeResponse response;
  EXPECT_TRUE(profiler_->DiagnoseNode(Context().get(), {}, &response).ok());
  EXPECT_EQ(response.probe_time().seconds(), 5);
}

TEST_F(RunStreamTest, ADiagnosisCanBeBrokenOff) {
  running_.until_stopped = true;
  StartRunning();
  v1::DiagnoseNodeResponse response;
  grpc::ClientContext brief;
  brief.set_deadline(std::chrono::system_clock::now() +
                     std::chrono::milliseconds(50));
  EXPECT_EQ(profiler_->DiagnoseNode(&brief, {}, &response).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  running_.was_stopped.get_future().wait();
}

TEST_F(RpcServerTest, ServingMayEndBeforeTheServerDoes) {
  snapshots_.Set(SampleProfile("node"));
  Start();
  EXPECT_EQ(Health(""), "SERVING");
  server_->StopServing();
  EXPECT_EQ(Health(""), "NOT_SERVING");
  snapshots_.Set(SampleProfile("another"));
  EXPECT_EQ(Health(""), "NOT_SERVING") << "for good";
  v1::RecommendParallelismResponse response;
  EXPECT_TRUE(Recommend(GoodRequest(), &response).ok());
}

TEST_F(RpcServerTest, BadRequestsGetTheirStatusAndMessageOverTheWire) {
  snapshots_.Set(SampleProfile("node"));
  Start();
  for (const BadRequest& bad : BadRequests()) {
    v1::RecommendParallelismResponse response;
    const grpc::Status status = Recommend(bad.request, &response);
    EXPECT_EQ(status.error_code(), static_cast<grpc::StatusCode>(bad.code))
        << bad.what << ": " << status.error_message();
    EXPECT_THAT(status.error_message(), bad.message) << bad.what;
  }
}

TEST_F(RpcServerTest, WhatIsNoMessageIsRefusedByEveryMethodInWords) {
  snapshots_.Set(SampleProfile("node"));
  Start();
  int methods = 0;
  for (const auto* file :
       {v1::RecommendParallelismRequest::descriptor()->file(),
        v1::GetStatusRequest::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      for (int j = 0; j < file->service(i)->method_count(); ++j) {
        const auto& method = *file->service(i)->method(j);
        std::string response;
        const grpc::Status status =
            Call(absl::StrCat("/", file->service(i)->full_name(), "/",
                              method.name()),
                 "no message", &response);
        EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
            << method.full_name();
        EXPECT_THAT(status.error_message(),
                    HasSubstr(absl::StrCat("the request is not a valid ",
                                           method.input_type()->full_name())));
        ++methods;
      }
    }
  }
  EXPECT_EQ(methods, 10);
}

TEST_F(RpcServerTest, AMessageOverTheLimitIsRefusedWithBothSizes) {
  constexpr size_t kBytes = size_t{64} << 20;
  snapshots_.Set(SampleProfile("node"));
  Start();
  v1::RecommendParallelismRequest request = GoodRequest();
  request.mutable_model()->set_hugging_face_config(std::string(kBytes, ' '));
  v1::RecommendParallelismResponse response;
  for (const grpc::Status& status :
       {Recommend(request, &response), Import(std::string(kBytes, ' '))}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(status.error_message(),
                AllOf(HasSubstr("larger than max"), HasSubstr("671088"),
                      HasSubstr("4194304")));
  }
  EXPECT_TRUE(Recommend(GoodRequest(), &response).ok()) << "it serves on";
}

TEST_F(RpcServerTest, FilesThatCannotBeImportedAreRefused) {
  Start();
  const std::string good = WriteProfile(SampleProfileData("node"));
  const grpc::Status truncated = Import(good.substr(0, good.size() / 2));
  EXPECT_EQ(truncated.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(truncated.error_message(), HasSubstr("profile_file"));
  std::string newer = good;
  const std::string version = absl::StrCat("\"version\": ", kProfileVersion);
  newer.replace(newer.find(version), version.size(),
                absl::StrCat("\"version\": ", kProfileVersion + 1));
  const grpc::Status refused = Import(newer);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(), HasSubstr("version"));
  v1::RecommendParallelismResponse response;
  EXPECT_EQ(Recommend(GoodRequest(), &response).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION)
      << "nothing was loaded";
}

TEST_F(RpcServerTest, HealthFollowsTheProfileAndTheShutdown) {
  const std::string advisor = "fabricwise.v1.ParallelismAdvisor";
  const std::string profiler = "fabricwise.v1.NodeProfiler";
  Start();
  EXPECT_EQ(Health(""), "NOT_SERVING");
  EXPECT_EQ(Health(advisor), "NOT_SERVING");
  EXPECT_EQ(Health(profiler), "SERVING") << "it is what loads a profile";
  EXPECT_NE(Health("no.such.Service"), "SERVING");

  ASSERT_TRUE(Import(WriteProfile(SampleProfileData("node"))).ok());
  EXPECT_EQ(Health(""), "SERVING");
  EXPECT_EQ(Health(advisor), "SERVING");

  // A call under way holds the shutdown up, so that it can be seen.
  backend_.gated = true;
  auto listing = std::async(std::launch::async, [this] {
    v1::ListMeasurementsResponse response;
    return profiler_->ListMeasurements(Context().get(), {}, &response);
  });
  while (backend_.entered == 0) std::this_thread::yield();
  EXPECT_EQ(Health(""), "SERVING");
  auto stopping = std::async(std::launch::async, [this] {
    server_->Shutdown(absl::FromChrono(kPatience));
  });
  backend_.gate.set_value();
  stopping.get();
  EXPECT_TRUE(listing.get().ok()) << "what was under way was finished";
}

TEST_F(RpcServerTest, AWatcherHearsOfChangesAndOfTheEnd) {
  snapshots_.Set(SampleProfile("node"));
  Start();
  v1::WatchRecommendationRequest request;
  *request.mutable_question() = GoodRequest();
  const auto context = Context();
  const auto stream = advisor_->WatchRecommendation(context.get(), request);
  v1::WatchRecommendationResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.reason(), "first answer");
  snapshots_.Set(SampleProfile("renamed"));
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.reason(), "new grounds");
  EXPECT_EQ(response.answer().grounds().profile(), "renamed");

  auto stopping = std::async(std::launch::async, [this] {
    server_->Shutdown(absl::FromChrono(kPatience));
  });
  EXPECT_FALSE(stream->Read(&response));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "the daemon is stopping");
  stopping.get();
}

TEST_F(RpcServerTest, AWatcherThatCannotBeAnsweredIsTold) {
  Start();
  v1::WatchRecommendationRequest request;
  const auto finish = [this, &request] {
    const auto context = Context();
    const auto stream = advisor_->WatchRecommendation(context.get(), request);
    v1::WatchRecommendationResponse response;
    EXPECT_FALSE(stream->Read(&response));
    return stream->Finish();
  };
  EXPECT_EQ(finish().error_message(),
            "question is absent; allowed: a question with model and workload");
  *request.mutable_question() = GoodRequest();
  EXPECT_EQ(finish().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  snapshots_.Set(SampleProfile("node"));
  request.mutable_question()->mutable_workload()->set_concurrency(-5);
  EXPECT_EQ(finish().error_message(),
            "workload.concurrency is -5; allowed: 1 to 1000000");
}

TEST_F(RpcServerTest, WatchersAreBoundedAndOneThatLeavesMakesRoom) {
  options_.max_watchers = 1;
  snapshots_.Set(SampleProfile("node"));
  Start();
  v1::WatchRecommendationRequest request;
  *request.mutable_question() = GoodRequest();
  const auto context = Context();
  const auto stream = advisor_->WatchRecommendation(context.get(), request);
  v1::WatchRecommendationResponse response;
  ASSERT_TRUE(stream->Read(&response));

  const auto second = Context();
  const auto refused = advisor_->WatchRecommendation(second.get(), request);
  EXPECT_FALSE(refused->Read(&response));
  const grpc::Status status = refused->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(),
            "1 watchers already, the most there may be");

  context->TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  // The server hears of it a little later.
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    const auto next = Context();
    const auto accepted = advisor_->WatchRecommendation(next.get(), request);
    if (accepted->Read(&response)) break;
    ASSERT_EQ(accepted->Finish().error_code(),
              grpc::StatusCode::RESOURCE_EXHAUSTED);
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }
}

TEST_F(RpcServerTest, ManyWatchersSurviveSwapsCancelsAndTheShutdown) {
  snapshots_.Set(SampleProfile("0"));
  Start();
  v1::WatchRecommendationRequest request;
  *request.mutable_question() = GoodRequest();
  std::vector<std::jthread> watchers;
  std::atomic<int> first_answers = 0, ends = 0;
  for (int i = 0; i < 16; ++i) {
    watchers.emplace_back([&, i] {
      const auto context = Context();
      const auto stream = advisor_->WatchRecommendation(context.get(), request);
      v1::WatchRecommendationResponse response;
      for (int reads = 0; stream->Read(&response); ++reads) {
        if (reads == 0) ++first_answers;
        if (i % 4 == 0 && reads == 2) context->TryCancel();
      }
      const grpc::StatusCode code = stream->Finish().error_code();
      EXPECT_EQ(code, i % 4 == 0 ? grpc::StatusCode::CANCELLED
                                 : grpc::StatusCode::UNAVAILABLE);
      ++ends;
    });
  }
  while (first_answers < 16) std::this_thread::yield();
  // Those that cancel do so at their third message.
  for (int swaps = 1; ends < 4; ++swaps) {
    snapshots_.Set(SampleProfile(std::to_string(swaps)));
  }
  server_->Shutdown(absl::FromChrono(kPatience));
  watchers.clear();
  EXPECT_EQ(ends, 16);
}

TEST_F(RpcServerTest, AQueuedCallWhoseDeadlinePassesIsNotWorkedOn) {
  constexpr std::chrono::milliseconds kHurry(20);
  constexpr std::chrono::milliseconds kRounding(5);  // of deadlines on the wire
  Start();
  backend_.gated = true;
  auto holder = std::async(std::launch::async, [this] {
    v1::ListMeasurementsResponse response;
    return profiler_->ListMeasurements(Context().get(), {}, &response);
  });
  while (backend_.entered == 0) std::this_thread::yield();

  grpc::ClientContext hurried;
  hurried.set_deadline(std::chrono::system_clock::now() + kHurry);
  const v1::ListMeasurementsRequest request;
  v1::ListMeasurementsResponse response;
  std::promise<grpc::Status> done;
  profiler_->async()->ListMeasurements(
      &hurried, &request, &response,
      [&done](grpc::Status status) { done.set_value(std::move(status)); });
  EXPECT_EQ(done.get_future().get().error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  // The server counts from when it heard of the call, which was before it
  // answered a later one on the same connection.
  v1::GetStatusResponse status;
  EXPECT_TRUE(profiler_->GetStatus(Context().get(), {}, &status).ok());
  const auto passed = std::chrono::steady_clock::now() + kHurry + kRounding;
  while (std::chrono::steady_clock::now() < passed) std::this_thread::yield();

  backend_.gated = false;
  backend_.gate.set_value();
  EXPECT_TRUE(holder.get().ok());
  EXPECT_TRUE(profiler_->ListMeasurements(Context().get(), {}, &response).ok());
  EXPECT_EQ(backend_.entered, 2) << "the hurried call never came in";
}

TEST_F(RpcServerTest, LongCallsWaitWithinABoundAndTheRestGoesOn) {
  options_.max_queued_calls = 1;
  snapshots_.Set(SampleProfile("node"));
  Start();
  backend_.gated = true;
  const auto list = [this] {
    v1::ListMeasurementsResponse response;
    return profiler_->ListMeasurements(Context().get(), {}, &response);
  };
  auto running = std::async(std::launch::async, list);
  while (backend_.entered == 0) std::this_thread::yield();
  // One of these two waits and the other is refused.
  auto second = std::async(std::launch::async, list);
  auto third = std::async(std::launch::async, list);
  while (true) {
    if (second.wait_for(std::chrono::milliseconds(1)) ==
        std::future_status::ready) {
      break;
    }
    if (third.wait_for(std::chrono::milliseconds(1)) ==
        std::future_status::ready) {
      std::swap(second, third);
      break;
    }
  }
  const grpc::Status refused = second.get();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("try again later"));
  v1::RecommendParallelismResponse response;
  EXPECT_TRUE(Recommend(GoodRequest(), &response).ok())
      << "a scheduler's question does not wait behind long calls";
  backend_.gated = false;
  backend_.gate.set_value();
  EXPECT_TRUE(running.get().ok());
  EXPECT_TRUE(third.get().ok());
}

TEST_F(RpcServerTest, EachCallIsReportedOnce) {
  snapshots_.Set(SampleProfile("node"));
  Start();
  v1::RecommendParallelismResponse response;
  EXPECT_TRUE(Recommend(GoodRequest(), &response).ok());
  const std::string first = response.SerializeAsString();
  EXPECT_TRUE(Recommend(GoodRequest(), &response).ok());
  EXPECT_EQ(response.SerializeAsString(), first);
  auto bad = GoodRequest();
  bad.mutable_workload()->set_concurrency(0);
  EXPECT_FALSE(Recommend(bad, &response).ok());
  v1::GetStatusResponse status;
  EXPECT_TRUE(profiler_->GetStatus(Context().get(), {}, &status).ok());
  v1::ListMeasurementsResponse measurements;
  EXPECT_TRUE(
      profiler_->ListMeasurements(Context().get(), {}, &measurements).ok());
  EXPECT_TRUE(Import(WriteProfile(SampleProfileData("other"))).ok());
  EXPECT_THAT(observer_.Take(),
              ::testing::ElementsAre(
                  "RecommendParallelism OK", "RecommendParallelism OK cached",
                  "RecommendParallelism INVALID_ARGUMENT", "GetStatus OK",
                  "ListMeasurements OK", "ImportProfile OK"));
}

TEST_F(RpcServerTest, ALongMessageIsCutToWhatClientsAccept) {
  std::string message(100'000, 'x');
  message.replace(1990, 2, "\xc3\xa4");
  backend_.page = absl::UnavailableError(message);
  Start();
  v1::ListMeasurementsResponse response;
  const grpc::Status status =
      profiler_->ListMeasurements(Context().get(), {}, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(),
              AllOf(SizeIs(::testing::Le(2000)), EndsWith("x ... (cut)")));
}

TEST_F(RpcServerTest, AnswersAreOfOneSnapshotWhileItIsSwapped) {
  snapshots_.Set(SampleProfile("node"));
  Start();
  std::atomic<bool> stop = false;
  std::vector<std::jthread> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back([&] {
      do {
        v1::RecommendParallelismResponse response;
        const grpc::Status status = Recommend(GoodRequest(), &response);
        EXPECT_TRUE(status.ok()) << status.error_message();
        // Which profile it was shows in its name and in its time.
        EXPECT_EQ(response.grounds().profile() == "node",
                  response.grounds().as_of_time().nanos() == 0);
      } while (!stop);
    });
  }
  ProfileData other = SampleProfileData("other");
  other.as_of += absl::Nanoseconds(1);
  const auto other_profile = *Profile::Build(std::move(other));
  for (int i = 0; i < 50; ++i) {
    snapshots_.Set(i % 2 == 0 ? other_profile : SampleProfile("node"));
  }
  stop = true;
}

TEST_F(RpcServerTest, AnAddressInUseIsNamed) {
  Start();
  const std::string taken = absl::StrCat("127.0.0.1:", server_->ports()[0]);
  options_.addresses = {{.address = "127.0.0.1:0"}, {.address = taken}};
  const auto second =
      RpcServer::Start(options_, &handler_, &snapshots_, nullptr, &access_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(absl::StrCat("cannot listen on ", taken)));
}

TEST_F(RpcServerTest, OddOptionsAreRefused) {
  const auto refusal = [this](const RpcServerOptions& options) {
    return std::string(
        RpcServer::Start(options, &handler_, &snapshots_, nullptr, &access_)
            .status()
            .message());
  };
  RpcServerOptions options = options_;
  options.addresses.clear();
  EXPECT_EQ(refusal(options),
            "addresses is empty; allowed: at least one "
            "address");
  options = options_;
  options.max_request_bytes = 0;
  EXPECT_EQ(refusal(options),
            "max_request_bytes is 0; allowed: 1024 to 1073741824");
  options = options_;
  options.slow_threads = 0;
  EXPECT_EQ(refusal(options), "slow_threads is 0; allowed: 1 to 256");
  options = options_;
  options.addresses.push_back({.address = "0.0.0.0:0", .tls = true});
  EXPECT_EQ(refusal(options),
            "tls is absent; allowed: the files that 0.0.0.0:0 needs to speak "
            "TLS");
  options.tls = TlsFiles{.certificate = "/absent/cert.pem",
                         .key = "/absent/key.pem",
                         .client_ca = "/absent/ca.pem"};
  EXPECT_EQ(
      refusal(options),
      "tls-key is /absent/key.pem; allowed: a PEM file that this user may "
      "read, not empty and under 1 MiB");
}

TEST_F(RpcServerTest, ALoopbackReaderMayReadAndTheSocketsOperatorDoAll) {
  snapshots_.Set(SampleProfile("node"));
  rules_.loopback_role = Role::kReader;
  access_.SetRules(rules_);
  Start();
  v1::RecommendParallelismResponse response;
  EXPECT_TRUE(Recommend(GoodRequest(), &response).ok());
  const auto refusals = [this] {
    std::vector<grpc::Status> statuses;
    statuses.push_back(Import(WriteProfile(SampleProfileData("node"))));
    v1::DiagnoseNodeResponse diagnosis;
    statuses.push_back(
        profiler_->DiagnoseNode(Context().get(), {}, &diagnosis));
    const auto context = Context();
    const auto stream = profiler_->RunMeasurement(context.get(), {});
    v1::RunMeasurementResponse progress;
    EXPECT_FALSE(stream->Read(&progress));
    statuses.push_back(stream->Finish());
    return statuses;
  };
  observer_.Take();
  const char* const rpcs[] = {"ImportProfile", "DiagnoseNode",
                              "RunMeasurement"};
  const std::vector<grpc::Status> refused = refusals();
  for (size_t i = 0; i < refused.size(); ++i) {
    EXPECT_EQ(refused[i].error_code(), grpc::StatusCode::PERMISSION_DENIED);
    EXPECT_EQ(refused[i].error_message(),
              absl::StrCat(rpcs[i],
                           " needs the role operator; this caller's is reader "
                           "(loopback-role)"));
  }
  EXPECT_THAT(observer_.Take(),
              ::testing::ElementsAre("ImportProfile PERMISSION_DENIED",
                                     "DiagnoseNode PERMISSION_DENIED",
                                     "RunMeasurement PERMISSION_DENIED"));
  Connect(socket_);
  for (const grpc::Status& status : refusals()) {
    EXPECT_NE(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  }
  // Rules hold from the next call on, on connections that are open too.
  rules_.unix_role = Role::kReader;
  access_.SetRules(rules_);
  for (const grpc::Status& status : refusals()) {
    EXPECT_THAT(status.error_message(), EndsWith("reader (socket-role)"));
  }
}

TEST_F(RpcServerTest, TooManyCallsOfOperatorsAreToldWhenToTryAgain) {
  rules_.operator_calls_per_minute = 1;
  access_.SetRules(rules_);
  Start();
  const std::string file = WriteProfile(SampleProfileData("node"));
  EXPECT_TRUE(Import(file).ok());
  v1::ImportProfileRequest request;
  request.set_profile_file(file);
  v1::ImportProfileResponse response;
  const auto context = Context();
  const grpc::Status status =
      profiler_->ImportProfile(context.get(), request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(),
              AllOf(HasSubstr("ImportProfile: too many calls of operators"),
                    HasSubstr("try again in ")));
  const auto& trailers = context->GetServerTrailingMetadata();
  const auto hint = trailers.find("grpc-retry-pushback-ms");
  ASSERT_NE(hint, trailers.end());
  const int milliseconds =
      std::stoi(std::string(hint->second.data(), hint->second.size()));
  EXPECT_GT(milliseconds, 0);
  EXPECT_LE(milliseconds, 60'000);
  v1::GetStatusResponse readers;
  EXPECT_TRUE(profiler_->GetStatus(Context().get(), {}, &readers).ok());
}

TEST_F(RpcServerTest, CallsWithoutADeadlineGetTheServers) {
  snapshots_.Set(SampleProfile("node"));
  rules_.most_time = absl::Nanoseconds(1);
  access_.SetRules(rules_);
  Start();
  grpc::ClientContext endless[2], ample;
  v1::RecommendParallelismResponse response;
  EXPECT_EQ(
      advisor_->RecommendParallelism(&endless[0], GoodRequest(), &response)
          .error_code(),
      grpc::StatusCode::DEADLINE_EXCEEDED);
  v1::GetNodeProfileResponse profile;
  EXPECT_EQ(profiler_->GetNodeProfile(&endless[1], {}, &profile).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  ample.set_deadline(std::chrono::system_clock::now() + kPatience);
  EXPECT_EQ(profiler_->GetNodeProfile(&ample, {}, &profile).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED)
      << "a later one is cut to the server's";
  rules_.most_time = absl::Hours(1);
  access_.SetRules(rules_);
  grpc::ClientContext again;
  EXPECT_TRUE(
      advisor_->RecommendParallelism(&again, GoodRequest(), &response).ok());
}

TEST_F(RpcServerTest, OldConnectionsTakeNoFurtherCallsAndKeepTheirStreams) {
  snapshots_.Set(SampleProfile("node"));
  options_.max_connection_age = absl::Milliseconds(100);
  Start();
  v1::WatchRecommendationRequest watch;
  *watch.mutable_question() = GoodRequest();
  const auto context = Context();
  const auto stream = advisor_->WatchRecommendation(context.get(), watch);
  v1::WatchRecommendationResponse message;
  ASSERT_TRUE(stream->Read(&message));
  // The channel is told to leave the connection.
  ASSERT_TRUE(channel_->WaitForStateChange(
      GRPC_CHANNEL_READY, std::chrono::system_clock::now() + kPatience));
  v1::GetStatusResponse status;
  EXPECT_TRUE(profiler_->GetStatus(Context().get(), {}, &status).ok());
  snapshots_.Set(SampleProfile("another"));
  ASSERT_TRUE(stream->Read(&message));
  EXPECT_EQ(message.answer().grounds().profile(), "another");
  context->TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(RpcServerTest, ConnectionsThatPingTooOftenAreClosed) {
  Start();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  const auto eager =
      grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", server_->ports()[0]),
                                grpc::InsecureChannelCredentials(), arguments);
  ASSERT_TRUE(
      eager->WaitForConnected(std::chrono::system_clock::now() + kPatience));
  EXPECT_TRUE(eager->WaitForStateChange(
      GRPC_CHANNEL_READY, std::chrono::system_clock::now() + kPatience));
}

TEST_F(RpcServerTest, CallsBeyondAConnectionsStreamsWait) {
  snapshots_.Set(SampleProfile("node"));
  options_.max_concurrent_streams = 1;
  Start();
  v1::WatchRecommendationRequest watch;
  *watch.mutable_question() = GoodRequest();
  const auto watching = Context();
  const auto stream = advisor_->WatchRecommendation(watching.get(), watch);
  v1::WatchRecommendationResponse message;
  ASSERT_TRUE(stream->Read(&message));
  grpc::ClientContext impatient;
  impatient.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::milliseconds(50));
  v1::GetStatusResponse status;
  EXPECT_EQ(profiler_->GetStatus(&impatient, {}, &status).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  watching->TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(profiler_->GetStatus(Context().get(), {}, &status).ok());
}

TEST_F(RpcServerTest, RespondsUnlessItsThreadsAreStuck) {
  Start();
  EXPECT_TRUE(server_->Responds(absl::Minutes(1)));
  backend_.gated = true;
  std::thread stuck([this] {
    v1::ListMeasurementsResponse response;
    EXPECT_TRUE(
        profiler_->ListMeasurements(Context().get(), {}, &response).ok());
  });
  while (backend_.entered == 0) std::this_thread::yield();
  EXPECT_FALSE(server_->Responds(absl::Milliseconds(20)));
  backend_.gate.set_value();
  stuck.join();
  EXPECT_TRUE(server_->Responds(absl::Minutes(1)));
}

TEST_F(RpcServerTest, ShutdownMayBeAskedForAgain) {
  Start();
  server_->Shutdown(absl::ZeroDuration());
  server_->Shutdown(absl::ZeroDuration());
  v1::GetStatusResponse status;
  grpc::ClientContext context;
  EXPECT_EQ(profiler_->GetStatus(&context, {}, &status).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace fabricwise
