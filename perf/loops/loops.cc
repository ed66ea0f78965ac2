#include "perf/loops/loops.h"

namespace axccl::perf {

void CopyRunsBaseline(const Runs* parts, size_t n, Loop loop, bool together);
void CopyRunsAvx2(const Runs* parts, size_t n, Loop loop, bool together);
void CopyRunsAvx512(const Runs* parts, size_t n, Loop loop, bool together);

namespace {

using CopyFunction = void (*)(const Runs* parts, size_t n, Loop loop, bool together);

CopyFunction ChooseCopy() {
#if defined(__x86_64__)  // the other sources are built there only
  if (__builtin_cpu_supports("avx512f")) return CopyRunsAvx512;
  if (__builtin_cpu_supports("avx2")) return CopyRunsAvx2;
#endif
  return CopyRunsBaseline;
}

}  // namespace

std::vector<CopyWay> AllCopyWays() {
  std::vector<CopyWay> ways;
  for (int loop = 0; loop < static_cast<int>(Loop::kNumLoops); ++loop) {
    for (bool together : {false, true}) ways.push_back({static_cast<Loop>(loop), together});
  }
  return ways;
}

const char* CopyWayName(const CopyWay& way) {
  const char* names[][2] = {{"memcpy", "memcpy, runs together"},
                            {"moves", "moves, runs together"},
                            {"non-temporal", "non-temporal, runs together"}};
  return names[static_cast<int>(way.loop)][way.together];
}

void CopyRuns(const std::vector<Runs>& parts, const CopyWay& way) {
  static const CopyFunction copy = ChooseCopy();
  copy(parts.data(), parts.size(), way.loop, way.together);
}

std::vector<Runs> SideBySide(const char* gathered, char* out, size_t ranks, size_t count, size_t bytes) {
  std::vector<Runs> parts;
  ptrdiff_t step = static_cast<ptrdiff_t>(bytes);
  for (size_t r = 0; r < ranks; ++r) {
    parts.push_back(
        {gathered + r * count * bytes, out + r * bytes, count, bytes, step, step * static_cast<ptrdiff_t>(ranks)});
  }
  return parts;
}

}  // namespace axccl::perf
