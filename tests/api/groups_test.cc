// Replica groups through the API: the four modes, meshes, rules, and the errors for bad input.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "axccl/axccl.h"

namespace axccl::test {
namespace {

using Ids = std::vector<int64_t>;

class Groups {
 public:
  Groups(axcclGroupMode_t mode, int64_t replicas, int64_t partitions, Ids ids, size_t width,
         axcclGroupRules_t rules = axcclRulesAny, int64_t split_count = 0) {
    axcclGroupSpec_t spec = AXCCL_GROUP_SPEC_INITIALIZER;
    spec.mode = mode, spec.rules = rules, spec.num_replicas = replicas, spec.num_partitions = partitions;
    spec.ids = ids.data(), spec.group_size = width, spec.num_groups = width == 0 ? 0 : ids.size() / width;
    spec.split_count = split_count;
    result = axcclGroupsCreate(&groups, &spec);
  }
  explicit Groups(const axcclGroupSpec_t& spec) { result = axcclGroupsCreate(&groups, &spec); }
  Groups(const axcclMesh_t& mesh, const std::vector<axcclAxisRef_t>& axes) {
    result = axcclGroupsCreateFromMesh(&groups, &mesh, axes.data(), static_cast<int>(axes.size()));
  }
  Groups(const Groups&) = delete;
  ~Groups() {
    if (groups != nullptr) {
      EXPECT_EQ(axcclGroupsDestroy(groups), ncclSuccess);
    }
  }

  int Count() const {
    axcclGroupsInfo_t info{};
    info.size = sizeof(info);
    EXPECT_EQ(axcclGroupsGetInfo(groups, &info), ncclSuccess);
    return info.num_groups;
  }
  // For example "0 2 | 1 3".
  std::string Text() const {
    std::string text;
    for (int g = 0; g < Count(); ++g) {
      int n = 0;
      EXPECT_EQ(axcclGroupsGetRanks(groups, g, nullptr, 0, &n), ncclSuccess);
      std::vector<int> ranks(static_cast<size_t>(n));
      EXPECT_EQ(axcclGroupsGetRanks(groups, g, ranks.data(), n, nullptr), ncclSuccess);
      if (g != 0) text += " |";
      for (const int rank : ranks) text += (text.empty() ? "" : " ") + std::to_string(rank);
    }
    return text;
  }
  // Each rank's group, or its position, as a digit; '-' if it has none.
  std::string Digits(bool positions) const {
    axcclGroupsInfo_t info{};
    info.size = sizeof(info);
    EXPECT_EQ(axcclGroupsGetInfo(groups, &info), ncclSuccess);
    std::string text;
    for (int rank = 0; rank < info.num_ranks; ++rank) {
      int group = 0, position = 0;
      EXPECT_EQ(axcclGroupsGetPlace(groups, rank, &group, &position, nullptr), ncclSuccess);
      const int digit = positions ? position : group;
      text += digit < 0 ? '-' : static_cast<char>('0' + digit);
    }
    return text;
  }

  axcclGroups_t groups = nullptr;
  ncclResult_t result = ncclSuccess;
};

bool ErrorHas(const char* part) { return std::strstr(ncclGetLastError(nullptr), part) != nullptr; }

#define EXPECT_REFUSED(made, part)                            \
  do {                                                        \
    EXPECT_EQ((made).result, ncclInvalidArgument);            \
    EXPECT_EQ((made).groups, nullptr);                        \
    EXPECT_TRUE(ErrorHas(part)) << ncclGetLastError(nullptr); \
  } while (0)

// The table of IREE's documentation of collectives: the colour and key of every rank of 4 replicas x 2 partitions.
TEST(Groups, CompilersTable) {
  const Groups replicas(axcclCrossReplica, 4, 2, {0, 1, 2, 3}, 4);
  EXPECT_EQ(replicas.Digits(false), "01010101");
  EXPECT_EQ(replicas.Digits(true), "00112233");
  const Groups both(axcclCrossReplicaAndPartition, 4, 2, {0, 1, 2, 3}, 2);
  EXPECT_EQ(both.Digits(false), "00001111");
  EXPECT_EQ(both.Digits(true), "02130213");
  const Groups partitions(axcclCrossPartition, 4, 2, {0, 1}, 2);
  EXPECT_EQ(partitions.Digits(false), "00112233");
  EXPECT_EQ(partitions.Digits(true), "01010101");
}

TEST(Groups, HeaderExamples) {
  EXPECT_EQ(Groups(axcclCrossReplica, 4, 2, {0, 1, 2, 3}, 4).Text(), "0 2 4 6 | 1 3 5 7");
  EXPECT_EQ(Groups(axcclCrossPartition, 4, 2, {0, 1}, 2).Text(), "0 1 | 2 3 | 4 5 | 6 7");
  EXPECT_EQ(Groups(axcclCrossReplicaAndPartition, 4, 2, {0, 1, 2, 3}, 2).Text(), "0 2 1 3 | 4 6 5 7");
  EXPECT_EQ(Groups(axcclFlattenedIds, 1, 4, {0, 1, 3, 2}, 2).Text(), "0 1 | 3 2");
}

TEST(Groups, ImplicitPartialPaddedAndRagged) {
  EXPECT_EQ(Groups(axcclCrossReplica, 2, 2, {}, 0).Text(), "0 2 | 1 3");
  const Groups partial(axcclFlattenedIds, 1, 5, {4, 1}, 2);
  EXPECT_EQ(partial.Text(), "4 1");
  EXPECT_EQ(partial.Digits(false), "-0--0");
  EXPECT_EQ(Groups(axcclFlattenedIds, 1, 5, {2, -1, 4, 0}, 2).Text(), "2 | 4 0");
  axcclGroupSpec_t spec = AXCCL_GROUP_SPEC_INITIALIZER;
  const Ids ids{3, 0, 1, 2};
  const std::vector<size_t> offsets{0, 1, 4};
  spec.num_partitions = 4, spec.ids = ids.data(), spec.num_groups = 2, spec.offsets = offsets.data();
  EXPECT_EQ(Groups(spec).Text(), "3 | 0 1 2");
}

TEST(Groups, PlaceGivesAllOrWhatIsAsked) {
  const Groups groups(axcclFlattenedIds, 1, 4, {3, 1, 0}, 3);
  int group = 7, position = 7, size = 7;
  ASSERT_EQ(axcclGroupsGetPlace(groups.groups, 1, &group, &position, &size), ncclSuccess);
  EXPECT_EQ(group, 0);
  EXPECT_EQ(position, 1);
  EXPECT_EQ(size, 3);
  ASSERT_EQ(axcclGroupsGetPlace(groups.groups, 2, &group, nullptr, &size), ncclSuccess);
  EXPECT_EQ(group, -1);
  EXPECT_EQ(size, 0);
  EXPECT_EQ(axcclGroupsGetPlace(groups.groups, 4, &group, nullptr, nullptr), ncclInvalidArgument);
  EXPECT_TRUE(ErrorHas("rank is 4; pass 0..3")) << ncclGetLastError(nullptr);
  int first = -1;
  EXPECT_EQ(axcclGroupsGetRanks(groups.groups, 0, &first, 1, &size), ncclSuccess);
  EXPECT_EQ(first, 3);
  EXPECT_EQ(axcclGroupsGetRanks(groups.groups, 1, &first, 1, &size), ncclInvalidArgument);
}

TEST(Groups, Meshes) {
  const axcclMeshAxis_t axes[] = {{"x", 2}, {"y", 4}};
  axcclMesh_t mesh = AXCCL_MESH_INITIALIZER;
  mesh.axes = axes, mesh.num_axes = 2;
  EXPECT_EQ(Groups(mesh, {{"y", 1, 0}}).Text(), "0 1 2 3 | 4 5 6 7");
  EXPECT_EQ(Groups(mesh, {{"x", 1, 0}}).Text(), "0 4 | 1 5 | 2 6 | 3 7");
  EXPECT_EQ(Groups(mesh, {{"y", 1, 2}}).Text(), "0 2 | 1 3 | 4 6 | 5 7");
  EXPECT_EQ(Groups(mesh, {{"y", 2, 2}, {"x", 1, 0}}).Text(), "0 4 1 5 | 2 6 3 7");
  EXPECT_EQ(Groups(mesh, {}).Count(), 8);
  const Ids devices{7, 6, 5, 4, 3, 2, 1, 0};
  mesh.device_ids = devices.data(), mesh.num_device_ids = devices.size();
  EXPECT_EQ(Groups(mesh, {{"y", 1, 0}}).Text(), "7 6 5 4 | 3 2 1 0");
  // A mesh of only some ranks.
  const axcclMeshAxis_t small[] = {{"x", 2}};
  const Ids two{4, 1};
  mesh.axes = small, mesh.num_axes = 1, mesh.device_ids = two.data(), mesh.num_device_ids = 2, mesh.num_ranks = 5;
  EXPECT_EQ(Groups(mesh, {{"x", 1, 0}}).Digits(true), "-1--0");
}

TEST(Groups, RulesNameTheConstraint) {
  EXPECT_REFUSED(Groups(axcclFlattenedIds, 1, 4, {0, 1, 1, 2}, 2), "global id 1 is in group 0 and again in group 1");
  EXPECT_REFUSED(Groups(axcclFlattenedIds, 1, 4, {0, 1, 1, 2}, 2, axcclRulesAllGather), "[StableHLO all_gather (C2)]");
  EXPECT_REFUSED(Groups(axcclFlattenedIds, 1, 4, {0, 1}, 2, axcclRulesAllReduce), "[StableHLO all_reduce (C2) (C3)]");
  EXPECT_REFUSED(Groups(axcclFlattenedIds, 1, 3, {0, 1, 2, -1}, 2, axcclRulesReduceScatter), "reduce_scatter");
  EXPECT_REFUSED(Groups(axcclFlattenedIds, 1, 4, {0, 1, 2, 3}, 2, axcclRulesAllToAll, 4), "split_count 4");
  EXPECT_EQ(Groups(axcclFlattenedIds, 1, 3, {0, 1, 2, -1}, 2, axcclRulesAllReduce).Text(), "0 1 | 2");
  EXPECT_EQ(Groups(axcclFlattenedIds, 1, 4, {3, 1}, 2, axcclRulesBroadcast).Text(), "3 1");
  EXPECT_REFUSED(Groups(axcclCrossReplica, 2, 4, {0, 1, 2, 3}, 4),
                 "replica id 2 in group 0 at position 2 is out of range");
}

TEST(Groups, BadArguments) {
  EXPECT_REFUSED(Groups(static_cast<axcclGroupMode_t>(9), 1, 4, {0}, 1), "the mode is 9");
  EXPECT_REFUSED(Groups(static_cast<axcclGroupMode_t>(-1), 1, 4, {0}, 1), "the mode is -1");
  EXPECT_REFUSED(Groups(axcclFlattenedIds, 1, 4, {0}, 1, static_cast<axcclGroupRules_t>(7)), "the rules are 7");
  EXPECT_REFUSED(Groups(axcclFlattenedIds, 0, 4, {0}, 1), "the grid is 0 replicas");
  axcclGroupSpec_t spec = AXCCL_GROUP_SPEC_INITIALIZER;
  spec.num_groups = 2, spec.group_size = 2;
  EXPECT_REFUSED(Groups(spec), "no ids (a null pointer)");
  spec.num_groups = ~size_t{0};
  EXPECT_REFUSED(Groups(spec), "at most");
  const Ids ids{0, 1};
  spec.ids = ids.data(), spec.num_groups = 1, spec.group_size = (size_t{1} << 24) + 1;
  EXPECT_REFUSED(Groups(spec), "at most");
  spec.num_groups = 3, spec.group_size = 0;
  EXPECT_REFUSED(Groups(spec), "group_size 0");
  const std::vector<size_t> offsets{0, 2, 1, 2};
  spec.offsets = offsets.data();
  EXPECT_REFUSED(Groups(spec), "never fall");
  spec.size = 3;
  EXPECT_REFUSED(Groups(spec), "AXCCL_GROUP_SPEC_INITIALIZER");
  axcclGroups_t out = nullptr;
  EXPECT_EQ(axcclGroupsCreate(&out, nullptr), ncclInvalidArgument);
  EXPECT_EQ(axcclGroupsCreate(nullptr, nullptr), ncclInvalidArgument);
  EXPECT_EQ(axcclGroupsDestroy(nullptr), ncclInvalidArgument);
  axcclMesh_t mesh = AXCCL_MESH_INITIALIZER;
  mesh.num_axes = 1;
  EXPECT_REFUSED(Groups(mesh, {}), "pass an array");
  const axcclMeshAxis_t axes[] = {{"x", 2}};
  mesh.axes = axes;
  EXPECT_REFUSED(Groups(mesh, {{"y", 1, 0}}), "the mesh has no axis \"y\"");
  EXPECT_REFUSED(Groups(mesh, {{nullptr, 1, 0}}), "has no name");
}

TEST(Groups, HandlesAreChecked) {
  axcclGroups_t stale = nullptr;
  {
    Groups groups(axcclFlattenedIds, 1, 2, {0, 1}, 2);
    stale = groups.groups;
  }
  axcclGroupsInfo_t info{};
  info.size = sizeof(info);
  EXPECT_EQ(axcclGroupsGetInfo(stale, &info), ncclInvalidArgument);
  EXPECT_TRUE(ErrorHas("is not live")) << ncclGetLastError(nullptr);
  EXPECT_EQ(axcclGroupsDestroy(stale), ncclInvalidArgument);
}

}  // namespace
}  // namespace axccl::test
