// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/exposer.h"

#include <exception>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "prometheus/exposer.h"

namespace fabricwise {
namespace {

// Scrapes are rare and short; two let a second scraper not wait for a slow one.
constexpr size_t kThreads = 2;

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& address,
    std::shared_ptr<prometheus::Collectable> collector) {
  // The library throws, and does not say why it cannot listen.
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(address, kThreads);
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
