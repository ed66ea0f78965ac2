#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cinttypes>
#include <cstdio>

#include "src/plan/plan.h"
#include "src/plan/text.h"

namespace axccl::plan {

Hash HashOf(std::string_view text) {
  const XXH128_hash_t h = XXH3_128bits(text.data(), text.size());
  return Hash{h.high64, h.low64};
}

std::string ToString(const Hash& hash) {
  char digits[33];
  std::snprintf(digits, sizeof(digits), "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
  return digits;
}

}  // namespace axccl::plan
