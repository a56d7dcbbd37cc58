// SPDX-License-Identifier: Apache-2.0
//
// The tables of the store and how they came to be.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "server/store/sqlite.h"

namespace fabricwise {

// Makes the database behind `connection` one of this program's version: an
// empty one is filled, an older one migrated, each in one transaction.
// FAILED_PRECONDITION: it is another program's, or a newer version's.
// DATA_LOSS: it is damaged.
absl::Status PrepareSchema(sqlite::Connection& connection);

}  // namespace fabricwise
