// SPDX-License-Identifier: Apache-2.0
//
// Serves /metrics over HTTP.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "prometheus/collectable.h"

namespace prometheus {
class Exposer;
}

namespace fabricwise {

// Listens as long as it lives.
class MetricsServer {
 public:
  // `address` is HOST:PORT with a numeric host; port 0: any free. Keeps
  // `collector`. UNAVAILABLE: it cannot be listened on.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      const std::string& address,
      std::shared_ptr<prometheus::Collectable> collector);
  ~MetricsServer();

  int port() const { return port_; }

 private:
  MetricsServer(std::shared_ptr<prometheus::Collectable> collector,
                std::unique_ptr<prometheus::Exposer> exposer, int port);

  const std::shared_ptr<prometheus::Collectable> collector_;
  const std::unique_ptr<prometheus::Exposer> exposer_;
  const int port_;
};

}  // namespace fabricwise
