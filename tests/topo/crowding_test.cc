#include "src/topo/crowding.h"

#include <gtest/gtest.h>

#include <numeric>

namespace axccl::topo {
namespace {

std::vector<int> Range(int first, int count) {
  std::vector<int> processors(static_cast<size_t>(count));
  std::iota(processors.begin(), processors.end(), first);
  return processors;
}

int CrowdingOf(const std::vector<std::vector<int>>& allowed, size_t self) {
  std::vector<ProcessorSet> sets;
  for (const std::vector<int>& processors : allowed) sets.push_back(SetOf(processors));
  return Crowding(sets, self);
}

TEST(Crowding, RanksThatMayUseTheSameProcessorsShareThem) {
  const std::vector<int> two{0, 1};
  EXPECT_EQ(CrowdingOf({two}, 0), 1);
  EXPECT_EQ(CrowdingOf({two, two}, 1), 1);
  EXPECT_EQ(CrowdingOf({two, two, two}, 0), 2);
  EXPECT_EQ(CrowdingOf({two, two, two, two}, 3), 2);
  EXPECT_EQ(CrowdingOf({two, two, two, two, two}, 0), 3);
  EXPECT_EQ(CrowdingOf(std::vector(200, Range(0, 100)), 7), 2);
}

TEST(Crowding, BoundRanksHaveTheirProcessorsForThemselves) {
  EXPECT_EQ(CrowdingOf({{0}, {1}}, 0), 1);
  EXPECT_EQ(CrowdingOf({{0}, {1}, {2}, {3}}, 2), 1);
  EXPECT_EQ(CrowdingOf({{0, 1}, {2, 3}}, 1), 1);
  EXPECT_EQ(CrowdingOf({{0}, {0}, {1}}, 0), 2) << "two are bound to one processor";
  EXPECT_EQ(CrowdingOf({{0}, {0}, {1}}, 2), 1);
  std::vector<std::vector<int>> every;
  for (int processor = 0; processor < 384; ++processor) every.push_back({processor});
  EXPECT_EQ(CrowdingOf(every, 300), 1);
}

TEST(Crowding, OverlappingSets) {
  EXPECT_EQ(CrowdingOf({{0, 1}, {1}}, 0), 1) << "the first moves to 0";
  EXPECT_EQ(CrowdingOf({{0, 1}, {1}}, 1), 2);
  EXPECT_EQ(CrowdingOf({{0, 1}, {1, 2}, {2, 3}}, 1), 1);
}

TEST(Crowding, AnythingIsLegal) {
  EXPECT_EQ(CrowdingOf({{}, {0}}, 0), 1);
  EXPECT_EQ(CrowdingOf({{}, {0}}, 1), 1);
  EXPECT_EQ(CrowdingOf({{1}, {1025}}, 0), 2) << "one place";
}

TEST(Crowding, CountsProcessorsOnce) {
  const ProcessorSet sets[] = {SetOf({0, 1}), SetOf({1, 2}), SetOf({700})};
  EXPECT_EQ(CountTogether(sets), 4);
  EXPECT_EQ(CountTogether({}), 1);
  EXPECT_EQ(SetOf(Range(0, 2000)).Count(), 1024);
}

}  // namespace
}  // namespace axccl::topo
