// Random calls on random channels: any grid of up to 8 ranks, any mode, lists in any order and of any length, meshes,
// several channels at once, all calls on views with their dimensions, strides, types, operators, roots, extents and
// pairs. Every rank knows from the seed what every rank calls, and which results the definition requires
// (group_cases.h, view_cases.h, uneven_cases.h, permute_cases.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <variant>

#include "tests/collectives/group_cases.h"
#include "tests/collectives/permute_cases.h"
#include "tests/collectives/uneven_cases.h"
#include "tests/collectives/view_runner.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::GuardedArena;
using harness::Layout;
using harness::Memory;
using harness::Random;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::Scramble;
using harness::Seed;

constexpr int kStreams = 3;
constexpr size_t kChannels = 6;
constexpr size_t kArenaBytes = size_t{32} << 20;

using AnyCall = std::variant<ViewCases, UnevenCase, PermuteCase>;

// One round: a channel may be replaced; then calls run on different channels, each on its own stream.
struct Round {
  uint64_t number = 0;
  int replaced = -1;
  GroupCase groups;  // of the new channel
  int64_t channel_id = 0;
  struct OnChannel {
    size_t channel = 0;
    std::vector<AnyCall> calls;  // by group
  };
  std::vector<OnChannel> channels;
};

struct Program {
  uint64_t seed = 0;
  std::vector<Round> rounds;
  int calls = 0;
};

// Whether two channels have a group in common: with one id they would be the same channel there.
bool Share(const GroupCase& a, const GroupCase& b) {
  return std::find_first_of(a.groups.begin(), a.groups.end(), b.groups.begin(), b.groups.end()) != a.groups.end();
}

AnyCall AnyCallOf(int nranks, Random* random) {
  const uint64_t kind = random->Below(8);
  if (kind < 2) return AnyUnevenCase(random, nranks, 40);
  if (kind == 2) return AnyPermuteCase(random, nranks);
  const int64_t most = random->OneIn(10) ? 5000 : 200;
  ViewCases cases = {AnyViewCase(random, nranks, most)};
  for (uint64_t more = random->OneIn(5) ? 1 + random->Below(5) : 0; more > 0; --more)
    cases.push_back(AnotherOperand(cases[0], random, most));
  return cases;
}

Program AnyProgram(uint64_t seed, int nranks, int num_rounds) {
  Program program;
  program.seed = seed;
  Random random(seed);
  std::vector<GroupCase> alive(kChannels);
  for (int i = 0; i < num_rounds; ++i) {
    Round round;
    round.number = static_cast<uint64_t>(i);
    const bool first = i < static_cast<int>(kChannels);
    if (first || random.OneIn(4)) {
      round.replaced = first ? i : static_cast<int>(random.Below(kChannels));
      round.groups = AnyGroupCase(&random, nranks);
      // Usually one of few ids, which several channels have at a time.
      round.channel_id = static_cast<int64_t>(random.Below(3));
      for (const GroupCase& other : alive) {
        if (Share(other, round.groups)) round.channel_id = 100 + round.replaced;
      }
      alive[static_cast<size_t>(round.replaced)] = round.groups;
    }
    const size_t num_channels = std::min<size_t>(kChannels, static_cast<size_t>(i) + 1);
    const size_t start = random.Below(num_channels);
    for (size_t k = 0; k < std::min<size_t>(1 + random.Below(kStreams), num_channels); ++k) {
      Round::OnChannel on{(start + k) % num_channels, {}};
      for (const auto& group : alive[on.channel].groups) {
        on.calls.push_back(AnyCallOf(static_cast<int>(group.size()), &random));
        ++program.calls;
      }
      round.channels.push_back(std::move(on));
    }
    program.rounds.push_back(std::move(round));
  }
  return program;
}

// One rank's end of a channel.
struct End {
  axcclChannel_t channel = nullptr;
  int group = -1, position = -1;
};

// A call that one rank must make.
struct Due {
  const AnyCall* call = nullptr;
  Seat seat;
};

class ProgramRunner {
 public:
  ProgramRunner(RankContext& context, Clique& clique) : context_(context), clique_(clique), runner_(context, clique) {
    ends_.assign(static_cast<size_t>(clique.size()), std::vector<End>(kChannels));
    arenas_.resize(ends_.size());
    for (auto& own : arenas_) {
      for (const Memory memory : {Memory::kMemAlloc, Memory::kMalloc})
        own.push_back(GuardedArena::Create(memory, kArenaBytes));
    }
  }

  void Run(const Program& program) {
    for (const Round& round : program.rounds) {
      ASSERT_TRUE(context_.Step("round %llu of AXCCL_TEST_SEED=%llu, channel %d replaced by %s",
                                static_cast<unsigned long long>(round.number), static_cast<unsigned long long>(Seed()),
                                round.replaced, round.groups.Text().c_str()));
      if (round.replaced >= 0) Replace(round);
      ASSERT_FALSE(testing::Test::HasFailure());
      Call(round, program.seed);
      ASSERT_FALSE(testing::Test::HasFailure());
    }
    ASSERT_TRUE(Finish());
    for (auto& ends : ends_) {
      for (End& end : ends) EXPECT_OK(axcclChannelDestroy(end.channel));
    }
  }

 private:
  void Replace(const Round& round) {
    axcclGroups_t groups = nullptr;
    ASSERT_OK(round.groups.Create(&groups)) << round.groups.Text();
    for (int m = 0; m < clique_.size(); ++m) {
      End& end = ends_[static_cast<size_t>(m)][static_cast<size_t>(round.replaced)];
      // Calls on it may still run.
      if (end.channel != nullptr) {
        EXPECT_OK(axcclChannelDestroy(end.channel));
      }
      end = {};
      ASSERT_OK(axcclChannelCreate(&end.channel, clique_.comm(m), groups, round.channel_id, 0));
      const auto& lists = round.groups.groups;
      for (size_t g = 0; g < lists.size(); ++g) {
        const auto at = std::find(lists[g].begin(), lists[g].end(), clique_.rank(m));
        if (at == lists[g].end()) continue;
        end.group = static_cast<int>(g), end.position = static_cast<int>(at - lists[g].begin());
      }
      axcclChannelInfo_t info{};
      info.size = sizeof(info);
      EXPECT_OK(axcclChannelGetInfo(end.channel, &info));
      EXPECT_EQ(info.group_rank, end.position) << round.groups.Text();
      EXPECT_EQ(info.group_size, end.group < 0 ? 0 : static_cast<int>(lists[static_cast<size_t>(end.group)].size()))
          << round.groups.Text();
    }
    EXPECT_OK(axcclGroupsDestroy(groups));
  }

  void Call(const Round& round, uint64_t seed) {
    std::vector<Due> due;
    std::vector<DueCall> on_views;
    bool others = false;
    for (int m = 0; m < clique_.size(); ++m) {
      for (size_t k = 0; k < round.channels.size(); ++k) {
        const Round::OnChannel& on = round.channels[k];
        const End& end = ends_[static_cast<size_t>(m)][on.channel];
        if (end.group < 0) continue;
        const Seat seat{m, end.position, end.channel, Cuda(clique_.stream(m, static_cast<int>(k)))};
        due.push_back({&on.calls[static_cast<size_t>(end.group)], seat});
        const ViewCases* views = std::get_if<ViewCases>(due.back().call);
        if (views != nullptr) on_views.push_back({views, seat});
        others |= views == nullptr;
      }
    }
    // Every rank has its own order.
    Random random(Scramble(seed, round.number, static_cast<uint64_t>(clique_.rank(0))));
    for (size_t i = due.size(); i > 1; --i) std::swap(due[i - 1], due[random.Below(i)]);
    if (!runner_.Fits(on_views) || (others && parts_.size() > 3 * ends_.size())) {
      ASSERT_TRUE(Finish());
    }
    const bool group = clique_.size() > 1 || random.OneIn(3);
    if (group) {
      ASSERT_OK(ncclGroupStart());
    }
    for (const Due& d : due) EXPECT_OK(Enqueue(d)) << "in round " << round.number;
    if (group) {
      ASSERT_OK(ncclGroupEnd());
    }
    if (random.OneIn(4)) {
      ASSERT_TRUE(Finish());
    }
  }

  ncclResult_t Enqueue(const Due& due) {
    if (const auto* views = std::get_if<ViewCases>(due.call)) return runner_.Enqueue(*views, due.seat);
    auto* arenas = &arenas_[static_cast<size_t>(due.seat.member)];
    if (const auto* uneven = std::get_if<UnevenCase>(due.call)) {
      parts_.push_back(std::make_unique<UnevenPart>(*uneven, due.seat.rank, arenas));
    } else {
      parts_.push_back(std::make_unique<PermutePart>(std::get<PermuteCase>(*due.call), due.seat.rank, arenas));
    }
    return parts_.back()->Launch(due.seat.channel, due.seat.stream);
  }

  bool Finish() {
    if (!runner_.Finish()) return false;
    for (const auto& part : parts_) part->Check();
    parts_.clear();
    for (auto& own : arenas_) {
      for (auto& arena : own) {
        EXPECT_EQ(arena->CheckSentinels(), "");
        arena->Reset();
      }
    }
    return !testing::Test::HasFailure();
  }

  RankContext& context_;
  Clique& clique_;
  ViewRunner runner_;
  std::vector<std::vector<End>> ends_;  // by member
  // For calls that the runner does not support.
  std::vector<std::vector<std::unique_ptr<GuardedArena>>> arenas_;  // by member
  std::vector<std::unique_ptr<RankCall>> parts_;
};

class GroupsRandomTest : public testing::TestWithParam<Layout> {};

TEST_P(GroupsRandomTest, CallsAgreeWithTheDefinition) {
  const Layout layout = GetParam();
  uint64_t salt = static_cast<uint64_t>(layout.processes * 100 + layout.threads * 10 + layout.ranks);
  int calls = 0;
  for (const char* algorithms : {"", "direct", "ring"}) {
    SCOPED_TRACE("NCCL_ALGO=" + std::string(algorithms));
    const int rounds = harness::FullTests() ? 1000 : algorithms[0] == 0 ? 80 : 30;
    const Program program = AnyProgram(Scramble(Seed(), ++salt, 0x6209), layout.nranks(), rounds);
    calls += program.calls;
    RunOptions options;
    // Little scratch memory, so that larger cases take several turns.
    options.environment = {{"NCCL_ALGO", algorithms}, {"AXCCL_SCRATCH_BYTES", "128K"}};
    const auto body = [&](RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context, kStreams));
      ProgramRunner(context, clique).Run(program);
    };
    RunRanks(layout, body, options);
    if (HasFailure()) return;
  }
  std::printf("%d calls of groups, AXCCL_TEST_SEED=%llu\n", calls, static_cast<unsigned long long>(Seed()));
}

INSTANTIATE_TEST_SUITE_P(Layouts, GroupsRandomTest,
                         testing::Values(harness::Processes(2), harness::Processes(4), harness::Processes(6),
                                         harness::Processes(8), harness::Threads(3), harness::Threads(4),
                                         harness::Threads(6), harness::Threads(8), harness::OneThread(4),
                                         harness::OneThread(8), Layout{2, 2, 1}, Layout{2, 2, 2}, Layout{3, 1, 2}),
                         [](const auto& info) { return info.param.Text(); });

}  // namespace
}  // namespace axccl::tests
