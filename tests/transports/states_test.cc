// States (Reach::TakeState) that are passed on by others and so come in any order, repeatedly or not at all, among
// messages that have a turn: none ever replaces what is newer.
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transports/remote/reach.h"
#include "transports/remote/told_states.h"

namespace axccl::remote {
namespace {

constexpr uint64_t kBlockBytes = 4096;

class TestReach final : public Reach {
 public:
  static std::shared_ptr<TestReach> Make(std::mutex* mutex) {
    ConnectOptions options;
    options.block_bytes = kBlockBytes;
    options.arrived = [] {};
    auto mirror = MakeMirror(options).value();
    return std::shared_ptr<TestReach>(new TestReach(mutex, std::move(options), std::move(mirror)));
  }
  const char* Name() const override { return "test"; }

 private:
  TestReach(std::mutex* mutex, ConnectOptions options, std::shared_ptr<Mirror> mirror)
      : Reach(mutex, std::move(options), std::move(mirror)) {}
  bool sending() const override { return false; }
  void DropUnsent() override {}
  void AnswerFlush(const void*, const WireControl&) override {}
  std::condition_variable& changed() override { return changed_; }
  bool failed() const override { return false; }
  size_t lanes() const override { return 0; }
  void SendFlush(size_t, uint32_t) override {}
  void ReceiveOnce(std::unique_lock<std::mutex>*) override {}

  std::condition_variable changed_;
};

// What a rank sends: a word for one of two places of states, or of anything else.
struct Sent {
  bool in_turn;
  uint32_t number;
  uint64_t place, value;
  auto operator<=>(const Sent&) const = default;
};
constexpr uint64_t kFirst = 64, kSecond = 512, kOther = 1024;

void Arrive(Reach* reach, const Sent& sent) {
  Message message{};
  message.head.line = transport::Reach::kNoLine;
  message.head.stretches = 1;
  message.head.turn = sent.number;
  message.head.flags = sent.place != kOther ? kState : 0;
  message.stretch[0] = {sent.place, sizeof sent.value, 0, 0, 0, 0};
  if (!sent.in_turn) return reach->TakeState(message, &sent.value, sizeof sent.value);
  Reach::Admission admitted;
  ASSERT_TRUE(reach->Admit(message, sizeof sent.value, &admitted));
  reach->Take(admitted, message, &sent.value, sizeof sent.value);
}

uint64_t ValueAt(const Reach& reach, uint64_t place) {
  uint64_t value = 0;
  std::memcpy(&value, reach.block() + place, sizeof value);
  return value;
}

// In every order.
void ExpectNewest(std::vector<Sent> sent, uint64_t first, uint64_t second) {
  std::mutex mutex;
  std::sort(sent.begin(), sent.end());
  do {
    const auto reach = TestReach::Make(&mutex);
    uint64_t before = 0;
    for (const Sent& each : sent) {
      Arrive(reach.get(), each);
      const uint64_t now = ValueAt(*reach, kFirst);
      ASSERT_GE(now, before);
      before = now;
    }
    ASSERT_EQ(ValueAt(*reach, kFirst), first);
    ASSERT_EQ(ValueAt(*reach, kSecond), second);
  } while (std::next_permutation(sent.begin(), sent.end()));
}

TEST(StatesTest, TheNewestOfEachPlaceStays) {
  ExpectNewest({{false, 1, kFirst, 1}, {false, 2, kFirst, 2}, {false, 3, kSecond, 1}, {false, 4, kFirst, 3}}, 3, 1);
}

TEST(StatesTest, RepeatedOnesAreIgnored) {
  ExpectNewest({{false, 1, kFirst, 1},
                {false, 1, kFirst, 1},
                {false, 2, kFirst, 2},
                {false, 2, kFirst, 2},
                {false, 3, kSecond, 1}},
               2, 1);
}

TEST(StatesTest, NoneReplacesOneThatHadATurnAndOthersStillCount) {
  ExpectNewest({{false, 1, kFirst, 1},
                {false, 2, kFirst, 2},
                {false, 3, kSecond, 1},
                {true, 0, kOther, 7},
                {true, 1, kFirst, 3},
                {true, 2, kFirst, 4}},
               4, 1);
}

TEST(StatesTest, AboutTooManyPlacesAreNonsense) {
  std::mutex mutex;
  const auto reach = TestReach::Make(&mutex);
  for (uint32_t i = 0; i < 257; ++i) {
    EXPECT_FALSE(reach->Died()) << i;
    Arrive(reach.get(), {false, i + 1, 8 * i, 1});
  }
  EXPECT_TRUE(reach->Died());
}

// What has a turn, and may come again by another way.
bool ArriveAgain(Reach* reach, uint32_t turn, uint64_t value) {
  Message message{};
  message.head.line = transport::Reach::kNoLine;
  message.head.stretches = 1;
  message.head.turn = turn;
  message.head.flags = kRepeats;
  message.stretch[0] = {kOther, sizeof value, 0, 0, 0, 0};
  Reach::Admission admitted;
  const bool takes = reach->Admit(message, sizeof value, &admitted);
  if (takes) reach->Take(admitted, message, &value, sizeof value);
  return takes;
}

// In every order, some twice and some three times: each takes effect once, in its turn.
TEST(RepeatedTest, WhatHasComeBeforeIsIgnored) {
  std::mutex mutex;
  std::vector<uint32_t> turns = {0, 0, 1, 1, 2, 2, 2, 3};
  do {
    const auto reach = TestReach::Make(&mutex);
    std::vector<int> taken(4);
    uint64_t before = 0;
    for (const uint32_t turn : turns) {
      taken[turn] += ArriveAgain(reach.get(), turn, turn + 1);
      const uint64_t now = ValueAt(*reach, kOther);
      ASSERT_GE(now, before);
      for (uint64_t value = before + 1; value <= now; ++value) ASSERT_EQ(taken[value - 1], 1);
      before = now;
    }
    ASSERT_EQ(taken, std::vector<int>(4, 1));
    ASSERT_EQ(before, 4u);
    ASSERT_FALSE(reach->Died());
  } while (std::next_permutation(turns.begin(), turns.end()));
}

TEST(RepeatedTest, OnlyWhatSaysSoMayComeAgain) {
  std::mutex mutex;
  auto reach = TestReach::Make(&mutex);
  EXPECT_TRUE(ArriveAgain(reach.get(), 0, 1));
  EXPECT_TRUE(ArriveAgain(reach.get(), 2, 3));
  EXPECT_FALSE(ArriveAgain(reach.get(), 2, 3));
  EXPECT_FALSE(reach->Died());
  EXPECT_FALSE(ArriveAgain(reach.get(), ~uint32_t{0}, 1));  // before the first one
  EXPECT_TRUE(reach->Died());
  reach = TestReach::Make(&mutex);
  Arrive(reach.get(), {true, 0, kOther, 1});
  Message again{};
  again.head.line = transport::Reach::kNoLine;
  Reach::Admission admitted;
  EXPECT_FALSE(reach->Admit(again, 0, &admitted));
  EXPECT_TRUE(reach->Died());
}

using Stretch = transport::Reach::Stretch;

// Of each place, in the order of the last times, what was told last.
TEST(ToldStatesTest, KeepsWhatWasToldLast) {
  constexpr uint64_t kNoLine = transport::Reach::kNoLine;
  std::vector<std::byte> block(4096);
  const auto set = [&](uint64_t at, int value) { block[at] = static_cast<std::byte>(value); };
  const Memory memory(0, block.data(), nullptr, block.size());
  ToldStates told;
  const Stretch members{512, 16}, text{640, 192}, round{1024, 24}, longer{1024, 40}, other{2048, 8};
  told.Note(memory, {}, kFirst);
  set(512, 1);
  told.Note(memory, {&members, 1}, kFirst);
  told.Note(memory, {&longer, 1}, kNoLine);
  set(2048, 2);
  told.Note(memory, {&other, 1}, kNoLine);
  set(640, 3), set(kFirst, 4);
  told.Note(memory, {&text, 1}, kFirst);
  set(1024, 5);
  told.Note(memory, {&round, 1}, kNoLine);
  std::fill(block.begin(), block.end(), std::byte{9});
  std::string all;
  told.ForEach([&](std::span<const Stretch> stretches, const transport::Reach::LineAt& line) {
    all +=
        line.offset == kNoLine ? "-" : std::to_string(static_cast<int>(*static_cast<const std::byte*>(line.content)));
    for (const Stretch& stretch : stretches)
      all += " " + std::to_string(stretch.offset) + "+" + std::to_string(stretch.bytes) + ":" +
             std::to_string(static_cast<int>(*stretch.content));
    all += "; ";
  });
  EXPECT_EQ(all, "- 2048+8:2; 4 512+16:1 640+192:3; - 1024+24:5; ");
  told.Clear();
  EXPECT_TRUE(told.empty());
}

}  // namespace
}  // namespace axccl::remote
