// What the verifier takes for the same bits, in schedules written by hand.
#include <gtest/gtest.h>

#include <string>

#include "tests/verify/by_hand.h"

namespace axccl::verify {
namespace {

// A factor of the result applies where the fold is finished: before it is rounded, or after it was stored.
TEST(BitsTest, AFoldThatIsFinishedLaterHasOtherBits) {
  const std::string at_once0 = "#3 reduce finish out[0].0.0 <- slot[0].0 slot[1].0\n",
                    at_once1 = "#8 reduce finish out[1].0.0 <- slot[0].0 slot[1].0\n",
                    later0 = "#3 reduce slot[0].1 <- slot[0].0 slot[1].0\n#4 copy finish out[0].0.0 <- slot[0].1\n",
                    later1 = "#8 reduce slot[1].1 <- slot[0].0 slot[1].0\n#9 reduce finish out[1].0.0 <- slot[1].1\n";
  const auto schedule = [](const std::string& end0, const std::string& end1) {
    return Make({.endpoints = 1, .inlined = " - -"},
                "rank 0 lane 0\n#0 copy slot[0].0 <- in[0].0.0\n#1 signal 1 e0\n#2 wait 1 e0 v1\n" + end0 +
                    "rank 1 lane 0\n#5 copy slot[1].0 <- in[1].0.0\n#6 signal 0 e0\n#7 wait 0 e0 v1\n" + end1);
  };
  Facts facts;
  EXPECT_EQ(Verify(schedule(at_once0, at_once1), &facts).message(), "");
  EXPECT_TRUE(facts.group_order);
  EXPECT_EQ(Verify(schedule(later0, later1), &facts).message(), "");
  EXPECT_FALSE(facts.group_order);
  for (const std::string& verdict : {Verdict(schedule(at_once0, later1)), Verdict(schedule(later0, at_once1))})
    EXPECT_EQ(verdict.substr(0, 68), "dataflow: lane 0 folds output block 0.part 0 of rank 0 and of rank 1");
}

}  // namespace
}  // namespace axccl::verify
