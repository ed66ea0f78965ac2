// Which data go with which signal, on small schedules that a reader can check.
#include "src/plan/cargo.h"

#include <gtest/gtest.h>

#include <vector>

#include "src/algo/algo.h"
#include "src/algo/builder.h"

namespace axccl::plan {
namespace {

using algo::Builder;
using algo::In;
using algo::Out;
using algo::Slot;

Placement Machines(std::vector<int> machine_of) { return Placement::Of(machine_of); }

// Rank 0 puts two slots to rank 2 and publishes one of its own, which rank 3 reads; ranks 0 and 1 share a machine.
Schedule Example() {
  Builder b({Kind::kAllGather, 4, 0}, "example", 1);
  b.Copy(0, {Slot(1, 0)}, In(0));
  b.Copy(0, {Slot(2, 0), Slot(0, 5), Out(0)}, In(0));
  b.Signal(0, 1);
  b.Copy(0, {Slot(2, 1)}, In(0));
  b.Signal(0, 2);
  b.Signal(0, 2);
  b.Signal(0, 3);
  b.Copy(0, {Slot(3, 0)}, In(0));  // no signal follows
  b.Copy(3, {Out(3)}, Slot(0, 5));
  b.Copy(1, {Out(1)}, Slot(0, 5));
  return b.Build(1);
}

TEST(Carriers, AreTheNextSignalsToAReader) {
  Lane lane;
  for (const int peer : {2, 1, kAllPeers, 2}) {
    Op op;
    op.kind = OpKind::kSignal;
    op.peer = static_cast<int16_t>(peer);
    lane.ops.push_back(op);
    lane.ops.push_back(Op());
  }
  const Carriers carriers(lane);
  EXPECT_EQ(carriers.After(0, 2), 0u);
  EXPECT_EQ(carriers.After(1, 2), 4u);
  EXPECT_EQ(carriers.After(5, 2), 6u);
  EXPECT_EQ(carriers.After(1, 1), 2u);
  EXPECT_EQ(carriers.After(3, 7), 4u);
  EXPECT_EQ(carriers.After(5, 1), Carriers::kNone);
}

TEST(Cargo, GoesWithTheNextSignalToItsReader) {
  const Schedule s = Example();
  size_t first = 0;  // the lane begins with credits
  while (s.program[0][0].ops[first].kind == OpKind::kSignal) ++first;
  const auto at = [first](uint32_t op) { return static_cast<uint32_t>(op + first); };
  const Placement two = Machines({0, 0, 1, 1});
  CargoFinder finder(s, two);
  std::vector<Cargo> found = finder.Of(0, 0);
  std::erase_if(found, [&](const Cargo& c) { return c.op < first; });
  EXPECT_EQ(found, (std::vector<Cargo>{{at(4), 2, 2}, {at(5), 2, 0}, {at(6), 3, 1}}));
  // Slots whose signal never came are forgotten.
  std::vector<Cargo> again = finder.Of(0, 0);
  std::erase_if(again, [&](const Cargo& c) { return c.op < first; });
  EXPECT_EQ(again, found);
}

TEST(Cargo, IsNoneWhereRanksShareMemory) {
  const Schedule s = Example();
  EXPECT_TRUE(CargoFinder(s, Placement()).Of(0, 0).empty());
}

// Each reader of a slot in its writer's own scratch gets it, with the one signal to all.
TEST(Cargo, GoesToEveryReaderOfASignalToAll) {
  const Schedule s = algo::Generate({Kind::kAllGather, 4, 0}, "oneshot", 2).value();
  const Placement p = Machines({0, 0, 1, 2});
  CargoFinder finder(s, p);
  for (int lane = 0; lane < 2; ++lane) {
    uint32_t parts = 0;
    std::vector<int> readers;
    for (const Cargo& c : finder.Of(1, lane)) {
      parts += c.parts;
      if (c.parts > 0) readers.push_back(c.reader);
    }
    EXPECT_EQ(parts, 2u * s.parts);
    EXPECT_EQ(readers, (std::vector<int>{2, 3}));
  }
}

}  // namespace
}  // namespace axccl::plan
