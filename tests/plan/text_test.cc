#include "src/plan/text.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/algo/cases.h"
#include "tests/harness/random.h"

namespace axccl::plan {
namespace {

constexpr const char* kExample =
    "axccl-plan 1\n"
    "algorithm hand-made_2\n"
    "kind reduce_scatter\n"
    "ranks 2\n"
    "root 0\n"
    "parts 3\n"
    "lanes 2\n"
    "slots 3\n"
    "endpoints 4\n"
    "direct yes\n"
    "inline 0 - 3\n"
    "rank 0 lane 0\n"
    "#7 copy slot[1].0:2 out[1].0.0:2 <- in[0].1.0:2\n"
    "#4294967295 signal all e0\n"
    "#0 signal 0 e3\n"
    "rank 0 lane 1\n"
    "#1 wait 0 l0 e3 v1\n"
    "rank 1 lane 0\n"
    "#2 wait 0 e0 v65535\n"
    "#3 reduce finish out[1].0.2 <- in[1].1.2 slot[0].2 slot[1].1\n"
    "#4 reduce slot[0].0 <- slot[1].0\n"
    "rank 1 lane 1\n"
    "#5 nop\n";

Schedule Example() {
  Schedule s;
  s.algorithm = "hand-made_2";
  s.contract = {Kind::kReduceScatter, 2, 0};
  s.parts = 3;
  s.lanes = 2;
  s.slots = 3;
  s.endpoints = 4;
  s.direct = true;
  s.inline_endpoint = {0, -1, 3};
  s.program.assign(2, std::vector<Lane>(2));
  const Operand slots = {Buffer::kScratch, 1, 0, 0, 2}, out = {Buffer::kOutput, 1, 0, 0, 2},
                in = {Buffer::kInput, 0, 1, 0, 2};
  s.program[0][0].ops.push_back({.kind = OpKind::kCopy, .id = 7, .dst = {slots, out}, .src = {in}});
  s.program[0][0].ops.push_back({.kind = OpKind::kSignal, .peer = kAllPeers, .id = 4294967295u, .dst = {}, .src = {}});
  s.program[0][0].ops.push_back({.kind = OpKind::kSignal, .peer = 0, .endpoint = 3, .id = 0, .dst = {}, .src = {}});
  s.program[0][1].ops.push_back(
      {.kind = OpKind::kWait, .peer = 0, .from_lane = 0, .endpoint = 3, .value = 1, .id = 1, .dst = {}, .src = {}});
  s.program[1][0].ops.push_back(
      {.kind = OpKind::kWait, .peer = 0, .from_lane = 0, .endpoint = 0, .value = 65535, .id = 2, .dst = {}, .src = {}});
  s.program[1][0].ops.push_back(
      {.kind = OpKind::kReduce,
       .finish = true,
       .id = 3,
       .dst = {{Buffer::kOutput, 1, 0, 2, 1}},
       .src = {{Buffer::kInput, 1, 1, 2, 1}, {Buffer::kScratch, 0, 0, 2, 1}, {Buffer::kScratch, 1, 0, 1, 1}}});
  s.program[1][0].ops.push_back({.kind = OpKind::kReduce,
                                 .id = 4,
                                 .dst = {{Buffer::kScratch, 0, 0, 0, 1}},
                                 .src = {{Buffer::kScratch, 1, 0, 0, 1}}});
  s.program[1][1].ops.push_back({.kind = OpKind::kNop, .id = 5, .dst = {}, .src = {}});
  return s;
}

TEST(TextTest, PrintsAndParsesEveryField) {
  EXPECT_EQ(Print(Example()), kExample);
  Result<Schedule> parsed = Parse(kExample);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(*parsed, Example());
}

TEST(TextTest, GeneratedSchedulesComeBackEqualWithDistinctHashes) {
  std::set<std::string> hashes;
  int schedules = 0;
  const auto check = [&](const Schedule& s) {
    const std::string text = Print(s);
    Result<Schedule> parsed = Parse(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    ASSERT_EQ(*parsed, s);
    ASSERT_EQ(Print(*parsed), text);
    hashes.insert(ToString(HashOf(text)));
    ++schedules;
  };
  for (int n = 1; n <= 9; ++n) {
    algo::ForEachAlgorithm(n, [&](const Contract& contract, std::string_view algorithm) {
      for (int lanes : {1, 3}) check(algo::Generate(contract, algorithm, lanes).value());
    });
    algo::ForEachMulticast(n, [&](const Contract& contract, std::string_view algorithm) {
      for (int lanes : {1, 3}) check(algo::Generate(contract, algorithm, lanes).value());
    });
    algo::ForEachChunked(n, 3, [&](const Contract& c, std::string_view algorithm, const algo::Chunking& chunking) {
      // Other orders of these make no difference where inputs are ready, or there is nothing to order.
      const bool same = n == 1 || (c.kind == Kind::kReduceScatter && !chunking.produced);
      if (same && chunking.order == algo::ChunkOrder::kByRank) return;
      if (same && chunking.order == algo::ChunkOrder::kOwnLast) return;
      check(algo::GenerateChunked(c, algorithm, chunking).value());
    });
  }
  EXPECT_EQ(hashes.size(), static_cast<size_t>(schedules));
}

TEST(TextTest, SlotsOfAllRanks) {
  const std::string text =
      "axccl-plan 1\nalgorithm x\nkind all_reduce\nranks 2\nroot 0\nparts 1\nlanes 1\nslots 3\nendpoints 0\n"
      "direct no\ninline - - -\nrank 0 lane 0\n#0 reduce slot[all].1:2 <- slot[all].0:2\n"
      "#1 copy slot[all].0 slot[0].1 <- in[0].0.0\nrank 1 lane 0\n";
  const Schedule parsed = Parse(text).value();
  EXPECT_EQ(Print(parsed), text);
  ASSERT_EQ(parsed.program[0][0].ops.size(), 2u);
  const Op& reduce = parsed.program[0][0].ops[0];
  EXPECT_EQ(reduce.dst, std::vector<Operand>({{Buffer::kMulticast, 0, 0, 1, 2}}));
  EXPECT_EQ(reduce.src, std::vector<Operand>({{Buffer::kMulticast, 0, 0, 0, 2}}));
  EXPECT_TRUE(UsesMulticast(parsed));
  for (const char* wrong : {"slot[all]1", "slot[al].1", "slot[all0].1", "slot[all].0.1", "in[all].0.0"}) {
    std::string other = text;
    other.replace(other.find("slot[all].1:2"), 13, wrong);
    EXPECT_FALSE(Parse(other).ok()) << wrong;
  }
}

// Version 1 has no slices, and version 2 always has them.
TEST(TextTest, PlansWithSlicesAreOfVersion2) {
  const std::string text =
      Print(algo::GenerateChunked({Kind::kAllGather, 2, 0}, algo::kChunkedDirect, {2, true}).value());
  EXPECT_EQ(
      text.substr(0, text.find("lanes")),
      "axccl-plan 2\nalgorithm chunked_direct\nkind all_gather\nranks 2\nroot 0\nparts 2\nslices 2\nproduced yes\n");
  EXPECT_NE(text.find(" await 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find(" notify 3\n"), std::string::npos) << text;
  std::string other = text;
  other[11] = '1';
  EXPECT_EQ(Parse(other).status().message(), "plan text, line 7 column 1: expected 'lanes', found 'slices 2\\n'");
  other = text;
  other.insert(other.find(" notify 3\n") + 9, " at 0");
  EXPECT_NE(Parse(other).status().message().find("expected the rank to be left out"), std::string::npos)
      << Parse(other).status().message();
}

TEST(TextTest, NamesTheMachinesOfPlansThatDependOnThem) {
  for (const auto& machine_of : algo::SomeMachines()) {
    const Placement placement = Placement::Of(machine_of);
    const Schedule s =
        algo::Generate({Kind::kAllGather, placement.ranks(), 0}, "hierarchical_ring", 1, placement).value();
    const std::string text = Print(s);
    EXPECT_NE(text.find("\nroot 0\n" + algo::Describe(placement) + "\nparts "), std::string::npos) << text;
    Result<Schedule> parsed = Parse(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(*parsed, s);
    EXPECT_EQ(Print(*parsed), text);
  }
}

// The error of a text that must not be accepted: the example with one substitution.
std::string ErrorOf(const std::string& from, const std::string& to) {
  std::string text = kExample;
  text.replace(text.find(from), from.size(), to);
  Result<Schedule> parsed = Parse(text);
  EXPECT_FALSE(parsed.ok()) << text;
  if (parsed.ok()) return "accepted";
  EXPECT_EQ(parsed.status().code(), Code::kInvalidArgument);
  return std::string(parsed.status().message());
}

TEST(TextTest, ErrorsNameLineAndColumn) {
  EXPECT_EQ(ErrorOf("axccl-plan 1", "axccl-plan 3"),
            "plan text, line 1 column 12: expected a number from 1 to 2, found '3\\n'");
  EXPECT_EQ(ErrorOf("root 0\n", "root 0\nmachines 0 0\n"),
            "plan text, line 6 column 12: expected a number from 1 to 1, found '0\\n'");
  EXPECT_EQ(ErrorOf("root 0\n", "root 0\nmachines 1 0\n"),
            "plan text, line 6 column 10: expected a number from 0 to 0, found '1 0\\n'");
  EXPECT_EQ(ErrorOf("root 0\n", "root 0\nmachines 0 1 1\n"),
            "plan text, line 6 column 13: expected '\\n', found ' 1\\n'");
  EXPECT_EQ(ErrorOf("parts 3", "pieces 3"), "plan text, line 6 column 1: expected 'parts', found 'pieces 3\\n'");
  EXPECT_EQ(ErrorOf("kind reduce_scatter", "kind allreduce"),
            "plan text, line 3 column 6: expected the name of a collective, such as all_reduce, found 'allreduce\\n'");
  EXPECT_EQ(ErrorOf("hand-made_2", "Hand"),
            "plan text, line 2 column 11: expected the name of an algorithm ([a-z0-9_-], at most 32 characters), found "
            "'Hand\\n'");
  EXPECT_EQ(ErrorOf("ranks 2", "ranks 32768"),
            "plan text, line 4 column 7: expected a number from 1 to 32767, found '32768\\n'");
  EXPECT_EQ(ErrorOf("direct yes", "direct maybe"),
            "plan text, line 10 column 8: expected 'yes' or 'no', found 'maybe\\n'");
  EXPECT_EQ(ErrorOf("rank 0 lane 1", "rank 1 lane 0"),
            "plan text, line 16 column 1: expected 'rank 0 lane 1\\n', found 'rank 1 lane 0\\n'");
  EXPECT_EQ(ErrorOf("#5 nop", "#5 dance"),
            "plan text, line 23 column 4: expected an operation: copy, reduce, signal, wait or nop, found 'dance\\n'");
  EXPECT_EQ(ErrorOf("#0 signal 0 e3", "#0 signal 2 e3"),
            "plan text, line 15 column 11: expected a number from 0 to 1, found '2 e3\\n'");
  EXPECT_EQ(
      ErrorOf("wait 0 l0 e3", "wait 0 l1 e3"),
      "plan text, line 17 column 11: expected the lane to be left out, because it is this lane, found 'l1 e3 v1\\n'");
  EXPECT_EQ(ErrorOf("v65535", "v65536"),
            "plan text, line 19 column 15: expected a number from 1 to 65535, found '65536\\n'");
  EXPECT_EQ(ErrorOf("v65535", "v0"), "plan text, line 19 column 15: expected a number from 1 to 65535, found '0\\n'");
  EXPECT_EQ(ErrorOf("#5 nop\n", "#5 nop"), "plan text, line 23 column 7: expected '\\n', found the end of the text");
  EXPECT_EQ(ErrorOf("#5 nop\n", "#5 nop\n\n"),
            "plan text, line 24 column 1: expected an operation or the end of the text, found '\\n'");
  EXPECT_EQ(ErrorOf("rank 1 lane 1\n#5 nop\n", ""),
            "plan text, line 22 column 1: expected 'rank 1 lane 1\\n', found the end of the text");
}

// There is one way to write each schedule.
TEST(TextTest, OnlyTheCanonicalFormIsAccepted) {
  const std::vector<std::pair<std::string, std::string>> variants = {{"ranks 2", "ranks 02"},
                                                                     {"ranks 2", "ranks +2"},
                                                                     {"ranks 2", "ranks  2"},
                                                                     {"ranks 2\n", "ranks 2 \n"},
                                                                     {"ranks 2\n", "ranks 2\r\n"},
                                                                     {"#7 copy", "#07 copy"},
                                                                     {"slot[1].0:2", "slot[1].0:1"},
                                                                     {"out[1].0.2", "out[1].0.2:1"},
                                                                     {"inline 0 - 3", "inline 0 -1 3"},
                                                                     {" <- in[0]", " <-  in[0]"},
                                                                     {"#5 nop", "# 5 nop"},
                                                                     {"#5 nop", "#5 nop\n#6"},
                                                                     {"in[0].1.0:2\n", "in[0].1.0:2 \n"},
                                                                     {"signal all", "signal -1"},
                                                                     {"#5", "#4294967296"},
                                                                     {"slot[1].0:2 out", "slot[1].00:2 out"},
                                                                     {"reduce finish", "reduce  finish"},
                                                                     {"#4294967295", "#99999999999999999999"},
                                                                     {"axccl-plan",
                                                                      "\xef\xbb\xbf"
                                                                      "axccl-plan"}};
  for (const auto& [from, to] : variants) EXPECT_EQ(ErrorOf(from, to).substr(0, 15), "plan text, line") << to;
}

// Sizes in the header cost nothing until lines follow.
TEST(TextTest, ClaimsAllocateNothing) {
  const std::string claim =
      "axccl-plan 1\nalgorithm x\nkind all_to_all\nranks 32767\nroot 0\nparts 65535\nlanes 65535\n"
      "slots 65535\nendpoints 65535\ndirect no\ninline\n";
  Result<Schedule> parsed = Parse(claim);
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.status().message(),
            "plan text, line 12 column 1: expected 'rank 0 lane 0\\n', found the end of the text");
}

TEST(TextTest, EmptyTextIsAnError) {
  EXPECT_EQ(Parse("").status().message(),
            "plan text, line 1 column 1: expected 'axccl-plan', found the end of the text");
}

// Valid texts with bytes flipped, cut, doubled or moved are an error or, if the change happens to give a schedule
// again, exactly the text of that schedule. The sanitizers check memory accesses.
TEST(TextTest, DamagedTextsNeverCrash) {
  SCOPED_TRACE("AXCCL_TEST_SEED=" + std::to_string(harness::Seed()));
  std::vector<std::string> texts = {kExample};
  for (int n : {1, 2, 3}) {
    algo::ForEachAlgorithm(n, [&](const Contract& contract, std::string_view algorithm) {
      texts.push_back(Print(algo::Generate(contract, algorithm, n == 2 ? 2 : 1).value()));
    });
    texts.push_back(Print(algo::GenerateChunked({Kind::kAllToAll, n, 0}, algo::kChunkedDirect, {2, true}).value()));
  }
  harness::Random random(harness::Seed());
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = random.Pick(texts);
    for (uint64_t damages = 1 + random.Below(4); damages > 0 && !text.empty(); --damages) {
      const size_t at = random.Below(text.size());
      const size_t length = random.Below(std::min<size_t>(text.size() - at, 30));
      switch (random.Below(6)) {
        case 0:
          text[at] = static_cast<char>(text[at] ^ (1 << random.Below(8)));
          break;
        case 1:
          text[at] = static_cast<char>(random.Next());
          break;
        case 2:
          text[at] = static_cast<char>('0' + random.Below(10));
          break;
        case 3:
          text.erase(at, length);
          break;
        case 4:
          text.insert(random.Below(text.size()), text.substr(at, length));
          break;
        case 5:
          text.resize(at);
          break;
      }
    }
    Result<Schedule> parsed = Parse(text);
    if (!parsed.ok()) {
      ASSERT_EQ(parsed.status().message().substr(0, 15), "plan text, line");
      continue;
    }
    ++accepted;
    ASSERT_EQ(Print(*parsed), text);
  }
  EXPECT_GT(accepted, 100);
}

TEST(HashTest, EqualsXxh3) {
  // XXH3_128bits of the empty string, from the reference implementation's documentation of its test vectors.
  EXPECT_EQ(ToString(HashOf("")), "99aa06d3014798d86001c324468d497f");
  EXPECT_NE(HashOf("a"), HashOf("b"));
  EXPECT_EQ(ToString({0x1, 0xf}), "0000000000000001000000000000000f");
}

}  // namespace
}  // namespace axccl::plan
