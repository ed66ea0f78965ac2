// What an initialisation leaves behind that failed on the way: nothing that peers still write to.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/harness/client.h"

namespace axccl::tests {
namespace {

using harness::Processes;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::ShareUniqueId;

size_t AddressSpace() {
  long pages = 0;
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%ld", &pages) != 1) pages = 0;
  if (file != nullptr) std::fclose(file);
  return static_cast<size_t>(pages) * 4096;
}

// Lets the process map no more than another 2 GiB.
class NarrowAddressSpace {
 public:
  NarrowAddressSpace() {
    getrlimit(RLIMIT_AS, &before_);
    const rlimit narrow{AddressSpace() + (size_t{2} << 30), before_.rlim_max};
    setrlimit(RLIMIT_AS, &narrow);
  }
  ~NarrowAddressSpace() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_;
};

// ncclMemAlloc promises zeroed memory that is the application's alone. Rank 0 cannot map rank 1's heap and gives up, while
// rank 1 has rank 0's memory mapped already and learns of the failure later.
TEST(FailedInit, LeavesPeersNothingToWriteTo) {
  constexpr size_t kBytes = size_t{5} << 20;
  RunRanks(Processes(2), [](RankContext& context) {
    setenv("AXCCL_HEAP_BYTES", context.rank() == 0 ? "64M" : "16G", 1);
    void* first = nullptr;  // the heap is made before the address space gets narrow
    ASSERT_OK(ncclMemAlloc(&first, 4096));
    ASSERT_OK(ncclMemFree(first));
    for (int round = 0; round < 30; ++round) {
      ncclUniqueId id;
      ASSERT_TRUE(context.Step("round %d", round));
      ASSERT_TRUE(ShareUniqueId(context, &id));
      ncclComm_t comm = nullptr;
      if (context.rank() == 0) {
        {
          const NarrowAddressSpace narrow;
          EXPECT_NE(ncclCommInitRank(&comm, 2, id, 0), ncclSuccess);
        }
        void* memory = nullptr;
        ASSERT_OK(ncclMemAlloc(&memory, kBytes));
        const auto* bytes = static_cast<const char*>(memory);
        std::memset(memory, 0x55, 1 << 16);  // at once: what the peer does comes within microseconds
        std::memset(memory, 0x55, kBytes);
        ASSERT_TRUE(context.Barrier());  // rank 1 has given up, too
        EXPECT_TRUE(std::all_of(bytes, bytes + kBytes, [](char byte) { return byte == 0x55; })) << "written to by a peer";
        ASSERT_OK(ncclMemFree(memory));
      } else {
        EXPECT_NE(ncclCommInitRank(&comm, 2, id, 1), ncclSuccess);
        ASSERT_TRUE(context.Barrier());
      }
      EXPECT_EQ(comm, nullptr);
    }
    // Nothing stands in the way of another try.
    if (context.rank() == 0) return;
    ncclUniqueId own;
    ncclComm_t alone = nullptr;
    ASSERT_OK(ncclGetUniqueId(&own));
    ASSERT_OK(ncclCommInitRank(&alone, 1, own, 0));
    EXPECT_OK(ncclCommDestroy(alone));
  }, RunOptions{});
}

}  // namespace
}  // namespace axccl::tests
