// Runs one target under libFuzzer: AXCCL_FUZZ_TARGET is its name.
#include <cstdlib>
#include <string_view>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const axccl::fuzz::Target& target = [&]() -> const axccl::fuzz::Target& {
    for (const axccl::fuzz::Target& each : axccl::fuzz::Targets()) {
      if (std::string_view(each.name) == AXCCL_FUZZ_TARGET) return each;
    }
    std::abort();
  }();
  target.run(data, size);
  return 0;
}
