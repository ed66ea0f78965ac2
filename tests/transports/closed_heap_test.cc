// The heap of a process that has closed all its descriptors, as a daemon does when it starts: the next file of the
// program has the number that the heap's had, and stays as it is.
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/harness/restrict.h"
#include "tests/harness/run_ranks.h"
#include "tests/transports/peer.h"
#include "transports/shm/attach.h"
#include "transports/shm/heap.h"

namespace axccl::shm {
namespace {

using harness::RankContext;

constexpr size_t kPart = size_t{4} << 20;

// The program's file, which is longer than anything that these tests allocate.
class ProgramFile {
 public:
  explicit ProgramFile(int number) : number_(number), content_(4 * kPart, 'x') {
    char name[] = "/tmp/axccl-test-XXXXXX";
    const int file = mkstemp(name);
    EXPECT_GE(file, 0) << errno;
    EXPECT_EQ(unlink(name), 0);
    EXPECT_EQ(write(file, content_.data(), content_.size()), static_cast<ssize_t>(content_.size()));
    EXPECT_EQ(dup2(file, number), number);
    if (file != number) close(file);
  }
  ~ProgramFile() {
    std::vector<char> now(content_.size() + 1);
    EXPECT_EQ(pread(number_, now.data(), now.size(), 0), static_cast<ssize_t>(content_.size()));
    EXPECT_TRUE(std::equal(content_.begin(), content_.end(), now.begin()));
  }

 private:
  const int number_;
  const std::vector<char> content_;
};

bool All(const void* p, char value) {
  const auto* const at = static_cast<const char*>(p);
  return std::all_of(at, at + kPart, [value](char byte) { return byte == value; });
}

// Memory of ones.
Result<void*> Filled(Heap* heap) {
  AXCCL_ASSIGN_OR_RETURN(void* const memory, heap->Allocate(kPart, 64));
  std::memset(memory, 1, kPart);
  return memory;
}

void ExpectLost(const Status& status) {
  EXPECT_EQ(status.code(), Code::kInvalidUsage);
  for (const char* words : {"shared heap: the program closed descriptor ", "closefrom", "close only what"})
    EXPECT_NE(status.message().find(words), std::string_view::npos) << status.message();
}

TEST(ClosedHeapTest, FreedMemoryIsZeroedElsewhere) {
  for (const bool refused : {false, true}) {
    harness::RunRanks(harness::Processes(1), [refused](RankContext&) {
      Result<Heap*> heap = Heap::Get();
      ASSERT_TRUE(heap.ok());
      const Result<void*> memory = Filled(heap.value());
      ASSERT_TRUE(memory.ok());
      closefrom(3);
      const ProgramFile file(heap.value()->fd());
      if (refused) {
        ASSERT_TRUE(harness::Refuse({{SYS_madvise, EINVAL}}));
      }
      ASSERT_TRUE(heap.value()->Free(memory.value()).ok());
      Result<void*> again = heap.value()->Allocate(kPart, 64);
      ASSERT_TRUE(again.ok());
      EXPECT_EQ(again.value(), memory.value());
      EXPECT_TRUE(All(again.value(), 0));
    });
  }
}

TEST(ClosedHeapTest, TakingMemoryBackIsAnError) {
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    Result<Heap*> heap = Heap::Get();
    ASSERT_TRUE(heap.ok());
    const Result<void*> memory = Filled(heap.value());
    ASSERT_TRUE(memory.ok());
    closefrom(3);
    const ProgramFile file(heap.value()->fd());
    ExpectLost(heap.value()->TakeBack(memory.value(), kPart));
    EXPECT_TRUE(All(memory.value(), 1));
  });
}

// In /dev/shm, memory is reserved by the descriptor, by fallocate or by writing.
TEST(ClosedHeapTest, WithoutMemfdAllocatingIsAnError) {
  for (const bool fallocate : {true, false}) {
    harness::RunRanks(harness::Processes(1), [fallocate](RankContext&) {
      ASSERT_TRUE(harness::Refuse({{SYS_memfd_create, EPERM}}));
      if (!fallocate) {
        ASSERT_TRUE(harness::Refuse({{SYS_fallocate, EOPNOTSUPP}}));
      }
      Result<Heap*> heap = Heap::Get();
      ASSERT_TRUE(heap.ok());
      if (heap.value()->file().kind() != transport::HeapKind::kTmpfs) GTEST_SKIP() << "/dev/shm cannot be used";
      closefrom(3);
      const ProgramFile file(heap.value()->fd());
      ExpectLost(heap.value()->Allocate(kPart, 64).status());
    });
  }
}

// The process still has the descriptors by which it answers peers.
TEST(ClosedHeapTest, PeersThatAttachAreToldWhy) {
  harness::RunRanks(harness::Processes(2), [](RankContext& context) {
    const Result<transport::ProcessAddress> own = SelfAddress();
    ASSERT_TRUE(own.ok());
    Publish(context, context.rank(), own.value());
    if (context.rank() == 0) {
      const ProgramFile file(Heap::Get().value()->fd());
      ASSERT_TRUE(context.Barrier());
      ASSERT_TRUE(context.Barrier());
    } else {
      ASSERT_TRUE(context.Barrier());
      const auto deadline = service::Clock::now() + std::chrono::seconds(30);
      const Status status = Attach(Published(context, 0), deadline, nullptr).status();
      EXPECT_NE(status.message().find("closed descriptor"), std::string_view::npos) << status.message();
      ASSERT_TRUE(context.Barrier());
    }
  });
}

}  // namespace
}  // namespace axccl::shm
