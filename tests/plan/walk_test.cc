// Following small schedules that a reader can check.
#include "src/plan/walk.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace axccl::plan {
namespace {

TEST(SignalsTest, AreFoundByTheirNumber) {
  Signals<int> signals(2);
  EXPECT_EQ(signals.Find(0, 1), nullptr);
  signals.Make(0, 10);
  signals.Make(0, 20);
  signals.Make(1, 30);
  EXPECT_EQ(*signals.Find(0, 1), 10);
  EXPECT_EQ(*signals.Find(0, 2), 20);
  EXPECT_EQ(signals.Find(0, 3), nullptr);
  EXPECT_EQ(*signals.Find(1, 1), 30);
}

TEST(SignalsTest, AreForgottenUpToTheLast) {
  Signals<int> signals(1);
  for (int i = 1; i <= 4; ++i) signals.Make(0, 10 * i);
  signals.Forget(0, 3);  // the fourth may still be searched for beside it
  EXPECT_EQ(*signals.Find(0, 3), 30);
  signals.Forget(0, 5);
  EXPECT_EQ(*signals.Find(0, 4), 40);
  EXPECT_EQ(*signals.Find(0, 2), 40) << "a later signal";
  EXPECT_EQ(signals.Find(0, 5), nullptr);
  signals.Make(0, 50);
  EXPECT_EQ(*signals.Find(0, 4), 40);
  EXPECT_EQ(*signals.Find(0, 5), 50);
}

Op Sync(OpKind kind, int peer, int endpoint, int value = 0, int from_lane = 0) {
  Op op;
  op.kind = kind;
  op.peer = static_cast<int16_t>(peer);
  op.endpoint = static_cast<uint16_t>(endpoint);
  op.value = static_cast<uint16_t>(value);
  op.from_lane = static_cast<uint16_t>(from_lane);
  return op;
}
Op Signal(int peer, int endpoint) { return Sync(OpKind::kSignal, peer, endpoint); }
Op Wait(int peer, int endpoint, int value, int from_lane = 0) {
  return Sync(OpKind::kWait, peer, endpoint, value, from_lane);
}
Op Copy() {
  Op op;
  op.kind = OpKind::kCopy;
  return op;
}

// Records its calls. Its signals carry their number among all.
struct Diary {
  using Carried = int;
  Carried Signal(size_t strand, const Op&) {
    text += std::to_string(strand) + " signals " + std::to_string(++signals) + "; ";
    return signals;
  }
  void Pass(size_t strand, const Op&, Carried carried) {
    text += std::to_string(strand) + " heeds " + std::to_string(carried) + "; ";
  }
  void Move(size_t strand, const Op&) { text += std::to_string(strand) + " moves; "; }

  int signals = 0;
  std::string text;
};

size_t Follow(const std::vector<Lane>& strands, size_t lanes, Diary* diary) {
  std::vector<const Lane*> all;
  for (const Lane& lane : strands) all.push_back(&lane);
  return FollowTurn(all, lanes, diary);
}

TEST(FollowTurnTest, StrandsGoOnOnceTheyAreSignalled) {
  Diary diary;
  const std::vector<Lane> strands = {{{Wait(1, 0, 2), Copy(), Op()}}, {{Signal(0, 0), Copy(), Signal(0, 0)}}};
  EXPECT_EQ(Follow(strands, 1, &diary), 2u);
  EXPECT_EQ(diary.text, "1 signals 1; 1 moves; 1 signals 2; 0 heeds 2; 0 moves; ");
}

TEST(FollowTurnTest, TokensGoFromLaneToLane) {
  Diary diary;
  const std::vector<Lane> strands = {{{Wait(0, 3, 1, 1)}}, {{Signal(0, 3)}}, {}, {{Wait(0, 3, 1, 1)}}};
  EXPECT_EQ(Follow(strands, 2, &diary), 4u);
  EXPECT_EQ(diary.text, "1 signals 1; 3 heeds 1; 0 heeds 1; ");
}

// An endpoint that has fewer signals, one that has none, and a lane that does not exist.
TEST(FollowTurnTest, NamesAStrandThatNeverEnds) {
  for (const Op& wait : {Wait(0, 0, 2), Wait(0, 1, 1), Wait(0, 0, 1, 1)}) {
    Diary diary;
    const std::vector<Lane> strands = {{{Signal(1, 0)}}, {{wait, Copy()}}};
    EXPECT_EQ(Follow(strands, 1, &diary), 1u);
    EXPECT_EQ(diary.text, "0 signals 1; ");
  }
}

}  // namespace
}  // namespace axccl::plan
