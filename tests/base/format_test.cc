#include "src/base/format.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace axccl {
namespace {

TEST(FormatTest, HasAnyLength) {
  EXPECT_EQ(Format("%s", ""), "");
  EXPECT_EQ(Format("%d of %s", 3, "four"), "3 of four");
  const std::string all(10000, 'x');
  EXPECT_EQ(Format("%s|%s", all.c_str(), all.c_str()), all + "|" + all);
}

TEST(JoinTest, SeparatesWords) {
  EXPECT_EQ(Join(std::vector<std::string>(), ", "), "");
  EXPECT_EQ(Join(std::vector<std::string>{"one"}, ", "), "one");
  EXPECT_EQ(Join(std::set<std::string_view>{"b", "a", "c"}, ", "), "a, b, c");
  EXPECT_EQ(Join(std::vector<std::string>{"", "", "x"}, ","), ",,x") << "a word may be empty";
}

}  // namespace
}  // namespace axccl
