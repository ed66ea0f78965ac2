// The heap of a process. Every test runs in processes of its own (see run_ranks.h), because a process has only one.
#include "transports/shm/heap.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/harness/failing_new.h"
#include "tests/harness/random.h"
#include "tests/harness/restrict.h"
#include "tests/harness/run_ranks.h"

namespace axccl::shm {
namespace {

using harness::RankContext;

constexpr size_t kKiB = 1024, kMiB = kKiB * kKiB;

bool AllBytes(const void* p, size_t bytes, uint8_t value) {
  const auto* at = static_cast<const uint8_t*>(p);
  return std::all_of(at, at + bytes, [value](uint8_t byte) { return byte == value; });
}

uint64_t FileBytes(const Heap& heap) {
  struct stat info {};
  fstat(heap.fd(), &info);
  return static_cast<uint64_t>(info.st_blocks) * 512;
}

int Descriptors() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return static_cast<int>(std::distance(begin(entries), end(entries)));
}

// Whether the mapping at that address asks for huge pages; the line of a mapping's flags in smaps is after its range.
bool AsksForHugePages(const void* p) {
  std::ifstream smaps("/proc/self/smaps");
  const auto address = reinterpret_cast<uintptr_t>(p);
  bool here = false;
  for (std::string line; std::getline(smaps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) here = begin <= address && address < end;
    if (here && line.starts_with("VmFlags:")) return (line + " ").find(" hg ") != std::string::npos;
  }
  return false;
}

#define ASSERT_HEAP(name)                                              \
  Result<Heap*> name##_result = Heap::Get();                           \
  ASSERT_TRUE(name##_result.ok()) << name##_result.status().message(); \
  Heap* const name = name##_result.value()

TEST(HeapTest, RandomAllocationsAreZeroedDisjointAndKnown) {
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    ASSERT_HEAP(heap);
    harness::Random random(harness::Seed());
    struct Block {
      uint8_t* p;
      size_t bytes;
      uint8_t mark;
    };
    std::vector<Block> blocks;
    uint64_t allocated = 0;
    for (int step = 0; step < 2000; ++step) {
      if (blocks.size() > 60 || (!blocks.empty() && random.OneIn(3))) {
        std::swap(blocks[random.Below(blocks.size())], blocks.back());
        const Block block = blocks.back();
        blocks.pop_back();
        ASSERT_TRUE(AllBytes(block.p, block.bytes, block.mark)) << "step " << step;
        ASSERT_TRUE(heap->Free(block.p).ok());
        uint64_t offset;
        ASSERT_FALSE(heap->Contains(block.p, 1, &offset));
        allocated -= (block.bytes + 4095) / 4096 * 4096;
      } else {
        const size_t bytes = random.OneIn(20) ? 2 * kMiB + random.Below(kMiB) : 1 + random.Below(40000);
        const size_t alignment = size_t{1} << random.Below(22);
        Result<void*> p = heap->Allocate(bytes, alignment);
        ASSERT_TRUE(p.ok()) << p.status().message();
        const uintptr_t address = reinterpret_cast<uintptr_t>(p.value());
        ASSERT_EQ(address % std::max<size_t>(alignment, 64), 0u);
        ASSERT_TRUE(bytes < 2 * kMiB || address % (2 * kMiB) == 0);
        ASSERT_TRUE(AllBytes(p.value(), bytes, 0)) << "step " << step;
        uint64_t offset = 0;
        ASSERT_TRUE(heap->Contains(p.value(), bytes, &offset));
        ASSERT_EQ(heap->base() + offset, p.value());
        const uint8_t mark = static_cast<uint8_t>(1 + random.Below(255));
        std::memset(p.value(), mark, bytes);
        blocks.push_back({static_cast<uint8_t*>(p.value()), bytes, mark});
        allocated += (bytes + 4095) / 4096 * 4096;
      }
      ASSERT_EQ(heap->allocated_bytes(), allocated);
    }
  });
}

TEST(HeapTest, FreedMemoryGoesBackToTheSystem) {
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    ASSERT_HEAP(heap);
    const uint64_t before = FileBytes(*heap);
    EXPECT_LE(before, 64 * kKiB);
    Result<void*> p = heap->Allocate(64 * kMiB, 64);
    ASSERT_TRUE(p.ok());
    EXPECT_EQ(FileBytes(*heap), before) << "memory is not touched by allocating it";
    std::memset(p.value(), 1, 64 * kMiB);
    EXPECT_GE(FileBytes(*heap), 64 * kMiB);
    ASSERT_TRUE(heap->Free(p.value()).ok());
    EXPECT_EQ(FileBytes(*heap), before);
  });
}

// Only memory that asked for them has huge pages, only within its own bounds, and only while it lives.
TEST(HeapTest, HugePagesAreForThoseWhoAsk) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) GTEST_SKIP() << "the kernel has none";
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    ASSERT_HEAP(heap);
    const auto allocate = [&](size_t bytes, Heap::Pages pages) {
      Result<void*> p = heap->Allocate(bytes, kKiB, pages);
      return p.ok() ? static_cast<std::byte*>(p.value()) : nullptr;
    };
    std::byte* const small = allocate(8 * kMiB, Heap::Pages::kSmall);
    std::byte* const few = allocate(kMiB, Heap::Pages::kHuge);
    std::byte* const huge = allocate(5 * kMiB, Heap::Pages::kHuge);
    ASSERT_TRUE(small != nullptr && few != nullptr && huge != nullptr);
    EXPECT_FALSE(AsksForHugePages(small));
    EXPECT_FALSE(AsksForHugePages(few));
    EXPECT_TRUE(AsksForHugePages(huge));
    EXPECT_TRUE(AsksForHugePages(huge + 4 * kMiB - 1));
    EXPECT_FALSE(AsksForHugePages(huge + 4 * kMiB));
    ASSERT_TRUE(heap->Free(huge).ok());
    EXPECT_FALSE(AsksForHugePages(huge));
    const uint64_t before = FileBytes(*heap);
    std::byte* const next = allocate(5 * kMiB, Heap::Pages::kSmall);
    ASSERT_EQ(next, huge);
    *next = std::byte{1};
    EXPECT_LE(FileBytes(*heap), before + 4 * kKiB);
  });
}

TEST(HeapTest, ContainsKnowsTheEdges) {
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    ASSERT_HEAP(heap);
    Result<void*> result = heap->Allocate(80 * 4096, 4096);
    ASSERT_TRUE(result.ok());
    auto* const p = static_cast<std::byte*>(result.value());
    uint64_t offset = 0;
    EXPECT_TRUE(heap->Contains(p, 80 * 4096, &offset));
    EXPECT_TRUE(heap->Contains(p + 80 * 4096 - 1, 1, &offset));
    EXPECT_EQ(offset, static_cast<uint64_t>(p - heap->base()) + 80 * 4096 - 1);
    EXPECT_FALSE(heap->Contains(p, 80 * 4096 + 1, &offset));
    EXPECT_FALSE(heap->Contains(p - 1, 2, &offset));
    EXPECT_FALSE(heap->Contains(heap->base(), 4096, &offset)) << "the process page is no allocation";
    EXPECT_FALSE(heap->Contains(heap->base() + heap->bytes(), 1, &offset));
    EXPECT_FALSE(heap->Contains(p, SIZE_MAX, &offset));
    EXPECT_FALSE(heap->Contains(nullptr, 1, &offset));
    int local = 0;
    EXPECT_FALSE(heap->Contains(&local, sizeof local, &offset));
    Result<void*> next = heap->Allocate(4096, 4096);
    ASSERT_TRUE(next.ok());
    ASSERT_EQ(next.value(), p + 80 * 4096);
    EXPECT_TRUE(heap->Contains(p + 4096, 80 * 4096, &offset)) << "two neighbours";
    ASSERT_TRUE(heap->Free(p).ok());
    EXPECT_FALSE(heap->Contains(p + 4096, 80 * 4096, &offset));
  });
}

TEST(HeapTest, RefusesWhatItDidNotAllocate) {
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    ASSERT_HEAP(heap);
    Result<void*> p = heap->Allocate(10000, 64);
    ASSERT_TRUE(p.ok());
    int local = 0;
    EXPECT_EQ(heap->Free(&local).code(), Code::kInvalidArgument);
    EXPECT_EQ(heap->Free(nullptr).code(), Code::kInvalidArgument);
    EXPECT_EQ(heap->Free(heap->base()).code(), Code::kInvalidArgument);
    EXPECT_EQ(heap->Free(static_cast<std::byte*>(p.value()) + 4096).code(), Code::kInvalidArgument);
    EXPECT_TRUE(heap->Free(p.value()).ok());
    EXPECT_EQ(heap->Free(p.value()).code(), Code::kInvalidArgument);
    EXPECT_EQ(heap->Allocate(1, 3).status().code(), Code::kInvalidArgument);
    EXPECT_EQ(heap->Allocate(1, 0).status().code(), Code::kInvalidArgument);
    EXPECT_EQ(heap->Allocate(1, 4 * kMiB).status().code(), Code::kInvalidArgument);
    for (const size_t bytes : {heap->bytes(), SIZE_MAX}) {
      const Status status = heap->Allocate(bytes, 64).status();
      EXPECT_EQ(status.code(), Code::kSystemError);
      EXPECT_NE(status.message().find(std::to_string(bytes)), std::string_view::npos) << status.message();
    }
    EXPECT_EQ(heap->allocated_bytes(), 0u);
    Result<void*> empty = heap->Allocate(0, 64);
    ASSERT_TRUE(empty.ok());
    EXPECT_TRUE(heap->Free(empty.value()).ok());
  });
}

// An allocation that cannot be recorded for lack of memory fails, and freeing needs no memory.
TEST(HeapTest, LosesNothingForLackOfMemory) {
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    ASSERT_HEAP(heap);
    const uint64_t before = heap->allocated_bytes();
    const auto first_fit = [heap] {
      void* const p = heap->Allocate(12 * kKiB, 1).value();
      EXPECT_TRUE(heap->Free(p).ok());
      return p;
    };
    void* const lowest = first_fit();
    void* taken = nullptr;
    const auto expect_all = [&] {
      EXPECT_EQ(heap->allocated_bytes(), before);
      EXPECT_EQ(first_fit(), lowest);
    };
    EXPECT_GT(harness::FailEachNew([&] { taken = heap->Allocate(12 * kKiB, 1).value(); }, expect_all), 0);
    EXPECT_EQ(taken, lowest);
    // An allocation behind it prevents the freed range from joining another.
    void* const behind = heap->Allocate(1, 1).value();
    EXPECT_EQ(harness::FailEachNew([&] { EXPECT_TRUE(heap->Free(taken).ok()); }, [] {}), 0);
    EXPECT_TRUE(heap->Free(behind).ok());
    expect_all();
  });
}

TEST(HeapTest, SizeIsSealedAndDescriptorsStayFew) {
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    ASSERT_HEAP(heap);
    EXPECT_EQ(ftruncate(heap->fd(), 4096), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(ftruncate(heap->fd(), static_cast<off_t>(heap->bytes() * 2)), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_NE(fcntl(heap->fd(), F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_EQ(heap->page()->magic, transport::ProcessPage::kMagic);
    EXPECT_EQ(heap->page()->pid, static_cast<uint32_t>(getpid()));
    const int before = Descriptors();
    for (int i = 0; i < 1000; ++i) {
      Result<void*> p = heap->Allocate(static_cast<size_t>(i) * 100, 64);
      ASSERT_TRUE(p.ok());
      ASSERT_TRUE(heap->Free(p.value()).ok());
    }
    EXPECT_EQ(Descriptors(), before);
  });
}

TEST(HeapTest, ThreadsShareIt) {
  harness::RunRanks(harness::Threads(4), [](RankContext& context) {
    ASSERT_HEAP(heap);
    harness::Random random(harness::Scramble(harness::Seed(), static_cast<uint64_t>(context.rank())));
    const uint8_t mark = static_cast<uint8_t>(context.rank() + 1);
    for (int i = 0; i < 300; ++i) {
      const size_t bytes = 1 + random.Below(50000);
      Result<void*> p = heap->Allocate(bytes, 64);
      ASSERT_TRUE(p.ok());
      ASSERT_TRUE(AllBytes(p.value(), bytes, 0));
      std::memset(p.value(), mark, bytes);
      uint64_t offset;
      ASSERT_TRUE(heap->Contains(p.value(), bytes, &offset));
      ASSERT_TRUE(AllBytes(p.value(), bytes, mark));
      ASSERT_TRUE(heap->Free(p.value()).ok());
    }
    context.Barrier();
    EXPECT_EQ(heap->allocated_bytes(), 0u);
  });
}

TEST(HeapTest, ExplicitSize) {
  harness::RunOptions options;
  options.environment = {{"AXCCL_HEAP_BYTES", "8M"}};
  harness::RunRanks(
      harness::Processes(1),
      [](RankContext&) {
        ASSERT_HEAP(heap);
        EXPECT_EQ(heap->bytes(), 8 * kMiB);
        Result<void*> p = heap->Allocate(8 * kMiB - 4096, 64);
        EXPECT_EQ(p.status().code(), Code::kSystemError) << "6 MiB is the maximum at a boundary of 2 MiB";
        p = heap->Allocate(6 * kMiB, 64);
        ASSERT_TRUE(p.ok()) << p.status().message();
        EXPECT_TRUE(heap->Allocate(2 * kMiB - sizeof(transport::ProcessPage), 64).ok())
            << "what lies before the boundary is usable";
      },
      options);
}

TEST(HeapTest, TooSmallASizeIsAnErrorThatNamesIt) {
  harness::RunOptions options;
  options.environment = {{"AXCCL_HEAP_BYTES", "4096"}};
  harness::RunRanks(
      harness::Processes(1),
      [](RankContext&) {
        const Status status = Heap::Get().status();
        EXPECT_EQ(status.code(), Code::kInvalidArgument);
        EXPECT_NE(status.message().find("AXCCL_HEAP_BYTES=4096"), std::string_view::npos) << status.message();
      },
      options);
}

uint64_t AddressSpaceInUse() {
  std::ifstream statm("/proc/self/statm");
  uint64_t pages = 0;
  statm >> pages;
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

TEST(HeapTest, LimitedAddressSpace) {
  if (harness::TimeScale() != 1) GTEST_SKIP() << "sanitizers need the address space";
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    const rlimit limit{rlim_t{4} << 30, RLIM_INFINITY};
    ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    ASSERT_HEAP(heap);
    EXPECT_EQ(heap->bytes(), 256 * kMiB);
  });
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    const rlimit limit{AddressSpaceInUse() + 32 * kMiB, RLIM_INFINITY};
    ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    const Status status = Heap::Get().status();
    EXPECT_EQ(status.code(), Code::kSystemError);
    EXPECT_NE(status.message().find("64 MiB of address space needed, limit"), std::string_view::npos)
        << status.message();
  });
}

// "If a process attempts to create a file larger than its limit, SIGXFSZ is generated" (setrlimit(2)): the heap stays
// within the limit.
TEST(HeapTest, LimitedFileSize) {
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    ASSERT_TRUE(harness::Limit(RLIMIT_FSIZE, 200 * kMiB + 5));
    ASSERT_HEAP(heap);
    EXPECT_EQ(heap->bytes(), 200 * kMiB);
    EXPECT_EQ(heap->file().kind(), transport::HeapKind::kMemfd);
    Result<void*> p = heap->Allocate(190 * kMiB, 64);
    ASSERT_TRUE(p.ok());
    std::memset(static_cast<char*>(p.value()) + 189 * kMiB, 1, kMiB);
  });
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    ASSERT_TRUE(harness::Limit(RLIMIT_FSIZE, kMiB));
    ASSERT_HEAP(heap);
    EXPECT_EQ(heap->file().kind(), transport::HeapKind::kPrivate) << "no usable file";
    EXPECT_EQ(heap->file().memfd_error(), EFBIG);
    EXPECT_TRUE(heap->Allocate(64 * kMiB, 64).ok());
  });
}

uint64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t size = 0, pages = 0;
  statm >> size >> pages;
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// mlock(2): MCL_FUTURE locks "all pages which will become mapped", which for a heap would be all memory of the machine.
TEST(HeapTest, LockedMemory) {
  if (harness::TimeScale() != 1) GTEST_SKIP() << "sanitizers map memory of their own";
  if (!harness::LocksWithoutLimit()) GTEST_SKIP() << "this process may lock only a limited amount of memory";
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    ASSERT_EQ(mlockall(MCL_FUTURE), 0);
    const uint64_t before = ResidentBytes();
    ASSERT_HEAP(heap);
    Result<void*> p = heap->Allocate(64 * kMiB, 64);
    ASSERT_TRUE(p.ok());
    EXPECT_LT(ResidentBytes(), before + 16 * kMiB);
    std::memset(p.value(), 1, 64 * kMiB);
    ASSERT_TRUE(heap->Free(p.value()).ok());
    EXPECT_LT(ResidentBytes(), before + 16 * kMiB);
    ASSERT_EQ(heap->Allocate(64 * kMiB, 64).value(), p.value());
    EXPECT_TRUE(AllBytes(p.value(), 64 * kMiB, 0));
  });
}

TEST(HeapTest, LimitedLocking) {
  if (harness::TimeScale() != 1) GTEST_SKIP() << "sanitizers map memory of their own";
  if (!harness::MayLock(8 * kMiB)) GTEST_SKIP() << "this process may not lock 8 MiB (ulimit -l)";
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    ASSERT_TRUE(harness::LimitLocking(8 * kMiB));
    ASSERT_EQ(mlockall(MCL_FUTURE), 0);
    const Status status = Heap::Get().status();
    EXPECT_EQ(status.code(), Code::kSystemError);
    for (const char* words : {"64 MiB may not be locked", "limit (ulimit -l) 8 MiB", "mlockall"})
      EXPECT_NE(status.message().find(words), std::string_view::npos) << status.message();
  });
}

// Where memory cannot be given back, allocated memory is still zero, and memory that was never touched stays untouched.
TEST(HeapTest, FreeingDoesNotTouchUntouchedMemory) {
  const std::vector<std::vector<harness::Refused>> refusals = {{{SYS_fallocate, EOPNOTSUPP}},
                                                               {{SYS_fallocate, EOPNOTSUPP}, {SYS_madvise, EINVAL}}};
  for (const auto& refused : refusals) {
    harness::RunRanks(harness::Processes(1), [&](RankContext&) {
      ASSERT_TRUE(harness::Refuse(refused));
      ASSERT_HEAP(heap);
      const uint64_t before = FileBytes(*heap);
      Result<void*> p = heap->Allocate(256 * kMiB, 64);
      ASSERT_TRUE(p.ok());
      auto* const bytes = static_cast<uint8_t*>(p.value());
      const size_t touched[] = {0, 4096, kMiB + 1, 77 * kMiB - 1, 256 * kMiB - 1};
      for (const size_t at : touched) bytes[at] = 7;
      ASSERT_TRUE(heap->Free(p.value()).ok());
      EXPECT_LT(FileBytes(*heap), before + kMiB);
      ASSERT_EQ(heap->Allocate(256 * kMiB, 64).value(), p.value());
      for (const size_t at : touched) EXPECT_EQ(bytes[at], 0) << at;
      EXPECT_LT(FileBytes(*heap), before + kMiB);
    });
  }
}

// The same memory as a peer maps it.
class AsMapped {
 public:
  AsMapped(const Heap& heap, const void* p, size_t bytes) : bytes_(bytes) {
    const auto offset = static_cast<const std::byte*>(p) - heap.base();
    at_ = static_cast<uint8_t*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, heap.fd(), offset));
    EXPECT_NE(static_cast<void*>(at_), MAP_FAILED);
  }
  ~AsMapped() { munmap(at_, bytes_); }
  uint8_t* operator+(size_t byte) const { return at_ + byte; }

 private:
  uint8_t* at_;
  const size_t bytes_;
};

// A peer that keeps writing to the pages no longer changes anything, and no later allocation uses the pages.
TEST(HeapTest, WhatIsTakenBackIsOutOfReach) {
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    ASSERT_HEAP(heap);
    constexpr size_t kBytes = 64 * 4096;
    Result<void*> result = heap->Allocate(kBytes, 64);
    ASSERT_TRUE(result.ok());
    auto* const own = static_cast<uint8_t*>(result.value());
    const AsMapped peer(*heap, own, kBytes);
    std::memset(own, 1, kBytes);
    struct Part {
      size_t begin, end;
    };
    uint64_t offset;
    // Parts of pages, pages that are taken back already, and pages between them.
    std::vector<bool> taken(64, false);
    for (const Part& part : {Part{5 * 4096 + 17, 7 * 4096 + 1},
                             {20 * 4096, 21 * 4096},
                             {6 * 4096, 10 * 4096},
                             {4 * 4096 + 4095, 30 * 4096 + 1},
                             {63 * 4096 + 1, 63 * 4096 + 2}}) {
      EXPECT_TRUE(heap->Contains(own + part.end - 1, 1, &offset) || taken[(part.end - 1) / 4096]);
      ASSERT_TRUE(heap->TakeBack(own + part.begin, part.end - part.begin).ok());
      for (size_t page = part.begin / 4096; page <= (part.end - 1) / 4096; ++page) taken[page] = true;
      for (size_t page = 0; page < 64; ++page) {
        EXPECT_EQ(heap->Contains(own + page * 4096, 4096, &offset), !taken[page]) << page;
        EXPECT_EQ(heap->TakenBack(own + page * 4096, 4096), taken[page]) << page;
      }
      EXPECT_TRUE(heap->TakenBack(own, kBytes));
      EXPECT_FALSE(heap->Contains(own, kBytes, &offset));
    }
    EXPECT_FALSE(heap->TakenBack(own + 31 * 4096, 32 * 4096));
    EXPECT_TRUE(AllBytes(own, kBytes, 1)) << "the memory keeps its contents";
    std::memset(peer + 0, 2, kBytes);
    for (size_t page = 0; page < 64; ++page)
      EXPECT_TRUE(AllBytes(own + page * 4096, 4096, taken[page] ? 1 : 2)) << page;
    std::memset(own, 3, kBytes);
    for (size_t page = 0; page < 64; ++page)
      EXPECT_TRUE(AllBytes(peer + page * 4096, 4096, taken[page] ? 2 : 3)) << page;
    ASSERT_TRUE(heap->Free(own).ok());
    EXPECT_EQ(heap->allocated_bytes(), 0u);
    for (int i = 0; i < 200; ++i) {
      result = heap->Allocate(4096, 64);
      ASSERT_TRUE(result.ok());
      const auto at = static_cast<size_t>(static_cast<uint8_t*>(result.value()) - own);
      EXPECT_TRUE(at >= kBytes || !taken[at / 4096]) << at / 4096;
      EXPECT_TRUE(AllBytes(result.value(), 4096, 0));
      EXPECT_FALSE(heap->TakenBack(result.value(), 4096));
    }
    int local = 0;
    EXPECT_TRUE(heap->TakeBack(&local, sizeof local).ok());
    EXPECT_FALSE(heap->TakenBack(&local, sizeof local));
  });
}

// Meanwhile, other threads of the process use the rest of the pages; none of their writes is lost.
TEST(HeapTest, TakingBackLosesNothing) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer takes the mapping for a write, which the kernel orders";
#endif
  harness::RunRanks(harness::Threads(3), [](RankContext& context) {
    ASSERT_HEAP(heap);
    constexpr size_t kPages = 256;
    static std::atomic<uint64_t>* words;
    if (context.rank() == 0) words = static_cast<std::atomic<uint64_t>*>(heap->Allocate(kPages * 4096, 64).value());
    ASSERT_TRUE(context.Barrier());
    const auto word = [&](size_t page, int rank) { return words + page * 512 + rank * 100; };
    uint64_t rounds = 0;
    if (context.rank() == 0) {
      for (size_t page = 0; page < kPages; ++page) {
        ASSERT_TRUE(heap->TakeBack(word(page, 0), 8).ok());
        sched_yield();
      }
      context.Set(0, 1);
    } else {
      for (; context.Get(0) == 0 || rounds == 0; ++rounds) {
        for (size_t page = 0; page < kPages; ++page) {
          std::atomic<uint64_t>* const own = word(page, context.rank());
          own->store(own->load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        }
      }
      for (size_t page = 0; page < kPages; ++page) EXPECT_EQ(word(page, context.rank())->load(), rounds) << page;
    }
  });
}

}  // namespace
}  // namespace axccl::shm
