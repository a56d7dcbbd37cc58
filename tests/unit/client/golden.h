// SPDX-License-Identifier: Apache-2.0
//
// Output compared with a file of tests/data/client.
#pragma once

#include <string>

namespace fabricwise {

// Fails the test unless tests/data/client/`name` holds exactly `actual`. With
// FABRICWISE_UPDATE_GOLDEN set the file is written instead, and the test fails
// all the same, so that no run passes by writing.
void ExpectGolden(const std::string& name, const std::string& actual);

}  // namespace fabricwise
