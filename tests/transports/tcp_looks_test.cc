// Which connections a look for messages asks, counted by its system calls.
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <map>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/transports/tcp_node.h"

namespace {

// Of the thread that counts.
thread_local bool counting = false;
thread_local std::map<int, int> receives;  // by descriptor
thread_local int asked_all = 0;

}  // namespace

// In place of those of the C library (--wrap).
extern "C" {
ssize_t __real_recv(int fd, void* buffer, size_t bytes, int flags);
ssize_t __wrap_recv(int fd, void* buffer, size_t bytes, int flags) {
  if (counting) ++receives[fd];
  return __real_recv(fd, buffer, bytes, flags);
}
int __real_epoll_wait(int epoll, epoll_event* events, int most, int timeout);
int __wrap_epoll_wait(int epoll, epoll_event* events, int most, int timeout) {
  if (counting) ++asked_all;
  return __real_epoll_wait(epoll, events, most, timeout);
}
}

namespace axccl::tcp {
namespace {

using harness::RankContext;
using test::Node;
using test::Pair;

constexpr int kPeers = 3;
// So many looks after the last message, a connection is quiet (worker.cc), and every so many looks ask for those.
constexpr int kUntilQuiet = 256, kLooksAtQuiet = 8;

// What the looks of this thread ask until it is over.
struct Counted {
  Counted() {
    receives.clear();
    asked_all = 0;
    counting = true;
  }
  ~Counted() { counting = false; }
  int received() const {
    return std::accumulate(receives.begin(), receives.end(), 0,
                           [](int sum, const auto& entry) { return sum + entry.second; });
  }
};

TEST(LooksTest, AskOnlyConnectionsThatAreNotQuiet) {
  harness::RunRanks(harness::Processes(1 + kPeers), [](RankContext& context) {
    Node node(&context);
    std::vector<Pair> pairs(context.rank() == 0 ? kPeers : 1);
    for (size_t i = 0; i < pairs.size(); ++i) {
      const int peer = context.rank() == 0 ? static_cast<int>(i) + 1 : 0;
      node.Connect(&pairs[i], 1, peer, static_cast<uint64_t>(peer), true);
    }
    ASSERT_TRUE(context.Barrier());
    transport::Inbox* const inbox = pairs[0].reach->inbox();
    const auto say = [&](Pair* pair, uint64_t value) {
      pair->Say(value);
      pair->reach->Publish(nullptr, {}, 0);
    };
    const auto look = [&](int times) {
      for (int i = 0; i < times; ++i) inbox->Progress();
    };
    const auto hear = [&](const Pair& pair, uint64_t value) {
      while (pair.Heard() < value && !context.AnyFailed()) {
        look(1);
        std::this_thread::yield();
      }
    };
    constexpr int kLooks = 8000;
    constexpr uint64_t kOften = 500;
    inbox->BeginPolling();
    if (context.rank() != 0) {
      say(&pairs[0], 1);
      hear(pairs[0], 1);
      for (uint64_t value = 2; context.rank() == 1 && value <= kOften; ++value) {
        hear(pairs[0], value);
        say(&pairs[0], value);
      }
      ASSERT_TRUE(context.Barrier());
      if (context.rank() == kPeers) say(&pairs[0], kOften);
    } else {
      for (Pair& pair : pairs) hear(pair, 1);
      look(kUntilQuiet + kLooksAtQuiet);
      {
        const Counted all_quiet;
        look(kLooks);
        EXPECT_EQ(all_quiet.received(), 0);
        EXPECT_LE(asked_all, kLooks / kLooksAtQuiet);
        EXPECT_GT(asked_all, 0);
      }
      for (Pair& pair : pairs) say(&pair, 1);
      {
        const Counted one_talks;
        for (uint64_t value = 2; value <= kOften; ++value) {
          say(&pairs[0], value);
          hear(pairs[0], value);
        }
        EXPECT_EQ(receives.size(), 1u);
        EXPECT_GE(one_talks.received(), static_cast<int>(kOften) - 1);
      }
      ASSERT_TRUE(context.Barrier());
      hear(pairs[kPeers - 1], kOften);  // which was quiet
    }
    inbox->EndPolling(false);
    ASSERT_TRUE(context.Barrier());
    for (const Pair& pair : pairs) pair.reach->Detach();
  });
}

}  // namespace
}  // namespace axccl::tcp
