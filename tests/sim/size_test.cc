// The largest groups, within limits: 2 GiB of address space here, and the time limit of the test.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>
#include <utility>

#include "src/sim/simulate.h"
#include "tests/algo/cases.h"

namespace axccl::sim {
namespace {

constexpr uint64_t kMost = uint64_t{2} << 30;

TEST(Size, SixteenThousandRanksFitIntoTwoGigabytes) {
  const rlimit limit = {kMost, kMost};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  Request q;
  q.bytes = 1 << 30;
  q.placement = algo::Even(2048, 8);
  using plan::Kind;
  for (const auto& [kind, algorithm] : {std::pair(Kind::kAllReduce, "hierarchical"),
                                        {Kind::kAllReduce, "ring"},
                                        {Kind::kAllReduce, "tree"},
                                        {Kind::kAllReduce, "hierarchical_ring"},
                                        {Kind::kAllReduce, "hierarchical_tree"},
                                        {Kind::kAllToAll, "hierarchical"}}) {
    SCOPED_TRACE(std::string(plan::KindName(kind)) + " " + algorithm);
    q.contract = {kind, 16384, 0};
    q.algorithm = algorithm;
    const Result<Report> report = Simulate(q);
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report.value().ranks, q.algorithm.ends_with("tree") ? 16384 : 8);
    EXPECT_GT(report.value().bus_bytes_per_second, 0);
    EXPECT_LT(report.value().bus_bytes_per_second, report.value().limit_bytes_per_second);
    if (kind != Kind::kAllReduce || q.algorithm != "hierarchical") continue;
    EXPECT_NEAR(report.value().sent[0] / (2 * 2047.0 / 2048 * (1 << 30)), 1, 1e-9);
  }
  rusage used;
  ASSERT_EQ(getrusage(RUSAGE_SELF, &used), 0);
  EXPECT_LT(static_cast<uint64_t>(used.ru_maxrss) << 10, kMost);
}

}  // namespace
}  // namespace axccl::sim
