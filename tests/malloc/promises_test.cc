// What the C library promises of its malloc family holds for large memory, too. The promises, from C17 7.22.3, POSIX
// and glibc's manual (3.2.3, "Unconstrained Allocation", and 3.2.3.8, "Replacing malloc"):
//
// - malloc, calloc: aligned for every object; NULL with ENOMEM where there is no memory, or the size exceeds
// PTRDIFF_MAX;
//   calloc gives zeros, and does not wrap.
// - realloc: keeps the content up to the lesser size; as malloc for NULL; as free for size 0 (and returns NULL); leaves
//   the memory as it is when it fails. reallocarray does not wrap.
// - aligned_alloc, memalign, posix_memalign: any power of two. posix_memalign returns EINVAL or ENOMEM, and leaves the
//   pointer alone then. valloc, pvalloc: a page; pvalloc rounds up to pages.
// - malloc_usable_size: what may be written, at least what was asked for; 0 for NULL.
// - free: of NULL nothing; keeps errno; is no cancellation point; from any thread.
// - Functions of the C library that allocate use the program's malloc, and so does the loader.
// - Large memory returns to the system when it is freed, but for a bounded rest, which malloc_trim returns.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/malloc/family.h"

namespace axccl::test {
namespace {

constexpr size_t kKilo = 1024, kMega = kKilo * kKilo;
constexpr size_t kSizes[] = {0,         1,         100,           32 * kKilo - 1, 32 * kKilo,    32 * kKilo + 1,
                             100000,    kMega - 1, 2 * kMega - 1, 2 * kMega,      2 * kMega + 1, 5 * kMega,
                             33 * kMega};

bool IsAligned(const void* memory, size_t alignment) { return reinterpret_cast<uintptr_t>(memory) % alignment == 0; }

TEST_P(FamilyTest, GivesMemoryOfEverySize) {
  WithHeap([&](ncclComm_t comm) {
    const Family& f = GetParam();
    for (const size_t size : kSizes) {
      void* const memory = f.allocate(size);
      ASSERT_NE(memory, nullptr) << size;
      EXPECT_TRUE(IsAligned(memory, alignof(max_align_t))) << size;
      EXPECT_GE(f.usable(memory), size);
      EXPECT_EQ(size > 0 && CanBeMapped(comm, memory, size), f.mapped && size >= 32 * kKilo) << size;
      Fill(memory, f.usable(memory), size);
      EXPECT_EQ(CountWrong(memory, f.usable(memory), size), 0u) << size;
      f.release(memory);
    }
    f.release(nullptr);
    EXPECT_EQ(f.usable(nullptr), 0u);
  });
}

TEST_P(FamilyTest, RefusesWhatNoMemoryCanBe) {
  WithHeap([&](ncclComm_t) {
    const Family& f = GetParam();
    void* const kept = f.allocate(kMega);
    Fill(kept, kMega, 1);
    for (const size_t size : {size_t{PTRDIFF_MAX} + 1, SIZE_MAX - 64, SIZE_MAX}) {
      errno = 0;
      EXPECT_EQ(f.allocate(size), nullptr) << size;
      EXPECT_EQ(errno, ENOMEM) << size;
      errno = 0;
      EXPECT_EQ(f.resize(kept, size), nullptr) << size;
      EXPECT_EQ(errno, ENOMEM) << size;
      errno = 0;
      EXPECT_EQ(f.zeroed(size / 16 + 1, 32), nullptr) << size;
      EXPECT_EQ(errno, ENOMEM) << size;
    }
    errno = 0;
    EXPECT_EQ(f.zeroed(size_t{1} << 33, size_t{1} << 33), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(CountWrong(kept, kMega, 1), 0u);
    f.release(kept);
  });
}

TEST_P(FamilyTest, GivesZerosWhereMemoryWasUsedBefore) {
  WithHeap([&](ncclComm_t) {
    const Family& f = GetParam();
    for (const size_t size : kSizes) {
      void* const dirty = f.allocate(size);
      Fill(dirty, size, 7);
      f.release(dirty);
      auto* const memory = static_cast<char*>(f.zeroed(size, 1));
      ASSERT_NE(memory, nullptr);
      EXPECT_EQ(std::count(memory, memory + size, 0), static_cast<ptrdiff_t>(size));
      f.release(memory);
    }
  });
}

TEST_P(FamilyTest, ResizesAndKeepsTheContent) {
  WithHeap([&](ncclComm_t comm) {
    const Family& f = GetParam();
    for (const size_t from : kSizes) {
      for (const size_t to : kSizes) {
        if (from == 0 || to == 0) continue;
        void* const memory = f.allocate(from);
        Fill(memory, from, from);
        void* const moved = f.resize(memory, to);
        ASSERT_NE(moved, nullptr);
        EXPECT_GE(f.usable(moved), to);
        EXPECT_EQ(CountWrong(moved, std::min(from, to) / 8 * 8, from), 0u) << from << " to " << to;
        EXPECT_EQ(CanBeMapped(comm, moved, to), f.mapped && to >= 32 * kKilo) << from << " to " << to;
        f.release(moved);
      }
    }
    void* const fresh = f.resize(nullptr, kMega);
    ASSERT_NE(fresh, nullptr);
    EXPECT_EQ(f.resize(fresh, 0), nullptr);
  });
}

// Growing by a page at a time must not copy all each time: the addresses change rarely.
TEST_P(FamilyTest, GrowsInFewSteps) {
  WithHeap([&](ncclComm_t) {
    const Family& f = GetParam();
    if (!f.mapped) return;  // the C library moves pages, not bytes
    int moves = 0;
    void* memory = f.allocate(32 * kKilo);
    for (size_t size = 32 * kKilo; size <= 64 * kMega; size += 4 * kKilo) {
      void* const grown = f.resize(memory, size);
      ASSERT_NE(grown, nullptr);
      moves += grown != memory;
      memory = grown;
    }
    EXPECT_LE(moves, 12);
    f.release(memory);
  });
}

TEST_P(FamilyTest, Aligns) {
  WithHeap([&](ncclComm_t comm) {
    const Family& f = GetParam();
    for (size_t alignment = sizeof(void*); alignment <= 8 * kMega; alignment *= 2) {
      for (const size_t size : {size_t{64}, 100 * kKilo, 3 * kMega}) {
        const size_t bytes = (size + alignment - 1) / alignment * alignment;
        void* memory[3] = {};
        for (void*& one : memory) {
          one = f.aligned(alignment, bytes);
          ASSERT_TRUE(one != nullptr && IsAligned(one, alignment)) << alignment << ", " << bytes << ": " << one;
          Fill(one, bytes, alignment);
          EXPECT_EQ(CanBeMapped(comm, one, bytes), f.mapped && bytes >= 32 * kKilo && alignment <= 2 * kMega);
        }
        for (void* one : memory) {
          EXPECT_EQ(CountWrong(one, bytes, alignment), 0u);
          f.release(one);
        }
      }
    }
  });
}

TEST_P(FamilyTest, FreeKeepsErrnoAndIsNoCancellationPoint) {
  WithHeap([&](ncclComm_t) {
    const Family& f = GetParam();
    for (const size_t size : {size_t{64}, 100 * kKilo, 64 * kMega}) {
      void* const memory = f.allocate(size);
      errno = 12345;
      f.release(memory);
      EXPECT_EQ(errno, 12345) << size;
    }
    bool passed = false;
    std::thread cancelled([&] {
      pthread_cancel(pthread_self());
      f.release(f.allocate(64 * kMega));
      f.release(f.resize(f.zeroed(100 * kKilo, 1), 300 * kKilo));
      passed = true;
      int state = 0;
      pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    });
    cancelled.join();
    EXPECT_TRUE(passed);
  });
}

TEST_P(FamilyTest, ReturnsMemoryToTheSystem) {
  WithHeap([&](ncclComm_t) {
    const Family& f = GetParam();
    const int64_t before = TouchedSharedMemory();
    ASSERT_GE(before, 0);
    const auto use = [&](size_t size, int count) {
      std::vector<void*> all;
      for (int i = 0; i < count; ++i) all.push_back(std::memset(f.allocate(size), 1, size));
      EXPECT_TRUE(!f.mapped || TouchedSharedMemory() >= before + static_cast<int64_t>(size) * count);
      for (void* one : all) f.release(one);
    };
    use(40 * kMega, 2);
    EXPECT_LT(TouchedSharedMemory(), before + static_cast<int64_t>(kMega)) << "large memory returns at once";
    void* shrinking = std::memset(f.allocate(40 * kMega), 1, 40 * kMega);
    shrinking = f.resize(shrinking, 20 * kMega);
    EXPECT_LT(TouchedSharedMemory(), before + static_cast<int64_t>(21 * kMega)) << "what realloc cuts off returns";
    EXPECT_EQ(std::count(static_cast<char*>(shrinking), static_cast<char*>(shrinking) + 20 * kMega, 1),
              static_cast<ptrdiff_t>(20 * kMega));
    f.release(shrinking);
    use(kMega, 100);
    EXPECT_LT(TouchedSharedMemory(), before + static_cast<int64_t>(66 * kMega));
    use(40 * kKilo, 2000);
    EXPECT_LT(TouchedSharedMemory(), before + static_cast<int64_t>(66 * kMega));
    if (!IsPreloaded()) return;
    malloc_trim(0);
    EXPECT_LT(TouchedSharedMemory(), before + static_cast<int64_t>(kMega));
  });
}

// There are at most 16384 blocks in the heap; what exceeds that is the C library's.
TEST_P(FamilyTest, GivesMoreThanTheHeapTakes) {
  WithHeap([&](ncclComm_t) {
    const Family& f = GetParam();
    std::vector<void*> all;
    for (int i = 0; i < 20000; ++i) {
      all.push_back(f.allocate(33 * kKilo));
      ASSERT_NE(all.back(), nullptr);
      *static_cast<int*>(all.back()) = i;
    }
    for (int i = 0; i < 20000; ++i) {
      EXPECT_EQ(*static_cast<int*>(all[i]), i);
      f.release(all[i]);
    }
  });
}

TEST_P(FamilyTest, EndsTheProgramOnAnotherFree) {
  WithHeap([&](ncclComm_t) {
    const Family& f = GetParam();
    if (!f.mapped) return;
    void* const memory = f.allocate(kMega);
    void* other = nullptr;
    ASSERT_OK(ncclMemAlloc(&other, kMega));
    const auto free_in_child = [&](std::initializer_list<void*> list) {
      return InChild([&] {
        (void)close(STDERR_FILENO);
        for (void* one : list) f.release(one);
        return 0;
      });
    };
    EXPECT_EQ(free_in_child({memory}), 0);
    EXPECT_EQ(free_in_child({memory, memory}), -1);
    EXPECT_EQ(free_in_child({static_cast<char*>(memory) + 4096}), -1);
    EXPECT_EQ(free_in_child({other}), -1);
    f.release(memory);
    EXPECT_OK(ncclMemFree(other));
  });
}

TEST_P(FamilyTest, FreesMemoryOfOtherThreads) {
  WithHeap([&](ncclComm_t) {
    const Family& f = GetParam();
    std::vector<void*> memory(200);
    for (int round = 0; round < 20; ++round) {
      std::thread maker([&] {
        for (size_t i = 0; i < memory.size(); ++i) Fill(memory[i] = f.allocate(1000 * (i + 1)), 1000 * (i + 1), i);
      });
      maker.join();
      std::thread user([&] {
        for (size_t i = 0; i < memory.size(); ++i) {
          EXPECT_EQ(CountWrong(memory[i], 1000 * (i + 1), i), 0u);
          f.release(memory[i]);
        }
      });
      user.join();
    }
  });
}

AXCCL_TEST_BOTH_FAMILIES;

TEST(CLibraryPromises, PosixMemalign) {
  WithHeap([](ncclComm_t) {
    int local = 0;
    for (const size_t size : {size_t{10}, kMega}) {
      void* memory = &local;
      EXPECT_EQ(posix_memalign(&memory, 3, size), EINVAL);
      EXPECT_EQ(posix_memalign(&memory, 0, size), EINVAL);
      EXPECT_EQ(posix_memalign(&memory, sizeof(void*) / 2, size), EINVAL);
      EXPECT_EQ(posix_memalign(&memory, 4096, SIZE_MAX / 2), ENOMEM);
      EXPECT_EQ(memory, &local);
      ASSERT_EQ(posix_memalign(&memory, 1 << 16, size), 0);
      EXPECT_TRUE(IsAligned(memory, 1 << 16));
      std::free(memory);
    }
  });
}

// The compiler takes memory for freed even where reallocarray must fail.
void* (*volatile const g_reallocarray)(void*, size_t, size_t) = reallocarray;

TEST(CLibraryPromises, PagesAndArrays) {
  WithHeap([](ncclComm_t) {
    const size_t page = static_cast<size_t>(getpagesize());
    for (const size_t size : {size_t{10}, 100 * kKilo + 1, 3 * kMega + 1}) {
      void* memory = valloc(size);
      EXPECT_TRUE(memory != nullptr && IsAligned(memory, page));
      std::free(memory);
      memory = pvalloc(size);
      EXPECT_TRUE(memory != nullptr && IsAligned(memory, page));
      EXPECT_GE(malloc_usable_size(memory), (size + page - 1) / page * page);
      std::free(memory);
      memory = memalign(3 * 64, size);  // glibc rounds it up to a power of two
      EXPECT_TRUE(memory != nullptr && IsAligned(memory, 256));
      memory = g_reallocarray(memory, size, 2);
      ASSERT_NE(memory, nullptr);
      EXPECT_GE(malloc_usable_size(memory), 2 * size);
      errno = 0;
      EXPECT_EQ(g_reallocarray(memory, size, SIZE_MAX / 2), nullptr);
      EXPECT_EQ(errno, ENOMEM);
      std::free(memory);
    }
    errno = 0;
    EXPECT_EQ(pvalloc(SIZE_MAX - 10), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    delete[] new (std::align_val_t(256)) char[kMega];
  });
}

// The loader allocates the thread-locals of a library that is loaded late, for each thread when it first uses them.
TEST(CLibraryPromises, LoaderAndCLibraryUseIt) {
  WithHeap([](ncclComm_t) {
    for (int round = 0; round < 5; ++round) {
      void* const library = dlopen(AXCCL_TEST_BIG_TLS, RTLD_NOW);
      ASSERT_NE(library, nullptr) << dlerror();
      const auto place = reinterpret_cast<char* (*)()>(dlsym(library, "AxcclTestPlace"));
      ASSERT_NE(place, nullptr);
      std::vector<std::thread> threads;
      for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
          EXPECT_EQ(std::count(place(), place() + 200000, 0), 200000);
          std::memset(place(), t + 1, 200000);
          EXPECT_EQ(std::count(place(), place() + 200000, t + 1), 200000);
        });
      }
      for (std::thread& thread : threads) thread.join();
      EXPECT_EQ(dlclose(library), 0);
    }
    const std::string text(300000, 'x');
    char* const copy = strdup(text.c_str());
    EXPECT_EQ(copy, text);
    char* line = nullptr;
    EXPECT_EQ(asprintf(&line, "%s%s", copy, copy), 600000);
    std::free(line);
    std::free(copy);
  });
}

}  // namespace
}  // namespace axccl::test
