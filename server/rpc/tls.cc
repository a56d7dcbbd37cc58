// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/tls.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/argument.h"
#include "server/base/status_macros.h"

namespace fabricwise {
namespace {

absl::StatusOr<std::string> ReadPem(absl::string_view option,
                                    const std::string& path) {
  // Far more than any bundle of certificates.
  constexpr size_t kMostBytes = size_t{1} << 20;
  std::string text;
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) {
    text.resize(kMostBytes);
    std::ifstream file(path, std::ios::binary);
    file.read(text.data(), kMostBytes);
    text.resize(static_cast<size_t>(file.gcount()));
  }
  if (text.empty() || text.size() == kMostBytes) {
    return NotAllowed(option, path,
                      "a PEM file that this user may read, not empty and under "
                      "1 MiB");
  }
  return text;
}

// gRPC reads the files on a thread of its own and can only log what is wrong
// with them. A server that is made of their present content, and served to
// nobody, tells it at once.
absl::Status CheckUsable(const TlsFiles& files) {
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  grpc::SslServerCredentialsOptions::PemKeyCertPair pair;
  ASSIGN_OR_RETURN(pair.private_key, ReadPem("tls-key", files.key));
  ASSIGN_OR_RETURN(pair.cert_chain, ReadPem("tls-cert", files.certificate));
  ASSIGN_OR_RETURN(options.pem_root_certs,
                   ReadPem("tls-client-ca", files.client_ca));
  // Of those gRPC takes what it finds, were it nothing.
  constexpr char kCertificate[] = "-----BEGIN CERTIFICATE-----";
  if (!absl::StrContains(options.pem_root_certs, kCertificate)) {
    return NotAllowed("tls-client-ca", files.client_ca,
                      "a PEM file with a CA's certificate");
  }
  options.pem_key_cert_pairs.push_back(std::move(pair));
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(options),
                           &port);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port <= 0) {
    return NotAllowed(
        "tls-key", files.key,
        absl::StrCat("the private key, in PEM form and without password, of "
                     "the certificate in tls-cert, ",
                     files.certificate));
  }
  server->Shutdown();
  return absl::OkStatus();
}

void AddNames(const grpc::AuthContext& context, const char* property,
              NameKind kind, std::vector<CertificateName>& names) {
  for (const grpc::string_ref& value : context.FindPropertyValues(property)) {
    names.push_back({kind, std::string(value.data(), value.size())});
  }
}

Peer TlsPeer(const grpc::AuthContext& context) {
  Peer peer{.way = Peer::Way::kTls};
  AddNames(context, GRPC_PEER_DNS_PROPERTY_NAME, NameKind::kDns, peer.names);
  AddNames(context, GRPC_PEER_URI_PROPERTY_NAME, NameKind::kUri, peer.names);
  AddNames(context, GRPC_X509_CN_PROPERTY_NAME, NameKind::kCommonName,
           peer.names);
  return peer;
}

// Before any method, gRPC's own included.
class RoleNeeded final : public grpc::AuthMetadataProcessor {
 public:
  explicit RoleNeeded(const Access* access) : access_(access) {}

  // A decision takes microseconds: no thread is worth that.
  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata,
                       grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    const auto path = metadata.find(":path");
    const std::string rpc =
        path == metadata.end()
            ? "this call"
            : std::string(path->second.data(), path->second.size());
    const absl::Status status =
        access_->CheckRole(TlsPeer(*context), Role::kReader, rpc);
    return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                        std::string(status.message()));
  }

 private:
  const Access* const access_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeTlsCredentials(
    const TlsFiles& files, const Access* access) {
  RETURN_IF_ERROR(CheckUsable(files));
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
          files.key, files.certificate, files.client_ca,
          static_cast<unsigned>(absl::ToInt64Seconds(files.look_again))));
  options.watch_identity_key_cert_pairs();
  options.watch_root_certs();
  options.set_cert_request_type(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  std::shared_ptr<grpc::ServerCredentials> credentials =
      grpc::experimental::TlsServerCredentials(options);
  credentials->SetAuthMetadataProcessor(std::make_shared<RoleNeeded>(access));
  return credentials;
}

Peer PeerOf(const grpc::ServerContextBase& context) {
  const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  const auto security =
      auth->FindPropertyValues(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
  if (!security.empty() &&
      security.front() == GRPC_TLS_TRANSPORT_SECURITY_TYPE) {
    return TlsPeer(*auth);
  }
  // As gRPC writes addresses: "unix:/path", "ipv4:127.0.0.1:7410".
  return {.way = absl::StartsWith(context.peer(), "unix:")
                     ? Peer::Way::kUnixSocket
                     : Peer::Way::kLoopback};
}

}  // namespace fabricwise
