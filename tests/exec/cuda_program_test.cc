// Programs and cuts for the CUDA interpreter: what they contain, and what is refused. tests/kernels/cuda tests that
// they run.

#include "src/exec/cuda/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "src/algo/algo.h"
#include "src/exec/cuda/packing.h"
#include "src/exec/cuda/slots_between.h"
#include "src/verify/verify.h"

namespace axccl::exec {
namespace {

namespace cuda = kernels::cuda;

std::shared_ptr<const Program> Make(plan::Kind kind, int ranks, const char* algorithm, int lanes, int rank) {
  auto schedule = algo::Generate(plan::Contract{kind, ranks, 0}, algorithm, lanes);
  EXPECT_TRUE(schedule.ok());
  auto plan = verify::MakePlan(std::move(schedule).value());
  EXPECT_TRUE(plan.ok());
  auto program = Program::Make(std::move(plan).value(), rank);
  EXPECT_TRUE(program.ok());
  return std::move(program).value();
}

TEST(CudaProgram, HoldsEveryStepAndOperand) {
  const auto program = Make(plan::Kind::kAllReduce, 4, "ring", 2, 1);
  auto bytes = MakeCudaProgram(*program);
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  const auto& header = *reinterpret_cast<const cuda::Program*>(bytes->data());
  EXPECT_EQ(header.bytes, bytes->size());
  EXPECT_EQ(header.lanes, 2u);
  EXPECT_EQ(header.slots, program->plan->schedule.slots);
  EXPECT_EQ(header.plan_id[0], program->plan->hash.high);
  EXPECT_EQ(header.complete != 0, program->plan->complete);
  EXPECT_EQ(header.is_barrier, 0);
  EXPECT_EQ(header.steps_at % alignof(cuda::Step), 0u);
  for (size_t lane = 0; lane < 2; ++lane) {
    ASSERT_EQ(header.lane_begin[lane + 1] - header.lane_begin[lane], program->lanes[lane].size());
    for (size_t i = 0; i < program->lanes[lane].size(); ++i) {
      const Step& step = program->lanes[lane][i];
      const cuda::Step& converted = header.steps()[header.lane_begin[lane] + i];
      EXPECT_EQ(converted.kind == cuda::StepKind::kWait, step.kind == plan::OpKind::kWait);
      EXPECT_EQ(converted.endpoint, step.endpoint);
      EXPECT_EQ(converted.value, step.value);
      EXPECT_EQ(converted.operands, step.operands);
    }
  }
  for (size_t i = 0; i < program->operands.size(); ++i) {
    const bool slot = program->operands[i].buffer == plan::Buffer::kScratch;
    EXPECT_EQ(header.operands()[i].space == cuda::Space::kSlot, slot);
    EXPECT_EQ(header.operands()[i].rank, program->operands[i].rank);
  }
}

TEST(CudaProgram, MarksBarriersAndDirectPlans) {
  auto barrier = MakeCudaProgram(*Make(plan::Kind::kBarrier, 3, "oneshot", 1, 0));
  ASSERT_TRUE(barrier.ok());
  EXPECT_EQ(reinterpret_cast<const cuda::Program*>(barrier->data())->is_barrier, 1);
  auto direct = MakeCudaProgram(*Make(plan::Kind::kAllReduce, 3, "direct", 1, 0));
  ASSERT_TRUE(direct.ok());
  EXPECT_EQ(reinterpret_cast<const cuda::Program*>(direct->data())->prologue, 3u);
}

// How many steps signal or wait for a packed slot.
int NumPacked(const Program& program) {
  auto bytes = MakeCudaProgram(program);
  EXPECT_TRUE(bytes.ok());
  const auto& header = *reinterpret_cast<const cuda::Program*>(bytes->data());
  int packed = 0;
  for (uint32_t i = 0; i < header.lane_begin[header.lanes]; ++i) packed += header.steps()[i].packed;
  const auto& endpoints = program.inline_endpoint;
  const bool first_only = std::count(endpoints.begin(), endpoints.end(), 0) == std::ssize(endpoints);
  EXPECT_EQ(header.beyond_first, packed != 0 && !first_only);
  // Of many ranks, only the first endpoint has slots of rows.
  const bool rows = first_only || program.plan->schedule.contract.ranks <= 16;
  const cuda::Packing packing = rows ? cuda::Packing::kRows : cuda::Packing::kWords;
  EXPECT_EQ(header.packing, packed != 0 ? packing : cuda::Packing::kNone);
  return packed;
}

TEST(CudaProgram, PacksSlotsThatSignalsPublish) {
  // All ranks publish and wait for all others.
  EXPECT_EQ(NumPacked(*Make(plan::Kind::kAllReduce, 4, "oneshot", 1, 1)), 4);
  EXPECT_EQ(NumPacked(*Make(plan::Kind::kAllGather, 3, "oneshot", 1, 2)), 3);
  // Only the root publishes, or only the others do.
  EXPECT_EQ(NumPacked(*Make(plan::Kind::kBroadcast, 4, "oneshot", 1, 0)), 1);
  EXPECT_EQ(NumPacked(*Make(plan::Kind::kBroadcast, 4, "oneshot", 1, 2)), 1);
  EXPECT_EQ(NumPacked(*Make(plan::Kind::kReduce, 4, "oneshot", 1, 0)), 3);
  // All publish a block for each other rank.
  EXPECT_EQ(NumPacked(*Make(plan::Kind::kReduceScatter, 3, "oneshot", 1, 0)), 4);
  EXPECT_EQ(NumPacked(*Make(plan::Kind::kAllToAll, 4, "oneshot", 1, 2)), 6);
  EXPECT_EQ(NumPacked(*Make(plan::Kind::kScatter, 4, "oneshot", 1, 0)), 3);
  EXPECT_EQ(NumPacked(*Make(plan::Kind::kAllToAll, 16, "oneshot", 1, 2)), 30);
  EXPECT_EQ(NumPacked(*Make(plan::Kind::kAllToAll, 17, "oneshot", 1, 2)), 32);
  EXPECT_EQ(NumPacked(*Make(plan::Kind::kAllGather, 17, "oneshot", 1, 2)), 17);
  // Not packed: the memory of others is written or read; no data.
  EXPECT_EQ(NumPacked(*Make(plan::Kind::kAllReduce, 4, "direct", 1, 0)), 0);
  EXPECT_EQ(NumPacked(*Make(plan::Kind::kAllReduce, 4, "ring", 1, 0)), 0);
  EXPECT_EQ(NumPacked(*Make(plan::Kind::kBarrier, 4, "oneshot", 1, 0)), 0);
}

// Plans whose signals also publish something other than the slot.
TEST(CudaProgram, PacksNoSlotWhoseSignalPublishesMore) {
  const auto packs_with = [](auto change) {
    auto schedule = algo::Generate(plan::Contract{plan::Kind::kAllReduce, 2, 0}, "oneshot", 1);
    EXPECT_TRUE(schedule.ok());
    auto plan = std::make_shared<plan::Plan>();
    plan->schedule = std::move(schedule).value();
    change(&plan->schedule.program[1][0].ops);
    auto program = Program::Make(plan, 0);
    EXPECT_TRUE(program.ok());
    return NumPacked(**program) != 0;
  };
  using Ops = std::vector<plan::Op>;  // copy, signal, copy, wait, reduce
  EXPECT_TRUE(packs_with([](Ops*) {}));
  // A step between the slot and its signal, the slot written again, a read before its wait, and a slot of another rank.
  EXPECT_FALSE(packs_with([](Ops* ops) { ops->insert(ops->begin() + 1, ops->back()); }));
  EXPECT_FALSE(packs_with([](Ops* ops) { ops->push_back(ops->front()); }));
  EXPECT_FALSE(packs_with([](Ops* ops) { std::swap((*ops)[3], (*ops)[4]); }));
  EXPECT_FALSE(packs_with([](Ops* ops) { ops->front().dst[0].rank = 0; }));
}

// Which owners' slots of a rank's program are for ranks of several machines: a bit for each.
unsigned OwnersBetween(const Program& program, const plan::Placement& placement) {
  auto bytes = MakeCudaProgram(program, nullptr, placement);
  EXPECT_TRUE(bytes.ok());
  const auto& header = *reinterpret_cast<const cuda::Program*>(bytes->data());
  unsigned owners = 0, others = 0;
  for (size_t i = 0; i < program.operands.size(); ++i) {
    const cuda::Operand& operand = header.operands()[i];
    if (operand.space == cuda::Space::kSlot) (operand.between != 0 ? owners : others) |= 1u << operand.rank;
  }
  EXPECT_EQ(owners & others, 0u);
  return owners;
}

TEST(CudaProgram, MarksSlotsThatRanksOfSeveralMachinesUse) {
  const plan::Placement placement = plan::Placement::Of(std::vector<int>{0, 0, 1, 1});
  // In a ring, the rank before writes into a rank's slots.
  const unsigned expected[] = {1u << 0, 1u << 2, 1u << 2, 1u << 0};
  for (int rank = 0; rank < 4; ++rank) {
    const auto ring = Make(plan::Kind::kAllReduce, 4, "ring", 2, rank);
    EXPECT_EQ(OwnersBetween(*ring, placement), expected[rank]) << rank;
    EXPECT_EQ(OwnersBetween(*ring, {}), 0u);
  }
  // Everybody reads everybody's.
  EXPECT_EQ(OwnersBetween(*Make(plan::Kind::kAllReduce, 4, "oneshot", 1, 1), placement), 0xfu);
}

// Of a plan of which a rank copies some slots together, which all go one way.
TEST(CudaProgram, SlotsThatAreMovedTogetherAreInOnePlace) {
  const plan::Placement placement = plan::Placement::Of(std::vector<int>{0, 0, 1, 1, 1, 2});
  for (const char* algorithm : {"hierarchical", "hierarchical_tree", "hierarchical_rhd", "hierarchical_bruck"}) {
    auto schedule = algo::Generate(plan::Contract{plan::Kind::kAllReduce, 6, 0}, algorithm, 2, placement);
    ASSERT_TRUE(schedule.ok()) << algorithm;
    const plan::Schedule& all = schedule.value();
    const SlotsBetween between(all, placement);
    size_t inside = 0;
    plan::ForEachOperand(all, [&](size_t rank, size_t lane, plan::Operand operand) {
      if (operand.buffer != plan::Buffer::kScratch) return;
      const bool has = between.Has(lane, operand);
      inside += !has;
      EXPECT_TRUE(has || !placement.Apart(static_cast<int>(rank), operand.rank));
      for (; operand.parts > 1; ++operand.part, --operand.parts) EXPECT_EQ(between.Has(lane, operand), has);
    });
    EXPECT_GT(inside, 0u) << algorithm;
  }
}

TEST(CudaProgram, RefusesMoreThanTheInterpreterHolds) {
  Program program = *Make(plan::Kind::kAllReduce, 2, "oneshot", 1, 0);
  program.lanes.resize(cuda::kMaxLanes + 1);
  EXPECT_EQ(MakeCudaProgram(program).status().message(),
            "oneshot of 2 ranks has 65 lanes, CUDA devices run 64 at most: use fewer");
  program.lanes.resize(1);
  program.max_operands = cuda::kMaxOperands + 1;
  EXPECT_EQ(MakeCudaProgram(program).status().code(), Code::kInvalidUsage);
}

TEST(CudaCut, EqualsThatOfThePreparedCall) {
  Prepared prepared;
  prepared.partition = {1000, 128, 16, 2, 3};
  prepared.turns = 4;
  prepared.slot_bytes = 192;
  prepared.sets.bytes = 1152;
  prepared.sets.count = 5;
  const cuda::Cut cut = MakeCudaCut(prepared, cuda::Packing::kRows);
  EXPECT_EQ(cut.partition.tile, 128u);
  EXPECT_EQ(cut.turns, 4u);
  EXPECT_EQ(cut.slot_bytes, 192u);
  EXPECT_EQ(cut.packing, cuda::Packing::kRows);
  for (uint64_t turn = 0; turn < 1000; ++turn) EXPECT_EQ(cut.sets.OffsetOf(turn), prepared.sets.OffsetOf(turn)) << turn;
}

// ---- how slots of a call are packed ----

Protocols Parsed(const char* text) {
  const Result<Protocols> protocols = Protocols::Parse(text);
  EXPECT_TRUE(protocols.ok()) << protocols.status().message();
  return protocols.value();
}

cuda::Packing Choose(uint64_t bytes, const char* protocols, plan::Kind kind = plan::Kind::kAllReduce, bool whole = true,
                     uint32_t ranks = 8, cuda::Packing most = cuda::Packing::kRows) {
  Prepared prepared;
  prepared.whole = whole;
  return ChoosePacking(prepared, bytes, kind, ranks, most, Parsed(protocols));
}

TEST(CudaPacking, DependsOnTheSize) {
  using cuda::Packing;
  EXPECT_EQ(Choose(0, ""), Packing::kNone);  // no slot to wait for
  EXPECT_EQ(Choose(1, ""), Packing::kWords);
  EXPECT_EQ(Choose(512, ""), Packing::kWords);
  EXPECT_EQ(Choose(513, ""), Packing::kRows);
  EXPECT_EQ(Choose(8192, ""), Packing::kRows);
  EXPECT_EQ(Choose(8193, ""), Packing::kNone);
  EXPECT_EQ(Choose(100, "", plan::Kind::kAllReduce, false), Packing::kNone);
  EXPECT_EQ(Choose(1000, "", plan::Kind::kAllReduce, false), Packing::kNone);
}

// What comes in words is kept.
TEST(CudaPacking, DependsOnTheNumberOfRanks) {
  using cuda::Packing;
  const auto choose = [](uint64_t bytes, uint32_t ranks, Packing most = Packing::kRows) {
    return Choose(bytes, "", plan::Kind::kAllReduce, true, ranks, most);
  };
  EXPECT_EQ(choose(512, 12), Packing::kWords);
  EXPECT_EQ(choose(512, 13), Packing::kRows);
  EXPECT_EQ(choose(96, 64), Packing::kWords);
  EXPECT_EQ(choose(97, 64), Packing::kRows);
  EXPECT_EQ(choose(97, 64, Packing::kWords), Packing::kWords);
  EXPECT_EQ(choose(513, 64, Packing::kWords), Packing::kNone);
  EXPECT_EQ(choose(8, 8, Packing::kNone), Packing::kNone);
  EXPECT_EQ(Choose(512, "LL", plan::Kind::kAllReduce, true, 64), Packing::kWords);
  EXPECT_EQ(Choose(512, "", plan::Kind::kBroadcast, true, 64), Packing::kWords) << "one block";
}

TEST(CudaPacking, IsNoReasonForPlansThatKernelsCannotRun) {
  const Protocols all = Parsed("");
  EXPECT_EQ(MostPackedBytes(plan::Kind::kAllReduce, 255, true, all), 8192u);
  EXPECT_EQ(MostPackedBytes(plan::Kind::kAllReduce, 256, true, all), 0u);
  EXPECT_EQ(MostPackedBytes(plan::Kind::kAllGather, 256, true, all), 8192u);
  EXPECT_EQ(MostPackedBytes(plan::Kind::kAllToAll, 16, true, all), 8192u);
  EXPECT_EQ(MostPackedBytes(plan::Kind::kAllToAll, 17, true, all), 512u);
  EXPECT_EQ(MostPackedBytes(plan::Kind::kAllToAll, 3, false, all), 512u);
  EXPECT_EQ(MostPackedBytes(plan::Kind::kAllToAll, 2, false, all), 8192u);
  EXPECT_EQ(MostPackedBytes(plan::Kind::kAllReduce, 3, false, Parsed("LL")), 512u);
}

TEST(CudaPacking, DependsOnTheAllowedProtocols) {
  using cuda::Packing;
  const struct {
    const char* text;
    Packing small, medium;
  } kCases[] = {{"LL,LL128,Simple", Packing::kWords, Packing::kRows},
                {"ll", Packing::kWords, Packing::kNone},
                {"LL128", Packing::kRows, Packing::kRows},
                {" ll128 , simple ", Packing::kRows, Packing::kRows},
                {"Simple", Packing::kNone, Packing::kNone},
                {"^LL", Packing::kRows, Packing::kRows},
                {"^LL128", Packing::kWords, Packing::kNone},
                {"^ll,ll128", Packing::kNone, Packing::kNone},
                {"^Simple", Packing::kWords, Packing::kRows},
                {"LL;allreduce:LL128", Packing::kRows, Packing::kRows},
                {"LL128;broadcast:Simple", Packing::kRows, Packing::kRows},
                {"LL128;allreduce:Simple", Packing::kNone, Packing::kNone}};
  for (const auto& c : kCases) {
    EXPECT_EQ(Choose(100, c.text), c.small) << c.text;
    EXPECT_EQ(Choose(1000, c.text), c.medium) << c.text;
    EXPECT_EQ(Choose(10000, c.text), Packing::kNone) << c.text;
  }
  EXPECT_EQ(Choose(1000, "LL128;broadcast:Simple", plan::Kind::kBroadcast), Packing::kNone);
}

TEST(CudaPacking, NamesUnknownProtocols) {
  const auto message = [](const char* text) {
    const Result<Protocols> allowed = Protocols::Parse(text);
    EXPECT_EQ(allowed.status().code(), Code::kInvalidArgument) << text;
    return std::string(allowed.status().message());
  };
  EXPECT_EQ(message("LL,LL256"), "NCCL_PROTO='LL,LL256': unknown protocol 'LL256'; known are ll, ll128, simple");
  EXPECT_EQ(message("ring"), "NCCL_PROTO='ring': unknown protocol 'ring'; known are ll, ll128, simple");
  EXPECT_NE(message("LL,^").find("unknown protocol '^'"), std::string::npos);
  EXPECT_NE(message("allredcue:LL").find("unknown collective 'allredcue'"), std::string::npos);
}

TEST(CudaPacking, TakesWhatAllRanksAllow) {
  const Protocols some = Parsed("LL;broadcast:LL128"), others = Parsed("^LL");
  EXPECT_EQ(some & Parsed(""), some);
  EXPECT_EQ((some & others).ll, 0);
  EXPECT_EQ((some & others).ll128, 1 << static_cast<int>(plan::Kind::kBroadcast));
}

// Endpoints behind the first ones have no room for packed slots.
TEST(CudaPacking, IsForTheFirstEndpoints) {
  auto schedule = algo::Generate(plan::Contract{plan::Kind::kAllReduce, 2, 0}, "oneshot", 1);
  ASSERT_TRUE(schedule.ok());
  auto plan = std::make_shared<plan::Plan>();
  plan->schedule = std::move(schedule).value();
  plan->schedule.endpoints += cuda::WordedEndpoints(2);
  for (int16_t& endpoint : plan->schedule.inline_endpoint)
    endpoint = static_cast<int16_t>(endpoint + cuda::WordedEndpoints(2));
  for (auto& lanes : plan->schedule.program) {
    for (plan::Op& op : lanes[0].ops) op.endpoint = static_cast<uint16_t>(op.endpoint + cuda::WordedEndpoints(2));
  }
  auto program = Program::Make(plan, 0);
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(CudaPacking(**program).packing(), cuda::Packing::kNone);
}

}  // namespace
}  // namespace axccl::exec
