// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/service.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "fabricwise/v1/advisor.grpc.pb.h"
#include "fabricwise/v1/profiler.grpc.pb.h"
#include "server/base/argument.h"
#include "server/base/status_macros.h"
#include "server/rpc/executor.h"

namespace fabricwise {
namespace {

// A request up to this size is answered on gRPC's own thread: what makes one
// longer is a model's config, and to read a megabyte of that takes longer than
// the rest of the answer.
constexpr size_t kMaxInlineRequestBytes = 16 << 10;

// A status travels percent-encoded in HTTP/2 headers, of which clients accept
// 8 KiB; a message of this size fits whatever it holds.
constexpr size_t kMaxMessageBytes = 2000;

// A watcher whose machine has gone is noticed after both.
constexpr int kKeepaliveIntervalMs = 60'000;
constexpr int kKeepaliveTimeoutMs = 20'000;

// Clients that keep an idle connection alive may do so this often.
constexpr int kMinClientPingIntervalMs = 10'000;

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string message(status.message());
  if (message.size() > kMaxMessageBytes) {
    constexpr absl::string_view kCut = " ... (cut)";
    size_t end = kMaxMessageBytes - kCut.size();
    // Not in the middle of a UTF-8 sequence.
    while (end > 0 && (message[end] & 0xC0) == 0x80) --end;
    message.resize(end);
    message.append(kCut.data(), kCut.size());
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message);
}

// One call from arrival to its report.
class Report {
 public:
  Report(absl::string_view method, RequestObserver* observer)
      : method_(method), observer_(observer) {}

  void Done(absl::StatusCode code, bool cached = false) const {
    if (observer_ == nullptr) return;
    observer_->OnRequest(RequestEvent{
        method_, code,
        absl::FromChrono(std::chrono::steady_clock::now() - start_), cached});
  }

 private:
  absl::string_view method_;
  RequestObserver* observer_;
  std::chrono::steady_clock::time_point start_ =
      std::chrono::steady_clock::now();
};

// The bytes of a message, whole.
class FlatMessage {
 public:
  explicit FlatMessage(const grpc::ByteBuffer& buffer) {
    if (buffer.TrySingleSlice(&slice_).ok()) return;
    if (!buffer.DumpToSingleSlice(&slice_).ok()) slice_ = grpc::Slice();
  }
  absl::string_view bytes() const {
    return {reinterpret_cast<const char*>(slice_.begin()), slice_.size()};
  }

 private:
  grpc::Slice slice_;
};

// A message of `bytes`, not copied.
grpc::ByteBuffer Wrap(AnswerBytes bytes) {
  void* data = const_cast<char*>(bytes->data());  // gRPC only reads it
  const size_t size = bytes->size();
  auto* holder = new AnswerBytes(std::move(bytes));
  const grpc::Slice slice(
      data, size, [](void* held) { delete static_cast<AnswerBytes*>(held); },
      holder);
  return grpc::ByteBuffer(&slice, 1);
}

// gRPC itself would answer what is no message with UNIMPLEMENTED and not a
// word: so every method takes bytes, and gives bytes.
template <typename Request>
absl::StatusOr<std::shared_ptr<const Request>> Parse(
    const grpc::ByteBuffer& bytes) {
  auto request = std::make_shared<Request>();
  grpc::ByteBuffer read = bytes;  // shares what it holds
  if (!grpc::SerializationTraits<Request>::Deserialize(&read, request.get())
           .ok()) {
    return NoMessage(Request::descriptor()->full_name());
  }
  return request;
}

grpc::ByteBuffer Serialize(const google::protobuf::MessageLite& message) {
  return Wrap(std::make_shared<const std::string>(message.SerializeAsString()));
}

absl::Status Busy() {
  return absl::ResourceExhaustedError(
      "too many long calls wait already: try again later");
}

absl::Status Stopping() {
  return absl::UnavailableError("the daemon is stopping");
}

absl::Status Gone() { return absl::CancelledError("the caller has gone"); }

// Whether anyone still wants what a call that had to wait would do.
absl::Status CheckWanted(const grpc::CallbackServerContext& context,
                         absl::Time deadline) {
  if (context.IsCancelled()) return Gone();
  if (deadline <= absl::FromChrono(std::chrono::system_clock::now())) {
    return absl::DeadlineExceededError("the deadline passed in the queue");
  }
  return absl::OkStatus();
}

// How many calls are open: their requests have arrived, and their answers are
// not sent yet.
class OpenCalls {
 public:
  // One of them, while it lives.
  class Token {
   public:
    explicit Token(OpenCalls* calls) : calls_(calls) { calls_->Add(1); }
    ~Token() { calls_->Add(-1); }
    Token(const Token&) = delete;
    Token& operator=(const Token&) = delete;

   private:
    OpenCalls* const calls_;
  };

  // Whether none was open at some time up to `most` from now.
  bool WaitForNone(absl::Duration most) {
    absl::MutexLock lock(&mutex_);
    const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return count_ == 0;
    };
    return mutex_.AwaitWithTimeout(absl::Condition(&none), most);
  }

 private:
  void Add(int more) {
    absl::MutexLock lock(&mutex_);
    count_ += more;
  }

  absl::Mutex mutex_;
  int64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
};

// What every service needs.
struct Shared {
  Handler* handler;
  RequestObserver* observer;
  Executor* executor;
  OpenCalls* open_calls;
  Access* access;

  // Until when a call that has just arrived may take.
  absl::Time Deadline(const grpc::ServerContextBase& context) const {
    return access->Deadline(absl::FromChrono(context.deadline()));
  }

  // Whether a call that needs an operator may go on.
  absl::Status Admit(grpc::CallbackServerContext& context,
                     absl::string_view rpc) const {
    Access::Admission admission = access->AdmitOperator(PeerOf(context), rpc);
    if (admission.retry_after > absl::ZeroDuration()) {
      // What gRPC's own retries wait for.
      context.AddTrailingMetadata(
          "grpc-retry-pushback-ms",
          absl::StrCat(absl::ToInt64Milliseconds(admission.retry_after)));
    }
    return std::move(admission.status);
  }
};

// A call with one answer. Made by new; gRPC says when it is over.
class UnaryCall : public grpc::ServerUnaryReactor {
 public:
  explicit UnaryCall(const Shared& shared) : open_(shared.open_calls) {}
  void OnDone() override { delete this; }

 private:
  // OnDone is short: gRPC need not hand it to another thread, which takes
  // longer than a remembered answer does.
  bool InternalInlineable() override { return true; }

  const OpenCalls::Token open_;
};

// Ends a call with why it is refused.
grpc::ServerUnaryReactor* Refuse(const Shared& shared, absl::string_view method,
                                 const absl::Status& status) {
  Report(method, shared.observer).Done(status.code());
  auto* const reactor = new UnaryCall(shared);
  reactor->Finish(ToGrpc(status));
  return reactor;
}

// Runs `work`, which fills a response, on the executor.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* RunSlow(
    const Shared& shared, absl::string_view method,
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* asked,
    grpc::ByteBuffer* answer,
    std::function<absl::Status(const Request&, absl::Time, Response*)> work) {
  absl::StatusOr<std::shared_ptr<const Request>> request =
      Parse<Request>(*asked);
  if (!request.ok()) return Refuse(shared, method, request.status());
  auto* const reactor = new UnaryCall(shared);
  const Report report(method, shared.observer);
  const absl::Time deadline = shared.Deadline(*context);
  const bool taken = shared.executor->TrySubmit(
      [context, request = *std::move(request), answer, reactor, report,
       deadline, work = std::move(work)] {
        Response response;
        absl::Status status = CheckWanted(*context, deadline);
        if (status.ok()) status = work(*request, deadline, &response);
        if (status.ok()) *answer = Serialize(response);
        report.Done(status.code());
        reactor->Finish(ToGrpc(status));
      });
  if (!taken) {
    report.Done(Busy().code());
    reactor->Finish(ToGrpc(Busy()));
  }
  return reactor;
}

// Runs `work`, which fills a response, here and now.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* RunQuick(
    const Shared& shared, absl::string_view method,
    const grpc::ByteBuffer* asked, grpc::ByteBuffer* answer,
    const std::function<absl::Status(const Request&, Response*)>& work) {
  const Report report(method, shared.observer);
  absl::Status status;
  if (const auto request = Parse<Request>(*asked); request.ok()) {
    Response response;
    status = work(**request, &response);
    if (status.ok()) *answer = Serialize(response);
  } else {
    status = request.status();
  }
  report.Done(status.code());
  auto* const reactor = new UnaryCall(shared);
  reactor->Finish(ToGrpc(status));
  return reactor;
}

// A stream that only says why there is none.
class RefusedStream : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  RefusedStream(const Shared& shared, const Report& report,
                const absl::Status& status)
      : open_(shared.open_calls) {
    report.Done(status.code());
    Finish(ToGrpc(status));
  }
  void OnDone() override { delete this; }

 private:
  const OpenCalls::Token open_;
};

// A watcher. Its owner lets go of it in `on_done`; whatever else runs for it
// holds a share.
class WatchStream : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                    public std::enable_shared_from_this<WatchStream> {
 public:
  WatchStream(std::unique_ptr<RecommendationWatch> watch, const Shared& shared,
              std::function<void(WatchStream*)> on_done)
      : watch_(std::move(watch)),
        shared_(shared),
        on_done_(std::move(on_done)) {}

  // Sends the first answer and hears of further snapshots.
  void Begin(SnapshotHolder* snapshots) {
    subscription_ = snapshots->Subscribe([this] { Look(); });
    Look();
  }

  // Ends the stream once the write under way, if any, is done.
  void End(const absl::Status& status) {
    {
      std::lock_guard lock(mutex_);
      if (end_.has_value()) return;
      end_ = status;
      if (busy_) return;
      busy_ = true;
    }
    FinishWith(status);
  }

  void OnWriteDone(bool ok) override {
    if (!ok) End(Gone());
    Proceed();
  }
  void OnCancel() override { End(Gone()); }
  void OnDone() override {
    subscription_ = SnapshotHolder::Subscription();
    const auto on_done = on_done_;  // outlives this, which it may destroy
    on_done(this);
  }

 private:
  // There may be something new.
  void Look() {
    {
      std::lock_guard lock(mutex_);
      due_ = true;
      if (busy_) return;
      busy_ = true;
    }
    Proceed();
  }

  // Does what is due, as the one that holds busy_. gRPC is called outside the
  // lock, since it may call back at once.
  void Proceed() {
    std::optional<absl::Status> end;
    {
      std::lock_guard lock(mutex_);
      end = end_;
      if (!end.has_value() && !due_) {
        busy_ = false;
        return;
      }
      due_ = false;
    }
    if (end.has_value()) {
      FinishWith(*end);
      return;
    }
    shared_.executor->Submit([self = shared_from_this()] { self->Evaluate(); });
  }

  void Evaluate() {
    auto next = watch_->Next();
    if (!next.ok()) {
      End(next.status());
    } else if (next->has_value()) {
      message_ = Serialize(**next);
      StartWrite(&message_);
      return;  // OnWriteDone proceeds
    }
    Proceed();
  }

  void FinishWith(const absl::Status& status) {
    report_.Done(status.code());
    Finish(ToGrpc(status));
  }

  const std::unique_ptr<RecommendationWatch> watch_;  // by whoever is busy
  const Shared shared_;
  const OpenCalls::Token open_{shared_.open_calls};
  const std::function<void(WatchStream*)> on_done_;
  const Report report_{"WatchRecommendation", shared_.observer};
  SnapshotHolder::Subscription subscription_;
  grpc::ByteBuffer message_;  // being written

  std::mutex mutex_;
  // One evaluation, write or finish at a time; after a finish for ever.
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool due_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

// The two methods on a scheduler's path are raw: bytes in, bytes out.
using AdvisorBase =
    v1::ParallelismAdvisor::WithRawCallbackMethod_RecommendParallelism<
        v1::ParallelismAdvisor::WithRawCallbackMethod_SweepConcurrency<
            v1::ParallelismAdvisor::WithRawCallbackMethod_WatchRecommendation<
                v1::ParallelismAdvisor::WithRawCallbackMethod_ListModels<
                    v1::ParallelismAdvisor::Service>>>>;

class AdvisorService : public AdvisorBase {
 public:
  AdvisorService(const Shared& shared, SnapshotHolder* snapshots,
                 int max_watchers)
      : shared_(shared),
        snapshots_(snapshots),
        max_watchers_(static_cast<size_t>(max_watchers)) {}

  grpc::ServerUnaryReactor* RecommendParallelism(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
      grpc::ByteBuffer* response) override {
    return AnswerRaw("RecommendParallelism", &Handler::FindRecommendation,
                     &Handler::RecommendParallelism, kMaxInlineRequestBytes,
                     context, request, response);
  }

  grpc::ServerUnaryReactor* SweepConcurrency(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
      grpc::ByteBuffer* response) override {
    return AnswerRaw("SweepConcurrency", &Handler::FindSweep,
                     &Handler::SweepConcurrency, /*max_inline_bytes=*/0,
                     context, request, response);
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchRecommendation(
      grpc::CallbackServerContext*, const grpc::ByteBuffer* asked) override {
    const auto refuse = [this](const absl::Status& status) {
      return new RefusedStream(
          shared_, Report("WatchRecommendation", shared_.observer), status);
    };
    const auto request = Parse<v1::WatchRecommendationRequest>(*asked);
    if (!request.ok()) return refuse(request.status());
    auto watch = shared_.handler->WatchRecommendation(**request);
    if (!watch.ok()) return refuse(watch.status());
    auto stream = std::make_shared<WatchStream>(
        *std::move(watch), shared_,
        [this](WatchStream* done) { Forget(done); });
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return refuse(Stopping());
      if (streams_.size() >= max_watchers_) {
        return refuse(absl::ResourceExhaustedError(absl::StrCat(
            streams_.size(), " watchers already, the most there may be")));
      }
      streams_.emplace(stream.get(), stream);
    }
    stream->Begin(snapshots_);
    return stream.get();
  }

  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext*,
                                       const grpc::ByteBuffer* asked,
                                       grpc::ByteBuffer* answer) override {
    return RunQuick<v1::ListModelsRequest, v1::ListModelsResponse>(
        shared_, "ListModels", asked, answer,
        [this](const auto& request, auto* response) {
          return shared_.handler->ListModels(request, response);
        });
  }

  // Ends all watches and accepts no further.
  void Stop() {
    std::map<WatchStream*, std::shared_ptr<WatchStream>> streams;
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      streams = streams_;
    }
    for (const auto& [key, stream] : streams) stream->End(Stopping());
  }

 private:
  grpc::ServerUnaryReactor* AnswerRaw(
      absl::string_view method, AnswerBytes (Handler::*find)(absl::string_view),
      absl::StatusOr<AnswerBytes> (Handler::*answer)(absl::string_view,
                                                     absl::Time),
      size_t max_inline_bytes, grpc::CallbackServerContext* context,
      const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
    const Report report(method, shared_.observer);
    auto* const reactor = new UnaryCall(shared_);
    FlatMessage message(*request);
    if (AnswerBytes bytes = (shared_.handler->*find)(message.bytes())) {
      *response = Wrap(std::move(bytes));
      report.Done(absl::StatusCode::kOk, /*cached=*/true);
      reactor->Finish(grpc::Status::OK);
      return reactor;
    }
    auto work =
        [handler = shared_.handler, answer, context, response, reactor, report,
         deadline = shared_.Deadline(*context)](const FlatMessage& asked) {
          absl::StatusOr<AnswerBytes> bytes = Gone();
          if (!context->IsCancelled()) {
            bytes = (handler->*answer)(asked.bytes(), deadline);
          }
          if (bytes.ok()) *response = Wrap(*bytes);
          report.Done(bytes.status().code());
          reactor->Finish(ToGrpc(bytes.status()));
        };
    if (message.bytes().size() <= max_inline_bytes) {
      work(message);
    } else if (!shared_.executor->TrySubmit(
                   [work, message = std::move(message)] { work(message); })) {
      report.Done(Busy().code());
      reactor->Finish(ToGrpc(Busy()));
    }
    return reactor;
  }

  void Forget(WatchStream* done) {
    std::shared_ptr<WatchStream> last;  // destroyed outside the lock
    std::lock_guard lock(mutex_);
    const auto found = streams_.find(done);
    last = std::move(found->second);
    streams_.erase(found);
  }

  const Shared shared_;
  SnapshotHolder* const snapshots_;
  const size_t max_watchers_;
  std::mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<WatchStream*, std::shared_ptr<WatchStream>> streams_
      ABSL_GUARDED_BY(mutex_);
};

// A run and its messages. Keeps itself until gRPC and the run have let go.
class RunStream : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                  public std::enable_shared_from_this<RunStream> {
 public:
  explicit RunStream(const Shared& shared) : shared_(shared) {}

  void Begin(const v1::RunMeasurementRequest& request) {
    self_ = shared_from_this();
    const absl::Status begun = shared_.handler->RunMeasurement(
        request, stop_.get_token(),
        [self = self_](v1::RunMeasurementResponse message) {
          self->Add(std::move(message));
        },
        [self = self_](const absl::Status& status) { self->End(status); });
    if (!begun.ok()) End(begun);
  }

  void OnWriteDone(bool ok) override {
    if (!ok) stop_.request_stop();
    {
      std::lock_guard lock(mutex_);
      writing_ = false;
      messages_.pop_front();
      // A caller who has gone hears no more.
      if (!ok) messages_.clear();
    }
    Proceed();
  }
  void OnCancel() override { stop_.request_stop(); }
  void OnDone() override {
    // Destroys this where the run has let go already.
    const std::shared_ptr<RunStream> last = std::move(self_);
  }

 private:
  void Add(v1::RunMeasurementResponse message) {
    {
      std::lock_guard lock(mutex_);
      // Mere progress that nobody has read yet is overtaken.
      if (messages_.size() > 1 && !messages_.back().has_measurement()) {
        messages_.pop_back();
      }
      messages_.push_back(std::move(message));
    }
    Proceed();
  }

  void End(const absl::Status& status) {
    {
      std::lock_guard lock(mutex_);
      end_ = status;
    }
    Proceed();
  }

  // Writes what waits, or ends. gRPC is called outside the lock, since it may
  // call back at once.
  void Proceed() {
    const v1::RunMeasurementResponse* next = nullptr;
    {
      std::lock_guard lock(mutex_);
      if (writing_) return;
      if (messages_.empty() && !end_.has_value()) return;
      writing_ = true;  // for ever after a finish
      if (!messages_.empty()) next = &messages_.front();
    }
    if (next != nullptr) {
      message_ = Serialize(*next);
      StartWrite(&message_);
      return;
    }
    report_.Done(end_->code());
    Finish(ToGrpc(*end_));
  }

  const Shared shared_;
  const OpenCalls::Token open_{shared_.open_calls};
  const Report report_{"RunMeasurement", shared_.observer};
  std::stop_source stop_;
  std::shared_ptr<RunStream> self_;
  grpc::ByteBuffer message_;  // being written

  std::mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  // The first is being written while writing_.
  std::deque<v1::RunMeasurementResponse> messages_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_;  // set once, under mutex_
};

// A look at the node, which the caller may break off.
class DiagnosisCall : public UnaryCall {
 public:
  explicit DiagnosisCall(const Shared& shared)
      : UnaryCall(shared), shared_(shared) {}

  void Begin(const v1::DiagnoseNodeRequest& request, grpc::ByteBuffer* answer) {
    shared_.handler->DiagnoseNode(request, stop_.get_token(), &response_,
                                  [this, answer](const absl::Status& status) {
                                    if (status.ok())
                                      *answer = Serialize(response_);
                                    report_.Done(status.code());
                                    Finish(ToGrpc(status));
                                  });
  }
  void OnCancel() override { stop_.request_stop(); }

 private:
  const Shared shared_;
  const Report report_{"DiagnoseNode", shared_.observer};
  std::stop_source stop_;
  v1::DiagnoseNodeResponse response_;
};

using ProfilerBase = v1::NodeProfiler::WithRawCallbackMethod_GetNodeProfile<
    v1::NodeProfiler::WithRawCallbackMethod_ListMeasurements<
        v1::NodeProfiler::WithRawCallbackMethod_RunMeasurement<
            v1::NodeProfiler::WithRawCallbackMethod_DiagnoseNode<
                v1::NodeProfiler::WithRawCallbackMethod_ImportProfile<
                    v1::NodeProfiler::WithRawCallbackMethod_GetStatus<
                        v1::NodeProfiler::Service>>>>>>;

class ProfilerService : public ProfilerBase {
 public:
  explicit ProfilerService(const Shared& shared) : shared_(shared) {}

  grpc::ServerUnaryReactor* GetNodeProfile(grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer* asked,
                                           grpc::ByteBuffer* answer) override {
    return RunSlow<v1::GetNodeProfileRequest, v1::GetNodeProfileResponse>(
        shared_, "GetNodeProfile", context, asked, answer,
        [handler = shared_.handler](const auto& request, absl::Time,
                                    auto* response) {
          return handler->GetNodeProfile(request, response);
        });
  }

  grpc::ServerUnaryReactor* ListMeasurements(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* asked,
      grpc::ByteBuffer* answer) override {
    return RunSlow<v1::ListMeasurementsRequest, v1::ListMeasurementsResponse>(
        shared_, "ListMeasurements", context, asked, answer,
        [handler = shared_.handler](const auto& request, absl::Time,
                                    auto* response) {
          return handler->ListMeasurements(request, response);
        });
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* RunMeasurement(
      grpc::CallbackServerContext* context,
      const grpc::ByteBuffer* asked) override {
    static constexpr char kMethod[] = "RunMeasurement";
    const auto refuse = [this](const absl::Status& status) {
      return new RefusedStream(shared_, Report(kMethod, shared_.observer),
                               status);
    };
    if (const absl::Status refused = shared_.Admit(*context, kMethod);
        !refused.ok()) {
      return refuse(refused);
    }
    const auto request = Parse<v1::RunMeasurementRequest>(*asked);
    if (!request.ok()) return refuse(request.status());
    const auto stream = std::make_shared<RunStream>(shared_);
    stream->Begin(**request);
    return stream.get();
  }

  grpc::ServerUnaryReactor* DiagnoseNode(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* asked,
                                         grpc::ByteBuffer* answer) override {
    static constexpr char kMethod[] = "DiagnoseNode";
    if (const absl::Status refused = shared_.Admit(*context, kMethod);
        !refused.ok()) {
      return Refuse(shared_, kMethod, refused);
    }
    const auto request = Parse<v1::DiagnoseNodeRequest>(*asked);
    if (!request.ok()) return Refuse(shared_, kMethod, request.status());
    auto* const call = new DiagnosisCall(shared_);
    call->Begin(**request, answer);
    return call;
  }

  grpc::ServerUnaryReactor* ImportProfile(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* asked,
                                          grpc::ByteBuffer* answer) override {
    static constexpr char kMethod[] = "ImportProfile";
    if (const absl::Status refused = shared_.Admit(*context, kMethod);
        !refused.ok()) {
      return Refuse(shared_, kMethod, refused);
    }
    return RunSlow<v1::ImportProfileRequest, v1::ImportProfileResponse>(
        shared_, kMethod, context, asked, answer,
        [handler = shared_.handler](const auto& request, absl::Time deadline,
                                    auto* response) {
          return handler->ImportProfile(request, deadline, response);
        });
  }

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext*,
                                      const grpc::ByteBuffer* asked,
                                      grpc::ByteBuffer* answer) override {
    return RunQuick<v1::GetStatusRequest, v1::GetStatusResponse>(
        shared_, "GetStatus", asked, answer,
        [this](const auto& request, auto* response) {
          return shared_.handler->GetStatus(request, response);
        });
  }

 private:
  const Shared shared_;
};

class GrpcServer : public RpcServer {
 public:
  GrpcServer(const RpcServerOptions& options, Handler* handler,
             SnapshotHolder* snapshots, RequestObserver* observer,
             Access* access)
      : executor_(options.slow_threads, options.max_queued_calls),
        advisor_(Shared{handler, observer, &executor_, &open_calls_, access},
                 snapshots, options.max_watchers),
        profiler_(Shared{handler, observer, &executor_, &open_calls_, access}),
        snapshots_(snapshots),
        access_(access) {}

  ~GrpcServer() override { Shutdown(absl::ZeroDuration()); }

  absl::Status Listen(const RpcServerOptions& options) {
    // A request that cannot be parsed gets its status. Protobuf's own line on
    // standard error says less, and lets any caller fill a log.
    google::protobuf::SetLogHandler(nullptr);
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    if (options.tls.has_value()) {
      ASSIGN_OR_RETURN(certificates_, TlsCertificates::Load(
                                          *options.tls, options.tls_observer));
    }
    grpc::ServerBuilder builder;
    // -1 until gRPC has bound it.
    ports_.assign(options.addresses.size(), -1);
    for (size_t i = 0; i < options.addresses.size(); ++i) {
      const RpcAddress& address = options.addresses[i];
      credentials_.push_back(
          address.tls ? MakeTlsCredentials(certificates_.get(), access_)
                      : grpc::InsecureServerCredentials());
      builder.AddListeningPort(address.address, credentials_.back(),
                               &ports_[i]);
    }
    builder.SetMaxReceiveMessageSize(options.max_request_bytes);
    builder.SetMaxSendMessageSize(-1);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                               options.max_concurrent_streams);
    // Else a second daemon would get half of the connections.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                               kKeepaliveIntervalMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                               kKeepaliveTimeoutMs);
    builder.AddChannelArgument(
        GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
        kMinClientPingIntervalMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    if (options.max_connection_age < absl::InfiniteDuration()) {
      builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                                 static_cast<int>(absl::ToInt64Milliseconds(
                                     options.max_connection_age)));
    }
    builder.RegisterService(&advisor_);
    builder.RegisterService(&profiler_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) {
      for (size_t i = 0; i < ports_.size(); ++i) {
        if (ports_[i] > 0) continue;
        return absl::UnavailableError(absl::StrCat(
            "cannot listen on ", options.addresses[i].address,
            ": the address is in use, not this machine's, or not allowed"));
      }
      return absl::InternalError("gRPC did not start, though it could listen");
    }
    subscription_ = snapshots_->Subscribe([this] { SetHealth(true); });
    SetHealth(snapshots_->Get() != nullptr);
    return absl::OkStatus();
  }

  const std::vector<int>& ports() const override { return ports_; }

  bool Responds(absl::Duration within) override {
    const auto end =
        std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(within);
    // gRPC's own threads: its health service, asked as any client asks it. An
    // empty request is one for the server as a whole.
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         absl::ToChronoNanoseconds(within));
    grpc::GenericStub stub(server_->InProcessChannel(grpc::ChannelArguments()));
    const grpc::ByteBuffer request(/*slices=*/nullptr, 0);
    grpc::ByteBuffer response;
    std::promise<bool> answered;
    stub.UnaryCall(
        &context, "/grpc.health.v1.Health/Check", grpc::StubOptions(), &request,
        &response,
        [&](const grpc::Status& status) { answered.set_value(status.ok()); });
    if (!answered.get_future().get()) return false;
    // The task may come to run after this has given up.
    const auto ran = std::make_shared<std::promise<void>>();
    std::future<void> future = ran->get_future();
    executor_.Submit([ran] { ran->set_value(); });
    return future.wait_until(end) == std::future_status::ready;
  }

  void StopServing() override {
    std::lock_guard lock(shutdown_mutex_);
    EndHealth();
  }

  void Shutdown(absl::Duration budget) override {
    std::lock_guard lock(shutdown_mutex_);
    if (server_ == nullptr) return;
    EndHealth();
    advisor_.Stop();
    absl::Notification gone;
    std::thread cutter([&] { CutIdle(gone, budget); });
    server_->Shutdown(std::chrono::system_clock::now() +
                      absl::ToChronoNanoseconds(budget));
    server_->Wait();
    gone.Notify();
    cutter.join();
    server_.reset();
  }

 private:
  // Shutdown tells every connection to go and waits for it, also for one whose
  // client does not listen while it has no call, as Python's: those are cut as
  // soon as no call is open. With calls open until the end of the budget it
  // cuts by itself.
  void CutIdle(const absl::Notification& gone, absl::Duration budget) {
    if (!open_calls_.WaitForNone(budget)) return;
    // For the goodbye to reach those who listen; a round trip between machines
    // of one site takes a tenth of it.
    constexpr absl::Duration kFarewell = absl::Milliseconds(20);
    // More than once, since the first may come before Shutdown has begun.
    while (!gone.WaitForNotificationWithTimeout(kFarewell)) {
      grpc_server_cancel_all_calls(server_->c_server());
    }
  }

  // With shutdown_mutex_ held.
  void EndHealth() {
    subscription_ = SnapshotHolder::Subscription();
    if (server_ != nullptr) server_->GetHealthCheckService()->Shutdown();
  }

  void SetHealth(bool serving) {
    grpc::HealthCheckServiceInterface* health =
        server_->GetHealthCheckService();
    for (const std::string& service :
         {std::string(),
          std::string(v1::ParallelismAdvisor::service_full_name())}) {
      health->SetServingStatus(service, serving);
    }
    // Its calls are what gets a daemon without a profile one.
    health->SetServingStatus(std::string(v1::NodeProfiler::service_full_name()),
                             true);
  }

  OpenCalls open_calls_;
  Executor executor_;
  AdvisorService advisor_;
  ProfilerService profiler_;
  SnapshotHolder* const snapshots_;
  Access* const access_;
  std::vector<int> ports_;
  std::unique_ptr<TlsCertificates> certificates_;  // null: no address has TLS
  std::vector<std::shared_ptr<grpc::ServerCredentials>> credentials_;
  std::mutex shutdown_mutex_;
  std::unique_ptr<grpc::Server> server_;
  SnapshotHolder::Subscription subscription_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const RpcServerOptions& options, Handler* handler,
    SnapshotHolder* snapshots, RequestObserver* observer, Access* access) {
  if (options.addresses.empty()) {
    return NotAllowed("addresses", "empty", "at least one address");
  }
  for (const RpcAddress& address : options.addresses) {
    if (!address.tls || options.tls.has_value()) continue;
    return NotAllowed("tls", "absent",
                      absl::StrCat("the files that ", address.address,
                                   " needs to speak TLS"));
  }
  constexpr int64_t kMinRequestBytes = 1024;
  constexpr int64_t kMaxRequestBytes = int64_t{1} << 30;
  RETURN_IF_ERROR(CheckRange("max_request_bytes",
                             int64_t{options.max_request_bytes},
                             kMinRequestBytes, kMaxRequestBytes));
  constexpr int64_t kMany = int64_t{1} << 20;
  RETURN_IF_ERROR(CheckRange("max_concurrent_streams",
                             int64_t{options.max_concurrent_streams},
                             int64_t{1}, kMany));
  RETURN_IF_ERROR(CheckRange("max_watchers", int64_t{options.max_watchers},
                             int64_t{0}, kMany));
  constexpr int64_t kMaxThreads = 256;
  RETURN_IF_ERROR(CheckRange("slow_threads", int64_t{options.slow_threads},
                             int64_t{1}, kMaxThreads));
  RETURN_IF_ERROR(CheckRange("max_queued_calls",
                             int64_t{options.max_queued_calls}, int64_t{1},
                             kMany));
  auto server = std::make_unique<GrpcServer>(options, handler, snapshots,
                                             observer, access);
  RETURN_IF_ERROR(server->Listen(options));
  return server;
}

namespace {
std::atomic<void (*)(absl::string_view)> grpc_log = nullptr;
}  // namespace

void SetGrpcLog(void (*log)(absl::string_view message)) {
  grpc_log = log;
  // Less than errors is not even made into text (GRPC_VERBOSITY).
  gpr_set_log_function(
      [](gpr_log_func_args* args) { grpc_log.load()(args->message); });
}

}  // namespace fabricwise
