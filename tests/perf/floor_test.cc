// The floor's work: every input byte is read once, every output byte is written once, and the result is correct.

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "perf/floor/jobs.h"
#include "perf/floor/movement.h"

namespace axccl::perf {
namespace {

// Input of rank r, element i: small whole numbers, so that sums are exact.
float InputOf(size_t rank, size_t i) { return static_cast<float>((rank + 1) * 1000 + i % 977); }

struct World {
  World(size_t ranks, size_t bytes) {
    for (size_t r = 0; r < ranks; ++r) {
      memory.emplace_back(bytes / 4 + 32);
      memory.emplace_back(bytes / 4 + 32);
    }
    for (size_t r = 0; r < ranks; ++r) {
      in.push_back(Aligned(memory[2 * r]));
      out.push_back(Aligned(memory[2 * r + 1]));
      for (size_t i = 0; i < bytes / 4; ++i) reinterpret_cast<float*>(in[r])[i] = InputOf(r, i);
    }
  }
  static char* Aligned(std::vector<float>& v) {
    uintptr_t at = reinterpret_cast<uintptr_t>(v.data());
    return reinterpret_cast<char*>((at + 63) / 64 * 64);
  }
  std::vector<std::vector<float>> memory;
  std::vector<char*> in;
  std::vector<char*> out;
};

// Expected element i of rank r's output, or the marker -1 where nothing is written.
float Expected(const std::string& c, size_t ranks, size_t r, size_t i, size_t elements) {
  size_t part = elements / ranks;
  float sum = 0;
  for (size_t k = 0; k < ranks; ++k) sum += InputOf(k, c == "reduce_scatter" ? r * part + i : i);
  if (c == "all_reduce") return sum;
  if (c == "reduce") return r == 0 ? sum : -1;
  if (c == "reduce_scatter") return i < part ? sum : -1;
  if (c == "broadcast") return InputOf(0, i);
  if (c == "all_gather") return InputOf(i / part, i % part);
  if (c == "gather") return r == 0 ? InputOf(i / part, i % part) : -1;
  if (c == "scatter") return i < part ? InputOf(0, r * part + i) : -1;
  if (c == "alltoall") return InputOf(i / part, r * part + i % part);
  return InputOf((r + ranks - 1) % ranks, i);  // sendrecv
}

class Floor : public testing::TestWithParam<std::string> {};

TEST_P(Floor, DoesTheCollectiveInEveryWay) {
  const std::string& collective = GetParam();
  for (size_t ranks : {2u, 3u, 4u}) {
    for (size_t elements : {ranks * 4, ranks * 1000, ranks * 20004}) {
      size_t bytes = elements * 4;
      for (int way = 0; way < static_cast<int>(Way::kNumWays); ++way) {
        World world(ranks, bytes);
        for (char* out : world.out) std::fill_n(reinterpret_cast<float*>(out), elements, -1.0f);
        for (size_t r = 0; r < ranks; ++r) {
          for (const Job& job : JobsOf(collective, static_cast<int>(r), bytes, world.in, world.out)) {
            DoJob(job, static_cast<Way>(way));
          }
        }
        for (size_t r = 0; r < ranks; ++r) {
          for (size_t i = 0; i < elements; ++i) {
            ASSERT_EQ(reinterpret_cast<float*>(world.out[r])[i], Expected(collective, ranks, r, i, elements))
                << WayName(static_cast<Way>(way)) << " ranks " << ranks << " rank " << r << " element " << i;
          }
        }
      }
    }
  }
}

TEST_P(Floor, TouchesEveryByteOnce) {
  constexpr size_t kRanks = 3;
  constexpr size_t kBytes = 3 * 4096;
  World world(kRanks, kBytes);
  std::map<const char*, int> reads;
  std::map<const char*, int> writes;
  for (size_t r = 0; r < kRanks; ++r) {
    for (const Job& job : JobsOf(GetParam(), static_cast<int>(r), kBytes, world.in, world.out)) {
      for (size_t i = 0; i < job.bytes; i += 4) {
        for (const char* source : job.sources) ++reads[source + i];
        for (char* destination : job.destinations) ++writes[destination + i];
      }
    }
  }
  for (const auto& [at, count] : reads) ASSERT_EQ(count, 1);
  for (const auto& [at, count] : writes) ASSERT_EQ(count, 1);
  EXPECT_FALSE(reads.empty());
}

INSTANTIATE_TEST_SUITE_P(Collectives, Floor,
                         testing::Values("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast",
                                         "reduce", "gather", "scatter", "sendrecv"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace axccl::perf
