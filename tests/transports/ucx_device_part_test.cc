// Slots on devices (transport::Reach::DevicePart): the receiver fetches them to where they belong, and what it has
// fetched has landed before the line that goes with it is stored.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/harness/networks.h"
#include "tests/harness/process_ids.h"
#include "tests/transports/ucx_loopback.h"
#include "transports/remote/outgoing.h"
#include "transports/ucx/connect.h"
#include "transports/ucx/reach.h"
#include "transports/ucx/worker.h"

namespace axccl::ucx {
namespace {

using Stretch = transport::Reach::Stretch;

constexpr uint64_t kBytes = 64u << 10, kSlot = 8192;

// What a rank's device has of an area: the same offsets in other memory. Says what it was asked for.
class FakePart final : public transport::Reach::DevicePart {
 public:
  std::byte* At(bool of_peer, uint64_t offset, uint64_t bytes) const override {
    return offset + bytes <= kBytes ? (of_peer ? mirror : own).data() + offset : nullptr;
  }
  void Call(const std::function<void()>& call) const override {
    ++calls;
    call();
  }
  Status Land() const override {
    landed.push_back(when_landing());
    return Status();
  }

  mutable std::vector<std::byte> own = std::vector<std::byte>(kBytes), mirror = own;
  mutable std::atomic<int> calls{0};
  mutable std::vector<uint64_t> landed;  // by the receiver's thread, with the lock held
  std::function<uint64_t()> when_landing = [] { return uint64_t{0}; };
};

// Two ranks of this process, which reach each other over the loopback device.
class DevicePartTest : public testing::Test {
 protected:
  struct Rank {
    std::vector<std::byte> block = std::vector<std::byte>(kBytes), area_memory = block;
    std::shared_ptr<Reach> reach;
    std::shared_ptr<transport::Reach::Area> area;
    std::byte* mirror = nullptr;  // of the other's area
    std::shared_ptr<FakePart> part = std::make_shared<FakePart>();
    std::atomic<int> arrived{0};
  };

  void SetUp() override {
    if (access(harness::kNetworks, F_OK) != 0) GTEST_SKIP() << harness::kNoNetworks;
    address_ = LoopbackAddress(2);
    ASSERT_FALSE(address_.rails.empty());
    worker_ = Worker::Get({}).value();
    static uint64_t comm = 100;
    ++comm;
    for (uint32_t r = 0; r < 2; ++r) {
      remote::ConnectOptions options;
      options.comm = comm;
      options.self = r;
      options.peer = 1 - r;
      options.process = harness::ProcessId(2);
      options.address = address_;
      options.block = rank_[r].block.data();
      options.block_bytes = kBytes;
      options.arrived = [this, r] { ++rank_[r].arrived; };
      const auto reach = Reach::Create(worker_, options);
      ASSERT_TRUE(reach.ok()) << reach.status().message();
      rank_[r].reach = reach.value();
      rank_[r].mirror = rank_[r].reach->AddArea(7, rank_[r].area_memory.data(), 0, kBytes, &rank_[r].area).value();
    }
  }
  void TearDown() override {
    for (Rank& rank : rank_) {
      if (rank.reach != nullptr) rank.reach->Detach();
    }
  }

  // Until rank `r` has got so many lines, or has given up.
  void Await(uint32_t r, int lines) {
    worker_->BeginPolling();
    while (rank_[r].arrived < lines && !rank_[r].reach->Died()) worker_->Progress();
    worker_->EndPolling(false);
  }
  uint64_t LineOf(const Rank& rank) const {
    uint64_t word = 0;
    std::memcpy(&word, rank.mirror, sizeof(word));
    return word;
  }

  Worker* worker_ = nullptr;
  remote::NetworkAddress address_;
  Rank rank_[2];
};

TEST_F(DevicePartTest, WhatIsFetchedLandsBeforeTheLine) {
  for (Rank& rank : rank_) rank.area->SetDevice(rank.part);
  Rank &from = rank_[0], &to = rank_[1];
  to.part->when_landing = [&] { return LineOf(to); };
  for (uint64_t turn = 1; turn <= 5; ++turn) {
    const size_t bytes = turn == 3 ? 8 : 20000;
    std::fill_n(from.part->own.begin() + kSlot, bytes, static_cast<std::byte>(turn));
    std::fill_n(from.part->mirror.begin() + kSlot, bytes, static_cast<std::byte>(turn + 100));
    std::memcpy(from.area_memory.data(), &turn, sizeof(turn));
    const auto length = static_cast<uint32_t>(bytes);
    const std::vector<Stretch> slots = {
        {kSlot, length, false, false, nullptr, true}, {128, 64}, {kSlot, length, true, false, nullptr, true}};
    from.reach->Publish(from.area, slots, 0);
    Await(1, static_cast<int>(turn) * 3);
    ASSERT_FALSE(to.reach->Died()) << to.reach->Trouble();
    EXPECT_EQ(LineOf(to), turn);
    const auto all_are = [&](const std::vector<std::byte>& memory, uint64_t value) {
      return std::all_of(memory.begin() + kSlot, memory.begin() + kSlot + length,
                         [&](std::byte b) { return b == static_cast<std::byte>(value); });
    };
    EXPECT_TRUE(all_are(to.part->mirror, turn));
    EXPECT_TRUE(all_are(to.part->own, turn + 100));
  }
  // Twice in each turn, and never behind its line.
  EXPECT_EQ(to.part->landed, (std::vector<uint64_t>{0, 0, 1, 1, 2, 2, 3, 3, 4, 4}));
  EXPECT_EQ(to.part->calls, 10);
  EXPECT_EQ(from.part->calls, 10);
  EXPECT_TRUE(from.part->landed.empty());
  EXPECT_EQ(std::count(to.mirror, to.mirror + kBytes, std::byte{0}) + 1, static_cast<ptrdiff_t>(kBytes))
      << "slots on the device are in no memory of the host";
}

TEST_F(DevicePartTest, MemoryIsRegisteredWithTheContextOfTheDevice) {
  const FakePart& part = *rank_[0].part;
  EXPECT_TRUE(rank_[0].reach->Register(part, part.own.data(), kBytes).ok());
  EXPECT_EQ(part.calls, 1);
}

TEST_F(DevicePartTest, DataForADeviceThatIsNotThereAreRefused) {
  rank_[0].area->SetDevice(rank_[0].part);
  rank_[0].reach->Publish(rank_[0].area, std::vector<Stretch>{{kSlot, 20000, false, false, nullptr, true}}, 0);
  Await(1, 1);
  EXPECT_TRUE(rank_[1].reach->Died());
  EXPECT_EQ(std::count(rank_[1].mirror, rank_[1].mirror + kBytes, std::byte{0}), static_cast<ptrdiff_t>(kBytes));
  EXPECT_TRUE(rank_[1].part->landed.empty());
}

// A sender that is not this library.
TEST_F(DevicePartTest, DataForADeviceThatCannotBeFetchedAreRefused) {
  for (Rank& rank : rank_) rank.area->SetDevice(rank.part);
  remote::Message message{};
  message.head.area = 7;
  message.head.line = transport::Reach::kNoLine;
  message.head.stretches = 1;
  message.stretch[0] = {kSlot, 64, 0, 0, 1, 0};
  std::vector<std::byte> data(64, std::byte{9});
  std::lock_guard lock(worker_->mutex());
  const Rail* const rail = worker_->EndpointTo(harness::ProcessId(2), address_).value()->lanes[0].rail;
  EXPECT_EQ(rank_[1].reach->Take(*rail, message, data.data(), data.size(), false), UCS_OK);
  EXPECT_TRUE(rank_[1].reach->Died());
}

}  // namespace
}  // namespace axccl::ucx
