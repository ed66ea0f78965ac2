// Compares the number of parts that the planner counts for a signal with the slots that the executor sends with it.
#include "src/plan/cargo.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "src/algo/algo.h"
#include "src/exec/prepared/outbound.h"
#include "tests/algo/cases.h"

namespace axccl::exec {
namespace {

using Parts = std::map<std::pair<uint32_t, int>, uint32_t>;  // by step and reader

// What the executor sends to ranks on other machines for a rank's lane.
Parts Sent(const plan::Schedule& s, const plan::Placement& p, const Outbound& outbound, int rank, uint32_t lane) {
  Parts parts;
  const auto steps = static_cast<uint32_t>(s.program[static_cast<size_t>(rank)][lane].ops.size());
  for (uint32_t step = 0; step < steps; ++step) {
    for (const Outbound::Slot& slot : outbound.With(lane, step)) {
      if (p.Apart(slot.reader, rank)) ++parts[{step, slot.reader}];
    }
  }
  return parts;
}

void ExpectAgreement(const plan::Schedule& s, const plan::Placement& p, int* compared) {
  plan::CargoFinder finder(s, p);
  for (int rank = 0; rank < s.contract.ranks; ++rank) {
    const Result<Outbound> outbound = Outbound::Make(s, rank);
    if (!outbound.ok()) return;  // needs shared memory
    for (uint32_t lane = 0; lane < s.lanes; ++lane) {
      Parts parts;
      for (const plan::Cargo& c : finder.Of(rank, static_cast<int>(lane))) {
        if (c.parts > 0) parts[{c.op, c.reader}] = c.parts;
      }
      EXPECT_EQ(parts, Sent(s, p, outbound.value(), rank, lane)) << "rank " << rank << " lane " << lane;
      ++*compared;
    }
  }
}

TEST(Cargo, IsWhatTheExecutorSends) {
  int compared = 0;
  for (const auto& machine_of : algo::SomeMachines()) {
    const plan::Placement p = plan::Placement::Of(machine_of);
    for (int k = 0; k < plan::kNumKinds; ++k) {
      const auto kind = static_cast<plan::Kind>(k);
      if (kind == plan::Kind::kSendRecv) continue;
      const plan::Contract contract{kind, p.ranks(), plan::HasRoot(kind) ? p.ranks() - 1 : 0};
      for (const std::string_view algorithm : algo::Algorithms(kind, p)) {
        SCOPED_TRACE(algo::Describe(contract, algorithm, 2) + " " + algo::Describe(p));
        const plan::Schedule s = algo::Generate(contract, algorithm, 2, p).value();
        if (!s.direct) ExpectAgreement(s, p, &compared);
      }
    }
  }
  EXPECT_GT(compared, 1000);
}

// The slots of other ranks that rank `reader` reads, each time it does.
size_t Reads(const plan::Schedule& s, int reader) {
  size_t reads = 0;
  for (const plan::Lane& lane : s.program[static_cast<size_t>(reader)]) {
    for (const plan::Op& op : lane.ops) {
      for (const plan::Operand& o : op.src)
        reads += o.buffer == plan::Buffer::kScratch && o.rank != reader ? o.parts : 0;
    }
  }
  return reads;
}

// A schedule with slices that is not direct can run over messages: each slot that a rank reads has been sent to it
// once.
TEST(Cargo, SlotsOfSchedulesWithSlicesTravel) {
  int staged = 0;
  for (const int ranks : {1, 2, 3, 4, 7}) {
    for (const int slices : {1, 3, 9}) {
      const auto check = [&](const plan::Contract& c, std::string_view algorithm, const algo::Chunking& chunking) {
        const plan::Schedule s = algo::GenerateChunked(c, algorithm, chunking).value();
        if (s.direct) return;
        SCOPED_TRACE(algo::Describe(c, algorithm, chunking));
        std::vector<size_t> sent(static_cast<size_t>(ranks));
        for (int rank = 0; rank < ranks; ++rank) {
          const Result<Outbound> outbound = Outbound::Make(s, rank);
          ASSERT_TRUE(outbound.ok()) << outbound.status().message();
          for (uint32_t lane = 0; lane < s.lanes; ++lane) {
            const auto steps = static_cast<uint32_t>(s.program[static_cast<size_t>(rank)][lane].ops.size());
            for (uint32_t step = 0; step < steps; ++step) {
              for (const Outbound::Slot& slot : outbound.value().With(lane, step)) ++sent[slot.reader];
            }
          }
        }
        for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(sent[static_cast<size_t>(rank)], Reads(s, rank)) << rank;
        ++staged;
      };
      algo::ForEachChunked(ranks, slices, check);
    }
  }
  EXPECT_GT(staged, 100);
}

}  // namespace
}  // namespace axccl::exec
