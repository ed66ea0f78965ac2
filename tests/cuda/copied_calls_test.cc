// Calls that copy engines make, because CTAPolicy is zero and buffers are in symmetric windows: which these are, that
// they are right, and in what order with other calls they come. What NCCL promises is in src/exec/cuda/copied_calls.h.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/collectives/owned_view.h"
#include "tests/cuda/graph.h"
#include "tests/cuda/symmetric_memory.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::Call;
using harness::Case;
using harness::Clique;
using harness::Cuda;
using harness::Fold;
using harness::Layout;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::Seed;

constexpr size_t kLarge = 70'003;  // for which kernels take several blocks
constexpr size_t kSend = 4096, kSpare = size_t{1} << 20, kRecv = size_t{3} << 20, kAll = size_t{6} << 20;
constexpr size_t kWord = sizeof(int32_t);

ncclResult_t Gather(const Symmetric& memory, int i, const Clique& clique, axcclStream_t stream, size_t count = kLarge,
                    size_t send = kSend) {
  return ncclAllGather(memory.at(i, send), memory.at(i, kRecv), count, ncclInt32, clique.comm(i), Cuda(stream));
}

// Block b of what was gathered is `first + b`.
bool AreGathered(const Symmetric& memory, int i, int n, int32_t first = 1) {
  const std::vector<int32_t> words = memory.ReadWords(i, kRecv, static_cast<size_t>(n) * kLarge);
  for (size_t e = 0; e < words.size(); ++e) {
    if (words[e] != first + static_cast<int32_t>(e / kLarge)) return false;
  }
  return true;
}

struct Ranks {
  Layout layout;
  int devices;
};

class CopiedCalls : public testing::TestWithParam<Ranks> {};
INSTANTIATE_TEST_SUITE_P(Layouts, CopiedCalls,
                         testing::Values(Ranks{harness::Threads(2), 2}, Ranks{harness::Threads(3), 1},
                                         Ranks{harness::Threads(8), 8}, Ranks{harness::OneThread(3), 1},
                                         Ranks{harness::Processes(2), 2}, Ranks{harness::Processes(5), 5},
                                         Ranks{{2, 2, 1}, 4}, Ranks{{2, 1, 2}, 1}),
                         [](const auto& info) {
                           return info.param.layout.Text() + "on" + std::to_string(info.param.devices);
                         });

TEST_P(CopiedCalls, AreRight) {
  const auto body = [](RankContext& context) {
    SCOPED_TRACE("AXCCL_TEST_SEED=" + std::to_string(Seed()));
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Symmetric memory(clique, kAll);
    uint64_t number = 0;
    for (const Call call : {Call::kAllGather, Call::kAllToAll, Call::kBroadcast, Call::kBcast}) {
      for (const size_t count : {size_t{1}, size_t{999}, kLarge}) {
        for (const bool bytes : {true, false}) {
          const bool in_place = call == Call::kBcast || (call != Call::kAllToAll && number % 2 == 0);
          const auto root = static_cast<int>(++number % static_cast<uint64_t>(context.nranks()));
          const Case c{call, bytes ? ncclInt8 : ncclInt32, Fold::kSum, count, root, Seed() + number};
          ASSERT_TRUE(context.Step("%s%s", c.Text().c_str(), in_place ? " in place" : ""));
          ASSERT_NO_FATAL_FAILURE(RunCase(clique, memory, c, bytes ? 1 : kWord, in_place));
          for (int i = 0; i < clique.size(); ++i) EXPECT_TRUE(ByEngines(clique.comm(i)));
          EXPECT_LE(LastBlocks(), static_cast<uint64_t>(context.local_ranks()));
        }
      }
    }
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(GetParam().layout, body, Zero(GetParam().devices));
}

// Each call has what the one before it has made, by a kernel or not, on another stream, which the library alone orders.
TEST_P(CopiedCalls, FollowOthersInOrder) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    const int n = context.nranks();
    const auto ranks = static_cast<size_t>(n);
    constexpr size_t kCount = 20'001;
    const Symmetric memory(clique, kAll);
    using One = std::function<ncclResult_t(int, ncclComm_t, cudaStream_t)>;
    const auto on_all = [&](int which, const One& call) {
      ASSERT_OK(ncclGroupStart());
      for (int i = 0; i < clique.size(); ++i) ASSERT_OK(call(i, clique.comm(i), Cuda(clique.stream(i, which))));
      ASSERT_OK(ncclGroupEnd());
    };
    constexpr size_t kSums = size_t{4} << 20;
    for (int round = 0; round < 4; ++round) {
      for (int i = 0; i < clique.size(); ++i) memory.Fill(i, kSend, kCount, round + clique.rank(i));
      on_all(0, [&](int i, auto comm, auto stream) {
        return ncclAllGather(memory.at(i, kSend), memory.at(i, kRecv), kCount, ncclInt32, comm, stream);
      });
      on_all(1, [&](int i, auto comm, auto stream) {
        return ncclAllReduce(memory.at(i, kRecv), memory.at(i, kSums), ranks * kCount, ncclInt32, ncclSum, comm,
                             stream);
      });
      on_all(0, [&](int i, auto comm, auto stream) {
        return ncclAlltoAll(memory.at(i, kSums), memory.at(i, kSpare), kCount, ncclInt32, comm, stream);
      });
      on_all(1, [&](int i, auto comm, auto stream) {
        return ncclBroadcast(memory.at(i, kSpare), memory.at(i, kSend), kCount, ncclInt32, 1, comm, stream);
      });
      ASSERT_TRUE(clique.Synchronize());
      for (int i = 0; i < clique.size(); ++i) {
        const std::vector<int32_t> exchanged = memory.ReadWords(i, kSpare, ranks * kCount);
        ASSERT_EQ(exchanged, std::vector<int32_t>(ranks * kCount, n * (round + clique.rank(i)))) << round;
        ASSERT_EQ(memory.ReadWords(i, kSend, kCount), std::vector<int32_t>(kCount, n * (round + 1))) << round;
      }
      ASSERT_TRUE(context.Barrier());
    }
  };
  RunRanks(GetParam().layout, body, Zero(GetParam().devices));
}

// ---- which calls ----

TEST(Engines, MakeLargeCallsThatOnlyMoveData) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Symmetric memory(clique, kAll);
    const cudaStream_t stream = Cuda(clique.stream());
    const auto expect = [&](bool by_engines, ncclResult_t called) {
      ASSERT_OK(called);
      ASSERT_TRUE(clique.Synchronize());
      EXPECT_EQ(ByEngines(clique.comm()), by_engines);
    };
    memory.Fill(0, kSend, 2048, 1);
    expect(false, Gather(memory, 0, clique, clique.stream(), 511));
    expect(true, Gather(memory, 0, clique, clique.stream(), 512));
    char* const in = memory.at(0, kSend);
    char* const out = memory.at(0, kRecv);
    expect(false, ncclAllReduce(in, out, 2048, ncclInt32, ncclSum, clique.comm(), stream));
    EXPECT_EQ(memory.ReadWords(0, kRecv, 2048), std::vector<int32_t>(2048, 2));
    expect(false, ncclGather(in, out, 2048, ncclInt32, 0, clique.comm(), stream));
    expect(false, axcclAllGather(1, View(memory.words(0, kSend), {2, 512}), View(memory.words(0, kRecv), {2, 1024}), 1,
                                 axcclDefaultChannel(clique.comm()), nullptr, stream));
    // What others read is not in the window.
    Words outside(4096, 3);
    ASSERT_TRUE(context.Barrier());
    expect(false, ncclAllGather(outside.get(), out, 2048, ncclInt32, clique.comm(), stream));
    EXPECT_EQ(memory.ReadWords(0, kRecv, 4096), std::vector<int32_t>(4096, 3));
    expect(false, ncclBroadcast(in, outside.get(), 2048, ncclInt32, 0, clique.comm(), stream));
    // What a rank alone writes need not be.
    expect(true, ncclAllGather(in, outside.get(), 2048, ncclInt32, clique.comm(), stream));
    EXPECT_TRUE(outside.AreAll(1));
    // The end of the window, and one word more than it has.
    expect(true, ncclAllGather(memory.at(0, kAll - 512 * kWord), out, 512, ncclInt32, clique.comm(), stream));
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Threads(2), body, Zero(2, "20", "4096"));
}

// If some ranks have another policy, kernels make all calls, with more blocks. A communicator that is split off has the
// policy of its parent.
TEST(Engines, AreForRanksThatAllHaveThePolicy) {
  for (const Layout& layout : {harness::Threads(2), harness::Processes(2)}) {
    RunOptions options = Zero(2);
    options.environment[0].second = "";
    const auto body = [](RankContext& context) {
      for (int zeros = 0; zeros <= 2; ++zeros) {
        ASSERT_NE(harness::EnterGpu(context.rank()), nullptr);
        ncclUniqueId id;
        ASSERT_TRUE(harness::ShareUniqueId(context, &id));
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        if (context.rank() < zeros) config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
        ncclComm_t comm = nullptr, child = nullptr;
        ASSERT_OK(ncclCommInitRankConfig(&comm, 2, id, context.rank(), &config));
        Clique cliques[2];
        ASSERT_TRUE(cliques[0].Adopt(comm));
        ASSERT_OK(ncclCommSplit(comm, 0, -context.rank(), &child, nullptr));
        ASSERT_TRUE(cliques[1].Adopt(child));
        for (Clique& clique : cliques) {
          const Symmetric memory(clique, kAll);
          memory.Fill(0, kSend, kLarge, clique.rank(0) + 1);
          ASSERT_OK(Gather(memory, 0, clique, clique.stream()));
          ASSERT_TRUE(clique.Synchronize());
          EXPECT_TRUE(AreGathered(memory, 0, 2));
          EXPECT_EQ(ByEngines(clique.comm()), zeros == 2);
          if (LastBlocks() != 0) {
            EXPECT_EQ(LastBlocks() > 1, zeros < 2);
          }
          ASSERT_TRUE(context.Barrier());
        }
      }
    };
    RunRanks(layout, body, options);
  }
}

// Ranks that do not all register a window as symmetric, or have deregistered it, may call with any buffers.
TEST(Engines, AreForSymmetricWindows) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const int flags = context.rank() == 0 ? NCCL_WIN_COLL_SYMMETRIC : NCCL_WIN_DEFAULT;
    for (const bool symmetric : {false, true}) {
      Symmetric memory(clique, kAll, symmetric ? NCCL_WIN_COLL_SYMMETRIC : flags);
      for (const bool deregistered : {false, true}) {
        if (deregistered) memory.Deregister();
        const size_t send = symmetric && !deregistered ? kSend : kSend + 64 * static_cast<size_t>(context.rank());
        memory.Fill(0, send, kLarge, context.rank() + 1);
        ASSERT_OK(Gather(memory, 0, clique, clique.stream(), kLarge, send));
        ASSERT_TRUE(clique.Synchronize());
        EXPECT_TRUE(AreGathered(memory, 0, 2));
        EXPECT_EQ(ByEngines(clique.comm()), symmetric && !deregistered);
        ASSERT_TRUE(context.Barrier());
      }
    }
  };
  RunRanks(harness::Threads(2), body, Zero(2));
  RunRanks(harness::Processes(2), body, Zero(2));
}

// They read through the window, not at the address that the caller passes, at which other devices may not access it.
TEST(Engines, ReadMemoryOfAWindowAlone) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    constexpr size_t kOutput = 1 << 20, kCount = kOutput / kWord / 4;
    const ChunkedMemory memory(1, true);
    ncclWindow_t window;
    ASSERT_OK(ncclCommWindowRegister(clique.comm(), memory.at(), kChunk, &window, NCCL_WIN_COLL_SYMMETRIC));
    const auto input = reinterpret_cast<uint64_t>(memory.at());
    EXPECT_EQ(harness::EnterGpu()->fill(input, static_cast<unsigned>(context.rank() + 1), kCount, nullptr), 0);
    EXPECT_EQ(harness::EnterGpu()->synchronize(nullptr), 0);
    ASSERT_OK(ncclAllGather(memory.at(), memory.at(kOutput), kCount, ncclInt32, clique.comm(), Cuda(clique.stream())))
        << ncclGetLastError(nullptr);
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_TRUE(ByEngines(clique.comm()));
    std::vector<int32_t> words(2 * kCount), gathered(kCount, 1);
    gathered.resize(2 * kCount, 2);
    const auto output = reinterpret_cast<uint64_t>(memory.at(kOutput));
    EXPECT_EQ(harness::EnterGpu()->copy_to_host(words.data(), output, words.size() * kWord), 0);
    EXPECT_EQ(words, gathered);
    ASSERT_OK(ncclCommWindowDeregister(clique.comm(), window));
    ASSERT_TRUE(context.Barrier());
  };
  RunOptions options = Zero(2);
  options.environment.emplace_back("NCCL_ALGO", "direct");  // what kernels would do
  RunRanks(harness::Threads(2), body, options);
}

TEST(Engines, MoveBetweenDevicesThatOneThreadDrives) {
  const auto body = [](RankContext&) {
    constexpr int kRanks = 4;
    const int devices[kRanks] = {2, 0, 3, 1};
    ncclComm_t comms[kRanks];
    ncclWindow_t windows[kRanks];
    axcclStream_t streams[kRanks];
    std::vector<std::unique_ptr<WindowMemory>> memory;
    ASSERT_OK(ncclCommInitAll(comms, kRanks, devices));
    for (int r = 0; r < kRanks; ++r) {
      const harness::GpuDriver* const driver = harness::EnterGpu(devices[r]);
      ASSERT_NE(driver, nullptr);
      ASSERT_OK(harness::CreateStream(&streams[r]));
      memory.push_back(std::make_unique<WindowMemory>(kAll));
      const auto send = reinterpret_cast<uint64_t>(memory.back()->at(kSend));
      ASSERT_EQ(driver->fill(send, static_cast<unsigned>(r), kLarge, streams[r]), 0);
    }
    ASSERT_OK(ncclGroupStart());
    for (size_t r = 0; r < kRanks; ++r)
      ASSERT_OK(ncclCommWindowRegister(comms[r], memory[r]->at(), kAll, &windows[r], NCCL_WIN_COLL_SYMMETRIC));
    ASSERT_OK(ncclGroupEnd());
    for (int round = 0; round < 3; ++round) {
      ASSERT_OK(ncclGroupStart());
      for (size_t r = 0; r < kRanks; ++r)
        ASSERT_OK(
            ncclAllGather(memory[r]->at(kSend), memory[r]->at(kRecv), kLarge, ncclInt32, comms[r], Cuda(streams[r])));
      ASSERT_OK(ncclGroupEnd());
    }
    for (size_t r = 0; r < kRanks; ++r) {
      ASSERT_OK(harness::SynchronizeStream(streams[r]));
      EXPECT_TRUE(ByEngines(comms[r]));
      EXPECT_LE(LastBlocks(), 1u);
      std::vector<int32_t> words(kRanks * kLarge);
      const auto from = reinterpret_cast<uint64_t>(memory[r]->at(kRecv));
      ASSERT_EQ(harness::EnterGpu()->copy_to_host(words.data(), from, words.size() * kWord), 0);
      for (size_t e = 0; e < words.size(); ++e) ASSERT_EQ(words[e], static_cast<int32_t>(e / kLarge));
    }
    for (size_t r = 0; r < kRanks; ++r) {
      ASSERT_OK(ncclCommDestroy(comms[r]));
      ASSERT_OK(harness::DestroyStream(streams[r]));
    }
  };
  RunRanks(harness::OneThread(1), body, Zero(4));
}

// On the legacy stream, and by a thread that has no context.
TEST(Engines, ServeAnyStreamAndThread) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Symmetric memory(clique, kAll);
    for (const bool legacy : {true, false}) {
      memory.Fill(0, kSend, kLarge, context.rank() + (legacy ? 1 : 2));
      const axcclStream_t stream = legacy ? nullptr : clique.stream();
      const auto call = [&] { EXPECT_OK(Gather(memory, 0, clique, stream)); };
      legacy ? call() : std::thread(call).join();
      ASSERT_OK(harness::SynchronizeStream(stream));
      EXPECT_TRUE(AreGathered(memory, 0, 2, legacy ? 1 : 2));
      EXPECT_TRUE(ByEngines(clique.comm()));
    }
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Threads(2), body, Zero(2));
}

// ---- order ----

// Some ranks call on two communicators in a group, others one after the other: a launch that waited for both before it
// lets the first end would wait for ever.
TEST(Order, OfAGroupIsThatOfTheProgram) {
  const auto body = [](RankContext& context) {
    Clique cliques[2];
    for (Clique& clique : cliques) ASSERT_TRUE(clique.Init(context));
    const int n = context.nranks();
    const axcclStream_t stream = cliques[0].stream();
    const Symmetric memory(cliques[0], kAll), others(cliques[1], kAll);
    for (int round = 0; round < 12; ++round) {
      ASSERT_TRUE(context.Step("round %d", round));
      memory.Fill(0, kSend, kLarge, context.rank() + 1 + round);
      others.Fill(0, kSend, kLarge, context.rank() + 1 + 2 * round);
      const std::function<void()> calls[] = {
          [&] { ASSERT_OK(Gather(memory, 0, cliques[0], stream)); },
          [&] {
            ASSERT_OK(ncclAllReduce(others.at(0, kSpare), others.at(0, kSpare), kLarge, ncclInt32, ncclMax,
                                    cliques[1].comm(), Cuda(stream)));
          },
          [&] { ASSERT_OK(Gather(others, 0, cliques[1], stream)); },
      };
      const bool in_group = (context.rank() + round) % 3 == 0;
      if (in_group) {
        ASSERT_OK(ncclGroupStart());
      }
      for (size_t i = 0; i < 3; ++i) calls[(i + static_cast<size_t>(round)) % 3]();
      if (in_group) {
        ASSERT_OK(ncclGroupEnd());
      }
      ASSERT_TRUE(cliques[0].Synchronize());
      EXPECT_TRUE(AreGathered(memory, 0, n, 1 + round));
      EXPECT_TRUE(AreGathered(others, 0, n, 1 + 2 * round));
      ASSERT_TRUE(context.Barrier());
    }
  };
  RunRanks(harness::Threads(3), body, Zero(3));
}

// Several calls of a communicator in one group follow each other, also where ranks share a device and a launch.
TEST(Order, WithinAGroup) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const int n = context.nranks();
    const auto all = static_cast<size_t>(n) * kLarge;
    const Symmetric memory(clique, kAll);
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < clique.size(); ++i) memory.Fill(i, kSend, kLarge, clique.rank(i) + 1);
      ASSERT_TRUE(context.Barrier());
      ASSERT_OK(ncclGroupStart());
      for (int i = 0; i < clique.size(); ++i) {
        const ncclComm_t comm = clique.comm(i);
        const cudaStream_t stream = Cuda(clique.stream(i));
        ASSERT_OK(Gather(memory, i, clique, clique.stream(i)));
        ASSERT_OK(ncclAllReduce(memory.at(i, kRecv), memory.at(i, kRecv), all, ncclInt32, ncclSum, comm, stream));
        ASSERT_OK(ncclAlltoAll(memory.at(i, kRecv), memory.at(i, kSpare), kLarge, ncclInt32, comm, stream));
        ASSERT_OK(ncclBroadcast(memory.at(i, kSpare), memory.at(i, kSend), 1, ncclInt32, 1, comm, stream));
      }
      ASSERT_OK(ncclGroupEnd());
      ASSERT_TRUE(clique.Synchronize());
      for (int i = 0; i < clique.size(); ++i) {
        ASSERT_EQ(memory.ReadWords(i, kSpare, all), std::vector<int32_t>(all, n * (clique.rank(i) + 1)));
        EXPECT_EQ(memory.ReadWords(i, kSend, 1)[0], n * 2);
      }
      ASSERT_TRUE(context.Barrier());
    }
  };
  RunRanks(harness::OneThread(3), body, Zero(1));
  RunRanks(harness::Threads(2), body, Zero(2));
  RunRanks({2, 1, 2}, body, Zero(1));
}

// ---- graphs ----

class Graphs : public testing::TestWithParam<Ranks> {};
INSTANTIATE_TEST_SUITE_P(Layouts, Graphs,
                         testing::Values(Ranks{harness::Threads(2), 2}, Ranks{harness::Processes(3), 3}),
                         [](const auto& info) { return info.param.layout.Text(); });

// Some ranks launch a graph, others call.
TEST_P(Graphs, MeetCalls) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const int n = context.nranks();
    const Symmetric memory(clique, kAll);
    Graph graph;
    const auto gather = [&] { ASSERT_OK(Gather(memory, 0, clique, clique.stream())); };
    ASSERT_NO_FATAL_FAILURE(graph.Capture(clique.stream(), gather));
    EXPECT_TRUE(ByEngines(clique.comm()));
    for (int round = 1; round < 8; ++round) {
      memory.Fill(0, kSend, kLarge, round + context.rank());
      if ((round + context.rank()) % 3 != 0) {
        ASSERT_NO_FATAL_FAILURE(graph.Launch(clique.stream()));
      } else {
        ASSERT_NO_FATAL_FAILURE(gather());
      }
      if (round % 4 == 0) {
        ASSERT_OK(ncclAllReduce(memory.at(0, kSpare), memory.at(0, kSpare), kLarge, ncclInt32, ncclMax, clique.comm(),
                                Cuda(clique.stream())));
      }
      ASSERT_TRUE(clique.Synchronize());
      ASSERT_TRUE(AreGathered(memory, 0, n, round)) << round;
      ASSERT_TRUE(context.Barrier());
    }
  };
  RunRanks(GetParam().layout, body, Zero(GetParam().devices));
}

// ---- what it costs ----

// What a kernel has (driver_calls_test.cc), the context, another launch, and a copy from each rank.
TEST(WarmCalls, OfOneRank) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Symmetric memory(clique, kAll);
    for (int i = 0; i < 3; ++i) ASSERT_OK(Gather(memory, 0, clique, clique.stream()));
    const GpuCounter calls = CounterOf("softgpu_calls"), forget = CounterOf("softgpu_forget_calls");
    if (calls == nullptr || forget == nullptr) return;
    forget();
    ASSERT_OK(Gather(memory, 0, clique, clique.stream()));
    const std::string list = reinterpret_cast<const char*>(CounterOf("softgpu_list_calls")());
    EXPECT_LE(calls(), 4u + 1 + 1 + 2) << list;
    EXPECT_NE(list.find("cuMemcpyAsync"), std::string::npos) << list;
    ASSERT_TRUE(clique.Synchronize());
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Threads(2), body, Zero(2));
}

// What copies have read goes soon after the window, although the communicator goes on.
TEST(WarmCalls, LeaveNothingBehind) {
  const auto free_bytes = [] {
    size_t free = 0, total = 0;
    EXPECT_EQ(harness::EnterGpu()->memory_info(&free, &total), 0);
    return free;
  };
  const auto body = [&](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    size_t before = 0;
    for (int round = 0; round < 6; ++round) {
      {
        Symmetric memory(clique, kAll);
        for (int call = 0; call < 3; ++call) ASSERT_OK(Gather(memory, 0, clique, clique.stream()));
        ASSERT_TRUE(clique.Synchronize());
        ASSERT_TRUE(context.Barrier());
        memory.Deregister();
      }
      ASSERT_TRUE(context.Barrier());
      if (round == 0) before = free_bytes() - kAll;  // in case that it is not gone yet
      const uint64_t start = harness::NowNs();
      while (free_bytes() < before && harness::NowNs() < start + harness::AllowedNs(2000)) harness::LookLater();
      ASSERT_GE(free_bytes(), before) << "round " << round;
      ASSERT_TRUE(context.Barrier());
    }
  };
  RunRanks(harness::Processes(2), body, Zero(2));
}

}  // namespace
}  // namespace axccl::tests
