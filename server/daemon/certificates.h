// SPDX-License-Identifier: Apache-2.0
//
// The certificates in use, for the log and for metrics.
#pragma once

#include <mutex>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/metrics/collector.h"
#include "server/rpc/tls.h"

namespace fabricwise {

// Thread-safe.
class CertificatesInUse {
 public:
  // Logs what was read, with a warning where it is out of its dates at `now`,
  // or why it could not be.
  void OnRead(const absl::StatusOr<TlsDates>& read, absl::Time now);

  // What was read last; empty: nothing yet.
  std::vector<CertificateFacts> Get() const;

 private:
  mutable std::mutex mutex_;
  std::vector<CertificateFacts> certificates_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fabricwise
