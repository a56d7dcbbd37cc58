// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/exposer.h"

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "prometheus/exposer.h"

namespace fabricwise {
namespace {

// A connection holds a thread until it has asked and been answered. Scrapes are
// rare and short; the others are for connections on which nobody asks, such as
// a browser's spare ones or a port scan's. One that waits costs some 20 KiB.
constexpr const char* kThreads = "64";

// So long may a connection stay silent. Whoever asks does so as soon as it is
// connected, a round trip earlier at most; and behind 100 who do not, a scrape
// waits for this once, and so less than any scraper waits.
constexpr const char* kSilenceMs = "1000";

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& address,
    std::shared_ptr<prometheus::Collectable> collector) {
  // The library throws, and does not say why it cannot listen.
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(
        std::vector<std::string>{"listening_ports", address, "num_threads",
                                 kThreads, "request_timeout_ms", kSilenceMs});
    exposer->RegisterCollectable(collector);
    const std::vector<int> ports = exposer->GetListeningPorts();
    return std::unique_ptr<MetricsServer>(
        new MetricsServer(std::move(collector), std::move(exposer),
                          ports.empty() ? 0 : ports.front()));
  } catch (const std::exception&) {
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on ", address,
        "; is the port in use, or the address not this machine's?"));
  }
}

MetricsServer::MetricsServer(std::shared_ptr<prometheus::Collectable> collector,
                             std::unique_ptr<prometheus::Exposer> exposer,
                             int port)
    : collector_(std::move(collector)),
      exposer_(std::move(exposer)),
      port_(port) {}

MetricsServer::~MetricsServer() = default;

}  // namespace fabricwise
