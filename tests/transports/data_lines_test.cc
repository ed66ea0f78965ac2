// Data lines between two processes, either of which may call.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/harness/process_ids.h"
#include "tests/transports/line_peer.h"

namespace axccl::remote {
namespace {

// What has been handed over.
class Taken {
 public:
  explicit Taken(Watched* lines) {
    EXPECT_TRUE((*lines)
                    ->TakeDataLines([this](const Lines::Key& key, Fd fd, const LineSession& session) {
                      std::lock_guard lock(mutex_);
                      EXPECT_EQ(key.use, LineUse::kData);
                      fds_.push_back(std::move(fd));
                      sends_.push_back(session.sends);
                    })
                    .ok());
  }
  std::array<uint8_t, 32> Await() {
    const auto limit = std::chrono::steady_clock::now() + kPatient;
    while (count() == 0 && std::chrono::steady_clock::now() < limit) usleep(1000);
    std::lock_guard lock(mutex_);
    EXPECT_EQ(sends_.size(), 1u);
    return sends_.empty() ? std::array<uint8_t, 32>{} : sends_[0];
  }
  size_t count() {
    std::lock_guard lock(mutex_);
    return fds_.size();
  }

 private:
  std::mutex mutex_;
  std::vector<Fd> fds_;
  std::vector<std::array<uint8_t, 32>> sends_;
};

// The process with the larger number has called as well, and gives that up.
TEST(DataLineTest, OfTwoCallsThatOfTheSmallerNumberCounts) {
  InAProcess([] {
    Watched lines(9);
    Taken taken(&lines);
    const Peer peer(1);
    Listener listener;
    const LineKeys calls = peer.identity.KeysWith(lines->public_key(), true).value();
    ASSERT_TRUE(lines->Meet({peer.process, 1, 0, listener.address(), peer.identity.public_key()}, true).ok());
    lines->CallForData(peer.process);
    const Fd first = listener.Accept();
    LineHello hello;
    ASSERT_TRUE(ReceiveFrom(first, &hello));
    EXPECT_EQ(hello.from, harness::ProcessId(9));
    const Fd line = ConnectTo(lines->address(0));
    Exchanged exchanged;
    ASSERT_TRUE(Call(peer, calls, line, &exchanged, harness::ProcessId(9), LineUse::kData));
    EXPECT_TRUE(Ended(first));
    EXPECT_EQ(taken.Await(), calls.Session(exchanged.hello, exchanged.of_called, true).receives);
    lines->CallForData(peer.process);  // there is one
    ASSERT_TRUE(lines->Settle(peer.process).ok());
    EXPECT_EQ(taken.count(), 1u);
    EXPECT_TRUE(lines.lost().empty());
  });
}

// The process with the smaller number refuses the other's call while it calls itself.
TEST(DataLineTest, OfTwoCallsThatOfTheLargerNumberIsRefused) {
  InAProcess([] {
    Watched lines(1);
    Taken taken(&lines);
    const Peer peer(9);
    Listener listener;
    const LineKeys called = peer.identity.KeysWith(lines->public_key(), false).value();
    const LineKeys calls = peer.identity.KeysWith(lines->public_key(), true).value();
    ASSERT_TRUE(lines->Meet({peer.process, 1, 0, listener.address(), peer.identity.public_key()}, true).ok());
    const Fd life = listener.Accept();
    lines->CallForData(peer.process);
    const Fd line = listener.Accept();
    const LineSession session = AnswerCall(called, line, LineUse::kData);
    const Fd refused = ConnectTo(lines->address(0));
    Exchanged exchanged;
    EXPECT_FALSE(Call(peer, calls, refused, &exchanged, harness::ProcessId(1), LineUse::kData));
    ASSERT_TRUE(SendTo(line, 'x'));
    EXPECT_EQ(taken.Await(), session.receives);
    EXPECT_TRUE(lines.lost().empty());
  });
}

// Either of the two calls, whatever its number; without a call there is none.
TEST(DataLineTest, TheLargerNumberMayCall) {
  InAProcess([] {
    Watched lines(1);
    Taken taken(&lines);
    const Peer peer(9);
    Listener listener;
    const LineKeys calls = peer.identity.KeysWith(lines->public_key(), true).value();
    ASSERT_TRUE(lines->Meet({peer.process, 1, 0, listener.address(), peer.identity.public_key()}, true).ok());
    const Fd life = listener.Accept();
    LineHello hello;
    ASSERT_TRUE(ReceiveFrom(life, &hello));
    EXPECT_EQ(hello.use, LineUse::kLife);
    EXPECT_EQ(taken.count(), 0u);
    const Fd line = ConnectTo(lines->address(0));
    Exchanged exchanged;
    ASSERT_TRUE(Call(peer, calls, line, &exchanged, harness::ProcessId(1), LineUse::kData));
    EXPECT_EQ(taken.Await(), calls.Session(exchanged.hello, exchanged.of_called, true).receives);
  });
}

// It tells the caller that there is nothing to be had, like a lifeline.
TEST(DataLineTest, APeerThatIsGoneWhenItIsCalledIsLost) {
  InAProcess([] {
    Watched lines(9);
    const Peer peer(1);
    sockaddr_storage nowhere;
    {
      const Listener gone;
      nowhere = gone.address();
    }
    ASSERT_TRUE(lines->Meet({peer.process, 1, 0, nowhere, peer.identity.public_key()}, true).ok());
    lines->CallForData(peer.process);
    EXPECT_NE(lines.AwaitLoss().find("nothing listens at its address"), std::string::npos) << lines.AwaitLoss();
  });
}

}  // namespace
}  // namespace axccl::remote
