#include "src/program/kinds.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace axccl::program {
namespace {

TEST(KindsTest, NamesAreDistinctAndFound) {
  std::set<std::string_view> names;
  for (const KindInfo& info : Kinds()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_EQ(FindKind(info.name), &InfoOf(info.kind)) << info.name;
    EXPECT_LE(info.least_operands, info.most_operands) << info.name;
  }
  EXPECT_EQ(FindKind(""), nullptr);
  EXPECT_EQ(FindKind("custom_call"), nullptr);
}

// An operation finds an attribute by its name, so it has each once.
TEST(KindsTest, EveryAttributeIsUsedAndNoKindHasOneTwice) {
  std::set<Attr> used;
  for (const KindInfo& info : Kinds()) {
    const std::set<Attr> own(info.attributes().begin(), info.attributes().end());
    EXPECT_EQ(own.size(), info.attributes().size()) << info.name;
    used.insert(own.begin(), own.end());
    EXPECT_TRUE(!own.contains(Attr::kValue) || info.results == Results::kOne) << info.name;
  }
  EXPECT_EQ(used.size(), static_cast<size_t>(Attr::kValue));
}

TEST(KindsTest, WordsAreFoundAgain) {
  int types = 0;
  for (int i = 0; i < kNumDataTypes; ++i) {
    const auto type = static_cast<DataType>(i);
    DataType found;
    if (NameOf(type).empty()) continue;
    ASSERT_TRUE(Find(NameOf(type), &found));
    EXPECT_EQ(found, type);
    ++types;
  }
  EXPECT_EQ(types, 13);
  DataType type;
  EXPECT_FALSE(Find("", &type));
  EXPECT_FALSE(Find("complex64", &type));
  Combine fold;
  EXPECT_TRUE(Find("mul", &fold));
  EXPECT_EQ(fold, Combine::kProd);
}

}  // namespace
}  // namespace axccl::program
