// A process that temporarily cannot hand out its heap reports so: it does not count as dead, and the next attempt
// succeeds.
#include <errno.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>

#include "tests/harness/run_ranks.h"
#include "tests/transports/peer.h"
#include "transports/shm/attach.h"

namespace {

std::atomic<bool> g_no_sendmsg{false}, g_no_epoll{false};

}  // namespace

// These have precedence over the C library's.
extern "C" ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  if (!g_no_sendmsg) return syscall(SYS_sendmsg, fd, message, flags);
  errno = ETOOMANYREFS;  // unix(7): too many descriptors in flight
  return -1;
}

extern "C" int epoll_ctl(int epfd, int op, int fd, epoll_event* event) noexcept {
  if (!g_no_epoll || op != EPOLL_CTL_ADD) return static_cast<int>(syscall(SYS_epoll_ctl, epfd, op, fd, event));
  errno = ENOSPC;  // epoll(7): /proc/sys/fs/epoll/max_user_watches
  return -1;
}

namespace axccl::shm {
namespace {

using harness::RankContext;

void ExpectReported(std::atomic<bool>* trouble, const std::string& reason) {
  harness::RunRanks(harness::Processes(2), [&](RankContext& context) {
    const auto own = SelfAddress();
    ASSERT_TRUE(own.ok()) << own.status().message();
    Publish(context, context.rank(), own.value());
    if (context.rank() == 0) *trouble = true;
    ASSERT_TRUE(context.Barrier(1));
    const auto limit = Clock::now() + std::chrono::seconds(10) * harness::TimeScale();
    if (context.rank() == 1) {
      const Status status = Attach(Published(context, 0), limit, nullptr).status();
      EXPECT_EQ(status.code(), Code::kRemoteError);
      const std::string text(status.message());
      EXPECT_NE(text.find("it lives, but could not hand out its memory: "), std::string::npos) << text;
      EXPECT_NE(text.find(reason), std::string::npos) << text;
    }
    ASSERT_TRUE(context.Barrier(2));
    *trouble = false;
    ASSERT_TRUE(context.Barrier(3));
    if (context.rank() == 1) {
      EXPECT_TRUE(Attach(Published(context, 0), limit, nullptr).ok());
    }
    ASSERT_TRUE(context.Barrier(4));
  });
}

TEST(HandoverTroubleTest, FailureToSendTheDescriptorIsReported) {
  ExpectReported(&g_no_sendmsg, "sendmsg: Too many references");
}
TEST(HandoverTroubleTest, FailureToWaitForTheRequestIsReported) { ExpectReported(&g_no_epoll, "epoll_ctl(add"); }

}  // namespace
}  // namespace axccl::shm
