#include "src/device/host/waiting.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

namespace axccl::device::host {
namespace {

// A lost wake-up shows as a sleep to the end, far beyond the time limit of the test.
constexpr std::chrono::hours kForever{1};

TEST(Doorbells, SleepReturnsAtOnceWhenRungBefore) {
  Doorbells& bells = Doorbells::Process();
  const int slot = bells.Claim();
  const uint32_t seen = bells.Listen(slot);
  EXPECT_FALSE(bells.Rung(slot, seen));
  bells.Ring(slot);
  EXPECT_TRUE(bells.Rung(slot, seen));
  bells.Sleep(slot, seen, kForever);
  bells.Release(slot);
}

TEST(Doorbells, RingsOnceUntilAThreadListensAgain) {
  static transport::ProcessPage page;
  std::atomic<uint32_t>& rings = page.doorbell[0].rings;
  RingDoorbell(&page, 0);
  EXPECT_EQ(rings, 0u) << "nobody listens";
  for (uint32_t listened = 1; listened < 9; listened += 2) {
    rings |= 1;
    EXPECT_EQ(rings, listened);
    RingDoorbell(&page, 0);
    RingDoorbell(&page, 0);
    EXPECT_EQ(rings, listened + 1);
  }
}

TEST(Doorbells, SleepEndsAtItsTime) {
  Doorbells& bells = Doorbells::Process();
  const int slot = bells.Claim();
  const auto begin = std::chrono::steady_clock::now();
  bells.Sleep(slot, bells.Listen(slot), std::chrono::milliseconds(5));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(4));
  bells.Release(slot);
}

TEST(Doorbells, ParkedCountsClaims) {
  Doorbells& bells = Doorbells::Process();
  EXPECT_EQ(bells.parked(), 0);
  const int a = bells.Claim(), b = bells.Claim();
  EXPECT_EQ(bells.parked(), 2);
  bells.Release(a);
  bells.Release(b);
  EXPECT_EQ(bells.parked(), 0);
}

TEST(Doorbells, MoreSleepersThanDoorbellsShare) {
  Doorbells& bells = Doorbells::Process();
  std::vector<int> slots;
  for (int i = 0; i < 2 * transport::kDoorbells; ++i) {
    slots.push_back(bells.Claim());
    ASSERT_GE(slots.back(), 0);
    ASSERT_LT(slots.back(), transport::kDoorbells);
  }
  for (int slot : slots) bells.Release(slot);
}

// The protocol of every wait: the sleeper announces itself and looks; the other thread changes the state and looks for
// sleepers.
TEST(Doorbells, NoWakeUpIsLost) {
  constexpr int kRounds = 4000;
  Doorbells& bells = Doorbells::Process();
  std::atomic<int> world{0}, answer{0};
  std::thread sleeper([&] {
    for (int round = 1; round <= kRounds; ++round) {
      while (world.load(std::memory_order_seq_cst) != round) {
        const int slot = bells.Claim();
        const uint32_t seen = bells.Listen(slot);
        if (world.load(std::memory_order_seq_cst) != round) bells.Sleep(slot, seen, kForever);
        bells.Release(slot);
      }
      answer.store(round);
    }
  });
  for (int round = 1; round <= kRounds; ++round) {
    world.store(round, std::memory_order_seq_cst);
    if (bells.parked() != 0) bells.RingAll();
    while (answer.load() != round) std::this_thread::yield();
  }
  sleeper.join();
}

// Last, because the move is permanent: from then on, peers ring a process page's doorbells.
TEST(Doorbells, PeersRingThroughTheProcessPage) {
  static transport::ProcessPage page;
  Doorbells& bells = Doorbells::Process();
  std::atomic<bool> asleep{false}, news{false};
  std::thread sleeper([&] {
    while (!news) {
      const int slot = bells.Claim();
      const uint32_t seen = bells.Listen(slot);
      asleep = true;
      if (!news) bells.Sleep(slot, seen, kForever);
      bells.Release(slot);
    }
  });
  while (!asleep) std::this_thread::yield();
  bells.Adopt(&page);  // a thread that sleeps on an old doorbell moves
  bells.Adopt(&page);
  news = true;
  // The sleeper may be about to claim a new doorbell, so this rings all that it could claim.
  for (int slot = 0; slot < transport::kDoorbells; ++slot) RingDoorbell(&page, slot);
  sleeper.join();
  page.doorbell[3].rings = 1;
  RingDoorbell(&page, transport::kDoorbells + 3);  // a peer's value is never used as an index
  EXPECT_EQ(page.doorbell[3].rings, 2u);
}

TEST(Patience, ShrinksWithTheLargestCrowd) {
  const int before = CurrentPatience().spins, crowding = Crowding();
  EXPECT_FALSE(ExpectsMessages());
  {
    const Crowd many(100000, false);
    EXPECT_LT(CurrentPatience().spins, before);
    const int most = Crowding();
    EXPECT_GT(most, 1);
    auto few = std::make_unique<Crowd>(1, true);
    EXPECT_EQ(Crowding(), most);
    EXPECT_TRUE(ExpectsMessages());
    few.reset();
    EXPECT_EQ(Crowding(), most);
    EXPECT_FALSE(ExpectsMessages());
  }
  EXPECT_EQ(CurrentPatience().spins, before);
  EXPECT_EQ(Crowding(), crowding);
}

}  // namespace
}  // namespace axccl::device::host
