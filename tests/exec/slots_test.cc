// Where the slots of calls are, turn after turn: in the turn's part of the scratch, apart from each other, at the same
// place for all ranks, and over all of that part, one set after the other; small slots are in the lines of the signals
// that publish them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "src/algo/algo.h"
#include "tests/algo/cases.h"
#include "tests/exec/traffic.h"

namespace axccl::exec {
namespace {

using plan::Kind;

// The slots of a rank in one turn: (lane, slot) -> offset in the rank's block.
using Slots = std::map<std::pair<uint32_t, uint32_t>, uint64_t>;

// Adds the slots that `viewer` uses in `turn`, by owner; false if another viewer has one elsewhere.
bool AddSlots(Channel* channel, const Prepared& prepared, uint64_t turn, std::map<int, Slots>* slots) {
  const Program& program = *prepared.program;
  for (uint32_t lane = 0; lane < program.lanes.size(); ++lane) {
    for (const Step& step : program.lanes[lane]) {
      for (uint32_t o = step.operands; o < step.operands + step.num_dst + step.num_src; ++o) {
        const plan::Operand& operand = program.operands[o];
        if (operand.buffer != plan::Buffer::kScratch) continue;
        const OperandPlace& place = prepared.places[o];
        if (*place.base != channel->member(operand.rank).block) return false;
        for (uint32_t i = 0; i < operand.parts; ++i) {
          const uint64_t offset =
              place.offset[turn % plan::kRotation] + prepared.sets.OffsetOf(turn) + i * place.part_bytes;
          const auto [at, is_new] = (*slots)[operand.rank].emplace(std::pair(lane, operand.part + i), offset);
          if (!is_new && at->second != offset) return false;
        }
      }
    }
  }
  return true;
}

// The first turn that uses the first set again, after which all sets are in use.
uint64_t AllInUse(const Prepared& prepared) {
  return plan::SlotSets::kTurnsPerSet * plan::kRotation * prepared.sets.count;
}

class SlotsTest : public testing::TestWithParam<int> {
 protected:
  // Calls `check` for many calls, with what every rank prepared for each.
  template <class Check>
  void ForEachCall(Check check) {
    const int ranks = GetParam();
    algo::ForEachAlgorithm(ranks, [&](const plan::Contract& contract, std::string_view algorithm) {
      if (contract.root != 0 || contract.kind == Kind::kBarrier) return;
      for (const auto& [lanes, scratch] : {std::pair(1, 16384u), std::pair(2, 65536u), std::pair(1, 1u << 20)}) {
        EnsembleOptions options;
        options.ranks = ranks;
        options.lanes = lanes;
        options.algorithms = Only(contract.kind, algorithm);
        options.scratch_bytes = scratch;
        Ensemble ensemble(options);
        for (const uint64_t count : {0, 1, 12, 13, 100, 1500, 4099}) {
          SCOPED_TRACE(algo::Describe(contract, algorithm, lanes) + " scratch " + std::to_string(scratch) + " count " +
                       std::to_string(count));
          Call call;
          call.kind = contract.kind;
          call.type = DataType::kInt32;
          call.count = count;
          std::vector<const Prepared*> prepared;
          for (int rank = 0; rank < ranks; ++rank) {
            auto mine = ensemble.host(rank)->plans().Prepare(call, tune::Access::kMapped);
            ASSERT_TRUE(mine.ok()) << mine.status().message();
            prepared.push_back(mine.value());
          }
          ASSERT_NO_FATAL_FAILURE(check(&ensemble, prepared));
        }
      }
    });
  }
};

TEST_P(SlotsTest, EveryTurnHasItsPartOfTheScratch) {
  size_t several = 0;
  ForEachCall([&](Ensemble* ensemble, const std::vector<const Prepared*>& prepared) {
    if (prepared[0]->inline_slots) return;
    const ChannelLayout& layout = ensemble->layout().channel;
    const uint64_t part = layout.scratch_bytes / plan::kRotation;
    // The first turns, those with the last sets, and those that use the first sets again.
    const uint64_t round = plan::kRotation * prepared[0]->sets.count;
    const uint64_t all = AllInUse(*prepared[0]);
    for (const uint64_t turn : {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{3}, all + round - 2, all + round - 1,
                                all + round, all + round + 1}) {
      std::map<int, Slots> slots;
      for (int rank = 0; rank < ensemble->ranks(); ++rank)
        ASSERT_TRUE(AddSlots(ensemble->channel(rank), *prepared[static_cast<size_t>(rank)], turn, &slots));
      for (const auto& [owner, of_owner] : slots) {
        std::vector<uint64_t> begins;
        for (const auto& [slot, offset] : of_owner) begins.push_back(offset);
        std::sort(begins.begin(), begins.end());
        const uint64_t begin = layout.scratch + turn % plan::kRotation * part;
        ASSERT_GE(begins.front(), begin);
        ASSERT_LE(begins.back() + prepared[0]->slot_bytes, begin + part);
        for (size_t i = 1; i < begins.size(); ++i) ASSERT_GE(begins[i], begins[i - 1] + prepared[0]->slot_bytes);
      }
    }
    several += prepared[0]->sets.count > 1;
  });
  EXPECT_GT(several, 0u);
}

// Lines hold as many bytes as the channel allows: lines of GPU ranks have another size.
TEST(Slots, LiveInLinesUpToTheLimitOfTheChannel) {
  EnsembleOptions options;
  options.algorithms = Only(Kind::kAllReduce, "oneshot");
  for (const uint64_t most : {uint64_t{48}, uint64_t{512}}) {
    options.plans.inline_bytes = most;
    Ensemble ensemble(options);
    Call call;
    call.kind = Kind::kAllReduce;
    call.type = DataType::kUint8;
    for (const uint64_t count : {most - 1, most, most + 1}) {
      call.count = count;
      auto prepared = ensemble.host(0)->plans().Prepare(call, tune::Access::kNone);
      ASSERT_TRUE(prepared.ok()) << prepared.status().message();
      EXPECT_EQ(prepared.value()->inline_slots, count <= most) << count << " of " << most;
    }
  }
}

TEST_P(SlotsTest, AsMuchScratchAsACoreHoldsIsUsedInTurn) {
  ForEachCall([&](Ensemble* ensemble, const std::vector<const Prepared*>& prepared) {
    const Prepared& mine = *prepared[0];
    if (mine.inline_slots || mine.program->plan->schedule.slots == 0) return;
    std::set<uint64_t> offsets;
    const uint64_t all = AllInUse(mine), round = plan::kRotation * mine.sets.count;
    for (uint64_t turn = all; turn < all + round; turn += plan::kRotation) offsets.insert(mine.sets.OffsetOf(turn));
    EXPECT_EQ(offsets.size(), mine.sets.count);
    EXPECT_EQ(mine.sets.OffsetOf(all + round), *offsets.begin());
    std::set<uint64_t> first;
    for (uint64_t turn = 0; turn < 2 * plan::SlotSets::kTurnsPerSet; ++turn) first.insert(mine.sets.OffsetOf(turn));
    EXPECT_LE(first.size(), 2u) << "few operations must take few pages";
    if (mine.sets.bytes < 2048) {
      EXPECT_EQ(mine.sets.count, 1u) << "a few near lines return sooner than far ones";
      return;
    }
    const uint64_t scratch = std::min(ensemble->layout().channel.scratch_bytes, PlanOptions().rotated_bytes);
    const uint64_t part = scratch / plan::kRotation;
    EXPECT_LE(*offsets.rbegin() + mine.sets.bytes, std::max(part, mine.sets.bytes));
    EXPECT_GT(*offsets.rbegin() + 2 * mine.sets.bytes, part) << "there is room for one more";
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, SlotsTest, testing::Values(2, 3, 5, 8));

// 48 bytes fit beside the counter of a line: the data arrive with the signal, and scratch is not touched.
TEST(InlineSlots, SmallDataTravelsWithItsSignal) {
  harness::Random random(harness::Seed());
  for (const auto& [count, in_line] : {std::pair(1, true), std::pair(12, true), std::pair(13, false)}) {
    SCOPED_TRACE(count);
    EnsembleOptions options;
    options.algorithms = "all_reduce:oneshot";
    Ensemble ensemble(options);
    std::vector<std::unique_ptr<Exchange>> exchanges;
    for (uint64_t i = 0; i < 9; ++i) {
      const Shape shape{{Kind::kAllReduce, 2, 0}, static_cast<uint64_t>(count), Combine::kSum, Scaling::kNone, 0, 0};
      exchanges.push_back(std::make_unique<Exchange>(&ensemble, shape, i));
    }
    ASSERT_TRUE(Drive(&ensemble, exchanges, Pace::kUniform, &random));
    const ChannelLayout& layout = ensemble.layout().channel;
    for (int rank = 0; rank < 2; ++rank) {
      const std::byte* scratch = ensemble.channel(rank)->own().block + layout.scratch;
      const bool untouched =
          std::all_of(scratch, scratch + layout.scratch_bytes, [](std::byte b) { return b == std::byte{}; });
      EXPECT_EQ(untouched, in_line) << "rank " << rank;
    }
  }
}

// The prepared calls that a channel keeps are limited in number and in bytes.
TEST(PreparedCalls, AreForgottenWhenTheyAreMany) {
  for (const int ranks : {2, 16}) {
    EnsembleOptions options;
    options.ranks = ranks;
    options.algorithms = "all_reduce:ring";
    options.scratch_bytes = 65536;
    Ensemble ensemble(options);
    HostChannel* channel = ensemble.host(0);
    size_t most_calls = 0, most_bytes = 0;
    Call call;
    call.kind = Kind::kAllReduce;
    for (call.count = 1; call.count <= 10000; ++call.count) {
      auto prepared = channel->plans().Prepare(call, tune::Access::kMapped);
      ASSERT_TRUE(prepared.ok());
      ASSERT_EQ(prepared.value()->partition.count, call.count);
      ASSERT_EQ(channel->plans().Prepare(call, tune::Access::kMapped).value(), prepared.value());
      most_calls = std::max(most_calls, channel->plans().size());
      most_bytes =
          std::max(most_bytes, channel->plans().size() * prepared.value()->places.size() * sizeof(OperandPlace));
    }
    EXPECT_GT(most_calls, 100u) << ranks << " ranks";
    EXPECT_LE(most_calls, 4096u) << ranks << " ranks";
    EXPECT_LE(most_bytes, size_t{5} << 19) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace axccl::exec
