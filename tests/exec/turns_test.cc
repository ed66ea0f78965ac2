// Which operations need a barrier between them, and how turns are counted.
#include "src/exec/host/turns.h"

#include <gtest/gtest.h>

namespace axccl::exec {
namespace {

Prepared MakePrepared(uint64_t hash, bool complete, uint64_t slot_bytes = 64, uint64_t turns = 1) {
  Prepared prepared;
  prepared.run = {{0, hash}, slot_bytes, complete, false};
  prepared.turns = turns;
  return prepared;
}

Prepared MakeBarrier() {
  Prepared barrier = MakePrepared(3, false);
  barrier.run.barrier = true;
  return barrier;
}

TEST(Turns, FirstOperationNeedsNoBarrier) {
  for (const bool complete : {true, false}) EXPECT_FALSE(Turns().NeedsBarrier(MakePrepared(1, complete)));
}

TEST(Turns, IncompletePlansOnlyFollowThemselves) {
  struct Case {
    bool last_complete, next_complete, same_plan, same_slots;
    bool needs;
  };
  const Case cases[] = {
      {true, true, true, true, false},   {true, true, true, false, false},  {true, true, false, true, false},
      {true, true, false, false, false}, {true, false, false, true, true},  {true, false, false, false, true},
      {false, true, false, true, true},  {false, true, false, false, true}, {false, false, true, true, false},
      {false, false, true, false, true}, {false, false, false, true, true}, {false, false, false, false, true},
  };
  for (const Case& c : cases) {
    const Prepared last = MakePrepared(1, c.last_complete);
    const Prepared next = MakePrepared(c.same_plan ? 1 : 2, c.next_complete, c.same_slots ? 64 : 128);
    Turns turns;
    turns.NoteEnd(last);
    EXPECT_EQ(turns.NeedsBarrier(next), c.needs) << c.last_complete << c.next_complete << c.same_plan << c.same_slots;
    turns.NoteEnd(MakeBarrier());
    EXPECT_FALSE(turns.NeedsBarrier(next)) << "after a barrier";
  }
}

TEST(Turns, PrologueSeparatesAsABarrierDoes) {
  Turns turns;
  turns.NoteEnd(MakePrepared(1, false));
  ASSERT_TRUE(turns.NeedsBarrier(MakePrepared(2, false)));
  turns.NotePrologue();
  EXPECT_FALSE(turns.NeedsBarrier(MakePrepared(2, false)));
  turns.NoteEnd(MakePrepared(2, false));
  EXPECT_TRUE(turns.NeedsBarrier(MakePrepared(1, false)));
}

TEST(Turns, EveryOperationTakesItsTurns) {
  Turns turns(7);
  EXPECT_EQ(turns.next(), 7u);
  turns.NoteEnd(MakePrepared(1, true, 64, 5));
  EXPECT_EQ(turns.next(), 12u);
  turns.NotePrologue();
  EXPECT_EQ(turns.next(), 13u);
  turns.NoteEnd(MakeBarrier());
  EXPECT_EQ(turns.next(), 14u);
}

}  // namespace
}  // namespace axccl::exec
