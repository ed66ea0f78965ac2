// Runs every target over its corpus, then over seeded mutations of it for a limited time: `fuzz_replay CORPUS
// [SECONDS]`.
//
// AXCCL_TEST_SEED replays a run; a crash prints target and seed, and leaves the input in fuzz-crash.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/targets.h"
#include "tests/harness/random.h"

namespace axccl::fuzz {
namespace {

using Bytes = std::vector<uint8_t>;

const char* g_target = "";
Bytes g_input;

void OnCrash(int signal) {
  std::fprintf(stderr, "fuzz_replay: target %s died of signal %d on %zu bytes, seed %llu; they are in fuzz-crash\n",
               g_target, signal, g_input.size(), static_cast<unsigned long long>(harness::Seed()));
  if (FILE* const file = std::fopen("fuzz-crash", "wb")) {
    (void)!std::fwrite(g_input.data(), 1, g_input.size(), file);
    std::fclose(file);
  }
  ::signal(signal, SIG_DFL);
  raise(signal);
}

std::vector<Bytes> ReadCorpus(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  if (std::filesystem::is_directory(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> corpus{{}};
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

Bytes Mutate(const std::vector<Bytes>& corpus, harness::Random* random) {
  Bytes bytes = corpus[random->Below(corpus.size())];
  for (uint64_t edits = 1 + random->Below(6); edits != 0; --edits) {
    const size_t at = bytes.empty() ? 0 : random->Below(bytes.size());
    const auto where = bytes.begin() + static_cast<ptrdiff_t>(at);
    switch (random->Below(7)) {
      case 0:
        if (!bytes.empty()) bytes[at] ^= static_cast<uint8_t>(1u << random->Below(8));
        break;
      case 1:
        if (!bytes.empty()) bytes[at] = static_cast<uint8_t>(random->Next());
        break;
      case 2:
        bytes.insert(where, 1 + random->Below(4), static_cast<uint8_t>(random->Next()));
        break;
      case 3:
        bytes.erase(where, where + static_cast<ptrdiff_t>(std::min<size_t>(random->Below(9), bytes.size() - at)));
        break;
      case 4: {  // a piece of another input
        const Bytes& other = corpus[random->Below(corpus.size())];
        if (other.empty()) break;
        const size_t from = random->Below(other.size());
        const size_t count = 1 + random->Below(std::min<size_t>(other.size() - from, 40));
        bytes.insert(where, other.begin() + static_cast<ptrdiff_t>(from),
                     other.begin() + static_cast<ptrdiff_t>(from + count));
        break;
      }
      case 5: {  // extreme numbers
        static constexpr const char* kNumbers[] = {
            "-1", "0", "2147483647", "4294967296", "9223372036854775807", "1e999", "18446744073709551616"};
        const std::string_view number = kNumbers[random->Below(std::size(kNumbers))];
        bytes.insert(where, number.begin(), number.end());
        break;
      }
      default:
        if (!bytes.empty()) bytes.resize(at);
    }
  }
  return bytes;
}

void Run(const Target& target, Bytes input) {
  g_input = std::move(input);
  // An exact copy on the heap, so that a sanitizer finds a read beyond its end.
  const std::vector<uint8_t> exact(g_input.begin(), g_input.end());
  target.run(exact.data(), exact.size());
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s CORPUS [SECONDS]\n", argv[0]);
    return 2;
  }
  const double seconds = argc > 2 ? std::atof(argv[2]) : 5;
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL}) ::signal(signal, OnCrash);
  harness::Random random(harness::Seed());
  for (const Target& target : Targets()) {
    g_target = target.name;
    const std::vector<Bytes> corpus = ReadCorpus(std::filesystem::path(argv[1]) / target.name);
    for (const Bytes& input : corpus) Run(target, input);
    const auto share = std::chrono::duration<double>(seconds / static_cast<double>(Targets().size()));
    const auto end = std::chrono::steady_clock::now() + share;
    size_t runs = 0;
    for (; std::chrono::steady_clock::now() < end; ++runs) Run(target, Mutate(corpus, &random));
    std::printf("%-12s %3zu inputs, %8zu mutations\n", target.name, corpus.size(), runs);
  }
  return 0;
}

}  // namespace
}  // namespace axccl::fuzz

int main(int argc, char** argv) { return axccl::fuzz::Main(argc, argv); }
