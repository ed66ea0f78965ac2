// Acceptance vectors of other projects through the API, on ranks that are threads and ranks that are processes, with
// every algorithm that can be forced: those in public_vectors.h always, those of AXCCL_VECTORS if it is set.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "tests/collectives/public_vectors.h"
#include "tests/collectives/vector_runner.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Layout;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

// Forced for calls that have the algorithm; other calls choose freely.
constexpr const char* kAlgorithms[] = {"", "direct", "oneshot", "ring", "tree", "twoshot", "rhd", "bruck", "pairwise"};

// Groups the cases by their number of ranks.
std::map<int, std::vector<Json>> ByRanks(const Json& cases) {
  std::map<int, std::vector<Json>> sorted;
  for (const Json& test : cases) {
    if (!NotExpressible(test).empty()) continue;
    const Json data = WithData(test);
    sorted[RanksOf(data)].push_back(data);
  }
  return sorted;
}

void RunAll(const Json& cases, bool processes) {
  for (const auto& [ranks, of_size] : ByRanks(cases)) {
    for (const std::string algorithm : kAlgorithms) {
      SCOPED_TRACE("NCCL_ALGO=" + algorithm);
      RunOptions options;
      options.environment = {{"NCCL_ALGO", algorithm}};
      const auto body = [&, &of_size = of_size](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        VectorRunner runner(context, clique, algorithm);
        for (const Json& test : of_size) {
          for (const bool strided : {false, true}) runner.Run(test, strided);
          if (testing::Test::HasFailure()) return;
        }
      };
      RunRanks(processes ? harness::Processes(ranks) : harness::Threads(ranks), body, options);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// The names of the cases for which the API has no call, each with the reason.
std::map<std::string, std::string> LeftOut(const Json& cases) {
  std::map<std::string, std::string> names;
  for (const Json& test : cases) {
    const std::string reason = NotExpressible(test);
    if (!reason.empty()) names[test.at("name")] = reason;
  }
  return names;
}

void RunFile(const std::string& file, bool processes, const std::set<std::string>& left_out) {
  if (const std::string missing = harness::VectorsMissing(); !missing.empty()) GTEST_SKIP() << missing;
  const Json cases = harness::ReadVectors(file);
  std::set<std::string> found;
  for (const auto& [name, reason] : LeftOut(cases)) {
    std::printf("%s: not run: %s (%s)\n", file.c_str(), name.c_str(), reason.c_str());
    found.insert(name);
  }
  std::printf("%s: %zu of %zu cases, twice with each of %zu choices of algorithms\n", file.c_str(),
              cases.size() - found.size(), cases.size(), std::size(kAlgorithms));
  RunAll(cases, processes);
  EXPECT_EQ(found, left_out);
}

class VectorsTest : public testing::TestWithParam<bool> {};

TEST_P(VectorsTest, PublicTable) {
  const Json cases = harness::ParseVectors(kPublicVectors, "public_vectors.h");
  EXPECT_EQ(cases.size(), 30u);
  RunAll(cases, GetParam());
}

TEST_P(VectorsTest, PublicCases) {
  RunFile("public_cases.json", GetParam(),
          {"H_all_reduce_variadic", "H_all_reduce_with_promotable_types", "H_collective_reduce_with_promotable_types",
           "H_reduce_scatter_with_promotable_types", "M15_iota_groups", "M16_iota_groups_transposed"});
}

TEST_P(VectorsTest, StableHloInterpreter) { RunFile("stablehlo_interpret.json", GetParam(), {}); }

INSTANTIATE_TEST_SUITE_P(Ranks, VectorsTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "processes" : "threads"; });

}  // namespace
}  // namespace axccl::tests
