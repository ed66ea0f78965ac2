// The order in which one sender's messages take effect, whatever the order of their arrival.
#include "transports/ucx/reach.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/harness/networks.h"
#include "tests/harness/process_ids.h"
#include "tests/transports/ucx_loopback.h"
#include "transports/ucx/connect.h"
#include "transports/ucx/rail.h"
#include "transports/ucx/worker.h"

namespace axccl::ucx {
namespace {

constexpr uint64_t kBlockBytes = 256u << 10;
constexpr uint64_t kNoLine = transport::Reach::kNoLine;
constexpr uint64_t kData = 4096;  // offset

// A rank whose peer sends what the test makes up. Nothing really is sent.
class ReachTest : public testing::Test {
 protected:
  void SetUp() override {
    if (access(harness::kNetworks, F_OK) != 0) GTEST_SKIP() << harness::kNoNetworks;
    const remote::NetworkAddress address = LoopbackAddress(2);
    ASSERT_FALSE(address.rails.empty());
    worker_ = Worker::Get({}).value();
    static uint64_t comm = 0;
    remote::ConnectOptions options;
    options.comm = ++comm;
    options.peer = 1;
    options.process = harness::ProcessId(1);
    options.address = address;
    options.block = own_.data();
    options.block_bytes = kBlockBytes;
    options.arrived = [this] { seen_.push_back({WordAt(0), WordAt(kData)}); };
    const auto reach = Reach::Create(worker_, options);
    ASSERT_TRUE(reach.ok()) << reach.status().message();
    reach_ = reach.value();
    std::lock_guard lock(worker_->mutex());
    rail_ = worker_->EndpointTo(options.process, options.address).value()->lanes[0].rail;
  }
  void TearDown() override {
    if (reach_ != nullptr) reach_->Detach();
  }

  uint64_t WordAt(uint64_t offset) const {
    uint64_t word = 0;
    std::memcpy(&word, reach_->block() + offset, sizeof word);
    return word;
  }
  // A message sets line 0 of the block to `word`, unless that is 0; before that it stores so much data that begin with
  // `first`.
  void Arrive(uint32_t turn, uint64_t word, size_t bytes = 0, uint64_t first = 0, uint64_t area = 0) {
    remote::Message message{};
    message.head.area = area;
    message.head.turn = turn;
    message.head.line = word != 0 ? 0 : kNoLine;
    std::memcpy(message.head.line_bytes, &word, sizeof word);
    message.head.stretches = bytes != 0;
    message.stretch[0] = {kData, static_cast<uint32_t>(bytes), 0, 0, 0, 0};
    std::vector<std::byte> data(bytes);
    if (bytes != 0) std::memcpy(data.data(), &first, sizeof first);
    std::lock_guard lock(worker_->mutex());
    EXPECT_EQ(reach_->Take(*rail_, message, data.data(), bytes, false), UCS_OK);
  }

  struct Seen {
    uint64_t line, data;
    bool operator==(const Seen&) const = default;
  };
  std::vector<std::byte> own_ = std::vector<std::byte>(kBlockBytes);
  std::vector<Seen> seen_;  // at each call of `arrived`
  Worker* worker_ = nullptr;
  const Rail* rail_ = nullptr;
  std::shared_ptr<Reach> reach_;
};

TEST_F(ReachTest, MessagesInOrderTakeEffectAtOnce) {
  Arrive(0, 10, 8, 100);
  EXPECT_EQ(seen_, (std::vector<Seen>{{10, 100}}));
  Arrive(1, 11, remote::kLargeBytes, 101);
  Arrive(2, 0, 8, 102);
  EXPECT_EQ(seen_, (std::vector<Seen>{{10, 100}, {11, 101}, {11, 102}}));
}

TEST_F(ReachTest, EarlyMessagesWaitForEarlierNumbers) {
  Arrive(3, 13);
  Arrive(1, 11, 8, 101);
  Arrive(2, 12, 8, 102);
  EXPECT_TRUE(seen_.empty());
  EXPECT_EQ(WordAt(kData), 0u) << "a small message keeps its data until its turn";
  Arrive(0, 10);
  EXPECT_EQ(seen_, (std::vector<Seen>{{10, 0}, {11, 101}, {12, 102}, {13, 102}}));
}

TEST_F(ReachTest, LargeDataAreStoredOnArrival) {
  Arrive(1, 11, remote::kLargeBytes, 101);
  EXPECT_TRUE(seen_.empty());
  EXPECT_EQ(WordAt(kData), 101u);
  EXPECT_EQ(WordAt(0), 0u);
  Arrive(0, 10);
  EXPECT_EQ(seen_, (std::vector<Seen>{{10, 101}, {11, 101}}));
}

TEST_F(ReachTest, MessagesWithoutAReceiverTakeTheirTurn) {
  Arrive(1, 11);
  Arrive(0, 10, 8, 100, 4711);
  EXPECT_EQ(seen_, (std::vector<Seen>{{11, 0}}));
  Arrive(3, 13, 8, 103, 4711);
  Arrive(2, 12);
  Arrive(4, 14);
  EXPECT_EQ(seen_, (std::vector<Seen>{{11, 0}, {12, 0}, {14, 0}}));
}

// Ranks that have created different pipelines have areas of different sizes.
TEST_F(ReachTest, WhatDoesNotFitAnAreaTakesItsTurn) {
  std::vector<std::byte> own(kData);
  std::shared_ptr<transport::Reach::Area> area;
  std::byte* const mirror = reach_->AddArea(77, own.data(), 0, own.size(), &area).value();
  Arrive(0, 10, 8, 100, 77);
  EXPECT_TRUE(seen_.empty());
  EXPECT_EQ(mirror[0], std::byte{0}) << "no line either";
  Arrive(1, 11);
  EXPECT_FALSE(reach_->Died());
  EXPECT_EQ(seen_, (std::vector<Seen>{{11, 0}}));
}

// ---- invalid numbers ----

TEST_F(ReachTest, ANumberThatWasUsedIsRefused) {
  Arrive(0, 10);
  EXPECT_FALSE(reach_->Died());
  Arrive(0, 20);
  EXPECT_TRUE(reach_->Died());
  EXPECT_EQ(reach_->Trouble(), "it sent what is no message");
  EXPECT_EQ(WordAt(0), 10u);
}

TEST_F(ReachTest, ANumberThatWaitsIsRefused) {
  Arrive(2, 12);
  Arrive(2, 22);
  EXPECT_TRUE(reach_->Died());
}

TEST_F(ReachTest, ANumberFarAheadIsRefused) {
  Arrive(remote::kMostAhead - 1, 12);
  EXPECT_FALSE(reach_->Died());
  Arrive(remote::kMostAhead, 13);
  EXPECT_TRUE(reach_->Died());
  Arrive(0, 10);
  EXPECT_EQ(WordAt(0), 0u) << "its messages are ignored from then on";
}

TEST_F(ReachTest, FlushesAreNumberedToo) {
  remote::WireControl flush{};
  flush.kind = remote::WireControl::kFlush;
  flush.turn = 1;
  Arrive(2, 12);
  {
    std::lock_guard lock(worker_->mutex());
    reach_->TakeControl(rail_, flush);
  }
  EXPECT_FALSE(reach_->Died());
  Arrive(0, 10);
  EXPECT_EQ(seen_, (std::vector<Seen>{{10, 0}, {12, 0}}));
  std::lock_guard lock(worker_->mutex());
  reach_->TakeControl(rail_, flush);
  EXPECT_TRUE(reach_->Died());
}

TEST(WireTurns, WrapAround) {
  uint64_t number = 0;
  const uint64_t next = 0x1fffffff0;
  EXPECT_TRUE(remote::MayCome(0xfffffff0, next, &number));
  EXPECT_EQ(number, next);
  EXPECT_TRUE(remote::MayCome(5, next, &number));
  EXPECT_EQ(number, 0x200000005u);
  EXPECT_FALSE(remote::MayCome(0xffffffef, next, &number));
  EXPECT_TRUE(remote::MayCome(static_cast<uint32_t>(next) + remote::kMostAhead - 1, next, &number));
  EXPECT_FALSE(remote::MayCome(static_cast<uint32_t>(next) + remote::kMostAhead, next, &number));
}

}  // namespace
}  // namespace axccl::ucx
