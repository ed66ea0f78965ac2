// Programs written for malloc, with ranks in several processes, under libaxccl-malloc.so: their buffers are memory that
// peers map. And programs that do not communicate: nothing is different for them.
#include <dirent.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "tests/malloc/family.h"

namespace axccl::test {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::Processes;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

constexpr size_t kMega = 1 << 20;

class Preloaded : public testing::Test {
 protected:
  void SetUp() override {
    if (!IsPreloaded()) GTEST_SKIP() << "libaxccl-malloc.so is not preloaded";
  }
};

void Reduce(ncclComm_t comm, int rank, int ranks, float* in, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i) in[i] = static_cast<float>(rank + 1) + static_cast<float>(i % 7);
  ASSERT_OK(ncclAllReduce(in, out, count, ncclFloat32, ncclSum, comm, nullptr));
  ASSERT_OK(axcclStreamSynchronize(nullptr));
  size_t wrong = 0;
  const float sum = static_cast<float>(ranks * (ranks + 1) / 2);
  for (size_t i = 0; i < count; ++i) wrong += out[i] != sum + static_cast<float>(ranks) * static_cast<float>(i % 7);
  EXPECT_EQ(wrong, 0u);
}

TEST_F(Preloaded, BuffersAreMapped) {
  RunRanks(Processes(2), [](RankContext& context) {
    std::vector<float> early(kMega);  // made before the communicator: correct, but not mapped
    ncclUniqueId id;
    ASSERT_TRUE(ShareUniqueId(context, &id));
    ncclComm_t comm = nullptr;
    ASSERT_OK(ncclCommInitRank(&comm, 2, id, context.first_rank()));
    EXPECT_FALSE(CanBeMapped(comm, early.data(), early.size() * sizeof(float)));
    for (const size_t count : {size_t{8192}, size_t{131072}, kMega}) {
      std::vector<float> in(count), out(count);
      EXPECT_TRUE(CanBeMapped(comm, in.data(), count * sizeof(float)));
      Reduce(comm, context.first_rank(), 2, in.data(), out.data(), count);
      Reduce(comm, context.first_rank(), 2, early.data(), out.data(), count);
    }
    EXPECT_OK(ncclCommDestroy(comm));
  });
}

// Children are made while ranks communicate in the memory that they inherit.
TEST_F(Preloaded, RanksForkWorkers) {
  RunRanks(Processes(2), [](RankContext& context) {
    ncclUniqueId id;
    ASSERT_TRUE(ShareUniqueId(context, &id));
    ncclComm_t comm = nullptr;
    ASSERT_OK(ncclCommInitRank(&comm, 2, id, context.first_rank()));
    std::vector<float> in(kMega), out(kMega);
    for (int round = 0; round < 10; ++round) {
      Reduce(comm, context.first_rank(), 2, in.data(), out.data(), in.size());
      const std::vector<float> expected = out;
      const auto worker = [&] {
        if (out != expected) return 1;
        std::iota(out.begin(), out.end(), 0.0f);
        std::vector<float> own(out);
        return own == out ? 0 : 2;
      };
      const auto meanwhile = [&] {
        Reduce(comm, context.first_rank(), 2, in.data(), out.data(), in.size());
        std::fill(out.begin(), out.end(), -1.0f);
      };
      EXPECT_EQ(InChild(worker, meanwhile), 0);
      EXPECT_EQ(out[kMega - 1], -1.0f);
    }
    EXPECT_OK(ncclCommDestroy(comm));
  });
}

// With AXCCL_MALLOC_EARLY=1, set by CTest for a run of its own, as the library reads it when it is loaded.
TEST_F(Preloaded, EarlyBuffersAreMappedOnRequest) {
  const char* const early = getenv("AXCCL_MALLOC_EARLY");
  if (early == nullptr || *early != '1') GTEST_SKIP() << "AXCCL_MALLOC_EARLY is not 1";
  std::vector<float> memory(kMega);
  ncclComm_t comm = nullptr;
  ASSERT_OK(ncclCommInitAll(&comm, 1, nullptr));
  EXPECT_TRUE(CanBeMapped(comm, memory.data(), memory.size() * sizeof(float)));
  Reduce(comm, 0, 1, memory.data(), memory.data(), memory.size());
  EXPECT_OK(ncclCommDestroy(comm));
}

size_t CountEntries(const char* path) {
  size_t count = 0;
  DIR* const folder = opendir(path);
  if (folder == nullptr) return 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

// No descriptor, no thread, no shared memory, no heap before the first communicator; and a child can do everything.
TEST_F(Preloaded, AProgramThatOnlyAllocatesIsLeftAlone) {
  RunRanks(Processes(1), [](RankContext&) {
    const size_t descriptors = CountEntries("/proc/self/fd"), threads = CountEntries("/proc/self/task");
    const int64_t shared = TouchedSharedMemory();
    for (int i = 0; i < 100; ++i) {
      void* const memory = std::memset(std::malloc(kMega), 1, kMega);
      std::free(std::realloc(memory, 3 * kMega));
    }
    EXPECT_EQ(CountEntries("/proc/self/fd"), descriptors);
    EXPECT_EQ(CountEntries("/proc/self/task"), threads);
    EXPECT_EQ(TouchedSharedMemory(), shared);
    const auto child = [] {
      ncclComm_t comm = nullptr;
      if (ncclCommInitAll(&comm, 1, nullptr) != ncclSuccess) return 1;
      void* const memory = std::malloc(kMega);
      const bool mapped = CanBeMapped(comm, memory, kMega);
      std::free(memory);
      return mapped && ncclCommDestroy(comm) == ncclSuccess ? 0 : 2;
    };
    EXPECT_EQ(InChild(child), 0);
    EXPECT_EQ(InChild(child), 0);
  });
}

// Memory of malloc stays with the copy of the library that gave it when another one gets a heap, too.
TEST_F(Preloaded, ASecondCopyOfTheLibraryLeavesTheFirstOnesMemoryAlone) {
  RunRanks(Processes(1), [](RankContext&) {
    Dl_info library{};
    ASSERT_NE(dladdr(reinterpret_cast<void*>(&ncclGetVersion), &library), 0);
    char folder[] = "/tmp/axccl_test_XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    const std::string copy = std::string(folder) + "/libother.so";
    std::filesystem::copy_file(library.dli_fname, copy);
    void* first = nullptr;
    ASSERT_OK(ncclMemAlloc(&first, kMega));
    void* memory = std::memset(std::malloc(kMega), 1, kMega);
    void* const other = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(other, nullptr) << dlerror();
    std::filesystem::remove_all(folder);
    const auto allocate = reinterpret_cast<decltype(&ncclMemAlloc)>(dlsym(other, "ncclMemAlloc"));
    ASSERT_NE(allocate, &ncclMemAlloc);
    void* second = nullptr;
    ASSERT_OK(allocate(&second, kMega));
    memory = std::realloc(memory, 2 * kMega);
    void* const later = std::malloc(kMega);
    EXPECT_EQ(InChild([&] { return static_cast<char*>(memory)[kMega - 1] == 1 ? 0 : 1; }), 0);
    ncclComm_t comm = nullptr;
    ASSERT_OK(ncclCommInitAll(&comm, 1, nullptr));
    EXPECT_TRUE(CanBeMapped(comm, memory, kMega));
    EXPECT_TRUE(CanBeMapped(comm, later, kMega));
    std::free(memory);
    std::free(later);
    EXPECT_OK(ncclCommDestroy(comm));
  });
}

}  // namespace
}  // namespace axccl::test
