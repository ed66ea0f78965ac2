// Schedules with slices: what the generator makes is right and hoards nothing, and each broken rule is named.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "src/algo/algo.h"
#include "src/plan/text.h"
#include "src/verify/verify.h"
#include "tests/algo/cases.h"
#include "tests/harness/random.h"
#include "tests/verify/interpreter.h"

namespace axccl::verify {
namespace {

using algo::Chunking;
using plan::Contract;
using plan::Kind;
using plan::Schedule;

std::string Verdict(const Schedule& schedule) {
  Facts facts;
  const Status status = Verify(schedule, &facts);
  return status.ok() ? "right" : std::string(status.message());
}

std::string VerdictOf(const std::string& text) {
  const Result<Schedule> schedule = plan::Parse(text);
  return schedule.ok() ? Verdict(schedule.value()) : std::string(schedule.status().message());
}

// A user that produces each chunk only when it has seen all that can come of those before would wait forever for a
// schedule that hoards chunks.
TEST(ChunkedTest, NoChunkIsHoarded) {
  SCOPED_TRACE("AXCCL_TEST_SEED=" + std::to_string(harness::Seed()));
  harness::Random random(harness::Seed());
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const int slices : {1, 2, 7, 8}) {
      algo::ForEachChunked(ranks, slices, [&](const Contract& c, std::string_view algorithm, const Chunking& chunking) {
        if (plan::HasRoot(c.kind) && c.root != ranks - 1) return;
        const Schedule s = algo::GenerateChunked(c, algorithm, chunking).value();
        SCOPED_TRACE(algo::Describe(c, algorithm, chunking));
        EXPECT_EQ(Verdict(s), "right");
        EXPECT_EQ(RunOnce(s, {random.Next(), 1, static_cast<uint32_t>(random.Next()), true}), "");
        EXPECT_EQ(RunOnce(s, {random.Next(), 3, static_cast<uint32_t>(random.Next()), false}), "");
      });
    }
  }
}

// The numbers of the blocks that the operations of kind `kind` of a rank name, in the order of the lanes.
std::vector<int> BlocksOf(const Schedule& s, int rank, plan::OpKind kind) {
  std::vector<int> blocks;
  for (const plan::Lane& lane : s.program[static_cast<size_t>(rank)]) {
    for (const plan::Op& op : lane.ops) {
      if (op.kind == kind) blocks.push_back(op.chunk / s.slices);
    }
  }
  return blocks;
}

// An executor runs the lanes of a rank in ascending order, each as far as it goes.
TEST(ChunkedTest, LanesAreInTheOrderOfTheBlocks) {
  for (const int ranks : {1, 2, 3, 5}) {
    algo::ForEachChunked(ranks, 1, [&](const Contract& c, std::string_view algorithm, const Chunking& chunking) {
      const Schedule s = algo::GenerateChunked(c, algorithm, chunking).value();
      SCOPED_TRACE(algo::Describe(c, algorithm, chunking));
      for (int r = 0; r < ranks; ++r) {
        const std::vector<int> order = algo::BlockOrder(chunking.order, c.kind, r, ranks);
        const auto in_order = [&](plan::OpKind kind, int blocks) {
          const std::vector<int> found = BlocksOf(s, r, kind);
          EXPECT_EQ(found.size(), static_cast<size_t>(blocks));
          if (blocks == ranks && blocks > 1) {
            EXPECT_EQ(found, order);
          }
        };
        in_order(plan::OpKind::kNotify, plan::OutputBlocks(c, r));
        in_order(plan::OpKind::kAwait, chunking.produced ? plan::InputBlocks(c, r) : 0);
      }
    });
  }
}

TEST(ChunkedTest, OrdersAreWhatTheirNamesSay) {
  using algo::BlockOrder, algo::ChunkOrder;
  using Blocks = std::vector<int>;
  EXPECT_EQ(BlockOrder(ChunkOrder::kOwnFirst, Kind::kAllGather, 2, 4), (Blocks{2, 3, 0, 1}));
  EXPECT_EQ(BlockOrder(ChunkOrder::kOwnLast, Kind::kAllGather, 2, 4), (Blocks{3, 0, 1, 2}));
  EXPECT_EQ(BlockOrder(ChunkOrder::kByRank, Kind::kAllGather, 2, 4), (Blocks{0, 1, 2, 3}));
  EXPECT_EQ(BlockOrder(ChunkOrder::kDefault, Kind::kAllGather, 2, 4), (Blocks{2, 3, 0, 1}));
  EXPECT_EQ(BlockOrder(ChunkOrder::kDefault, Kind::kAllToAll, 3, 4), (Blocks{3, 0, 1, 2}));
  EXPECT_EQ(BlockOrder(ChunkOrder::kDefault, Kind::kReduceScatter, 3, 4), (Blocks{0, 1, 2, 3}));
  EXPECT_EQ(BlockOrder(ChunkOrder::kDefault, Kind::kAllReduce, 2, 4), Blocks{0});
  EXPECT_EQ(BlockOrder(ChunkOrder::kDefault, Kind::kAllGather, 0, 1), Blocks{0});
}

TEST(ChunkedTest, ShapesThatCannotBeAreRefused) {
  const auto refusal = [](Kind kind, int ranks, int slices) {
    return std::string(
        algo::GenerateChunked({kind, ranks, 0}, algo::kChunkedDirect, {slices, true}).status().message());
  };
  EXPECT_EQ(refusal(Kind::kGather, 2, 1),
            "GenerateChunked(gather): no algorithm 'chunked_direct' for this kind; there is none");
  EXPECT_NE(refusal(Kind::kAllGather, 2, 0).find("0 slices are 0 chunks"), std::string::npos);
  EXPECT_EQ(refusal(Kind::kAllGather, 2, 32768), "");
  EXPECT_NE(refusal(Kind::kAllGather, 2, 32769).find("65538 chunks"), std::string::npos);
  EXPECT_NE(refusal(Kind::kAllReduce, 4, 16384).find("65536 parts"), std::string::npos);
  EXPECT_NE(algo::GenerateChunked({Kind::kAllToAll, 64, 0}, algo::kChunkedStaged, {1, true})
                .status()
                .message()
                .find("chunked_staged has 190 lanes for each of 64 ranks; must be up to 8192 together"),
            std::string::npos);
  EXPECT_EQ(Verdict(algo::GenerateChunked({Kind::kReduceScatter, 5, 0}, algo::kChunkedStaged, {13107, true}).value()),
            "right");
  const Chunking last = {1, false, algo::ChunkOrder::kOwnLast};
  EXPECT_EQ(algo::GenerateChunked({Kind::kBroadcast, 2, 0}, algo::kChunkedDirect, last).status().message(),
            "GenerateChunked(broadcast): order own_last; for chunked_direct there is default, as a rank has one block");
  EXPECT_EQ(algo::GenerateChunked({Kind::kAllGather, 2, 0}, algo::kChunkedRing, last).status().message(),
            "GenerateChunked(all_gather): order own_last; for chunked_ring there is default, own_first");
}

// Two ranks of which rank 0 puts its block, in two slices, into the output of rank 1, and tells of it there.
constexpr const char* kPut =
    "axccl-plan 2\nalgorithm put\nkind broadcast\nranks 2\nroot 0\nparts 2\nslices 2\nproduced yes\nlanes 1\nslots 0\n"
    "endpoints 2\ndirect yes\ninline\n"
    "rank 0 lane 0\n"
    "#0 await 0\n#1 copy out[0].0.0 <- in[0].0.0\n#2 notify 0\n"
    "#3 wait 1 e0 v1\n#4 copy out[1].0.0 <- in[0].0.0\n#5 notify 0 at 1\n"
    "#6 await 1\n#7 copy out[0].0.1 <- in[0].0.1\n#8 notify 1\n"
    "#9 copy out[1].0.1 <- in[0].0.1\n#10 notify 1 at 1\n#11 signal 1 e1\n"
    "rank 1 lane 0\n#12 signal 0 e0\n#13 wait 0 e1 v1\n";

// The text with one line replaced, or taken out.
std::string With(std::string_view line, std::string_view other) {
  std::string text = kPut;
  const size_t at = text.find(line);
  EXPECT_NE(at, std::string::npos) << line;
  return text.replace(at, line.size(), other);
}

TEST(ChunkedTest, ARankMayNotifyAnother) { EXPECT_EQ(VerdictOf(kPut), "right"); }

TEST(ChunkedTest, BrokenRulesAreNamed) {
  const auto is = [](const std::string& text, const char* verdict) {
    EXPECT_NE(VerdictOf(text).find(verdict), std::string::npos) << VerdictOf(text);
  };
  is(With("parts 2\n", "parts 3\n"), "structure: 3 parts cannot be divided into 2 slices");
  is(With("produced yes", "produced no"), "rank 0 lane 0 op 0 awaits a chunk, but the inputs are ready");
  is(With("#0 await 0\n", ""), "structure: input chunk 0 of rank 0 is awaited 0 times; must be once");
  is(With("#6 await 1\n", "#6 await 0\n"), "structure: input chunk 0 of rank 0 is awaited 2 times; must be once");
  is(With("#0 await 0\n", "#0 await 2\n"), "names input chunk 2, which does not exist");
  is(With("#5 notify 0 at 1\n", ""), "structure: output chunk 0 of rank 1 is notified 0 times; must be once");
  is(With("#5 notify 0 at 1\n", "#5 notify 2 at 1\n"), "names output chunk 2, which does not exist");
  is(With("#12 signal 0 e0\n#13 wait 0 e1 v1\n", "#13 wait 0 e1 v1\n#12 signal 0 e0\n"),
     "structure: rank 1 lane 0 op 12 announces the rank's buffers; lane 0 must begin with that");
  is(With("#3 wait 1 e0 v1\n#4 copy out[1].0.0 <- in[0].0.0\n#5 notify 0 at 1\n",
          "#4 copy out[1].0.0 <- in[0].0.0\n#5 notify 0 at 1\n#3 wait 1 e0 v1\n"),
     "unannounced: rank 0 lane 0 op 4 touches output[1].block 0.part 0 before it has waited for rank 1 to announce its "
     "buffers");
  is(With("#6 await 1\n#7 copy out[0].0.1 <- in[0].0.1\n", "#7 copy out[0].0.1 <- in[0].0.1\n#6 await 1\n"),
     "race: rank 0 lane 0 op 7 reads input[0].block 0.part 1 before rank 0 has awaited its chunk");
  is(With("#1 copy out[0].0.0 <- in[0].0.0\n#2 notify 0\n", "#2 notify 0\n#1 copy out[0].0.0 <- in[0].0.0\n"),
     "race: rank 0 lane 0 op 2 notifies output[0].block 0.part 0 before it is written");
  is(With("#9 copy", "#14 copy out[0].0.0 <- in[0].0.0\n#9 copy"),
     "race: rank 0 lane 0 op 14 writes output[0].block 0.part 0, whose chunk may be notified already");
  is(With("#2 notify 0\n#3 wait 1 e0 v1\n", "#3 wait 1 e0 v1\n#2 notify 0\n"),
     "late: rank 0 lane 0 op 2 notifies output[0].block 0.part 0 later than directly after");
  is(With("#5 notify 0 at 1\n#6 await 1\n", "#6 await 1\n#5 notify 0 at 1\n"), "late: rank 0 lane 0 op 5 notifies");
  is(With("#0 await 0\n#1 copy out[0].0.0 <- in[0].0.0\n#2 notify 0\n#3 wait 1 e0 v1\n",
          "#0 await 0\n#3 wait 1 e0 v1\n#1 copy out[0].0.0 <- in[0].0.0\n#2 notify 0\n"),
     "late: rank 0 lane 0 op 0 awaits chunk 0, but the lane then waits for something else");
  // Chunk 1 is awaited first, and used last.
  std::string swapped = With("#0 await 0\n", "#6 await 1\n#0 await 0\n");
  swapped.erase(swapped.rfind("#6 await 1\n"), std::string_view("#6 await 1\n").size());
  is(swapped, "late: rank 0 lane 0 op 8 notifies chunk 1 of rank 0 after rank 0 lane 0 op 0 has awaited another input");
}

// Ranks 1 and 2 wait for each other in lane 0. Rank 0 goes on to the next turn, and waits there for lane 1 of rank 1,
// which cannot begin that turn.
TEST(ChunkedTest, ADeadlockIsFoundFromAnotherLane) {
  const std::string text =
      "axccl-plan 2\nalgorithm stuck\nkind broadcast\nranks 3\nroot 1\nparts 1\nslices 1\nproduced no\nlanes 2\nslots "
      "1\n"
      "endpoints 1\ndirect no\ninline -\n"
      "rank 0 lane 0\nrank 0 lane 1\n#0 wait 1 e0 v1\n#1 copy out[0].0.0 <- slot[1].0\n#2 notify 0\n"
      "rank 1 lane 0\n#3 wait 2 e0 v1\n#4 signal 2 e0\n"
      "rank 1 lane 1\n#5 copy slot[1].0 <- in[1].0.0\n#6 signal all e0\n#7 copy out[1].0.0 <- in[1].0.0\n#8 notify 0\n"
      "rank 2 lane 0\n#9 wait 1 e0 v1\n#10 signal 1 e0\n"
      "rank 2 lane 1\n#11 wait 1 e0 v1\n#12 copy out[2].0.0 <- slot[1].0\n#13 notify 0\n";
  EXPECT_EQ(VerdictOf(text),
            "plan stuck broadcast of 3 ranks rejected: deadlock: rank 1 lane 0 op 3 waits for rank 2 lane 0 op 10, but "
            "before that rank 2 lane 0 op 9 waits for rank 1 lane 0 op 4, and so round");
}

// A chunk that a peer has written, and that its owner notifies after the peer's signal.
TEST(ChunkedTest, AWaitMayMakeAChunkFinal) {
  std::string text = With("#5 notify 0 at 1\n", "#5 signal 1 e1\n");
  const std::string_view tail =
      "#10 notify 1 at 1\n#11 signal 1 e1\nrank 1 lane 0\n#12 signal 0 e0\n#13 wait 0 e1 v1\n";
  text.replace(text.find(tail), tail.size(),
               "#11 signal 1 e1\nrank 1 lane 0\n#12 signal 0 e0\n#13 wait 0 e1 v1\n#14 notify 0\n#15 wait 0 e1 v2\n"
               "#16 notify 1\n");
  EXPECT_EQ(VerdictOf(text), "right");
  const std::string_view one = "#14 notify 0\n#15 wait 0 e1 v2\n#16 notify 1\n";
  text.replace(text.find(one), one.size(), "#15 wait 0 e1 v2\n#14 notify 0\n#16 notify 1\n");
  EXPECT_NE(VerdictOf(text).find("late: rank 1 lane 0 op 14 notifies"), std::string::npos) << VerdictOf(text);
}

}  // namespace
}  // namespace axccl::verify
