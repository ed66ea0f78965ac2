// The measurement between two ranks, over a network inside this process: it always ends, whatever happens to the peer.
#include "src/comm/net/probe.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "src/device/host/stream.h"
#include "tests/harness/run_ranks.h"

namespace axccl::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// One end of a wire: what it sends appears at once in the other's mirror, unless the wire is cut.
class Wire final : private transport::PeerProcess, public transport::Reach, public transport::Inbox {
 public:
  Wire() : Reach(this, nullptr) {
    pid_ = 4711;
    heap_ = reinterpret_cast<std::byte*>(&page_);
  }
  static void Join(Wire* a, Wire* b) {
    a->other_ = b;
    b->other_ = a;
  }
  void Die() { __atomic_store_n(reinterpret_cast<uint32_t*>(&page_.liveness), 0x40000000u, __ATOMIC_SEQ_CST); }
  void Cut() { cut_ = true; }
  // Stores a word as if the peer had sent it.
  void Receive(uint64_t word) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(mirror_.data()), word, __ATOMIC_SEQ_CST);
    device::host::Scheduler::Process().Notify();
  }

  const char* Name() const override { return "wire"; }
  transport::Inbox* inbox() const override { return const_cast<Wire*>(this); }
  Result<std::byte*> AddArea(uint64_t, std::byte* own, uint64_t, uint64_t bytes, std::shared_ptr<Area>*) override {
    own_ = own;
    mirror_.resize(bytes);
    return mirror_.data();
  }
  bool TryCalls(uint64_t, uint64_t) override { return true; }
  Status Read(void*, uint64_t, size_t) override { return MakeStatus(Code::kInternalError, "no calls"); }
  void Publish(const std::shared_ptr<Area>&, std::span<const Stretch> stretches, LineAt line) override {
    if (cut_) return;
    for (const Stretch& s : stretches) std::memcpy(other_->mirror_.data() + s.offset, own_ + s.offset, s.bytes);
    sent_bytes += stretches.empty() ? 0 : stretches[0].bytes;
    uint64_t word;
    std::memcpy(&word, own_ + line.offset, sizeof(word));
    other_->Receive(word);
  }
  void Progress() override {}
  void BeginPolling() override { ++polling; }
  void EndPolling(bool) override { --polling; }
  std::string Place() const override { return "pid 4711 on host elsewhere"; }
  std::string Trouble() const override { return "it is gone"; }

  std::atomic<uint64_t> sent_bytes{0};
  std::atomic<int> polling{0};

 private:
  transport::ProcessPage page_{};
  Wire* other_ = nullptr;
  std::byte* own_ = nullptr;
  std::vector<std::byte> mirror_;
  std::atomic<bool> cut_{false};
};

class NetworkProbeTest : public testing::Test {
 protected:
  void SetUp() override {
    for (auto& wire : wires_) wire = std::make_shared<Wire>();
    Wire::Join(wires_[0].get(), wires_[1].get());
    for (int i = 0; i < 2; ++i) {
      auto probe = NetworkProbe::Create({1 - i, wires_[i]}, &headers_[i]);
      ASSERT_TRUE(probe.ok()) << probe.status().message();
      probes_[i] = std::move(probe).value();
    }
  }
  static device::host::Queue* Queue(int i) { return device::host::Device::Get(i)->queue(); }
  NetworkProbe::Patience Patience(milliseconds limit = milliseconds(60000)) const {
    return {Clock::now() + limit, &abort_};
  }

  // The result of `side` (0 asks, 1 answers) when only this side runs, while `meanwhile` happens.
  Status Alone(int side, const std::function<void()>& meanwhile, milliseconds limit = milliseconds(60000)) {
    Status status;
    std::thread thread([&] {
      status = side == 0 ? probes_[0]->Measure(Queue(0), Patience(limit)).status()
                         : probes_[1]->Answer(Queue(1), Patience(limit));
    });
    meanwhile();
    thread.join();
    EXPECT_EQ(wires_[side]->polling, 0) << "the measurement must leave polling to the library's thread";
    return status;
  }

  // Declared first, because the probes use them until they are destroyed.
  std::shared_ptr<Wire> wires_[2];
  exec::BlockHeader headers_[2]{};
  std::unique_ptr<NetworkProbe> probes_[2];
  std::atomic<bool> abort_{false};
};

bool Has(const Status& status, const char* text) {
  return std::string(status.message()).find(text) != std::string::npos;
}

TEST_F(NetworkProbeTest, EndsWithFiguresOfTheWire) {
  Status answered;
  std::thread answerer([&] { answered = probes_[1]->Answer(Queue(1), Patience()); });
  const Result<cost::Network> network = probes_[0]->Measure(Queue(0), Patience());
  answerer.join();
  ASSERT_TRUE(network.ok()) << network.status().message();
  EXPECT_TRUE(answered.ok()) << answered.message();
  const auto plausible = cost::NetworkFromText(cost::ToText(cost::KeptNetwork{"wire", network.value()}));
  EXPECT_TRUE(plausible.ok()) << plausible.status().message();
  EXPECT_GE(wires_[0]->sent_bytes, 128u << 10);
  EXPECT_LE(wires_[0]->sent_bytes, 3 * ((1u << 20) + (128u << 10)))
      << "three transfers of 1 MiB, and a piece that was started";
  EXPECT_EQ(wires_[1]->sent_bytes, 0u);
  EXPECT_EQ(wires_[0]->polling, 0);
  EXPECT_EQ(wires_[1]->polling, 0);
  // After a successful end, giving up sends the peer nothing.
  wires_[1]->Receive(0);
  probes_[0]->GiveUp();
  EXPECT_EQ(Alone(
                1, [] {}, milliseconds(50))
                .code(),
            Code::kTimeout);
}

TEST_F(NetworkProbeTest, EndsWithTheDeathOfThePeer) {
  for (const int side : {0, 1}) {
    wires_[side]->Cut();
    const Status status = Alone(side, [&] { wires_[side]->Die(); });
    EXPECT_EQ(status.code(), Code::kRemoteError);
    EXPECT_TRUE(Has(status, side == 0 ? "rank 1 (pid 4711 on host elsewhere) was lost while" : "rank 0 (pid"))
        << status.message();
    EXPECT_TRUE(Has(status, "it is gone")) << status.message();
  }
}

TEST_F(NetworkProbeTest, EndsWhereThePeerGivesUp) {
  for (const int side : {0, 1}) {
    const Status status = Alone(side, [&] { probes_[1 - side]->GiveUp(); });
    EXPECT_EQ(status.code(), Code::kRemoteError);
    EXPECT_TRUE(Has(status, "gave up while the network was measured")) << status.message();
  }
}

TEST_F(NetworkProbeTest, EndsWithAnAbort) {
  for (const int side : {0, 1}) {
    abort_ = false;
    const Status status = Alone(side, [&] { abort_ = true; });
    EXPECT_EQ(status.code(), Code::kRemoteError);
    EXPECT_TRUE(Has(status, "aborted by the caller while the network was measured")) << status.message();
  }
}

TEST_F(NetworkProbeTest, EndsAtTheDeadline) {
  for (const int side : {0, 1}) {
    const Status status = Alone(
        side, [] {}, milliseconds(30));
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_TRUE(Has(status, "did not answer in time while the network was measured (AXCCL_INIT_TIMEOUT)"))
        << status.message();
  }
}

// Ignores answers to questions that were never asked, at any stage.
TEST_F(NetworkProbeTest, IgnoresImpossibleAnswers) {
  std::atomic<bool> over{false};
  std::thread liar([&] {
    for (uint64_t word = 1; !over; word = word * 6364136223846793005u + 1442695040888963407u) {
      if (word % 4 != 3) wires_[0]->Receive(word >> (word % 60) & ~uint64_t{3});
      std::this_thread::yield();
    }
  });
  const Status status = Alone(
      0, [] {}, milliseconds(100 * harness::TimeScale()));
  over = true;
  liar.join();
  EXPECT_TRUE(status.ok() || status.code() == Code::kTimeout) << status.message();
}

}  // namespace
}  // namespace axccl::comm
