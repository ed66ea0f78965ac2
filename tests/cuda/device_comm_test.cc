// Device communicators of GPU ranks: kernels of an application meet by what ncclDevCommCreate gives them, as programs
// see it that were compiled with NCCL 2.28.7 to 2.32. The structs here are those of NVIDIA's nccl_device.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include "tests/api/device_functions.h"
#include "tests/cuda/device_comm.h"
#include "tests/cuda/window_memory.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::EnterGpu;
using harness::ExpectLastErrorHas;
using harness::Layout;
using harness::OneThread;
using harness::Processes;
using harness::RankContext;
using harness::RunRanks;
using harness::Threads;

class DeviceComms : public testing::TestWithParam<std::tuple<Layout, unsigned>> {};
INSTANTIATE_TEST_SUITE_P(Versions, DeviceComms,
                         testing::Combine(testing::Values(Threads(3), Processes(2), OneThread(2)),
                                          testing::Values(0u, 22902u, 22907u, 23007u, 23203u)),
                         [](const auto& info) {
                           return std::get<0>(info.param).Text() + "_" + std::to_string(std::get<1>(info.param));
                         });
INSTANTIATE_TEST_SUITE_P(Layouts, DeviceComms,
                         testing::Combine(testing::Values(Processes(5), Layout{2, 2, 1}), testing::Values(23000u)),
                         [](const auto& info) { return std::get<0>(info.param).Text(); });

constexpr int kBlocks = 3, kRounds = 20;

// What a block of `rank` is told in all rounds.
uint64_t SumOf(int rank, int ranks, int block) {
  uint64_t sum = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (int of = 0; of < ranks; ++of) sum += static_cast<uint64_t>((round + 1) * (of + 1) + 1000 * rank + 7 * block);
  }
  return sum;
}

TEST_P(DeviceComms, KernelsMeet) {
  const unsigned version = std::get<1>(GetParam());
  RunOnBothGpus(std::get<0>(GetParam()), [version](RankContext& context, Clique& clique) {
    const int n = context.nranks();
    std::vector<DeviceComm> comms(static_cast<size_t>(clique.size()), DeviceComm(version));
    std::vector<uint32_t> handles(comms.size());
    ASSERT_OK(ncclGroupStart());
    for (int i = 0; i < clique.size(); ++i) {
      const auto at = static_cast<size_t>(i);
      Resource buffer{nullptr, sizeof(uint32_t) * kBlocks * static_cast<size_t>(n), 4, &handles[at], 0, 0, nullptr,
                      nullptr};
      Resource other{&buffer, 100, 4096, nullptr, 0, 0, nullptr, nullptr};
      Wishes wishes{};
      wishes.resources = &other;
      // Barriers of all ranks, which are one team: programs of older versions may ask for them either way.
      (version < 22904 ? wishes.barriers : wishes.lsa_barriers) = kBlocks;
      ASSERT_OK(comms[at].Create(clique.comm(i), wishes));
    }
    ASSERT_OK(ncclGroupEnd());
    std::vector<std::unique_ptr<Words>> sums;
    std::vector<std::unique_ptr<CommKernel>> kernels;
    for (int i = 0; i < clique.size(); ++i) {
      const DeviceComm& comm = comms[static_cast<size_t>(i)];
      EXPECT_EQ(comm.Get<int>(0), clique.rank(i));
      EXPECT_EQ(comm.Get<int>(4), n);
      EXPECT_EQ(uint64_t{comm.Get<uint32_t>(8)} * static_cast<uint64_t>(n) >> 32, (n & (n - 1)) == 0 ? 1u : 0u);
      EXPECT_EQ(comm.Get<int>(12), clique.rank(i));
      EXPECT_EQ(comm.Get<int>(16), n);
      EXPECT_EQ(comm.Get<uint32_t>(20), comm.Get<uint32_t>(8));
      EXPECT_EQ(comm.Get<uint64_t>(static_cast<size_t>(comm.multicast())), 0u);
      const auto* const past = comm.bytes + comm.size();
      EXPECT_TRUE(std::all_of(past, std::end(comm.bytes), [](uint8_t byte) { return byte == kSentinel; }));
      const auto* const rest = comm.bytes + comm.skipped() + comm.multicast() + 16;
      EXPECT_TRUE(std::all_of(rest, past, [](uint8_t byte) { return byte == 0; }));
      sums.push_back(std::make_unique<Words>(2 * kBlocks, -1));
      kernels.push_back(std::make_unique<CommKernel>("meet", clique.stream(i)));
    }
    // Twice, because barriers go on where they were.
    for (int time = 0; time < 2; ++time) {
      ASSERT_TRUE(context.Barrier());
      for (int i = 0; i < clique.size(); ++i) {
        const auto at = static_cast<size_t>(i);
        int rounds = kRounds;
        int32_t* out = sums[at]->get();
        kernels[at]->Launch(comms[at], {&handles[at], &rounds, &out}, kBlocks, 8);
      }
      for (int i = 0; i < clique.size(); ++i) {
        const auto at = static_cast<size_t>(i);
        kernels[at]->Wait();
        for (int block = 0; block < kBlocks; ++block) {
          uint64_t sum = 0;
          std::memcpy(&sum, sums[at]->get() + 2 * block, sizeof(sum));
          EXPECT_EQ(sum, SumOf(clique.rank(i), n, block)) << "rank " << clique.rank(i) << ", block " << block;
        }
        sums[at]->Fill(-1);
      }
    }
    ASSERT_TRUE(context.Barrier());
    for (int i = 0; i < clique.size(); ++i) {
      const DeviceComm& comm = comms[static_cast<size_t>(i)];
      EXPECT_OK(ncclDevCommDestroy(clique.comm(i), comm.bytes));
      EXPECT_EQ(ncclDevCommDestroy(clique.comm(i), comm.bytes), ncclInvalidArgument);
      ExpectLastErrorHas({"ncclDevCommDestroy", "devComm"});
    }
  });
}

// Of more than one piece of the table, and after some have gone.
TEST(GpuDeviceComms, FindWindowsByBuffers) {
  RunOnBothGpus(Processes(2), [](RankContext& context, Clique& clique) {
    constexpr size_t kWindows = 40, kEach = 8192;
    const WindowMemory memory(kChunk);
    std::vector<ncclWindow_t> windows(kWindows);
    DeviceComm comm(0);
    ASSERT_OK(comm.Create(clique.comm(), {}));
    for (size_t w = 0; w < kWindows; ++w)
      ASSERT_OK(ncclCommWindowRegister(clique.comm(), memory.at(w * kEach), kEach - 96, &windows[w], NCCL_WIN_DEFAULT));
    const CommKernel kernel("find_window", clique.stream());
    Words out(2);
    const auto find = [&](const void* pointer) {
      auto at = reinterpret_cast<uint64_t>(pointer);
      int32_t* to = out.get();
      kernel.Launch(comm, {&at, &to});
      kernel.Wait();
      void* found = nullptr;
      std::memcpy(&found, out.get(), sizeof(found));
      return found;
    };
    const auto expect_all = [&] {
      for (size_t w = 0; w < kWindows; ++w) {
        EXPECT_EQ(find(memory.at(w * kEach)), windows[w]) << w;
        EXPECT_EQ(find(memory.at(w * kEach + kEach - 97)), windows[w]) << w;
        EXPECT_EQ(find(memory.at(w * kEach + kEach - 96)), nullptr) << w;
      }
    };
    expect_all();
    for (size_t w = 3; w < kWindows; w += 5) {
      EXPECT_OK(ncclCommWindowDeregister(clique.comm(), windows[w]));
      windows[w] = nullptr;
    }
    expect_all();
    for (size_t w = 3; w < kWindows; w += 5)
      ASSERT_OK(ncclCommWindowRegister(clique.comm(), memory.at(w * kEach), kEach - 96, &windows[w], NCCL_WIN_DEFAULT));
    expect_all();
    ASSERT_TRUE(context.Barrier());
    EXPECT_OK(ncclDevCommDestroy(clique.comm(), comm.bytes));
    for (const ncclWindow_t window : windows) EXPECT_OK(ncclCommWindowDeregister(clique.comm(), window));
  });
}

// In the background, many at once; what is not destroyed ends with the communicator.
TEST(GpuDeviceComms, OfACommunicatorThatDoesNotBlock) {
  RunRanks(Threads(2), [](RankContext& context) {
    ASSERT_NE(EnterGpu(context.rank()), nullptr);
    ncclUniqueId id;
    ASSERT_TRUE(harness::ShareUniqueId(context, &id));
    const ncclComm_t comm = harness::BeginInit(id, 2, context.rank());
    ASSERT_EQ(harness::AwaitComm(context, comm), ncclSuccess);
    Wishes wishes{};
    wishes.lsa_barriers = 2;
    DeviceComm one(23007);
    EXPECT_EQ(one.Create(comm, wishes), ncclInProgress);
    ASSERT_EQ(harness::AwaitComm(context, comm), ncclSuccess);
    std::vector<DeviceComm> many(5, DeviceComm(0));
    ASSERT_OK(ncclGroupStart());
    for (DeviceComm& each : many) ASSERT_OK(each.Create(comm, wishes));
    EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
    ASSERT_EQ(harness::AwaitComm(context, comm), ncclSuccess);
    for (const DeviceComm& each : many) {
      EXPECT_NE(each.Get<uint64_t>(32), one.Get<uint64_t>(32));
      EXPECT_EQ(each.Get<int>(124), 2);
    }
    EXPECT_OK(ncclDevCommDestroy(comm, one.bytes));
    ASSERT_TRUE(context.Barrier());
    EXPECT_OK(ncclCommDestroy(comm));
  });
}

TEST(GpuDeviceComms, WhatCannotBeIsAnErrorAtOnce) {
  RunOnBothGpus(Threads(2), [](RankContext& context, Clique& clique) {
    DeviceComm comm(23007);
    const auto refuses = [&](const Wishes& wishes, ncclResult_t expected, std::initializer_list<const char*> words) {
      EXPECT_EQ(comm.Create(clique.comm(), wishes), expected);
      ExpectLastErrorHas({"ncclDevCommCreate"});
      ExpectLastErrorHas(words);
    };
    refuses({.barriers = 1}, ncclInvalidUsage, {"GIN"});
    refuses({.rail_barriers = 1}, ncclInvalidUsage, {"GIN"});
    refuses({.gin = true}, ncclInvalidUsage, {"GIN"});
    refuses({.signals = 1}, ncclInvalidUsage, {"GIN"});
    refuses({.lsa_barriers = -1}, ncclInvalidArgument, {"-1 barriers"});
    Resource buffer{nullptr, 64, 48, nullptr, 0, 0, nullptr, nullptr};
    refuses({.resources = &buffer}, ncclInvalidArgument, {"bufferAlign 48"});
    buffer = {nullptr, size_t{1} << 40, 16, nullptr, 0, 0, nullptr, nullptr};
    refuses({.resources = &buffer}, ncclInvalidArgument, {"buffers of more than"});
    buffer = {nullptr, 64, 16, nullptr, 0, 1, nullptr, nullptr};
    refuses({.resources = &buffer}, ncclInvalidUsage, {"GIN"});
    EXPECT_EQ(DeviceComm(23301).Create(clique.comm(), {}), ncclInvalidUsage);
    ExpectLastErrorHas({"compiled with NCCL 2.33.1", "2.28.7 to 2.32"});
    EXPECT_EQ(ncclDevCommCreate(clique.comm(), nullptr, comm.bytes), ncclInvalidArgument);
    const Wishes none{};
    EXPECT_EQ(ncclDevCommCreate(clique.comm(), &none, nullptr), ncclInvalidArgument);
    EXPECT_TRUE(
        std::all_of(std::begin(comm.bytes), std::end(comm.bytes), [](uint8_t byte) { return byte == kSentinel; }));
    ASSERT_TRUE(context.Barrier());
    // Nobody has waited for anybody, and nothing is left of it.
    EXPECT_OK(comm.Create(clique.comm(), {}));
    ASSERT_TRUE(context.Barrier());
  });
}

// All ranks learn of what one of them does differently, and may call again.
TEST(GpuDeviceComms, RanksThatDifferGetErrors) {
  RunOnBothGpus(Processes(2), [](RankContext& context, Clique& clique) {
    DeviceComm comm(0);
    Wishes wishes{};
    wishes.lsa_barriers = 1000 * (context.rank() + 1);
    EXPECT_EQ(comm.Create(clique.comm(), wishes), ncclInvalidUsage);
    ExpectLastErrorHas({"ncclDevCommCreate", "rank 0", "rank 1", "same requirements"});
    const WindowMemory memory(kChunk);
    ncclWindow_t window = nullptr;
    EXPECT_EQ(context.rank() == 0
                  ? comm.Create(clique.comm(), {})
                  : ncclCommWindowRegister(clique.comm(), memory.at(), kChunk, &window, NCCL_WIN_DEFAULT),
              ncclInvalidUsage);
    ExpectLastErrorHas({"rank 0 called ncclDevCommCreate", "rank 1 called ncclCommWindowRegister"});
    EXPECT_EQ(window, nullptr);
    ASSERT_TRUE(context.Barrier());
    wishes.lsa_barriers = 1000;
    EXPECT_OK(comm.Create(clique.comm(), wishes));
    ASSERT_TRUE(context.Barrier());
    EXPECT_OK(ncclDevCommDestroy(clique.comm(), comm.bytes));
    ASSERT_TRUE(context.Barrier());
  });
}

TEST(GpuDeviceComms, AreAmongTheProperties) {
  RunOnBothGpus(Processes(2), [](RankContext& context, Clique& clique) {
    Properties properties;
    std::memset(&properties, kSentinel, sizeof(properties));
    properties.size = sizeof(properties);
    properties.magic = kMagic;
    properties.version = 23007;
    ASSERT_OK(ncclCommQueryProperties(clique.comm(), &properties));
    EXPECT_EQ(properties.rank, context.rank());
    EXPECT_EQ(properties.ranks, 2);
    EXPECT_EQ(properties.device, context.rank() % 2);
    EXPECT_TRUE(properties.kernels);
    EXPECT_TRUE(properties.multimem);
    EXPECT_EQ(properties.gin, 0);
    EXPECT_EQ(properties.teams, 1);
    EXPECT_FALSE(properties.one_sided);
    EXPECT_EQ(properties.railed_gin, 0);
    properties.teams = 77;
    properties.version = 22902;
    properties.size = 40;
    ASSERT_OK(ncclCommQueryProperties(clique.comm(), &properties));
    EXPECT_EQ(properties.teams, 77);
    properties.magic = 0;
    EXPECT_EQ(ncclCommQueryProperties(clique.comm(), &properties), ncclInvalidUsage);
    ExpectLastErrorHas({"NCCL_COMM_PROPERTIES_INITIALIZER"});
  });
}

// Barriers and buffers of kernels' own, for a team of any size.
TEST(GpuDeviceComms, RequirementsAreThoseOfNccl) {
  struct {
    uint32_t handle;
    int barriers;
  } barrier{};
  Resource resource{nullptr, 1, 1, nullptr, 7, 7, nullptr, nullptr};
  ASSERT_OK(ncclLsaBarrierCreateRequirement({5, 0, 1}, 4, &barrier, &resource));
  EXPECT_EQ(barrier.barriers, 4);
  EXPECT_EQ(resource.size, (3 * 4 + 4 * 5) * sizeof(uint32_t));
  EXPECT_EQ(resource.handle, &barrier.handle);
  EXPECT_EQ(resource.signals + resource.counters, 0);
  struct {
    uint32_t handle, slots;
  } exchange{};
  ASSERT_OK(ncclLLA2ACreateRequirement(3, 10, &exchange, &resource));
  EXPECT_EQ(exchange.slots, 10u);
  EXPECT_EQ(resource.size, 3u * 21 * 16);
  EXPECT_EQ(resource.align, 16u);
  EXPECT_EQ(resource.handle, &exchange.handle);
  EXPECT_EQ(ncclLLA2ACalcSlots(6, 20), 18);
  EXPECT_EQ(ncclLsaBarrierCreateRequirement({5, 0, 1}, -1, &barrier, &resource), ncclInvalidArgument);
  EXPECT_EQ(ncclLLA2ACreateRequirement(3, 10, nullptr, &resource), ncclInvalidArgument);
  EXPECT_EQ(ncclLLA2ACalcSlots(-1, 8), 0);
}

}  // namespace
}  // namespace axccl::tests
