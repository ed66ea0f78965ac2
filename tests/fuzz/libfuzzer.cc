// Runs one target under libFuzzer: the one that the program is called by, such as fuzz_schedule. One program for all,
// because the linker takes seconds for each.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/fuzz/targets.h"

namespace {
const axccl::fuzz::Target* g_target = nullptr;
}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  const std::string_view path = (*argv)[0];
  for (const axccl::fuzz::Target& each : axccl::fuzz::Targets()) {
    if (path.ends_with("/fuzz_" + std::string(each.name))) g_target = &each;
  }
  if (g_target == nullptr) {
    fprintf(stderr, "%s: call this program by the path of a link to it, fuzz_TARGET\n", (*argv)[0]);
    exit(2);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  g_target->run(data, size);
  return 0;
}
