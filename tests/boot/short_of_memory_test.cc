// A kernel that is short of memory for a moment: send(2) fails with ENOBUFS ("The output queue for a network interface
// was full") or ENOMEM ("No memory available"), and no event shows when it would succeed. That costs time, but no frame
// is lost.
#include <errno.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "tests/boot/meeting.h"
#include "tests/harness/run_ranks.h"

namespace {

// Half of this process's sends fail with this error, in an order that does not match the pattern of retries; 0: none.
std::atomic<int> g_error{0};
std::atomic<uint32_t> g_calls{0};

}  // namespace

// Takes precedence over the C library's function.
extern "C" ssize_t send(int fd, const void* data, size_t bytes, int flags) {
  const int error = g_error.load(std::memory_order_relaxed);
  if (error != 0 && (g_calls.fetch_add(1, std::memory_order_relaxed) * 2654435761u >> 16) % 2 == 0) {
    errno = error;
    return -1;
  }
  return syscall(SYS_sendto, fd, data, bytes, flags, nullptr, 0);
}

namespace axccl::boot {
namespace {

class ShortOfMemoryTest : public testing::TestWithParam<int> {};

TEST_P(ShortOfMemoryTest, NoFrameIsLost) {
  harness::RunRanks(harness::Processes(4), [](harness::RankContext& context) {
    const UniqueId id = ShareId(context);
    g_error = GetParam();
    {
      const auto session = JoinWell(context, id);
      ASSERT_NE(session, nullptr);
      for (int round = 0; round < 5; ++round)
        ExpectExchange(session.get(), context.rank(), 4, 3000, static_cast<uint64_t>(round));
    }
    ASSERT_TRUE(context.Barrier(1));
    EXPECT_GT(g_calls.load(), 5u);
  });
}

INSTANTIATE_TEST_SUITE_P(Errors, ShortOfMemoryTest, testing::Values(ENOBUFS, ENOMEM),
                         [](const auto& info) { return info.param == ENOBUFS ? "ENOBUFS" : "ENOMEM"; });

}  // namespace
}  // namespace axccl::boot
