# SPDX-License-Identifier: Apache-2.0
#
# All from the distribution's packages; docs/dependencies.md says why each.
find_package(absl REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(prometheus-cpp REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(spdlog REQUIRED)
find_package(Threads REQUIRED)
if(FABRICWISE_TESTS)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
  # The distribution's own: its grpc package serves the test of a client that
  # is not ours, and another Python on the path would not have it.
  find_program(FABRICWISE_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH REQUIRED)
endif()
