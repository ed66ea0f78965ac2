// Copies by system call between processes.
#include <errno.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/harness/restrict.h"
#include "tests/harness/run_ranks.h"
#include "tests/transports/peer.h"
#include "transports/shm/attach.h"

namespace axccl::shm {
namespace {

using harness::RankContext;

constexpr size_t kBytes = (size_t{9} << 20) + 13;

TEST(CallCopyTest, ReadsPlainMemoryOfAnotherProcess) {
  harness::RunRanks(harness::Processes(2), [](RankContext& context) {
    std::vector<uint8_t> memory(kBytes, static_cast<uint8_t>(context.rank() + 1));
    uint64_t probe = 0x1234567890abcdefull + static_cast<uint64_t>(context.rank());
    context.Set(3 * context.rank(), static_cast<uint64_t>(getpid()));
    context.Set(3 * context.rank() + 1, reinterpret_cast<uint64_t>(memory.data()));
    context.Set(3 * context.rank() + 2, reinterpret_cast<uint64_t>(&probe));
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 0) {
      const uint32_t pid = static_cast<uint32_t>(context.Get(3));
      const uint64_t remote = context.Get(4);
      ASSERT_TRUE(CanCallCopy(pid, context.Get(5), 0x1234567890abcdf0ull));
      EXPECT_FALSE(CanCallCopy(pid, context.Get(5), 0x1234567890abcdefull)) << "the memory holds another word";
      EXPECT_FALSE(CanCallCopy(pid, 8, 0)) << "nothing is mapped there";
      ASSERT_TRUE(CallRead(pid, memory.data(), remote, kBytes).ok());
      EXPECT_EQ(std::count(memory.begin(), memory.end(), 2), static_cast<ptrdiff_t>(kBytes));
      EXPECT_TRUE(CallRead(pid, nullptr, remote, 0).ok());
      const Status bad = CallRead(pid, memory.data(), 8, 8);
      EXPECT_EQ(bad.code(), Code::kSystemError);
      EXPECT_NE(bad.message().find(std::to_string(pid)), std::string_view::npos) << bad.message();
    }
    ASSERT_TRUE(context.Barrier());
  });
}

// A filter may forbid one direction but not the other; only reads are needed.
TEST(CallCopyTest, ReadsOrWritesMayBeForbidden) {
  for (const int call : {0, SYS_process_vm_readv, SYS_process_vm_writev}) {
    harness::RunRanks(harness::Processes(2), [call](RankContext& context) {
      uint64_t probe = 0x1234567890abcdefull;
      context.Set(2 * context.rank(), static_cast<uint64_t>(getpid()));
      context.Set(2 * context.rank() + 1, reinterpret_cast<uint64_t>(&probe));
      ASSERT_TRUE(context.Barrier());
      if (context.rank() == 0) {
        if (call != 0) {
          ASSERT_TRUE(harness::Refuse({{call, EPERM}}));
        }
        EXPECT_EQ(CanCallCopy(static_cast<uint32_t>(context.Get(2)), context.Get(3), 0x1234567890abcdefull),
                  call != SYS_process_vm_readv);
      }
      ASSERT_TRUE(context.Barrier());
      EXPECT_EQ(probe, 0x1234567890abcdefull);
    });
  }
}

TEST(CallCopyTest, APartialCopyIsAnErrorThatNamesItsLength) {
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void* const memory = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    ASSERT_EQ(mprotect(static_cast<char*>(memory) + page, page, PROT_NONE), 0);
    std::vector<uint8_t> local(2 * page);
    const Status status =
        CallRead(static_cast<uint32_t>(getpid()), local.data(), reinterpret_cast<uint64_t>(memory), 2 * page);
    EXPECT_EQ(status.code(), Code::kSystemError);
    EXPECT_NE(status.message().find(std::to_string(page) + " done"), std::string_view::npos) << status.message();
    munmap(memory, 2 * page);
  });
}

// When a process has become one that may not be read, or has memory that no other process may read.
TEST(CallCopyTest, ARefusalNamesTheRemedy) {
  for (const int error : {EPERM, EFAULT}) {
    harness::RunRanks(harness::Processes(1), [error](RankContext&) {
      ASSERT_TRUE(harness::Refuse({{SYS_process_vm_readv, error}}));
      uint64_t word = 0;
      const Status status = CallRead(static_cast<uint32_t>(getpid()), &word, reinterpret_cast<uint64_t>(&word), 8);
      EXPECT_EQ(status.code(), Code::kSystemError);
      EXPECT_NE(status.message().find("AXCCL_CMA=0"), std::string_view::npos) << status.message();
      EXPECT_EQ(status.message().find("still allocated") != std::string_view::npos, error == EFAULT);
    });
  }
}

TEST(CallCopyTest, DeadProcessIsARemoteError) {
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    ASSERT_EQ(AwaitChild(child), 0);
    uint64_t word = 0;
    EXPECT_EQ(CallRead(static_cast<uint32_t>(child), &word, reinterpret_cast<uint64_t>(&word), 8).code(),
              Code::kRemoteError);
    EXPECT_FALSE(CanCallCopy(static_cast<uint32_t>(child), reinterpret_cast<uint64_t>(&word), 0));
  });
}

}  // namespace
}  // namespace axccl::shm
