// How few slots a ring can have.
#include <gtest/gtest.h>

#include <string>

#include "src/algo/algo.h"
#include "src/verify/verify.h"

namespace axccl::verify {
namespace {

using plan::Operand;
using plan::Schedule;

// The same with as many slots, which consecutive steps use in turn.
Schedule WithSlots(Schedule ring, uint16_t slots) {
  for (auto& lanes : ring.program) {
    int written = 0, read = 0;
    for (plan::Op& op : lanes[0].ops) {
      const auto renumber = [slots](std::vector<Operand>* operands, int* step) {
        for (Operand& operand : *operands) {
          if (operand.buffer == plan::Buffer::kScratch) operand.part = static_cast<uint16_t>((*step)++ % slots);
        }
      };
      renumber(&op.dst, &written);
      renumber(&op.src, &read);
    }
  }
  ring.slots = slots;
  ring.inline_endpoint.assign(slots, -1);
  return ring;
}

// A rank that does a step knows that the next rank has read what it wrote n steps before, and not what it wrote later.
TEST(RingTest, AllReduceHasASlotForEachRank) {
  for (const int ranks : {3, 4, 8, 13}) {
    const auto slots = static_cast<uint16_t>(ranks);
    const Schedule ring = algo::Generate({plan::Kind::kAllReduce, ranks, 0}, "ring", 1).value();
    EXPECT_EQ(ring, WithSlots(ring, slots)) << ranks;
    Facts facts;
    EXPECT_TRUE(Verify(ring, &facts).ok()) << ranks;
    EXPECT_TRUE(facts.complete) << ranks;
    const Status less = Verify(WithSlots(ring, static_cast<uint16_t>(slots - 1)), &facts);
    EXPECT_NE(std::string(less.message()).find("rejected: race:"), std::string::npos) << ranks << less.message();
  }
}

}  // namespace
}  // namespace axccl::verify
