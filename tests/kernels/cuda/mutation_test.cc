// The strength of the tests: they must find an interpreter without one thing (the program's name names it) within 100
// seeds.
//
// Each seed has its own process, because mutants may access any address. A race that ThreadSanitizer reports ends it,
// too.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "tests/harness/random.h"
#include "tests/kernels/cuda/kernel_on_fibers.h"
#include "tests/kernels/cuda/scenarios.h"

// Called by ThreadSanitizer.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() { return "halt_on_error=1"; }

namespace axccl::kernels::cuda {
namespace {

bool FoundBy(uint64_t seed) {
  const pid_t child = fork();
  if (child == 0) {
    std::string wrong = RunAnyCalls(RunKernel, seed);
    if (wrong.empty()) wrong = RunLongCalls(RunKernel, seed);
    // These runs take little time.
    for (uint64_t i = 0; i < 4 && wrong.empty(); ++i) wrong = RunSmallCalls(RunKernel, seed + (i << 32));
    for (uint64_t i = 0; i < 15 && wrong.empty(); ++i) wrong = RunSmallCallsAmongOthers(RunKernel, seed + (i << 32));
    for (uint64_t i = 0; i < 10 && wrong.empty(); ++i) wrong = RunRowedCalls(RunKernel, seed + (i << 32));
    for (uint64_t i = 0; i < 8 && wrong.empty(); ++i) wrong = RunOffers(RunKernel, seed + (i << 32));
    for (uint64_t i = 0; i < 4 && wrong.empty(); ++i) wrong = RunMulticastCalls(RunKernel, seed + (i << 32));
    for (uint64_t i = 0; i < 15 && wrong.empty(); ++i) wrong = RunMismatched(RunKernel, seed + (i << 32));
    for (uint64_t i = 0; i < 4 && wrong.empty(); ++i) wrong = RunBeforeMeeting(RunKernel, seed + (i << 32));
    if (wrong.empty()) wrong = RunPipelines(RunKernel, seed);
    if (wrong.empty()) wrong = RunAbortedPipelines(RunKernel, seed);
    _exit(wrong.empty() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status != 0;
}

TEST(CudaMutation, IsFound) {
  constexpr int kSeeds = 100;
  for (int i = 0; i < kSeeds; ++i) {
    if (!FoundBy(harness::Seed() + static_cast<uint64_t>(i))) continue;
    std::printf("%s: found by seed %d\n", program_invocation_short_name, i + 1);
    return;
  }
  FAIL() << program_invocation_short_name << ": not found by " << kSeeds << " seeds from " << harness::Seed();
}

}  // namespace
}  // namespace axccl::kernels::cuda
