// SPDX-License-Identifier: Apache-2.0
//
// Runs a fuzz target without a fuzzer: on the empty input, on every seed of a
// folder, and on mutations of the seeds, the same in every run. What it finds
// is a crash, or whatever a sanitizer says.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

// Together a few seconds a target at most; a fuzzer proper digs deeper.
constexpr int kMutationsPerSeed = 2000;
constexpr size_t kBytesPerSeed = size_t{8} << 20;
constexpr uint64_t kRandomSeed = 20261129;

void Run(const std::string& input) {
  // An own block of exactly this size, so that reading past it is seen.
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

class Mutator {
 public:
  std::string Mutate(std::string text) {
    for (size_t left = 1 + Below(4); left > 0 && !text.empty(); --left) {
      MutateOnce(text);
    }
    return text;
  }

 private:
  size_t Below(size_t limit) {
    return std::uniform_int_distribution<size_t>(0, limit - 1)(random_);
  }

  void MutateOnce(std::string& text) {
    // What parsers of numbers, tables and JSON stumble over.
    static constexpr const char* kWords[] = {
        "-1",  "0",    "1e999", "nan",  "inf",   "9223372036854775808",
        "\"",  "{",    "[",     "}",    "]",     ",",
        "\n",  "\r\n", "#",     "null", ":",     "\xff\xfe",
        "\\u", " ",    "-",     "0x",   "1e-400"};
    const size_t at = Below(text.size());
    const size_t length = 1 + Below(std::min<size_t>(text.size() - at, 64));
    switch (Below(6)) {
      case 0:
        text.resize(at);
        break;
      case 1:
        text[at] = static_cast<char>(text[at] ^ (1 << Below(8)));
        break;
      case 2:
        text[at] = static_cast<char>(Below(256));
        break;
      case 3:
        text.erase(at, length);
        break;
      case 4:
        text.insert(Below(text.size()), text.substr(at, length));
        break;
      case 5:
        text.insert(at, kWords[Below(std::size(kWords))]);
        break;
    }
  }

  std::mt19937_64 random_{kRandomSeed};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER_OF_SEEDS\n", argv[0]);
    return 2;
  }
  std::vector<std::filesystem::path> seeds;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(argv[1], error)) {
    if (entry.is_regular_file()) seeds.push_back(entry.path());
  }
  if (seeds.empty()) {
    std::fprintf(stderr, "%s: no seeds\n", argv[1]);
    return 1;
  }
  std::sort(seeds.begin(), seeds.end());

  Run("");
  Mutator mutator;
  size_t runs = 1;
  for (const auto& path : seeds) {
    std::ifstream file(path, std::ios::binary);
    const std::string seed{std::istreambuf_iterator<char>(file), {}};
    // Before the run: the last line names the seed of a crash.
    std::printf("%s\n", path.filename().c_str());
    std::fflush(stdout);
    Run(seed);
    ++runs;
    size_t bytes = 0;
    for (int i = 0; i < kMutationsPerSeed && bytes < kBytesPerSeed; ++i) {
      const std::string mutated = mutator.Mutate(seed);
      bytes += mutated.size();
      Run(mutated);
      ++runs;
    }
  }
  std::printf("%zu inputs, %zu seeds\n", runs, seeds.size());
  return 0;
}
