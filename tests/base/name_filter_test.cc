#include "src/base/name_filter.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

namespace axccl {
namespace {

// The names that the filter takes.
std::string Taken(const char* filter, std::initializer_list<const char*> names) {
  std::string taken;
  for (const char* name : names)
    if (NameFilter(filter).Takes(name)) taken += (taken.empty() ? "" : " ") + std::string(name);
  return taken;
}

TEST(NameFilterTest, PrefixesExactNamesAndExclusion) {
  const std::initializer_list<const char*> names = {"eth1", "eth10", "ib0", "lo"};
  EXPECT_EQ(Taken("", names), "eth1 eth10 ib0 lo");
  EXPECT_EQ(Taken("eth1,,ib", names), "eth1 eth10 ib0");
  EXPECT_EQ(Taken("=eth1,ib", names), "eth1");
  EXPECT_EQ(Taken("^eth1,ib", names), "lo");
  EXPECT_EQ(Taken("^=eth1,ib", names), "eth10 ib0 lo");
  EXPECT_EQ(Taken("^", names), "eth1 eth10 ib0 lo");
  EXPECT_EQ(Taken("=", names), "eth1 eth10 ib0 lo");
  EXPECT_TRUE(NameFilter("").empty() && NameFilter(",").empty());
  EXPECT_FALSE(NameFilter("eth").empty());
  EXPECT_TRUE(NameFilter("^eth").excludes());
}

TEST(NameFilterTest, Ports) {
  EXPECT_TRUE(NameFilter("").Takes("mlx5_1", 2));
  EXPECT_TRUE(NameFilter("mlx5").Takes("mlx5_1", 2));
  EXPECT_TRUE(NameFilter("mlx5_1:2").Takes("mlx5_1", 2));
  EXPECT_FALSE(NameFilter("mlx5_1:1").Takes("mlx5_1", 2));
  EXPECT_TRUE(NameFilter("mlx5_1:1").Takes("mlx5_10", 1)) << "a prefix";
  EXPECT_FALSE(NameFilter("=mlx5_1:1").Takes("mlx5_10", 1));
  EXPECT_FALSE(NameFilter("^mlx5_1:2").Takes("mlx5_1", 2));
  EXPECT_TRUE(NameFilter("^mlx5_1:2").Takes("mlx5_1", 1));
  EXPECT_FALSE(NameFilter("mlx5_1:12").Takes("mlx5_1", 1));
  EXPECT_FALSE(NameFilter("mlx5_1:").Takes("mlx5_1", 1));
}

}  // namespace
}  // namespace axccl
