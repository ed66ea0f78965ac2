// Windows of GPU ranks: kernels of the application read and write the memory of peers by the handle alone. What NCCL
// promises about that is in src/exec/platform/window.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "tests/api/device_functions.h"
#include "tests/cuda/window_memory.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::EnterGpu;
using harness::ExpectLastErrorHas;
using harness::Layout;
using harness::OneThread;
using harness::Processes;
using harness::RankContext;
using harness::RunRanks;
using harness::Threads;

ncclWindow_t Register(ncclComm_t comm, void* memory, size_t bytes) {
  ncclWindow_t window = nullptr;
  EXPECT_OK(ncclCommWindowRegister(comm, memory, bytes, &window, NCCL_WIN_COLL_SYMMETRIC));
  EXPECT_NE(window, nullptr);
  return window;
}

std::vector<uint8_t> BytesOf(int writer, int owner, size_t first, size_t size) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = ByteOf(writer, owner, first + i);
  return bytes;
}

class Windows : public testing::TestWithParam<Layout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, Windows,
                         testing::Values(Threads(2), Threads(4), Threads(8), OneThread(3), Processes(2), Processes(4),
                                         Processes(8), Layout{2, 2, 1}, Layout{2, 1, 2}),
                         [](const auto& info) { return info.param.Text(); });

// Every rank writes into every share, a stretch of odd length that is its own, and reads what all have written there.
TEST_P(Windows, KernelsReadAndWriteEveryShare) {
  RunOnBothGpus(GetParam(), [](RankContext& context, Clique& clique) {
    constexpr size_t kBytes = 3 * kChunk / 2 + 12345, kStep = 4099, kSize = 1013;
    const int n = context.nranks();
    std::vector<std::unique_ptr<WindowMemory>> memory;
    std::vector<ncclWindow_t> windows(static_cast<size_t>(clique.size()));
    for (int i = 0; i < clique.size(); ++i) memory.push_back(std::make_unique<WindowMemory>(kBytes));
    ASSERT_OK(ncclGroupStart());
    for (int i = 0; i < clique.size(); ++i)
      ASSERT_OK(ncclCommWindowRegister(clique.comm(i), memory[i]->at(), kBytes, &windows[i], NCCL_WIN_COLL_SYMMETRIC));
    ASSERT_OK(ncclGroupEnd());
    ASSERT_TRUE(context.Barrier());
    for (int i = 0; i < clique.size(); ++i) {
      const WindowKernel kernel(clique.stream(i));
      for (int owner = 0; owner < n; ++owner) {
        const int rank = clique.rank(i);
        const size_t at = static_cast<size_t>(rank) * kStep + 1;
        const By by = owner == rank ? By::kSelf : owner % 2 == 0 ? By::kTeamRank : By::kRank;
        kernel.Write(windows[i], by, owner, at, BytesOf(rank, owner, at, kSize));
      }
    }
    ASSERT_TRUE(context.Barrier());
    for (int i = 0; i < clique.size(); ++i) {
      std::vector<uint8_t> expected(memory[i]->Read().size(), kSentinel);
      for (int writer = 0; writer < n; ++writer) {
        const size_t at = static_cast<size_t>(writer) * kStep + 1;
        const std::vector<uint8_t> bytes = BytesOf(writer, clique.rank(i), at, kSize);
        std::copy(bytes.begin(), bytes.end(), expected.begin() + static_cast<ptrdiff_t>(at));
      }
      EXPECT_TRUE(memory[i]->Read() == expected) << "rank " << clique.rank(i);
      const WindowKernel kernel(clique.stream(i));
      for (int owner = 0; owner < n; ++owner) {
        for (const int writer : {0, n - 1}) {
          const size_t at = static_cast<size_t>(writer) * kStep + 1;
          const std::vector<uint8_t> bytes = BytesOf(writer, owner, at, kSize);
          EXPECT_TRUE(kernel.Read(windows[i], By::kTeamRank, owner, at, kSize) == bytes) << owner << " " << writer;
          EXPECT_TRUE(kernel.Read(windows[i], By::kRank, owner, at, kSize) == bytes) << owner << " " << writer;
        }
      }
    }
    ASSERT_TRUE(context.Barrier());
    for (int i = 0; i < clique.size(); ++i) EXPECT_OK(ncclCommWindowDeregister(clique.comm(i), windows[i]));
  });
}

// A rank's share: `bytes` of its memory, from `offset` on.
struct Share {
  size_t offset, bytes;
};

// Some ranks have little memory in the window or none, and windows lie in one allocation, even over each other. They
// end in another order on each rank.
void UseManyWindows(RankContext& context, Clique& clique) {
  const int n = context.nranks(), rank = context.rank();
  const auto number = static_cast<size_t>(rank + 1);
  const WindowMemory memory(4 * kChunk);
  const Share shares[] = {{0, 1},
                          {4096, 4097},
                          {8192, rank == 0 ? size_t{0} : size_t{5000}},
                          {kChunk + 4096, 1000 * number + 1},
                          {number % 4 * kChunk, 100},  // of all ranks, at the same distance from a chunk
                          {0, 4 * kChunk}};
  std::vector<ncclWindow_t> windows;
  for (const Share& share : shares) {
    windows.push_back(Register(clique.comm(), share.bytes == 0 ? nullptr : memory.at(share.offset), share.bytes));
    void* found = &windows;
    EXPECT_OK(ncclWinGetUserPtr(clique.comm(), windows.back(), &found));
    EXPECT_EQ(found, share.bytes == 0 ? nullptr : memory.at(share.offset));
    for (size_t i = 0; i + 1 < windows.size(); ++i) EXPECT_NE(windows[i], windows.back());
  }
  const WindowKernel kernel(clique.stream());
  std::vector<uint8_t> expected(memory.bytes(), kSentinel);
  for (size_t w = 0; w < windows.size(); ++w) {
    ASSERT_TRUE(context.Step("window %zu", w));
    const Share& own = shares[w];
    // Each writes the last byte of its left neighbour's share, whose size it may not have.
    const int owner = (rank + n - 1) % n;
    const auto size_of = [&](int r) {
      return w == 2 && r == 0 ? size_t{0} : w == 3 ? 1000 * static_cast<size_t>(r + 1) + 1 : w == 2 ? 5000 : own.bytes;
    };
    if (size_of(owner) != 0) kernel.Write(windows[w], By::kRank, owner, size_of(owner) - 1, {static_cast<uint8_t>(w)});
    if (own.bytes != 0) expected[own.offset + own.bytes - 1] = static_cast<uint8_t>(w);
    ASSERT_TRUE(context.Barrier());
  }
  EXPECT_TRUE(memory.Read() == expected);
  ASSERT_TRUE(context.Barrier());
  for (size_t i = 0; i < windows.size(); ++i) {
    const size_t w = (i * 5 + number) % windows.size();
    EXPECT_OK(ncclCommWindowDeregister(clique.comm(), windows[w]));
    EXPECT_EQ(ncclCommWindowDeregister(clique.comm(), windows[w]), ncclInvalidArgument);
    void* found = nullptr;
    EXPECT_EQ(ncclWinGetUserPtr(clique.comm(), windows[w], &found), ncclInvalidArgument);
    EXPECT_EQ(ncclGetLsaDevicePointer(windows[w], 0, 0, &found), ncclInvalidArgument);
  }
  ASSERT_TRUE(context.Barrier());
}
TEST(GpuWindows, OfAllSizesAndOffsets) {
  RunOnBothGpus(Threads(3), UseManyWindows);
  RunOnBothGpus(Processes(3), UseManyWindows);
}

// More chunks than are exchanged at a time.
void UseChunks(RankContext& context, Clique& clique) {
  constexpr size_t kChunks = 37;
  const int n = context.nranks(), rank = context.rank(), next = (rank + 1) % n;
  const ChunkedMemory memory(kChunks, true);
  const size_t bytes = (kChunks - 2) * kChunk - 8191;
  const ncclWindow_t window = Register(clique.comm(), memory.at(kChunk + 4096), bytes);
  const WindowKernel kernel(clique.stream());
  for (size_t chunk = 0; chunk < kChunks - 2; ++chunk) {
    const size_t at = chunk * kChunk + 100;
    kernel.Write(window, By::kRank, next, at, BytesOf(rank, next, at, 9));
  }
  kernel.Write(window, By::kRank, next, bytes - 9, BytesOf(rank, next, bytes - 9, 9));
  ASSERT_TRUE(context.Barrier());
  const int previous = (rank + n - 1) % n;
  const auto expect = [&](size_t at) {
    uint8_t found[9] = {};
    const auto address = reinterpret_cast<uint64_t>(memory.at(kChunk + 4096 + at));
    ASSERT_EQ(EnterGpu()->copy_to_host(found, address, sizeof(found)), 0);
    EXPECT_TRUE(std::vector<uint8_t>(found, found + 9) == BytesOf(previous, rank, at, 9)) << at;
  };
  for (size_t chunk = 0; chunk < kChunks - 2; ++chunk) expect(chunk * kChunk + 100);
  expect(bytes - 9);
  ASSERT_TRUE(context.Barrier());
  EXPECT_OK(ncclCommWindowDeregister(clique.comm(), window));
}
TEST(GpuWindows, OfManyChunks) {
  RunOnBothGpus(Threads(2), UseChunks);
  RunOnBothGpus(Processes(3), UseChunks);
}

// Ranks of one process need no files.
TEST(GpuWindows, OfChunksThatNoOtherProcessCanHave) {
  RunOnBothGpus(Threads(2), [](RankContext& context, Clique& clique) {
    const ChunkedMemory memory(2, false);
    const ncclWindow_t window = Register(clique.comm(), memory.at(), 2 * kChunk);
    const WindowKernel kernel(clique.stream());
    kernel.Write(window, By::kRank, 1 - context.rank(), kChunk, {1, 2, 3});
    ASSERT_TRUE(context.Barrier());
    uint8_t found[3] = {};
    ASSERT_EQ(EnterGpu()->copy_to_host(found, reinterpret_cast<uint64_t>(memory.at(kChunk)), 3), 0);
    EXPECT_EQ(found[0] + 10 * found[1] + 100 * found[2], 321);
    ASSERT_TRUE(context.Barrier());
    EXPECT_OK(ncclCommWindowDeregister(clique.comm(), window));
  });
}

// What the host gets is what kernels compute.
TEST(GpuWindows, HostFunctionsGiveAddresses) {
  RunOnBothGpus(Processes(3), [](RankContext& context, Clique& clique) {
    const int rank = context.rank();
    const WindowMemory memory(kChunk);
    const size_t bytes = 1000 * static_cast<size_t>(rank) + 1000;
    const ncclWindow_t window = Register(clique.comm(), memory.at(4096), bytes);
    const WindowKernel kernel(clique.stream());
    for (int r = 0; r < 3; ++r) {
      const size_t last = 1000 * static_cast<size_t>(r) + 999;
      if (r == rank) kernel.Write(window, By::kSelf, 0, last, {static_cast<uint8_t>(r + 1)});
      ASSERT_TRUE(context.Barrier());
      void *of_member = nullptr, *of_rank = nullptr;
      ASSERT_OK(ncclGetLsaDevicePointer(window, last, r, &of_member));
      ASSERT_OK(ncclGetPeerDevicePointer(window, last, r, &of_rank));
      EXPECT_EQ(of_member, of_rank);
      uint8_t found = 0;
      ASSERT_EQ(EnterGpu()->copy_to_host(&found, reinterpret_cast<uint64_t>(of_rank), 1), 0);
      EXPECT_EQ(found, r + 1);
      EXPECT_EQ(ncclGetLsaDevicePointer(window, last + 1, r, &of_member), ncclInvalidArgument);
      ExpectLastErrorHas({"ncclGetLsaDevicePointer", "offset"});
    }
    void* found = &found;
    EXPECT_EQ(ncclGetLsaDevicePointer(window, 0, 3, &found), ncclInvalidArgument);
    ExpectLastErrorHas({"lsaRank is 3", "0..2"});
    EXPECT_EQ(ncclGetPeerDevicePointer(window, 0, -1, &found), ncclInvalidArgument);
    ExpectLastErrorHas({"ncclGetPeerDevicePointer", "peer is -1", "0..2"});
    EXPECT_EQ(ncclGetPeerDevicePointer(nullptr, 0, 0, &found), ncclInvalidArgument);
    EXPECT_EQ(ncclGetPeerDevicePointer(window, 0, 0, nullptr), ncclInvalidArgument);
    EXPECT_OK(ncclGetLsaMultimemDevicePointer(window, 0, &found));  // as NCCL where there is no multicast
    EXPECT_EQ(found, nullptr);
    ASSERT_TRUE(context.Barrier());
    EXPECT_OK(ncclCommWindowDeregister(clique.comm(), window));
  });
}

// Collectives take the buffers of windows as any other.
TEST(GpuWindows, CollectivesUseTheBuffers) {
  RunOnBothGpus(Processes(2), [](RankContext& context, Clique& clique) {
    const WindowMemory memory(kChunk);
    const ncclWindow_t window = Register(clique.comm(), memory.at(), kChunk);
    const auto word = reinterpret_cast<uint64_t>(memory.at());
    ASSERT_EQ(EnterGpu()->fill(word, static_cast<unsigned>(context.rank()) + 5, 1 << 18, clique.stream()), 0);
    for (int i = 0; i < 3; ++i)
      ASSERT_OK(
          ncclAllReduce(memory.at(), memory.at(), 1 << 18, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
    ASSERT_TRUE(clique.Synchronize());
    const std::vector<uint8_t> read = memory.Read();
    EXPECT_EQ(reinterpret_cast<const int32_t*>(read.data())[(1 << 18) - 1], 44);
    ASSERT_TRUE(context.Barrier());
    EXPECT_OK(ncclCommWindowDeregister(clique.comm(), window));
  });
}

// More than the ranks exchange at a time.
TEST(GpuWindows, ManyInOneGroup) {
  RunOnBothGpus(OneThread(3), [](RankContext&, Clique& clique) {
    constexpr size_t kEach = 20, kBytes = 8192;
    const WindowMemory memory(3 * kChunk);
    const auto place = [](int rank, size_t w) { return static_cast<size_t>(rank) * kChunk + w * kBytes; };
    ncclWindow_t windows[3][kEach] = {};
    ASSERT_OK(ncclGroupStart());
    for (int i = 0; i < 3; ++i) {
      for (size_t w = 0; w < kEach; ++w) {
        char* const share = memory.at(place(i, w));
        ASSERT_OK(ncclCommWindowRegister(clique.comm(i), share, kBytes, &windows[i][w], NCCL_WIN_DEFAULT));
      }
    }
    ASSERT_OK(ncclGroupEnd());
    for (int i = 0; i < 3; ++i) {
      const WindowKernel kernel(clique.stream(i));
      for (size_t w = 0; w < kEach; ++w) {
        kernel.Write(windows[i][w], By::kRank, (i + 1) % 3, 5, {ByteOf(i, (i + 1) % 3, w)});
        EXPECT_OK(ncclCommWindowDeregister(clique.comm(i), windows[i][w]));
      }
    }
    const std::vector<uint8_t> found = memory.Read();
    for (size_t w = 0; w < kEach; ++w) {
      for (int i = 0; i < 3; ++i) EXPECT_EQ(found[place(i, w) + 5], ByteOf((i + 2) % 3, i, w)) << w << " " << i;
    }
  });
}

// As many as wanted may be registered in one group, and a communicator that does not block tells when it is done.
TEST(GpuWindows, InGroupsAndInTheBackground) {
  RunRanks(Threads(2), [](RankContext& context) {
    ASSERT_NE(EnterGpu(context.rank()), nullptr);
    ncclUniqueId id;
    ASSERT_TRUE(harness::ShareUniqueId(context, &id));
    const ncclComm_t comm = harness::BeginInit(id, 2, context.rank());
    ASSERT_EQ(harness::AwaitComm(context, comm), ncclSuccess);
    const WindowMemory memory(kChunk);
    Words wrong_kind(1024);
    for (const bool grouped : {false, true}) {
      ncclWindow_t windows[3] = {};
      ASSERT_OK(grouped ? ncclGroupStart() : ncclSuccess);
      for (ncclWindow_t& window : windows) {
        const ncclResult_t begun = ncclCommWindowRegister(comm, memory.at(), kChunk, &window, NCCL_WIN_DEFAULT);
        EXPECT_TRUE(begun == ncclInProgress || (grouped && begun == ncclSuccess)) << begun;
        ASSERT_EQ(grouped ? ncclSuccess : harness::AwaitComm(context, comm), ncclSuccess);
      }
      EXPECT_EQ(grouped ? ncclGroupEnd() : ncclInProgress, ncclInProgress);
      ASSERT_EQ(harness::AwaitComm(context, comm), ncclSuccess);
      for (const ncclWindow_t window : windows) {
        ASSERT_NE(window, nullptr);
        EXPECT_OK(ncclCommWindowDeregister(comm, window));
      }
    }
    ncclWindow_t window = nullptr;
    EXPECT_EQ(ncclCommWindowRegister(comm, wrong_kind.get(), 4096, &window, NCCL_WIN_DEFAULT), ncclInProgress);
    EXPECT_EQ(harness::AwaitComm(context, comm), ncclInvalidArgument);
    EXPECT_EQ(window, nullptr);
    EXPECT_EQ(ncclCommWindowRegister(comm, memory.at(), kChunk, &window, NCCL_WIN_DEFAULT), ncclInProgress);
    EXPECT_EQ(harness::AwaitComm(context, comm), ncclSuccess);
    ASSERT_TRUE(context.Barrier());
    EXPECT_OK(ncclCommDestroy(comm));
  });
}

}  // namespace
}  // namespace axccl::tests
