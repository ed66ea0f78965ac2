// What kernels post into the ring is sent: slots with the line behind them, each as it was when it was posted.
#include "src/exec/cuda/proxy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/exec/ensemble.h"

namespace axccl::exec {
namespace {

using kernels::cuda::ProxyRing;
using transport::Reach;
using DeviceLine = kernels::cuda::Line;

struct Sent {
  std::vector<Reach::Stretch> stretches;
  uint64_t line;
  uint64_t value = 0;
};

class FakeFar : public Reach {
 public:
  FakeFar(transport::PeerProcess* process, std::byte* block) : Reach(process, block) {}
  const char* Name() const override { return "fake"; }
  bool TryCalls(uint64_t, uint64_t) override { return false; }
  Status Read(void*, uint64_t, size_t) override { return MakeStatus(Code::kInternalError, "no calls"); }
  void Publish(const std::shared_ptr<Area>&, std::span<const Stretch> stretches, LineAt line) override {
    Sent& message = sent.emplace_back(Sent{{stretches.begin(), stretches.end()}, line.offset});
    if (line.content != nullptr) message.value = static_cast<const DeviceLine*>(line.content)->value;
  }
  std::vector<Sent> sent;
};

EnsembleOptions OnTwoMachines() {
  EnsembleOptions options;
  options.layout = Layout::kRemote;
  return options;
}

class CudaProxyTest : public testing::Test {
 protected:
  static constexpr uint32_t kFar = 1;  // the rank on another machine; rank 0 is this one
  static constexpr uint64_t kCleared = 1 << 20;

  void Post(ProxyRing::Entry entry) {
    ASSERT_LT(posted_ - ring_->taken, ProxyRing::kEntries) << "a kernel would wait";
    entry.rank = kFar;
    entry.number = posted_ + 1;
    ring_->entries[posted_++ % ProxyRing::kEntries] = entry;
  }
  void PostSlot(uint64_t offset, uint32_t bytes, bool of_member = false, bool on_device = false) {
    ProxyRing::Entry entry;
    entry.offset = offset, entry.bytes = bytes, entry.of_member = of_member, entry.on_device = on_device;
    Post(entry);
  }
  // `sequence`: of the call, from 1.
  void PostLine(uint64_t offset, uint64_t value, uint64_t sequence = 1) {
    ProxyRing::Entry entry;
    entry.offset = offset, entry.value = value, entry.channel = channel_, entry.position = kFar;
    entry.call = sequence << 32;
    Post(entry);
  }

  FakeProcess process_{7, 1 << 16, 4096};
  std::vector<std::byte> block_ = std::vector<std::byte>(4096);
  FakeFar far_{process_.peer(), block_.data()};
  const std::unique_ptr<ProxyRing> ring_ = std::make_unique<ProxyRing>();
  uint32_t posted_ = 0;
  uint64_t kept_ = 0;
  Ensemble ensemble_{OnTwoMachines()};
  CudaProxy proxy_{ring_.get(), {{}, {&far_, nullptr}}, kCleared};
  const uint32_t channel_ = proxy_.AddChannel(ensemble_.channel(0));
};

TEST_F(CudaProxyTest, SlotsGoWithTheLineBehindThem) {
  PostSlot(0, 100);
  PostSlot(128, 64);  // a slot is whole lines, so this one follows
  PostSlot(1024, 8);
  PostSlot(1088, 8, true);
  EXPECT_TRUE(proxy_.SendPosted());
  EXPECT_TRUE(far_.sent.empty()) << "nothing says yet that they are there";
  PostLine(2048, 5);
  EXPECT_TRUE(proxy_.SendPosted());
  EXPECT_FALSE(proxy_.SendPosted());
  ASSERT_EQ(far_.sent.size(), 1u);
  const std::vector<Reach::Stretch>& stretches = far_.sent[0].stretches;
  ASSERT_EQ(stretches.size(), 3u);
  EXPECT_EQ(stretches[0].offset, 0u);
  EXPECT_EQ(stretches[0].bytes, 192u);
  EXPECT_EQ(stretches[1].offset, 1024u);
  EXPECT_FALSE(stretches[1].of_peer);
  EXPECT_EQ(stretches[2].offset, 1088u);
  EXPECT_TRUE(stretches[2].of_peer);
  EXPECT_EQ(far_.sent[0].line, 2048u);
}

TEST_F(CudaProxyTest, SlotsOnTheDeviceAreOthersThanThoseBesideThem) {
  PostSlot(0, 64);
  PostSlot(64, 64, false, true);
  PostSlot(128, 64, false, true);
  PostSlot(192, 64);
  PostLine(2048, 5);
  EXPECT_TRUE(proxy_.SendPosted());
  ASSERT_EQ(far_.sent.size(), 1u);
  const std::vector<Reach::Stretch>& stretches = far_.sent[0].stretches;
  ASSERT_EQ(stretches.size(), 3u);
  EXPECT_FALSE(stretches[0].on_device);
  EXPECT_TRUE(stretches[1].on_device);
  EXPECT_EQ(stretches[1].offset, 64u);
  EXPECT_EQ(stretches[1].bytes, 128u);
  EXPECT_FALSE(stretches[2].on_device);
  EXPECT_EQ(proxy_.sent_from_device(), 2u);
}

// The kernel may have signalled again, and written the slots that belong to that.
TEST_F(CudaProxyTest, ALineGoesAsItWasSignalled) {
  PostLine(64, 1);
  PostLine(64, 2);
  EXPECT_TRUE(proxy_.SendPosted());
  ASSERT_EQ(far_.sent.size(), 2u);
  EXPECT_EQ(far_.sent[0].value, 1u);
  EXPECT_EQ(far_.sent[1].value, 2u);
}

TEST_F(CudaProxyTest, ThePlacesOfWhatWasSentAreFree) {
  for (uint32_t i = 0; i < 5 * ProxyRing::kEntries; ++i) {
    PostLine(64, i);
    if (i % 7 == 0) (void)proxy_.SendPosted();
  }
  (void)proxy_.SendPosted();
  EXPECT_EQ(ring_->taken, posted_);
  ASSERT_EQ(far_.sent.size(), 5u * ProxyRing::kEntries);
  for (uint32_t i = 0; i < far_.sent.size(); ++i) ASSERT_EQ(far_.sent[i].value, i);
}

TEST_F(CudaProxyTest, AnyNumberOfSlotsGoes) {
  size_t slots = 0;
  for (int i = 0; i < 40; ++i) PostSlot(static_cast<uint64_t>(i) * 1024, 64);
  PostLine(64, 9);
  (void)proxy_.SendPosted();
  for (const Sent& sent : far_.sent) slots += sent.stretches.size();
  EXPECT_EQ(slots, 40u);
  EXPECT_EQ(far_.sent.back().line, 64u);
  for (size_t i = 0; i + 1 < far_.sent.size(); ++i) EXPECT_EQ(far_.sent[i].line, Reach::kNoLine);
}

TEST_F(CudaProxyTest, LinesThatWereSentAreCleared) {
  PostLine(64, 1);               // cannot be cleared
  PostLine(kCleared, 2);         // of another area
  PostLine(kCleared + 4096, 3);  // to be cleared
  PostLine(kCleared + 4160, 4);  // likewise, and not sent yet
  proxy_.ClearLines(kCleared + 4096, kCleared + 8192);
  ASSERT_EQ(far_.sent.size(), 6u);
  EXPECT_EQ(far_.sent[4].line, kCleared + 4096);
  EXPECT_EQ(far_.sent[5].line, kCleared + 4160);
  EXPECT_EQ(far_.sent[4].value + far_.sent[5].value, 0u);
  proxy_.ClearLines(kCleared + 4096, kCleared + 8192);
  EXPECT_EQ(far_.sent.size(), 6u) << "nothing has been sent since";
}

// Of each call that the host knows: graphs have none, and the host forgets those long past.
TEST_F(CudaProxyTest, TheRecordOfACallGoesWithItsFirstLine) {
  Call call;
  call.kind = plan::Kind::kAllReduce;
  call.count = 5;
  ensemble_.channel(0)->log().Record(call);
  ensemble_.channel(0)->log().Record(call);
  const auto kept = [&] {
    (void)proxy_.SendPosted();
    const uint64_t before = kept_;
    kept_ = ensemble_.post().kept();
    (void)ensemble_.channel(0)->member(kFar).reach->PublishKept();
    return kept_ - before;
  };
  PostLine(64, 1, 1);
  EXPECT_EQ(kept(), 1u);
  PostLine(64, 2, 1);
  EXPECT_EQ(kept(), 0u) << "it has gone";
  PostLine(64, 3, 2);
  EXPECT_EQ(kept(), 1u);
  PostLine(64, 4, 3);
  EXPECT_EQ(kept(), 0u) << "of a graph";
}

}  // namespace
}  // namespace axccl::exec
