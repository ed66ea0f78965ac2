// An initialisation that failed half way leaves nothing behind that peers still write to.
#include <dlfcn.h>
#include <errno.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "tests/harness/client.h"

namespace axccl::tests {

// If set, no more memory of other processes can be mapped here.
std::atomic<bool> g_full{false};

namespace {

using harness::Processes;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::ShareUniqueId;

// ncclMemAlloc promises zeroed memory that is the application's alone. Rank 0 cannot map rank 1's heap and gives up,
// while rank 1 has rank 0's memory mapped already and learns of the failure later.
TEST(FailedInit, LeavesPeersNothingToWriteTo) {
  constexpr size_t kBytes = size_t{5} << 20;
  RunRanks(
      Processes(2),
      [](RankContext& context) {
        void* first = nullptr;  // creates the rank's own heap
        ASSERT_OK(ncclMemAlloc(&first, 4096));
        ASSERT_OK(ncclMemFree(first));
        for (int round = 0; round < 30; ++round) {
          ncclUniqueId id;
          ASSERT_TRUE(context.Step("round %d", round));
          ASSERT_TRUE(ShareUniqueId(context, &id));
          ncclComm_t comm = nullptr;
          if (context.rank() == 0) {
            g_full = true;
            EXPECT_NE(ncclCommInitRank(&comm, 2, id, 0), ncclSuccess);
            g_full = false;
            void* memory = nullptr;
            ASSERT_OK(ncclMemAlloc(&memory, kBytes));
            const auto* bytes = static_cast<const char*>(memory);
            std::memset(memory, 0x55, 1 << 16);  // at once, because the peer writes within microseconds
            std::memset(memory, 0x55, kBytes);
            ASSERT_TRUE(context.Barrier());  // rank 1 has failed, too
            EXPECT_TRUE(std::all_of(bytes, bytes + kBytes, [](char byte) { return byte == 0x55; }))
                << "written to by a peer";
            ASSERT_OK(ncclMemFree(memory));
          } else {
            EXPECT_NE(ncclCommInitRank(&comm, 2, id, 1), ncclSuccess);
            ASSERT_TRUE(context.Barrier());
          }
          EXPECT_EQ(comm, nullptr);
        }
        // Nothing prevents another attempt.
        if (context.rank() == 0) return;
        ncclUniqueId own;
        ncclComm_t alone = nullptr;
        ASSERT_OK(ncclGetUniqueId(&own));
        ASSERT_OK(ncclCommInitRank(&alone, 1, own, 0));
        EXPECT_OK(ncclCommDestroy(alone));
      },
      RunOptions{});
}

}  // namespace
}  // namespace axccl::tests

// Takes precedence over the C library's function.
extern "C" [[gnu::visibility("default")]] void* mmap(void* address, size_t bytes, int protection, int flags, int fd,
                                                     off_t offset) noexcept {
  using Mmap = void* (*)(void*, size_t, int, int, int, off_t);
  static const auto system = reinterpret_cast<Mmap>(dlsym(RTLD_NEXT, "mmap"));
  if (axccl::tests::g_full && fd >= 0 && (flags & MAP_SHARED) != 0) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return system(address, bytes, protection, flags, fd, offset);
}
extern "C" [[gnu::visibility("default")]] void* mmap64(void* address, size_t bytes, int protection, int flags, int fd,
                                                       off64_t offset) noexcept {
  return mmap(address, bytes, protection, flags, fd, offset);
}
