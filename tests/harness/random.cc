#include "tests/harness/random.h"

#include <cstdlib>
#include <random>

namespace axccl::harness {
namespace {

uint64_t DrawSeed() {
  if (const char* text = std::getenv("AXCCL_TEST_SEED"); text != nullptr && text[0] != '\0') {
    return std::strtoull(text, nullptr, 0);
  }
  return std::random_device{}() + 1u;
}

}  // namespace

uint64_t Seed() {
  static const uint64_t seed = DrawSeed();
  return seed;
}

}  // namespace axccl::harness
