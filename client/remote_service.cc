// SPDX-License-Identifier: Apache-2.0
#include "client/remote_service.h"

#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/file.h"
#include "fabricwise/v1/advisor.grpc.pb.h"
#include "fabricwise/v1/profiler.grpc.pb.h"
#include "server/base/status_macros.h"

namespace fabricwise {
namespace {

// What the server may accept in one message at most, and so what an exported
// profile may take.
constexpr int kMostMessageBytes = 64 << 20;

constexpr char kSystemSocket[] = "/run/fabricwise/fabricwised.sock";
constexpr char kUserSocket[] = "/fabricwise/fabricwised.sock";
constexpr char kLoopback[] = "127.0.0.1:7410";

absl::Status CheckTarget(const std::string& target) {
  constexpr char kAllowed[] = "allowed: HOST:PORT or unix:///PATH";
  auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("--target is \"", target, "\", ", why, "; ", kAllowed));
  };
  if (absl::StartsWith(target, "unix:")) {
    // sockaddr_un holds 107 bytes of path; a longer one would only be reported
    // as an address that cannot be resolved.
    constexpr size_t kLongestPath = 107;
    std::string path =
        target.substr(absl::StartsWith(target, "unix://") ? 7 : 5);
    if (path.empty()) return refuse("which has no path");
    if (path.size() > kLongestPath) return refuse("whose path is too long");
    return absl::OkStatus();
  }
  size_t colon = target.rfind(':');
  if (colon == std::string::npos || colon == 0) return refuse("without a port");
  int port = 0;
  constexpr int kLargestPort = 65535;
  if (!absl::SimpleAtoi(target.substr(colon + 1), &port) || port < 1 ||
      port > kLargestPort) {
    return refuse("whose port is no number from 1 to 65535");
  }
  if (absl::StrContains(target, "/")) return refuse("which is no host");
  return absl::OkStatus();
}

// Plain text where `tls` is empty or the target is a UNIX socket.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsFor(
    const std::string& target, const TlsIdentity& tls) {
  if (tls.certificate.empty() != tls.key.empty()) {
    return absl::InvalidArgumentError(
        tls.key.empty() ? "--tls-cert is given without --tls-key"
                        : "--tls-key is given without --tls-cert");
  }
  if (tls.ca.empty()) {
    if (tls.certificate.empty() && tls.server_name.empty()) {
      return grpc::InsecureChannelCredentials();
    }
    return absl::InvalidArgumentError(absl::StrCat(
        tls.certificate.empty() ? "--tls-server-name" : "--tls-cert",
        " is given without --tls-ca, and without that nothing is encrypted"));
  }
  if (absl::StartsWith(target, "unix:")) {
    return grpc::InsecureChannelCredentials();
  }
  // Far more than any bundle of certificates.
  constexpr int64_t kMostPemBytes = int64_t{16} << 20;
  grpc::SslCredentialsOptions options;
  ASSIGN_OR_RETURN(options.pem_root_certs, ReadFile(tls.ca, kMostPemBytes));
  if (!tls.certificate.empty()) {
    ASSIGN_OR_RETURN(options.pem_cert_chain,
                     ReadFile(tls.certificate, kMostPemBytes));
    ASSIGN_OR_RETURN(options.pem_private_key, ReadFile(tls.key, kMostPemBytes));
  }
  return grpc::SslCredentials(options);
}

class RemoteService final : public Service {
 public:
  RemoteService(std::string target,
                const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                const std::string& server_name, absl::Duration deadline)
      : target_(std::move(target)), deadline_(deadline) {
    grpc::ChannelArguments arguments;
    if (!server_name.empty()) {
      arguments.SetSslTargetNameOverride(server_name);
    }
    arguments.SetMaxReceiveMessageSize(kMostMessageBytes);
    // A proxy in the environment is for the Internet, not for a node.
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    // A daemon that is back is not to wait for the back-off of a former
    // channel.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    auto channel = grpc::CreateCustomChannel(target_, credentials, arguments);
    advisor_ = v1::ParallelismAdvisor::NewStub(channel);
    profiler_ = v1::NodeProfiler::NewStub(channel);
  }

  absl::StatusOr<v1::RecommendParallelismResponse> Recommend(
      const v1::RecommendParallelismRequest& request) override {
    return Call<v1::RecommendParallelismResponse>(
        *advisor_, &v1::ParallelismAdvisor::Stub::RecommendParallelism,
        request);
  }

  absl::StatusOr<v1::SweepConcurrencyResponse> Sweep(
      const v1::SweepConcurrencyRequest& request) override {
    return Call<v1::SweepConcurrencyResponse>(
        *advisor_, &v1::ParallelismAdvisor::Stub::SweepConcurrency, request);
  }

  absl::StatusOr<v1::NodeProfile> GetProfile(v1::ProfileView view) override {
    v1::GetNodeProfileRequest request;
    request.set_view(view);
    auto response = Call<v1::GetNodeProfileResponse>(
        *profiler_, &v1::NodeProfiler::Stub::GetNodeProfile, request);
    if (!response.ok()) return response.status();
    return std::move(*response->mutable_profile());
  }

  absl::StatusOr<v1::GetStatusResponse> GetStatus() override {
    return Call<v1::GetStatusResponse>(
        *profiler_, &v1::NodeProfiler::Stub::GetStatus, v1::GetStatusRequest());
  }

  absl::StatusOr<v1::DiagnoseNodeResponse> Diagnose() override {
    // A look takes as long as the GPUs take to come up, like a stream.
    grpc::ClientContext context;
    v1::DiagnoseNodeResponse response;
    const grpc::Status status =
        profiler_->DiagnoseNode(&context, v1::DiagnoseNodeRequest(), &response);
    if (!status.ok()) return ToStatus(status);
    return response;
  }

  absl::StatusOr<v1::NodeProfile> ImportProfile(
      const v1::ImportProfileRequest& request) override {
    auto response = Call<v1::ImportProfileResponse>(
        *profiler_, &v1::NodeProfiler::Stub::ImportProfile, request);
    if (!response.ok()) return response.status();
    return std::move(*response->mutable_profile());
  }

  absl::Status Watch(
      const v1::WatchRecommendationRequest& request,
      const std::function<bool(const v1::WatchRecommendationResponse&)>& each)
      override {
    grpc::ClientContext context;
    return Drain(context, *advisor_->WatchRecommendation(&context, request),
                 each);
  }

  absl::Status RunMeasurement(
      const v1::RunMeasurementRequest& request,
      const std::function<bool(const v1::RunMeasurementResponse&)>& each)
      override {
    grpc::ClientContext context;
    return Drain(context, *profiler_->RunMeasurement(&context, request), each);
  }

 private:
  absl::Status ToStatus(const grpc::Status& status) const {
    if (status.ok()) return absl::OkStatus();
    switch (status.error_code()) {
      case grpc::StatusCode::UNAVAILABLE:
        return absl::UnavailableError(absl::StrCat(
            "cannot reach ", target_, " (", status.error_message(),
            "); start fabricwised, name one with --target, or ask a profile "
            "with --profile"));
      case grpc::StatusCode::UNIMPLEMENTED:
        return absl::UnavailableError(
            absl::StrCat(target_, " is no fabricwised of this version (",
                         status.error_message(), ")"));
      case grpc::StatusCode::DEADLINE_EXCEEDED:
        return absl::DeadlineExceededError(absl::StrCat(
            target_, " did not answer within ", absl::FormatDuration(deadline_),
            "; --deadline-ms allows more"));
      default:
        // The two enums share their numbers.
        return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                            status.error_message());
    }
  }

  template <typename Response, typename Stub, typename Request>
  absl::StatusOr<Response> Call(
      Stub& stub,
      grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                   Response*),
      const Request& request) const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         absl::ToChronoMicroseconds(deadline_));
    Response response;
    grpc::Status status = (stub.*method)(&context, request, &response);
    if (!status.ok()) return ToStatus(status);
    return response;
  }

  template <typename Response>
  absl::Status Drain(grpc::ClientContext& context,
                     grpc::ClientReader<Response>& reader,
                     const std::function<bool(const Response&)>& each) const {
    Response response;
    while (reader.Read(&response)) {
      if (!each(response)) {
        context.TryCancel();
        while (reader.Read(&response)) {
        }
        reader.Finish();
        return absl::OkStatus();
      }
    }
    return ToStatus(reader.Finish());
  }

  const std::string target_;
  const absl::Duration deadline_;
  std::unique_ptr<v1::ParallelismAdvisor::Stub> advisor_;
  std::unique_ptr<v1::NodeProfiler::Stub> profiler_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Service>> ConnectTo(const std::string& target,
                                                   const TlsIdentity& tls,
                                                   absl::Duration deadline) {
  RETURN_IF_ERROR(CheckTarget(target));
  ASSIGN_OR_RETURN(std::shared_ptr<grpc::ChannelCredentials> credentials,
                   CredentialsFor(target, tls));
  // What gRPC prints by itself of a handshake that failed is in the status too.
  if (std::getenv("GRPC_VERBOSITY") == nullptr) {
    gpr_set_log_function([](gpr_log_func_args*) {});
  }
  return std::make_unique<RemoteService>(target, credentials, tls.server_name,
                                         deadline);
}

std::string DefaultTarget() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  std::string user_socket =
      runtime != nullptr ? absl::StrCat(runtime, kUserSocket) : "";
  for (const std::string& path : {user_socket, std::string(kSystemSocket)}) {
    if (!path.empty() && access(path.c_str(), R_OK | W_OK) == 0) {
      return absl::StrCat("unix://", path);
    }
  }
  return kLoopback;
}

}  // namespace fabricwise
