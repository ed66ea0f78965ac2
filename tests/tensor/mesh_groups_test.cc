// Groups from mesh axes and from iota lists (src/tensor/replica_groups.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "src/tensor/replica_groups.h"
#include "tests/harness/random.h"

namespace axccl::tensor {
namespace {

using Rows = std::vector<std::vector<int64_t>>;

Rows RowsOf(const IdTable& table) {
  Rows rows;
  for (size_t i = 0; i < table.lists().rows(); ++i) {
    const auto row = table.lists().row(i);
    rows.emplace_back(row.begin(), row.end());
  }
  return rows;
}

void ExpectRefused(const Status& status, const std::vector<std::string>& words) {
  ASSERT_FALSE(status.ok());
  for (const std::string& word : words)
    EXPECT_NE(status.message().find(word), std::string_view::npos) << word << " in: " << status.message();
}

Result<IdTable> Groups(const std::vector<MeshAxis>& axes, const std::vector<AxisRef>& refs,
                       const std::vector<int64_t>& devices = {}) {
  return MeshGroups("axcclTest", {axes, devices}, refs);
}

// StableHLO RFC 20260223 (mesh axes) and its tests, then sub-axes as Shardy defines them.
TEST(MeshGroupsTest, AxesBecomeGroups) {
  const struct {
    std::vector<MeshAxis> mesh;
    std::vector<AxisRef> axes;
    std::vector<int64_t> devices;
    Rows groups;
  } table[] = {
      {{{"x", 2}, {"y", 2}}, {{"x"}}, {}, {{0, 2}, {1, 3}}},
      {{{"x", 2}, {"y", 2}}, {{"y"}}, {}, {{0, 1}, {2, 3}}},
      {{{"x", 2}, {"y", 2}}, {{"x"}}, {0, 2, 1, 3}, {{0, 1}, {2, 3}}},
      {{}, {}, {0}, {{0}}},
      {{{"x", 2}, {"y", 2}}, {{"x"}, {"y"}}, {}, {{0, 1, 2, 3}}},
      {{{"x", 2}, {"y", 2}}, {{"y"}, {"x"}}, {}, {{0, 2, 1, 3}}},
      {{{"x", 2}, {"y", 2}}, {}, {}, {{0}, {1}, {2}, {3}}},
      {{{"x", 8}}, {{"x", 1, 2}}, {}, {{0, 4}, {1, 5}, {2, 6}, {3, 7}}},
      {{{"x", 8}}, {{"x", 2, 2}}, {}, {{0, 2}, {1, 3}, {4, 6}, {5, 7}}},
      {{{"x", 8}}, {{"x", 4, 2}}, {}, {{0, 1}, {2, 3}, {4, 5}, {6, 7}}},
      {{{"x", 8}}, {{"x", 4, 2}, {"x", 1, 2}}, {}, {{0, 4, 1, 5}, {2, 6, 3, 7}}},
      {{{"x", 2}, {"y", 4}}, {{"y", 1, 2}, {"x"}}, {}, {{0, 4, 2, 6}, {1, 5, 3, 7}}},
      {{{"x", 2}, {"y", 1}}, {{"y"}}, {}, {{0}, {1}}},
  };
  for (const auto& c : table) {
    Result<IdTable> groups = Groups(c.mesh, c.axes, c.devices);
    ASSERT_TRUE(groups.ok()) << groups.status().message();
    EXPECT_EQ(RowsOf(*groups), c.groups);
  }
}

// Compares random meshes and sub-axes with the definition: two devices are in one group if they agree in every
// coordinate that is not listed; the listed coordinates number the members.
TEST(MeshGroupsTest, RandomMeshesAgreeWithTheDefinition) {
  harness::Random random(harness::Seed());
  const char* names[] = {"a", "b", "c"};
  for (int round = 0; round < 300; ++round) {
    std::vector<MeshAxis> mesh;
    std::vector<AxisRef> factors;  // each axis as three sub-axes
    int64_t devices = 1;
    for (size_t i = 0; i < 1 + random.Below(3); ++i) {
      const int64_t f[3] = {1 + static_cast<int64_t>(random.Below(3)), 1 + static_cast<int64_t>(random.Below(3)),
                            1 + static_cast<int64_t>(random.Below(3))};
      mesh.push_back({names[i], f[0] * f[1] * f[2]});
      devices *= mesh.back().size;
      factors.insert(factors.end(), {{names[i], 1, f[0]}, {names[i], f[0], f[1]}, {names[i], f[0] * f[1], f[2]}});
    }
    std::vector<AxisRef> chosen;
    std::vector<bool> is_chosen(factors.size());
    for (size_t i = 0; i < factors.size(); ++i) {
      is_chosen[i] = random.OneIn(2);
      if (is_chosen[i])
        chosen.insert(chosen.begin() + static_cast<ptrdiff_t>(random.Below(chosen.size() + 1)), factors[i]);
    }
    Result<IdTable> groups = Groups(mesh, chosen);
    ASSERT_TRUE(groups.ok()) << groups.status().message() << ", AXCCL_TEST_SEED=" << harness::Seed();
    const auto digit = [&](int64_t device, const AxisRef& ref) {
      for (size_t i = mesh.size(); i-- > 0;) {
        const int64_t size = mesh[i].size;
        if (mesh[i].name == ref.name) return device % size / (size / ref.pre_size / ref.size) % ref.size;
        device /= size;
      }
      return int64_t{-1};
    };
    std::map<int64_t, std::vector<int64_t>> expected;  // by the number of the group
    for (int64_t device = 0; device < devices; ++device) {
      int64_t group = 0, position = 0, size = 1;
      for (size_t i = 0; i < factors.size(); ++i) {
        if (!is_chosen[i]) group = group * factors[i].size + digit(device, factors[i]);
      }
      for (const AxisRef& ref : chosen) {
        position = position * ref.size + digit(device, ref);
        size *= ref.size;
      }
      expected[group].resize(static_cast<size_t>(size), -1);
      expected[group][static_cast<size_t>(position)] = device;
    }
    Rows rows;
    for (const auto& [number, row] : expected) rows.push_back(row);
    ASSERT_EQ(RowsOf(*groups), rows) << "AXCCL_TEST_SEED=" << harness::Seed();
  }
}

TEST(MeshGroupsTest, RefusalsNameTheAxis) {
  ExpectRefused(Groups({{"x", 2}}, {{"z"}}).status(), {"axcclTest", "no axis \"z\""});
  ExpectRefused(Groups({{"x", 2}, {"x", 2}}, {}).status(), {"two axes named \"x\""});
  ExpectRefused(Groups({{"x", 0}}, {}).status(), {"\"x\"", "size 0"});
  ExpectRefused(Groups({{"x", int64_t{1} << 40}, {"y", int64_t{1} << 40}}, {}).status(), {"at most 16777216"});
  ExpectRefused(Groups({{"x", 2}}, {{"x"}, {"x"}}).status(), {"\"x\"", "overlaps"});
  ExpectRefused(Groups({{"x", 8}}, {{"x", 1, 4}, {"x", 2, 2}}).status(), {"overlaps"});
  ExpectRefused(Groups({{"x", 12}}, {{"x", 1, 2}, {"x", 3, 4}}).status(), {"cut it at 2 and 3"});
  ExpectRefused(Groups({{"x", 6}}, {{"x", 2, 2}}).status(), {"(2)2", "size 6", "divide"});
  ExpectRefused(Groups({{"x", 6}}, {{"x", 0, 2}}).status(), {"(0)2", "at least 1"});
  ExpectRefused(Groups({{"x", 6}}, {{"x", 2, 0}}).status(), {"(2)0", "at least 1"});
  ExpectRefused(Groups({{"x", 2}}, {}, {0, 1, 2}).status(), {"3 device ids", "2 devices"});
  ExpectRefused(Groups({{"x", 2}}, {}, {1, 1}).status(), {"device id 1 twice"});
  ExpectRefused(Groups({{"x", 2}}, {}, {1, -1}).status(), {"device id -1"});
}

Result<IdTable> Iota(int64_t groups, int64_t size, const std::vector<int64_t>& dims,
                     const std::vector<int64_t>& permutation) {
  return IotaGroups("axcclTest", groups, size, dims, permutation);
}

// XLA's textual form, "[2,10]<=[4,5]T(1,0)".
TEST(IotaGroupsTest, RowsOfATransposedIota) {
  EXPECT_EQ(RowsOf(Iota(2, 10, {4, 5}, {1, 0}).value()),
            (Rows{{0, 5, 10, 15, 1, 6, 11, 16, 2, 7}, {12, 17, 3, 8, 13, 18, 4, 9, 14, 19}}));
  EXPECT_EQ(RowsOf(Iota(2, 2, {4}, {0}).value()), (Rows{{0, 1}, {2, 3}}));
  EXPECT_EQ(RowsOf(Iota(1, 1, {}, {}).value()), (Rows{{0}}));
  ExpectRefused(Iota(2, 3, {5}, {0}).status(), {"[2,3]", "6 ids", "5"});
  ExpectRefused(Iota(0, 3, {5}, {0}).status(), {"[0,3]"});
  ExpectRefused(Iota(2, 2, {-4}, {0}).status(), {"-4"});
  for (const std::vector<int64_t>& wrong : {std::vector<int64_t>{0}, {0, 0}, {0, 2}, {0, 1, 2}, {-1, 0}})
    ExpectRefused(Iota(2, 2, {2, 2}, wrong).status(), {"transposition"});
}

}  // namespace
}  // namespace axccl::tensor
