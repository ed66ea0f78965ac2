// The verifier on schedules with slots of all ranks, written by hand.
#include <gtest/gtest.h>

#include <string>

#include "tests/verify/by_hand.h"

namespace axccl::verify {
namespace {

using plan::Schedule;

// Rank r publishes its contribution to both ranks, or to itself; then it does `then0` or `then1`.
std::string Published(const std::string& slot0, const std::string& slot1, const std::string& then0,
                      const std::string& then1) {
  return "rank 0 lane 0\n#0 copy " + slot0 + " <- in[0].0.0\n#1 signal 1 e0\n#2 wait 1 e0 v1\n#3 " + then0 +
         "\nrank 1 lane 0\n#10 copy " + slot1 + " <- in[1].0.0\n#11 signal 0 e0\n#12 wait 0 e0 v1\n#13 " + then1 + "\n";
}

TEST(MulticastTest, AMulticastStoreReachesAllRanks) {
  const Head two_slots = {.inlined = " - -"};
  const std::string fold0 = "reduce finish out[0].0.0 <- slot[0].0 slot[0].1";
  const std::string fold1 = "reduce finish out[1].0.0 <- slot[1].0 slot[1].1";
  const Schedule s = Make(two_slots, Published("slot[all].0", "slot[all].1", fold0, fold1));
  Facts facts;
  EXPECT_EQ(Verify(s, &facts).message(), "");
  EXPECT_TRUE(facts.complete);
  EXPECT_TRUE(facts.group_order);
  EXPECT_EQ(Verdict(Make(two_slots, Published("slot[0].0", "slot[all].1", fold0, fold1))).substr(0, 52),
            "dataflow: rank 1 lane 0 op 13 reads scratch[1].slot ");
  EXPECT_EQ(Verdict(Make(two_slots, Published("slot[all].1", "slot[all].1", fold0, fold1))).substr(0, 5), "race:");
  EXPECT_EQ(Verdict(Make(two_slots, Published("slot[all].0 slot[all].0", "slot[all].1", fold0, fold1))),
            "dataflow: rank 0 lane 0 op 0 writes scratch[0].slot 0 twice");
  EXPECT_EQ(
      Verdict(Make(two_slots, Published("slot[all].0 slot[1].0", "slot[all].1", fold0, fold1))),
      "race: rank 0 lane 0 op 0 writes scratch[1].slot 0 by itself, which the lane has written as one of all ranks' "
      "without a signal since");
}

// The switch may add the same numbers in another order each time.
TEST(MulticastTest, SumsOfTheSwitchDifferFromEachOther) {
  const std::string sum0 = "reduce finish out[0].0.0 <- slot[all].0", sum1 = "reduce finish out[1].0.0 <- slot[all].0";
  EXPECT_EQ(
      Verdict(Make({}, Published("slot[0].0", "slot[1].0", sum0, sum1))),
      "dataflow: lane 0 folds output block 0.part 0 of rank 0 and of rank 1 in different orders or with different "
      "roundings; all ranks must see the same bits");
  // One of them stores its sum to both.
  const std::string store = "reduce finish slot[all].1 out[0].0.0 <- slot[all].0\n#4 signal 1 e1";
  const std::string fetch = "wait 0 e1 v1\n#14 copy out[1].0.0 <- slot[1].1";
  const Schedule s = Make({.inlined = " - -"}, Published("slot[0].0", "slot[1].0", store, fetch));
  Facts facts;
  EXPECT_EQ(Verify(s, &facts).message(), "");
  EXPECT_FALSE(facts.group_order);
  EXPECT_EQ(Verdict(Make({.kind = "reduce"}, Published("slot[0].0", "slot[1].0", sum0, "nop"))), "ok");
}

TEST(MulticastTest, ALaneDoesNotMixBothWaysToASlotWithoutASignal) {
  const Head two_slots = {.inlined = " - -"};
  const std::string early =
      "rank 0 lane 0\n#0 copy slot[all].0 <- in[0].0.0\n#4 copy out[0].0.0 <- slot[0].0\n#1 signal 1 e0\n#2 wait 1 e0 "
      "v1\n"
      "#3 reduce finish out[0].0.0 <- slot[0].0 slot[0].1\n"
      "rank 1 lane 0\n#10 copy slot[all].1 <- in[1].0.0\n#11 signal 0 e0\n#12 wait 0 e0 v1\n"
      "#13 reduce finish out[1].0.0 <- slot[1].0 slot[1].1\n";
  EXPECT_EQ(
      Verdict(Make(two_slots, early)),
      "race: rank 0 lane 0 op 4 reads scratch[0].slot 0 by itself, which the lane has written as one of all ranks' "
      "without a signal since");
  const std::string other =
      "rank 0 lane 0\n#1 signal 1 e0\n#2 wait 1 e0 v1\n#0 copy slot[0].0 <- in[0].0.0\n"
      "#3 reduce finish out[0].0.0 <- slot[all].0\n#4 signal 1 e1\n"
      "rank 1 lane 0\n#10 copy slot[1].0 <- in[1].0.0\n#11 signal 0 e0\n#12 wait 0 e0 v1\n#13 wait 0 e1 v1\n";
  EXPECT_EQ(
      Verdict(Make({.kind = "reduce"}, other)),
      "race: rank 0 lane 0 op 3 reads scratch[0].slot 0 as one of all ranks', which the lane has written by itself "
      "without a signal since");
  // Two writes, or a read and then a write.
  const auto broadcast = [&](const std::string& between, int signals) {
    const std::string rest =
        "#2 copy slot[all].0 <- in[0].0.1\n#3 copy slot[all].1 <- in[0].0.0\n#4 signal 1 e1\n"
        "#5 copy out[0].0.1 <- slot[0].0\n#6 copy out[0].0.0 <- slot[0].1\n#7 wait 1 e0 v1\n"
        "rank 1 lane 0\n#10 wait 0 e1 v" +
        std::to_string(signals) +
        "\n#11 copy out[1].0.1 <- slot[1].0\n#12 copy out[1].0.0 <- slot[1].1\n"
        "#13 signal 0 e0\n";
    return Verdict(Make({.kind = "broadcast", .parts = 2, .inlined = " - -"},
                        "rank 0 lane 0\n#0 copy slot[0].0 <- in[0].0.0\n" + between + rest));
  };
  const std::string writes =
      "race: rank 0 lane 0 op 2 writes scratch[0].slot 0 as one of all ranks', which the lane has ";
  EXPECT_EQ(broadcast("", 1), writes + "written by itself without a signal since");
  const std::string read = "#1 copy out[0].0.0 <- slot[0].0\n", signal = "#8 signal 1 e1\n";
  EXPECT_EQ(broadcast(signal + read, 2), writes + "read by itself without a signal since");
  EXPECT_EQ(broadcast(read + signal, 2), "ok");
}

TEST(MulticastTest, StructureOfMulticastOperands) {
  const auto verdict = [](const Head& head, const std::string& op, const std::string& rest = "") {
    return Verdict(Make(head, "rank 0 lane 0\n#0 " + op + "\nrank 1 lane 0\n" + rest));
  };
  const std::string begin = "structure: rank 0 lane 0 op 0 ";
  EXPECT_EQ(verdict({}, "copy out[0].0.0 <- slot[all].0"),
            begin + "reads scratch of all ranks, slot 0; only a reduction may, of which that is the only source");
  EXPECT_EQ(verdict({}, "reduce out[0].0.0 <- slot[all].0 in[0].0.0"),
            begin + "reads scratch of all ranks, slot 0; only a reduction may, of which that is the only source");
  EXPECT_EQ(verdict({}, "reduce out[0].0.0 <- slot[all].1"),
            begin + "names scratch of all ranks, slot 1, which does not exist");
  EXPECT_EQ(verdict({.inlined = " 0"}, "copy slot[all].0 <- in[0].0.0"),
            begin + "uses scratch of all ranks, slot 0, which is inline; only one rank may");
  EXPECT_EQ(verdict({.direct = true}, "copy slot[all].0 <- in[0].0.0"),
            begin + "uses scratch of all ranks, slot 0; a schedule that is direct or has slices may not");
  Schedule s = Make({}, "rank 0 lane 0\n#0 copy slot[all].0 <- in[0].0.0\nrank 1 lane 0\n");
  s.program[0][0].ops[0].dst[0].rank = 1;
  EXPECT_EQ(Verdict(s), begin + "names a rank of slots of all ranks; must be 0");
}

}  // namespace
}  // namespace axccl::verify
