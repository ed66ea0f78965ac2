#include "perf/floor/movement.h"

#include <algorithm>
#include <cstring>

#include "src/base/sizes.h"

namespace axccl::perf {

using SumFunction = void (*)(const char* const* sources, size_t n, char* const* destinations, size_t m, size_t bytes,
                             bool streamed);
void SumBaseline(const char* const*, size_t, char* const*, size_t, size_t, bool);
void SumAvx2(const char* const*, size_t, char* const*, size_t, size_t, bool);
void SumAvx512(const char* const*, size_t, char* const*, size_t, size_t, bool);

namespace {

// Half of a small first-level cache: the block, and what the stores bring in.
constexpr size_t kBlockBytes = 16 * 1024;

SumFunction ChooseSum() {
#if defined(__x86_64__)  // the other sources are built there only
  if (__builtin_cpu_supports("avx512f")) return SumAvx512;
  if (__builtin_cpu_supports("avx2")) return SumAvx2;
#endif
  return SumBaseline;
}

void RepMovsb(char* to, const char* from, size_t bytes) {
#if defined(__x86_64__)
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
#else
  std::memcpy(to, from, bytes);
#endif
}

void CopyBlock(char* to, const char* from, size_t bytes, Way way, SumFunction sum) {
  switch (way) {
    case Way::kBlockMemcpy:
      std::memcpy(to, from, bytes);
      break;
    case Way::kBlockRepMovsb:
      RepMovsb(to, from, bytes);
      break;
    default:
      sum(&from, 1, &to, 1, bytes, true);
  }
}

// Several sources are summed in a block on the stack. One source is copied directly, or through the block if several
// destinations would read it again.
void DoInBlocks(const Job& job, Way way, SumFunction sum) {
  alignas(kCacheLine) char block[kBlockBytes];
  bool reduces = job.sources.size() > 1;
  size_t step = reduces || job.destinations.size() > 1 ? kBlockBytes : job.bytes;
  std::vector<const char*> at = job.sources;
  for (size_t done = 0; done < job.bytes; done += step) {
    size_t here = std::min(step, job.bytes - done);
    const char* from = job.sources[0] + done;
    if (reduces) {
      for (size_t s = 0; s < at.size(); ++s) at[s] = job.sources[s] + done;
      char* to = block;
      sum(at.data(), at.size(), &to, 1, here, false);
      from = block;
    }
    for (char* destination : job.destinations) CopyBlock(destination + done, from, here, way, sum);
  }
}

}  // namespace

const char* WayName(Way way) {
  const char* names[] = {"loop", "non-temporal", "blocks + memcpy", "blocks + rep movsb", "blocks + non-temporal"};
  return names[static_cast<int>(way)];
}

void DoJob(const Job& job, Way way) {
  static const SumFunction sum = ChooseSum();
  if (way != Way::kLoop && way != Way::kStream) return DoInBlocks(job, way, sum);
  sum(job.sources.data(), job.sources.size(), job.destinations.data(), job.destinations.size(), job.bytes,
      way == Way::kStream);
}

}  // namespace axccl::perf
