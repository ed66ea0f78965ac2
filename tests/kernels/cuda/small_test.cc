// Which calls take the short way, and that a program that does anything else does not.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "src/algo/algo.h"
#include "src/exec/cuda/small.h"
#include "src/verify/verify.h"

namespace axccl::exec {
namespace {

using kernels::cuda::Packing;
using kernels::cuda::Small;
using plan::Contract;
using plan::Kind;

std::shared_ptr<const Program> ProgramOf(const Contract& contract, std::string_view algorithm, int rank) {
  auto plan = verify::MakePlan(algo::Generate(contract, algorithm, 1).value());
  return Program::Make(plan.value(), rank).value();
}

// As many elements of a byte as there are bytes.
kernels::cuda::Task TaskOf(uint64_t bytes, Packing packing = Packing::kWords) {
  kernels::cuda::Task task;
  task.type = DataType::kUint8;
  task.cut.partition.count = bytes;
  task.cut.packing = packing;
  return task;
}

Small Lower(const Contract& contract, int rank, uint64_t bytes = 8) {
  const Packing packing = bytes <= kernels::cuda::kPackedBytes ? Packing::kWords : Packing::kRows;
  return LowerTask(LowerProgram(*ProgramOf(contract, "oneshot", rank)), TaskOf(bytes, packing));
}

bool Equal(const Small& a, const Small& b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

TEST(CudaSmall, SaysWhatRanksDo) {
  constexpr int kRoot = 1;
  for (const int ranks : {2, 3, 8}) {
    for (int rank = 0; rank < ranks; ++rank) {
      const auto does = [&](Kind kind) {
        const Small small = Lower({kind, ranks, plan::HasRoot(kind) ? kRoot : 0}, rank);
        EXPECT_EQ(small.ranks, ranks) << plan::KindName(kind);
        EXPECT_EQ(small.self, rank);
        EXPECT_EQ(small.bytes, 8);
        if ((small.does & Small::kTakes) != 0) {
          EXPECT_EQ(small.source, kRoot);
        }
        return small.does - Small::kIsSmall;
      };
      const bool root = rank == kRoot;
      EXPECT_EQ(does(Kind::kAllReduce), Small::kPublishes | Small::kKeepsOwn | Small::kReduces);
      EXPECT_EQ(does(Kind::kReduce), root ? Small::kKeepsOwn | Small::kReduces : Small::kPublishes);
      EXPECT_EQ(does(Kind::kAllGather), Small::kPublishes | Small::kKeepsOwn | Small::kGathers);
      EXPECT_EQ(does(Kind::kGather), root ? Small::kKeepsOwn | Small::kGathers : Small::kPublishes);
      EXPECT_EQ(does(Kind::kBroadcast), root ? Small::kPublishes | Small::kKeepsOwn : Small::kTakes);
    }
  }
  EXPECT_EQ(Lower({Kind::kSendRecv, 2, 0}, 0).does, Small::kIsSmall | Small::kPublishes);
  EXPECT_EQ(Lower({Kind::kSendRecv, 2, 0}, 1).does, Small::kIsSmall | Small::kTakes);
}

// Rows take no memory of the block, so that of all ranks may be as large as a step's operands allow.
TEST(CudaSmall, TakesRowsOfManyRanks) {
  const auto does = [](Kind kind, int ranks) {
    const auto program = ProgramOf({kind, ranks, 0}, "oneshot", 0);
    return LowerTask(LowerProgram(*program), TaskOf(8192, Packing::kRows)).does;
  };
  constexpr int kAll = Small::kIsSmall | Small::kPublishes | Small::kKeepsOwn | Small::kInRows;
  EXPECT_EQ(does(Kind::kAllReduce, 64), kAll | Small::kReduces);
  EXPECT_EQ(does(Kind::kAllGather, 64), kAll | Small::kGathers);
}

// These publish a block for each rank.
TEST(CudaSmall, PublishesForEach) {
  for (const int ranks : {2, 3, 8}) {
    for (int rank = 0; rank < ranks; ++rank) {
      for (const uint64_t bytes : {8u, 513u, 8192u}) {
        SCOPED_TRACE(testing::Message() << rank << " of " << ranks << ", " << bytes << " bytes");
        const int all = Small::kIsSmall | Small::kPublishes | Small::kKeepsOwn | Small::kForEach |
                        (bytes > 512 ? Small::kInRows : 0);
        EXPECT_EQ(Lower({Kind::kAllToAll, ranks, 0}, rank, bytes).does, all | Small::kGathers);
        EXPECT_EQ(Lower({Kind::kReduceScatter, ranks, 0}, rank, bytes).does, all | Small::kReduces);
      }
    }
  }
}

// The ranks of a scatter signal in different ways, so each waits for several endpoints, but for those of the root's
// first block.
TEST(CudaSmall, LeavesOtherKindsToTheInterpreter) {
  for (const int ranks : {2, 3}) {
    for (int rank = 0; rank < ranks; ++rank) {
      const bool by_first_endpoint = ranks == 2 || rank == 1;
      EXPECT_EQ(Lower({Kind::kScatter, ranks, 0}, rank).does != 0, by_first_endpoint) << rank << " of " << ranks;
    }
  }
}

TEST(CudaSmall, LeavesOtherCallsToTheInterpreter) {
  const Contract contract{Kind::kAllReduce, 8, 0};
  const auto program = ProgramOf(contract, "oneshot", 0);
  const auto lowers = [&](const kernels::cuda::Task& task) {
    return LowerTask(LowerProgram(*program), task).does != 0;
  };
  EXPECT_TRUE(lowers(TaskOf(512)));
  EXPECT_TRUE(lowers(TaskOf(8, Packing::kRows)));
  EXPECT_FALSE(lowers(TaskOf(512, Packing::kNone)));
  EXPECT_TRUE(lowers(TaskOf(513, Packing::kRows)));
  EXPECT_TRUE(lowers(TaskOf(8192, Packing::kRows)));
  EXPECT_FALSE(lowers(TaskOf(513, Packing::kNone)));
  EXPECT_EQ(Lower({Kind::kAllReduce, 12, 0}, 0, 512).KeptBytes(), kernels::cuda::kMostKeptBytes);
  EXPECT_EQ(Lower({Kind::kAllReduce, 13, 0}, 0, 512).does, 0) << "more than a block keeps";
  for (const std::string_view algorithm : algo::Algorithms(Kind::kAllReduce)) {
    if (algorithm == "oneshot") continue;
    EXPECT_EQ(LowerTask(LowerProgram(*ProgramOf(contract, algorithm, 0)), TaskOf(8)).does, 0) << algorithm;
  }
}

TEST(CudaSmall, ScalesWhatItPublishes) {
  const auto does = [](Kind kind, int rank, DataType type, Scaling scaling, uint64_t bytes = 8) {
    kernels::cuda::Task task = TaskOf(bytes, bytes > 512 ? Packing::kRows : Packing::kWords);
    task.type = type;
    task.cut.partition.count /= ElementSize(type);
    task.scaling = scaling;
    return LowerTask(LowerProgram(*ProgramOf({kind, 3, 0}, "oneshot", rank)), task).does;
  };
  constexpr int kSum = Small::kIsSmall | Small::kPublishes | Small::kKeepsOwn | Small::kReduces;
  EXPECT_EQ(does(Kind::kAllReduce, 0, DataType::kInt32, Scaling::kAverage), kSum) << "its result is divided";
  EXPECT_EQ(does(Kind::kAllReduce, 0, DataType::kInt32, Scaling::kPreMultiply), kSum | Small::kScales);
  for (const Scaling scaling : {Scaling::kPreMultiply, Scaling::kAverage}) {
    EXPECT_EQ(does(Kind::kAllReduce, 0, DataType::kComplex64, scaling), kSum | Small::kScales);
    for (const int bytes : {8, 8192}) {
      const int in_rows = bytes > 512 ? Small::kInRows : 0;
      const auto of_bytes = [&](Kind kind, int rank) { return does(kind, rank, DataType::kBfloat16, scaling, bytes); };
      EXPECT_EQ(of_bytes(Kind::kAllReduce, 0), in_rows | kSum | Small::kScales);
      EXPECT_EQ(of_bytes(Kind::kReduce, 0),
                in_rows | Small::kIsSmall | Small::kKeepsOwn | Small::kReduces | Small::kScalesOwn)
          << "the root folds its input";
      EXPECT_EQ(of_bytes(Kind::kReduce, 1), in_rows | Small::kIsSmall | Small::kPublishes | Small::kScales);
      EXPECT_EQ(of_bytes(Kind::kAllToAll, 0), 0) << "its own block is not published";
      EXPECT_EQ(of_bytes(Kind::kReduceScatter, 0),
                in_rows | kSum | Small::kForEach | Small::kScales | Small::kScalesOwn);
    }
  }
}

// A program without one of its steps, with two of them exchanged, or with another number in one.
void ExpectNotice(const Program& program, const char* what) {
  const Small small = LowerTask(LowerProgram(program), TaskOf(8));
  const auto expect = [&](const Program& changed, size_t step, const char* change) {
    EXPECT_FALSE(Equal(LowerTask(LowerProgram(changed), TaskOf(8)), small))
        << what << ": step " << step << " " << change;
  };
  const std::vector<Step>& steps = program.lanes[0];
  for (size_t i = 0; i < steps.size(); ++i) {
    Program changed = program;
    changed.lanes[0].erase(changed.lanes[0].begin() + static_cast<ptrdiff_t>(i));
    expect(changed, i, "left out");
    const bool syncs = steps[i].kind == plan::OpKind::kSignal || steps[i].kind == plan::OpKind::kWait;
    changed = program;
    ++(syncs ? changed.lanes[0][i].endpoint : changed.lanes[0][i].parts);
    expect(changed, i, syncs ? "with another endpoint" : "of another number of parts");
    if (!syncs) continue;
    changed = program;
    ++changed.lanes[0][i].value;
    expect(changed, i, "with another value");
    changed = program;
    changed.lanes[0][i].peer = static_cast<int16_t>(program.rank);
    expect(changed, i, "with another peer");
  }
  for (size_t i = 0; i < program.operands.size(); ++i) {
    Program changed = program;
    ++changed.operands[i].block;
    if (changed.operands[i].buffer == plan::Buffer::kScratch)
      changed.operands[i].rank =
          static_cast<uint16_t>((changed.operands[i].rank + 1) % program.plan->schedule.contract.ranks);
    EXPECT_FALSE(Equal(LowerTask(LowerProgram(changed), TaskOf(8)), small)) << what << ": another operand " << i;
  }
}

TEST(CudaSmall, NoticesEveryChangeOfAProgram) {
  for (const Kind kind : {Kind::kAllReduce, Kind::kReduce, Kind::kAllGather, Kind::kGather, Kind::kBroadcast,
                          Kind::kReduceScatter, Kind::kAllToAll}) {
    for (int rank = 0; rank < 4; ++rank)
      ExpectNotice(*ProgramOf({kind, 4, plan::HasRoot(kind) ? 1 : 0}, "oneshot", rank), plan::KindName(kind));
  }
}

// Data must not be read before it has come, nor signalled before it is there.
TEST(CudaSmall, NoticesTheOrderOfSteps) {
  const auto program = ProgramOf({Kind::kAllReduce, 3, 0}, "oneshot", 0);
  // Publish, signal, keep the own block, wait, wait, reduce.
  ASSERT_EQ(program->lanes[0].size(), 6u);
  for (const auto& [a, b] : {std::pair{0, 1}, {1, 3}, {2, 5}, {4, 5}}) {
    Program changed = *program;
    std::swap(changed.lanes[0][static_cast<size_t>(a)], changed.lanes[0][static_cast<size_t>(b)]);
    EXPECT_EQ(LowerTask(LowerProgram(changed), TaskOf(8)).does, 0) << a << " and " << b;
  }
}

}  // namespace
}  // namespace axccl::exec
