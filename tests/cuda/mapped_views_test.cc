// Large calls on views of GPU ranks in several processes: staged until all ranks have mapped the memory of all
// operands, then read where they are, whatever their strides.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/graph.h"
#include "tests/cuda/matrix_calls.h"
#include "tests/cuda/words.h"
#include "tests/harness/channels.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::EnterGpu;
using harness::Layout;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

constexpr int64_t kRows = 60, kColumns = 70;

RunOptions Mapping(std::vector<std::pair<std::string, std::string>> more = {}) {
  RunOptions options = SmallGpu(2);
  options.environment.insert(options.environment.end(), {{"NCCL_P2P_DIRECT_DISABLE", "1"},  // for ranks of one process
                                                         {"AXCCL_MAP_BYTES", "16K"},
                                                         {"NCCL_ALGO", "direct"}});
  for (auto& variable : more) options.environment.push_back(std::move(variable));
  return options;
}

uint64_t Mapped(const Clique& clique) { return harness::InfoOf(clique.comm()).mapped; }

struct Buffers {
  Buffers(const MatrixCall& call, const Form& form, DeviceRoom* room)
      : in(room, call.in_rows, call.in_columns, form.in_turned, form.in_gap),
        out(room, call.out_rows, call.out_columns, form.out_turned, form.out_gap) {}
  Matrix in, out;
};

// Makes the call and checks it. Returns how many calls went from buffer to buffer.
uint64_t Make(const MatrixCall& call, int rank, int round, const Clique& clique, Buffers* buffers) {
  const uint64_t before = Mapped(clique);
  buffers->in.Fill(rank, round);
  EXPECT_OK(call.call(buffers->in.view(), buffers->out.view())) << call.name;
  EXPECT_OK(harness::SynchronizeStream(clique.stream()));
  EXPECT_EQ(buffers->out.CountWrong(call.expected), 0) << call.name << ", round " << round;
  return Mapped(clique) - before;
}

// Each kind of call, three times each: by the third, all ranks have mapped what they had to.
void MakeAll(RankContext& context, const MatrixGroup& group, const Clique& clique, DeviceRoom* room) {
  for (size_t kind = 0; kind <= group.Calls(0).size(); ++kind) {
    const auto call_of = [&](int round) {
      const std::vector<MatrixCall> calls = group.Calls(round);
      return kind < calls.size() ? calls[kind] : group.PassOn(round);
    };
    room->Reset();
    Buffers buffers(call_of(0), Form::Of(group.rank, static_cast<int>(kind)), room);
    for (int round = 0; round < 3; ++round) {
      const MatrixCall call = call_of(round);
      const uint64_t mapped = Make(call, group.rank, round, clique, &buffers);
      const uint64_t all = kind < group.Calls(0).size() ? 1 : 2;
      EXPECT_TRUE(mapped == all || (mapped == 0 && round < 2)) << call.name << ", round " << round;
      ASSERT_TRUE(context.Barrier());
    }
  }
}

class MappedViewsTest : public testing::TestWithParam<Layout> {};  // one rank a thread

TEST_P(MappedViewsTest, WhateverTheStrides) {
  RunRanks(
      GetParam(),
      [](RankContext& context) {
        ASSERT_NE(EnterGpu(context.rank() % 2), nullptr);
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        DeviceRoom room;
        const int n = context.nranks(), rank = context.rank();
        ASSERT_TRUE(context.Barrier());
        const axcclChannel_t all = axcclDefaultChannel(clique.comm());
        ASSERT_NO_FATAL_FAILURE(MakeAll(context, {all, n, rank, kRows, kColumns, clique.stream()}, clique, &room));
        const axcclChannel_t created = harness::MakeChannel(clique.comm(), n, {}, 9);
        ASSERT_NO_FATAL_FAILURE(MakeAll(context, {created, n, rank, kRows, kColumns, clique.stream()}, clique, &room));
        EXPECT_OK(axcclChannelDestroy(created));
        ASSERT_TRUE(context.Barrier());
      },
      Mapping());
}

// Their memory cannot be shared with other processes.
TEST_P(MappedViewsTest, OutOfReachOnOneRank) {
  RunRanks(
      GetParam(),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        DeviceRoom room(size_t{16} << 20, context.rank() == 0);
        const MatrixGroup group{
            axcclDefaultChannel(clique.comm()), context.nranks(), context.rank(), kRows, kColumns, clique.stream()};
        ASSERT_TRUE(context.Barrier());
        for (size_t kind = 0; kind <= MatrixGroup::kAllToAll; ++kind) {
          room.Reset();
          Buffers buffers(group.Calls(0)[kind], Form::Of(group.rank, 3), &room);
          for (int round = 0; round < 4; ++round) {
            EXPECT_EQ(Make(group.Calls(round)[kind], group.rank, round, clique, &buffers), 0u);
            ASSERT_TRUE(context.Barrier());
          }
        }
      },
      Mapping());
}

INSTANTIATE_TEST_SUITE_P(Layouts, MappedViewsTest,
                         testing::Values(harness::Processes(2), harness::Processes(3), Layout{2, 2, 1}),
                         [](const auto& info) { return info.param.Text(); });

// A list of matrices, some of them in other allocations; and a graph, which keeps the state of its capture.
TEST(MappedViews, ListsAndGraphs) {
  RunRanks(
      harness::Processes(2),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        DeviceRoom one, other;
        const int rank = context.rank();
        const MatrixGroup group{axcclDefaultChannel(clique.comm()), 2, rank, kRows, kColumns, clique.stream()};
        constexpr size_t kMany = 5;
        std::vector<Buffers> buffers;
        const MatrixCall gather = group.Calls(0)[MatrixGroup::kAllGather];
        for (size_t i = 0; i < kMany; ++i)
          buffers.emplace_back(gather, Form::Of(rank, static_cast<int>(i)), i % 2 == 0 ? &one : &other);
        const auto call = [&] {
          std::vector<std::unique_ptr<View>> views;  // they stay where they are
          std::vector<axcclView_t> in, out;
          for (Buffers& each : buffers) {
            in.push_back(views.emplace_back(new View(each.in.view()))->view);
            out.push_back(views.emplace_back(new View(each.out.view()))->view);
          }
          ASSERT_OK(
              axcclAllGather(kMany, in.data(), out.data(), 1, group.channel, nullptr, harness::Cuda(clique.stream())));
        };
        Graph before, after;
        ASSERT_TRUE(context.Barrier());
        ASSERT_NO_FATAL_FAILURE(before.Capture(clique.stream(), call));
        for (int round = 0; round < 8; ++round) {
          const uint64_t mapped = Mapped(clique);
          for (Buffers& each : buffers) each.in.Fill(rank, round);
          const bool early = round == 3, late = round > 4;
          if (round == 4) {
            ASSERT_NO_FATAL_FAILURE(after.Capture(clique.stream(), call));
          }
          ASSERT_NO_FATAL_FAILURE(early  ? before.Launch(clique.stream())
                                  : late ? after.Launch(clique.stream())
                                         : call());
          ASSERT_TRUE(clique.Synchronize());
          const MatrixCall expected = group.Calls(round)[MatrixGroup::kAllGather];
          for (Buffers& each : buffers) EXPECT_EQ(each.out.CountWrong(expected.expected), 0) << round;
          if (round >= 2) {
            EXPECT_EQ(Mapped(clique) - mapped, early ? 0u : 1u) << round;
          }
          ASSERT_TRUE(context.Barrier());
        }
        before.Destroy();
        after.Destroy();
        ASSERT_TRUE(context.Barrier());
      },
      Mapping());
}

// Memory that is freed, and other memory in its place.
TEST(MappedViews, MemoryThatComesAndGoes) {
  RunRanks(
      harness::Processes(2),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        const int rank = context.rank();
        const MatrixGroup group{axcclDefaultChannel(clique.comm()), 2, rank, kRows, kColumns, clique.stream()};
        for (int round = 0; round < 40; ++round) {
          {
            DeviceRoom room(size_t{1} << 20);
            ASSERT_TRUE(context.Barrier());
            const MatrixCall call = group.Calls(round)[static_cast<size_t>(round) % 4];
            Buffers buffers(call, Form::Of(rank, round), &room);
            for (int again = 0; again < 3; ++again) Make(call, rank, round, clique, &buffers);
            ASSERT_TRUE(context.Barrier());
          }
          ASSERT_TRUE(context.Barrier());
        }
        EXPECT_GE(Mapped(clique), 40u);
        ASSERT_TRUE(context.Barrier());
      },
      Mapping());
}

// More allocations than can be shared at a time, or one that cannot be: such a list goes through scratch, and takes
// nothing away from other calls.
TEST(MappedViews, ListsThatAreTooLongLeaveRoomForOthers) {
  RunRanks(
      harness::Processes(2),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        constexpr int kMost = 300;
        constexpr int64_t kWords = 40;
        const auto sum_all = [&](int count, const std::vector<std::unique_ptr<DeviceRoom>>& rooms, int first = 0) {
          std::vector<uint64_t> at;
          std::vector<std::unique_ptr<View>> views;
          std::vector<axcclView_t> all;
          for (int i = 0; i < count; ++i) {
            DeviceRoom& room = *rooms[static_cast<size_t>(first + i)];
            room.Reset();
            at.push_back(room.Take(kWords * 4));
            const std::vector<int32_t> words(kWords, i + 1);
            ASSERT_EQ(EnterGpu()->copy_to_device(at.back(), words.data(), kWords * 4), 0);
            views.push_back(std::make_unique<View>(reinterpret_cast<void*>(at.back()), std::vector<int64_t>{kWords}));
            all.push_back(views.back()->view);
          }
          ASSERT_OK(axcclAllReduce(count, all.data(), all.data(), ncclSum, axcclDefaultChannel(clique.comm()), nullptr,
                                   harness::Cuda(clique.stream())));
          ASSERT_TRUE(clique.Synchronize());
          for (int i = 0; i < count; ++i) {
            std::vector<int32_t> words(kWords);
            ASSERT_EQ(EnterGpu()->copy_to_host(words.data(), at[static_cast<size_t>(i)], kWords * 4), 0);
            ASSERT_EQ(words, std::vector<int32_t>(kWords, 2 * (i + 1))) << i;
          }
          ASSERT_TRUE(context.Barrier());
        };
        std::vector<std::unique_ptr<DeviceRoom>> many, managed;
        for (int i = 0; i < kMost; ++i) many.push_back(std::make_unique<DeviceRoom>(256));
        for (int i = 0; i < 20; ++i) managed.push_back(std::make_unique<DeviceRoom>(256, i == 0));
        ASSERT_TRUE(context.Barrier());
        for (int round = 0; round < 3; ++round) {
          ASSERT_NO_FATAL_FAILURE(sum_all(kMost, many));
          ASSERT_NO_FATAL_FAILURE(sum_all(20, managed));
        }
        EXPECT_EQ(Mapped(clique), 0u);
        for (int round = 0; round < 3; ++round) ASSERT_NO_FATAL_FAILURE(sum_all(100, many));
        const uint64_t mapped = Mapped(clique);
        EXPECT_GE(mapped, 1u);
        for (int round = 0; round < 3; ++round) ASSERT_NO_FATAL_FAILURE(sum_all(40, many, kMost - 40));
        EXPECT_GE(Mapped(clique), mapped + 1);
      },
      Mapping({{"AXCCL_MAP_BYTES", "1"}}));
}

}  // namespace
}  // namespace axccl::tests
