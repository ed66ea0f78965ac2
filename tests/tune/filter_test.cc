// NCCL_ALGO's grammar.
#include "src/tune/filter.h"

#include <gtest/gtest.h>

#include <string>

#include "src/algo/algo.h"

namespace axccl::tune {
namespace {

using plan::Kind;

Filter Parsed(std::string_view text) {
  Result<Filter> filter = Filter::Parse(text);
  EXPECT_TRUE(filter.ok()) << filter.status().message();
  return filter.ok() ? *filter : Filter();
}

// The algorithms of the kind that pass, in order.
std::string Admitted(std::string_view text, Kind kind) {
  const Filter filter = Parsed(text);
  std::string names;
  for (std::string_view a : algo::Algorithms(kind)) {
    if (filter.Admits(kind, a)) names.append(names.empty() ? "" : " ").append(a);
  }
  return names;
}

TEST(Filter, EmptyAdmitsEverything) {
  for (const char* text : {"", " ", "\t "}) {
    EXPECT_EQ(Admitted(text, Kind::kAllReduce), "direct twoshot oneshot rhd ring tree pull ring_pull");
  }
}

TEST(Filter, AListNamesTheCandidates) {
  EXPECT_EQ(Admitted("ring", Kind::kAllReduce), "ring");
  EXPECT_EQ(Admitted("ring,tree", Kind::kAllReduce), "ring tree");
  EXPECT_EQ(Admitted(" Tree , RING ", Kind::kAllReduce), "ring tree");
  EXPECT_EQ(Admitted("ring", Kind::kAllToAll), "");
}

TEST(Filter, ACaretExcludes) {
  EXPECT_EQ(Admitted("^ring,tree", Kind::kAllReduce), "direct twoshot oneshot rhd pull ring_pull");
  EXPECT_EQ(Admitted(" ^ direct", Kind::kBroadcast), "oneshot tree ring pull");
}

TEST(Filter, AKindLimitsAListToItself) {
  const char* text = "allreduce:tree;Broadcast:ring";
  EXPECT_EQ(Admitted(text, Kind::kAllReduce), "tree");
  EXPECT_EQ(Admitted(text, Kind::kBroadcast), "ring");
  EXPECT_EQ(Admitted(text, Kind::kReduce), "direct twoshot oneshot tree ring pull");
  EXPECT_EQ(Admitted("all_reduce:^tree", Kind::kAllReduce), "direct twoshot oneshot rhd ring pull ring_pull");
  EXPECT_EQ(Admitted("ReduceScatter: pairwise , rhd", Kind::kReduceScatter), "pairwise rhd");
}

TEST(Filter, LaterItemsOverrideEarlierOnes) {
  EXPECT_EQ(Admitted("ring;allreduce:tree", Kind::kAllReduce), "tree");
  EXPECT_EQ(Admitted("ring;allreduce:tree", Kind::kBroadcast), "ring");
  EXPECT_EQ(Admitted("allreduce:tree;ring", Kind::kAllReduce), "ring");
}

TEST(Filter, SkipsWhatIsEmpty) {
  for (const char* text : {"ring,", ",ring", "ring;", ";ring", " ; ring,, ;;", "allreduce:ring;", "allreduce: ,ring ;"})
    EXPECT_EQ(Admitted(text, Kind::kAllReduce), "ring") << text;
  EXPECT_EQ(Admitted("^,ring", Kind::kAllReduce), "direct twoshot oneshot rhd tree pull ring_pull");
  EXPECT_EQ(Admitted(";", Kind::kAllReduce), Admitted("", Kind::kAllReduce));
  const Filter protocols = Filter::Parse("allreduce:LL;;Simple,", Filter::Names::kProtocols).value();
  EXPECT_TRUE(protocols.Admits(Kind::kAllReduce, "simple"));
  EXPECT_FALSE(protocols.Admits(Kind::kAllReduce, "ll"));
}

TEST(Filter, NamesOfSeveralWordsMayBeWrittenTogether) {
  for (const char* text : {"hierarchical_ring", "HierarchicalRing", "allreduce:hierarchicalring"}) {
    const Filter filter = Parsed(text);
    EXPECT_TRUE(filter.Admits(Kind::kAllReduce, "hierarchical_ring")) << text;
    EXPECT_FALSE(filter.Admits(Kind::kAllReduce, "hierarchical")) << text;
    EXPECT_FALSE(filter.Admits(Kind::kAllReduce, "ring")) << text;
  }
}

TEST(Filter, NcclsOtherAlgorithmsAreKnownAndHaveNoEffect) {
  EXPECT_EQ(Admitted("CollNetDirect,CollNetChain,NVLS,NVLSTree,PAT", Kind::kAllReduce), "");
  EXPECT_EQ(Admitted("nvls,ring", Kind::kAllReduce), "ring");
  EXPECT_EQ(Admitted("^nvls", Kind::kAllReduce), "direct twoshot oneshot rhd ring tree pull ring_pull");
}

TEST(Filter, NamesTheUnknownWordAndListsTheKnownOnes) {
  struct {
    const char* text;
    const char* word;
    const char* known;
  } const kCases[] = {
      {"warp", "'warp'",
       "bruck, direct, hierarchical, hierarchical_bruck, hierarchical_leader, hierarchical_rhd, hierarchical_ring, "
       "hierarchical_tree, nvls, nvls_oneshot, oneshot, pairwise, pull, push, rhd, ring, ring_pull, tree, twoshot"},
      {"ring,warp", "'warp'", "nvlstree"},
      {"allreduce:ring;broadcast:warp", "'warp'", "ring"},
      {"allredcue:ring", "'allredcue'", "allreduce, broadcast, reduce, allgather, reducescatter, alltoall"},
      {"^", "''", "ring"},
      {"allreduce:", "''", "ring"},
      {"tree;allreduce: ;", "' '", "ring"},
      {"allreduce:,;tree", "','", "ring"},
      {":ring", "''", "allreduce"},
      {"ring:tree:x", "'ring'", "allreduce"},
      {"allreduce:tree:x", "'tree:x'", "tree"},
      {"^^ring", "'^ring'", "ring"},
  };
  for (const auto& c : kCases) {
    const Result<Filter> result = Filter::Parse(c.text);
    ASSERT_FALSE(result.ok()) << c.text;
    EXPECT_EQ(result.status().code(), Code::kInvalidArgument);
    const std::string message(result.status().message());
    EXPECT_NE(message.find("NCCL_ALGO"), std::string::npos) << message;
    EXPECT_NE(message.find(c.word), std::string::npos) << c.text << ": " << message;
    EXPECT_NE(message.find(c.known), std::string::npos) << c.text << ": " << message;
  }
}

}  // namespace
}  // namespace axccl::tune
