// Calls that StableHLO's verifier refuses, made through the API, which refuses them, too, and names the constraint.
// Calls that C cannot express, or that mean something else here, are listed with the reason.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/collectives/vector_runner.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::RankContext;
using harness::RunRanks;

constexpr const char* kModeIsGiven = "the caller gives the mode; it is not derived from channel_id";
constexpr const char* kNoComputationType = "operators compute in the type of the operands";
constexpr const char* kNotATensor = "ids are lists by their arguments, not tensors of any rank";
constexpr const char* kFromTheEnd = "negative dimensions count from the end here: the call is another, valid one";
constexpr const char* kRootsAreInt32 = "roots are an int32_t for each operand by their argument";

const std::map<std::string, std::string>& Inexpressible() {
  static const std::map<std::string, std::string> all = {
      {"all_reduce", kNotATensor},
      {"reduce_scatter_i3", kNotATensor},
      {"all_to_all_i5", kNotATensor},
      {"all_gather_i3", kNotATensor},
      {"all_reduce_c4", kModeIsGiven},
      {"reduce_scatter_c6", kModeIsGiven},
      {"all_gather_c5", kModeIsGiven},
      {"collective_reduce_c4", kModeIsGiven},
      {"collective_reduce_c4_zero_channel", kModeIsGiven},
      {"all_reduce_c5#7", kNoComputationType},
      {"reduce_scatter_c7#7", kNoComputationType},
      {"reduce_scatter_c9", kNoComputationType},
      {"reduce_scatter_c2", kFromTheEnd},
      {"all_to_all_c1", kFromTheEnd},
      {"all_gather_c1", kFromTheEnd},
      {"all_to_all_c3", "negative dimensions count from the end here: the output's shape is what is wrong"},
      {"all_to_all_c4", "split_count 0 means that none is given"},
      {"all_to_all_c9_mismatch_count", "inputs and outputs have one count"},
      {"collective_broadcast_c4_wrong_type", kRootsAreInt32},
      {"collective_broadcast_c4_size_mismatch", kRootsAreInt32},
      {"collective_reduce_dynamic_root_wrong_type", kRootsAreInt32},
      {"collective_reduce_dynamic_root_size_mismatch", kRootsAreInt32},
      {"collective_permute_c1", "pairs are of two ids by their argument"},
      {"collective_permute_i2", kNotATensor},
  };
  return all;
}

// The ids of a case are complete: its communicator has as many ranks.
int64_t ProcessesOf(const Json& test) {
  int64_t largest = 0;
  const bool permutes = test.at("op") == "collective_permute";
  for (const Json& list : test.at("attributes").at(permutes ? "source_target_pairs" : "replica_groups")) {
    for (const Json& id : list) largest = std::max(largest, id.get<int64_t>());
  }
  return largest + 1;
}

struct Operands {
  explicit Operands(const Json& tensors) {
    sizes.reserve(tensors.size());
    for (const Json& tensor : tensors) {
      sizes.push_back(tensor.at("shape").get<std::vector<int64_t>>());
      axcclView_t view = AXCCL_VIEW_INITIALIZER;
      size_t bytes = 8;
      for (const int64_t size : sizes.back()) bytes *= static_cast<size_t>(size);
      data.emplace_back(bytes + 8);
      view.data = data.back().data();
      view.datatype = TypeOf(tensor);
      view.num_dims = static_cast<int>(sizes.back().size());
      view.sizes = sizes.back().data();
      views.push_back(view);
    }
  }
  std::vector<std::vector<int64_t>> sizes;
  std::vector<std::vector<char>> data;
  std::vector<axcclView_t> views;
};

// Makes the call as a caller would: groups, their channel, the call. Returns the first error.
ncclResult_t Submit(const Json& test, const Clique& clique) {
  const std::string op = test.at("op");
  const Json& attributes = test.at("attributes");
  const axcclGroupMode_t mode = ModeOf(op, attributes);
  const int64_t processes = ProcessesOf(test);
  const bool of_partitions = mode == axcclCrossPartition;
  axcclGroups_t groups = nullptr;
  const ncclResult_t made =
      CreateGroups(op, attributes, mode, of_partitions ? 1 : processes, of_partitions ? processes : 1, &groups);
  if (made != ncclSuccess) return made;
  axcclChannel_t channel = nullptr;
  EXPECT_OK(axcclChannelCreate(&channel, clique.comm(), groups, attributes.value("channel_id", int64_t{0}), 0));
  EXPECT_OK(axcclGroupsDestroy(groups));
  Json inputs = test.at("operands");
  if (attributes.value("has_dynamic_root", false) && !inputs.empty()) inputs.erase(inputs.size() - 1);
  const Operands in(inputs), out(test.at("results"));
  const std::vector<int32_t> roots(out.views.size() + 1);
  const ncclResult_t result = CallOp(test, in.views, out.views, roots, channel, harness::Cuda(clique.stream()));
  const std::string text = ncclGetLastError(nullptr);
  EXPECT_OK(axcclStreamSynchronize(clique.stream()));
  EXPECT_OK(axcclChannelDestroy(channel));
  if (result == ncclSuccess) return result;
  const std::string word = harness::WordOfCategory(test.at("category"));
  EXPECT_NE(text.find(word), std::string::npos) << text << ", without \"" << word << '"';
  if (!test.at("constraint").is_null() && test.at("category") != "no_operand") {
    EXPECT_NE(text.find(harness::ConstraintLabel(test.at("constraint"))), std::string::npos) << text;
    EXPECT_NE(text.find("[StableHLO "), std::string::npos) << text;
  }
  return result;
}

void CheckRefused(const Json& test, const Clique& clique) {
  SCOPED_TRACE(test.at("name").get<std::string>() + ": " + test.at("message").get<std::string>());
  EXPECT_EQ(Submit(test, clique), ncclInvalidArgument) << ncclGetLastError(nullptr);
}

TEST(NegativeVectors, AreRefusedThroughTheApi) {
  if (const std::string missing = harness::VectorsMissing(); !missing.empty()) GTEST_SKIP() << missing;
  std::map<int, std::vector<Json>> by_ranks;
  std::map<std::string, std::string> left_out;
  int refused = 0;
  for (const Json& test : harness::ReadVectors("stablehlo_negative.json")) {
    if (!test.at("library_level").get<bool>()) continue;
    const auto reason = Inexpressible().find(test.at("name"));
    if (reason != Inexpressible().end()) {
      left_out.insert(*reason);
      continue;
    }
    by_ranks[static_cast<int>(ProcessesOf(test))].push_back(test);
    ++refused;
  }
  EXPECT_EQ(left_out, Inexpressible());
  for (const auto& [ranks, cases] : by_ranks) {
    for (const harness::Layout& layout : {harness::Threads(ranks), harness::Processes(ranks)}) {
      RunRanks(layout, [&, &cases = cases](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        for (const Json& test : cases) {
          if (!context.Step("%s", test.at("name").get<std::string>().c_str())) return;
          CheckRefused(test, clique);
        }
      });
    }
  }
  std::printf("%d cases refused; not expressible in C:\n", refused);
  for (const auto& [name, reason] : left_out) std::printf("  %s: %s\n", name.c_str(), reason.c_str());
}

}  // namespace
}  // namespace axccl::tests
