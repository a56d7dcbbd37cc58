// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/tls.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpcpp/grpcpp.h>

#include <filesystem>
#include <fstream>
#include <stop_token>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/argument.h"
#include "server/base/status_macros.h"

namespace fabricwise {
namespace {

int Occurrences(absl::string_view of, absl::string_view text) {
  int count = 0;
  for (size_t at = text.find(of); at != absl::string_view::npos;
       at = text.find(of, at + of.size())) {
    ++count;
  }
  return count;
}

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
  // gRPC takes what is whole of a file that is being written.
  if (Occurrences("-----BEGIN ", text) != Occurrences("-----END ", text)) {
    return NotAllowed(option, path,
                      "a PEM file in which all that begins ends as well");
  }
  return text;
}

absl::StatusOr<TlsCertificates::Pems> ReadPems(const TlsFiles& files) {
  TlsCertificates::Pems pems;
  ASSIGN_OR_RETURN(pems.key, ReadPem("tls-key", files.key));
  ASSIGN_OR_RETURN(pems.certificate, ReadPem("tls-cert", files.certificate));
  ASSIGN_OR_RETURN(pems.client_ca, ReadPem("tls-client-ca", files.client_ca));
  return pems;
}

TlsDates DatesOf(const TlsCertificates::Pems& pems) {
  return {.certificate = WhileAll(DatesIn(pems.certificate)),
          .client_ca = WhileAny(DatesIn(pems.client_ca))};
}

// gRPC only logs what is wrong with certificates. A server that is made of
// them, and served to nobody, tells it at once.
absl::Status CheckUsable(const TlsFiles& files,
                         const TlsCertificates::Pems& pems) {
  const grpc::SslServerCredentialsOptions::PemKeyCertPair pair{
      pems.key, pems.certificate};
  grpc::SslServerCredentialsOptions own(
      GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  own.pem_key_cert_pairs.push_back(pair);
  grpc::SslServerCredentialsOptions mutual(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  mutual.pem_key_cert_pairs.push_back(pair);
  mutual.pem_root_certs = pems.client_ca;
  // The first that does not come up is what is wrong.
  int plain_port = 0, own_port = 0, mutual_port = 0;
  constexpr char kAnyPort[] = "127.0.0.1:0";
  grpc::ServerBuilder builder;
  builder.AddListeningPort(kAnyPort, grpc::InsecureServerCredentials(),
                           &plain_port);
  builder.AddListeningPort(kAnyPort, grpc::SslServerCredentials(own),
                           &own_port);
  builder.AddListeningPort(kAnyPort, grpc::SslServerCredentials(mutual),
                           &mutual_port);
  if (const auto server = builder.BuildAndStart()) server->Shutdown();
  if (plain_port <= 0) {
    return absl::UnavailableError(
        "the files for TLS cannot be tried: no port of 127.0.0.1 is to be had");
  }
  if (own_port <= 0) {
    return NotAllowed(
        "tls-key", files.key,
        absl::StrCat("the private key, in PEM form and without password, of "
                     "the certificate in tls-cert, ",
                     files.certificate));
  }
  // Of a CA's gRPC takes what it finds, were it nothing.
  constexpr char kCertificate[] = "-----BEGIN CERTIFICATE-----";
  if (mutual_port <= 0 || !absl::StrContains(pems.client_ca, kCertificate)) {
    return NotAllowed("tls-client-ca", files.client_ca,
                      "a PEM file with a CA's certificate");
  }
  return absl::OkStatus();
}

// `values_of`: a property's name to its values.
template <typename ValuesOf>
Peer TlsPeer(const ValuesOf& values_of) {
  Peer peer{.way = Peer::Way::kTls};
  const auto add = [&](const char* property, NameKind kind) {
    for (std::string& value : values_of(property)) {
      peer.names.push_back({kind, std::move(value)});
    }
  };
  add(GRPC_PEER_DNS_PROPERTY_NAME, NameKind::kDns);
  add(GRPC_PEER_URI_PROPERTY_NAME, NameKind::kUri);
  add(GRPC_X509_CN_PROPERTY_NAME, NameKind::kCommonName);
  return peer;
}

absl::string_view View(const grpc_slice& slice) {
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)),
          GRPC_SLICE_LENGTH(slice)};
}

// Before any method, gRPC's own included. A decision takes microseconds, so it
// is made here and now. `state` is the Access.
void CheckCall(void* state, grpc_auth_context* context,
               const grpc_metadata* metadata, size_t count,
               grpc_process_auth_metadata_done_cb done, void* user_data) {
  std::string rpc = "this call";
  for (size_t i = 0; i < count; ++i) {
    if (View(metadata[i].key) == ":path") {
      rpc = std::string(View(metadata[i].value));
    }
  }
  const Peer peer = TlsPeer([&](const char* name) {
    std::vector<std::string> values;
    auto found = grpc_auth_context_find_properties_by_name(context, name);
    while (const auto* value = grpc_auth_property_iterator_next(&found)) {
      values.emplace_back(value->value, value->value_length);
    }
    return values;
  });
  const absl::Status status =
      static_cast<const Access*>(state)->CheckRole(peer, Role::kReader, rpc);
  // The two enums share their numbers.
  done(user_data, nullptr, 0, nullptr, 0,
       static_cast<grpc_status_code>(status.code()),
       std::string(status.message()).c_str());
}

// gRPC's C++ has no certificates that change but those of a watcher of its own,
// which ends the process over an empty file. Its C has: before each handshake
// it asks for them. It does so for one connection of an address after another.
class TlsCredentials final : public grpc::ServerCredentials {
 public:
  TlsCredentials(const TlsCertificates* certificates, const Access* access)
      : certificates_(certificates),
        credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY,
                Fetch, this))) {
    grpc_auth_metadata_processor processor = {};
    processor.process = CheckCall;
    processor.state = const_cast<Access*>(access);
    grpc_server_credentials_set_auth_metadata_processor(credentials_,
                                                        processor);
  }
  ~TlsCredentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address,
                      grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    auto* const credentials = static_cast<TlsCredentials*>(self);
    auto pems = credentials->certificates_->Get();
    if (pems == credentials->fetched_) {
      return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    }
    const grpc_ssl_pem_key_cert_pair pair = {pems->key.c_str(),
                                             pems->certificate.c_str()};
    *config = grpc_ssl_server_certificate_config_create(pems->client_ca.c_str(),
                                                        &pair, 1);
    credentials->fetched_ = std::move(pems);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const TlsCertificates* const certificates_;
  std::shared_ptr<const TlsCertificates::Pems> fetched_;
  grpc_server_credentials* const credentials_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TlsCertificates>> TlsCertificates::Load(
    TlsFiles files, Observer observer) {
  ASSIGN_OR_RETURN(Pems pems, ReadPems(files));
  RETURN_IF_ERROR(CheckUsable(files, pems));
  if (observer) observer(DatesOf(pems));
  return std::unique_ptr<TlsCertificates>(new TlsCertificates(
      std::move(files), std::move(observer), std::move(pems)));
}

TlsCertificates::TlsCertificates(TlsFiles files, Observer observer, Pems pems)
    : files_(std::move(files)),
      observer_(std::move(observer)),
      pems_(std::make_shared<const Pems>(std::move(pems))),
      thread_([this](const std::stop_token& stop) { Run(stop); }) {}

TlsCertificates::~TlsCertificates() = default;

std::shared_ptr<const TlsCertificates::Pems> TlsCertificates::Get() const {
  std::lock_guard lock(mutex_);
  return pems_;
}

void TlsCertificates::Run(const std::stop_token& stop) {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, stop, absl::ToChronoNanoseconds(files_.look_again),
                     [] { return false; });
    }
    if (stop.stop_requested()) return;
    Look();
  }
}

void TlsCertificates::Look() {
  absl::StatusOr<Pems> read = ReadPems(files_);
  if (read.ok() && *read == refused_) return;
  refused_.reset();
  absl::Status status = read.status();
  const bool news = read.ok() && *read != *Get();
  if (news) status = CheckUsable(files_, *read);
  const bool tell = (news && status.ok()) || status.message() != told_;
  told_ = std::string(status.message());
  if (news && status.ok()) {
    const auto pems = std::make_shared<const Pems>(*std::move(read));
    std::lock_guard lock(mutex_);
    pems_ = pems;
  } else if (absl::IsInvalidArgument(status) && read.ok()) {
    refused_ = *std::move(read);
  }
  if (!tell || !observer_) return;
  if (status.ok()) {
    observer_(DatesOf(*Get()));
  } else {
    observer_(status);
  }
}

std::shared_ptr<grpc::ServerCredentials> MakeTlsCredentials(
    const TlsCertificates* certificates, const Access* access) {
  return std::make_shared<TlsCredentials>(certificates, access);
}

Peer PeerOf(const grpc::ServerContextBase& context) {
  const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  const auto security =
      auth->FindPropertyValues(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
  if (!security.empty() &&
      security.front() == GRPC_SSL_TRANSPORT_SECURITY_TYPE) {
    return TlsPeer([&](const char* name) {
      std::vector<std::string> values;
      for (const grpc::string_ref& value : auth->FindPropertyValues(name)) {
        values.emplace_back(value.data(), value.size());
      }
      return values;
    });
  }
  // As gRPC writes addresses: "unix:/path", "ipv4:127.0.0.1:7410".
  return {.way = absl::StartsWith(context.peer(), "unix:")
                     ? Peer::Way::kUnixSocket
                     : Peer::Way::kLoopback};
}

}  // namespace fabricwise
