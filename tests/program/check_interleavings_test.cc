// The check of communication against all orders in which the ranks of small programs can go on.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "src/program/check.h"
#include "src/program/text.h"
#include "tests/harness/random.h"

namespace axccl::program {
namespace {

// What a rank does: a collective on `ranks`, or a message of `size` floats from ranks[0] to ranks[1].
struct Step {
  char what;  // 'c', 's', 'r'
  Ints ranks;
  int channel, size;

  auto operator<=>(const Step&) const = default;
};
using Steps = std::vector<std::vector<Step>>;  // of each rank

// Whether every order in which ranks can go on ends with all messages received, and with their sizes.
class Interleavings {
 public:
  explicit Interleavings(const Steps& steps) : steps_(steps) {}
  bool AllEnd() { return Visit(std::vector<size_t>(steps_.size(), 0)); }

 private:
  // The sizes of messages before the steps `at`, of those that match `like` but for the size.
  std::vector<int> Sizes(const std::vector<size_t>& at, int64_t rank, Step like) const {
    std::vector<int> sizes;
    for (size_t i = 0; i < at[static_cast<size_t>(rank)]; ++i) {
      const Step& step = steps_[static_cast<size_t>(rank)][i];
      like.size = step.size;
      if (step == like) sizes.push_back(step.size);
    }
    return sizes;
  }

  bool Visit(const std::vector<size_t>& at) {
    if (!seen_.insert(at).second) return true;
    bool goes_on = false, is_right = true;
    for (size_t rank = 0; rank < steps_.size(); ++rank) {
      if (at[rank] == steps_[rank].size()) continue;
      std::vector<size_t> next = at;
      if (!Advance(static_cast<int64_t>(rank), &next, &is_right)) continue;
      goes_on = true;
      if (!is_right || !Visit(next)) return false;
    }
    if (goes_on) return true;
    for (size_t rank = 0; rank < steps_.size(); ++rank) {
      if (at[rank] != steps_[rank].size()) return false;
      for (const Step& step : steps_[rank]) {
        if (step.what == 's' && Sizes(at, step.ranks[0], step).size() !=
                                    Sizes(at, step.ranks[1], {'r', step.ranks, step.channel, 0}).size())
          return false;
      }
    }
    return true;
  }

  bool Advance(int64_t rank, std::vector<size_t>* next, bool* is_right) const {
    const Step& step = steps_[static_cast<size_t>(rank)][(*next)[static_cast<size_t>(rank)]];
    if (step.what == 'r') {
      const std::vector<int> sent = Sizes(*next, step.ranks[0], {'s', step.ranks, step.channel, 0});
      const size_t received = Sizes(*next, rank, step).size();
      if (sent.size() <= received) return false;
      *is_right = sent[received] == step.size;
    }
    if (step.what == 'c') {
      for (const int64_t member : step.ranks) {
        const size_t at = (*next)[static_cast<size_t>(member)];
        const auto& theirs = steps_[static_cast<size_t>(member)];
        if (at == theirs.size() || theirs[at] != step) return false;
      }
      for (const int64_t member : step.ranks) ++(*next)[static_cast<size_t>(member)];
    } else {
      ++(*next)[static_cast<size_t>(rank)];
    }
    return true;
  }

  const Steps& steps_;
  std::set<std::vector<size_t>> seen_;
};

// Steps that match, and then often some that do not.
Steps RandomSteps(harness::Random* random) {
  const auto below = [&](uint64_t bound) { return static_cast<int>(random->Below(bound)); };
  Steps steps(2 + random->Below(3));
  for (int i = 1 + below(7); i > 0; --i) {
    const int64_t a = below(steps.size()), b = (a + 1 + below(steps.size() - 1)) % static_cast<int64_t>(steps.size());
    Step step{'c', {a, b}, below(2), 1 + below(2)};
    if (random->OneIn(2)) {
      step.what = 's';
      steps[static_cast<size_t>(a)].push_back(step);
      step.what = 'r';
      steps[static_cast<size_t>(b)].push_back(step);
    } else {
      for (int64_t other = 0; other < static_cast<int64_t>(steps.size()); ++other) {
        if (other != a && other != b && random->OneIn(4)) step.ranks.push_back(other);
      }
      for (const int64_t rank : step.ranks) steps[static_cast<size_t>(rank)].push_back(step);
    }
  }
  for (int changes = below(4); changes > 0; --changes) {
    auto& list = steps[random->Below(steps.size())];
    if (list.size() < 2) continue;
    const size_t at = random->Below(list.size() - 1);
    std::swap(list[at], list[at + 1]);
    if (random->OneIn(6)) list.erase(list.begin() + static_cast<int64_t>(at));
    if (random->OneIn(6)) list[0].size = 3 - list[0].size;
  }
  return steps;
}

// The operations of steps, whose results nothing uses. In SPMD texts, a message is one of a ring of all ranks.
std::string LinesOf(const std::vector<Step>& steps, const std::string& indent, int id) {
  std::string text;
  for (const Step& step : steps) {
    std::string ranks;
    for (const int64_t member : step.ranks) ranks += (ranks.empty() ? "" : ",") + std::to_string(member);
    const std::string size = std::to_string(step.size), type = " f32[" + size + "]";
    text += indent + "%" + std::to_string(id++);
    if (step.what == 'c') text += type + " = all_reduce %" + size + " fold=add groups=[[" + ranks;
    if (step.what == 's') text += " = send %" + size + " pairs=[[" + ranks;
    if (step.what == 'r') text += type + " = recv pairs=[[" + ranks;
    text += "]] channel=" + std::to_string(step.channel) + "\n";
  }
  return text;
}

// Steps `begin` to `end` of a rank are executed `rounds` times.
struct Repeated {
  size_t begin, end;
  int rounds;
};

std::string TextOf(const Steps& steps, const std::vector<Repeated>& loops) {
  std::string text = "axccl-program 1\nranks " + std::to_string(steps.size()) + "\n";
  for (size_t rank = 0; rank < steps.size(); ++rank) {
    const auto begin = steps[rank].begin() + static_cast<int64_t>(loops[rank].begin),
               end = steps[rank].begin() + static_cast<int64_t>(loops[rank].end);
    text += "part rank" + std::to_string(rank) + " on [" + std::to_string(rank) + "]\n";
    text += "  argument %1 f32[1]\n  argument %2 f32[2]\n  %3 i32[] = constant value=0\n  %4 i32[] = constant value=" +
            std::to_string(loops[rank].rounds) + "\n  %5 i32[] = constant value=1\n";
    text += LinesOf({steps[rank].begin(), begin}, "  ", 100);
    text +=
        "  %6 i32[] = while %3\n  cond\n    argument %7 i32[]\n    %8 i1[] = compare %7 %4 direction=LT\n"
        "    return %8\n  body\n    argument %9 i32[]\n    %10 i32[] = add %5 %9\n";
    text += LinesOf({begin, end}, "    ", 200) + "    return %10\n" + LinesOf({end, steps[rank].end()}, "  ", 300);
    text += "  return\n";
  }
  return text;
}

std::vector<Step> WrittenOut(const std::vector<Step>& steps, const Repeated& loop) {
  const auto begin = steps.begin() + static_cast<int64_t>(loop.begin),
             end = steps.begin() + static_cast<int64_t>(loop.end);
  std::vector<Step> all(steps.begin(), begin);
  for (int round = 0; round < loop.rounds; ++round) all.insert(all.end(), begin, end);
  all.insert(all.end(), end, steps.end());
  return all;
}

Repeated RandomLoop(size_t size, harness::Random* random) {
  const size_t a = random->Below(size + 1), b = random->Below(size + 1);
  return {std::min(a, b), std::max(a, b), random->OneIn(2) ? 1 : static_cast<int>(random->Below(4))};
}

TEST(CheckInterleavingsTest, RandomProgramsEndIfAllInterleavingsDo) {
  harness::Random random(harness::Seed());
  std::map<bool, int> counts;
  for (int i = 0; i < 6000; ++i) {
    const Steps steps = RandomSteps(&random);
    Steps all;
    std::vector<Repeated> loops;
    for (const std::vector<Step>& list : steps) {
      loops.push_back(RandomLoop(list.size(), &random));
      if (random.OneIn(2)) loops.back() = loops[0].end <= list.size() ? loops[0] : Repeated{0, 0, 0};
      all.push_back(WrittenOut(list, loops.back()));
    }
    const Result<Program> program = Parse(TextOf(steps, loops));
    ASSERT_TRUE(program.ok()) << program.status().message();
    const Status checked = Check(program.value());
    const bool ends = Interleavings(all).AllEnd();
    ASSERT_EQ(checked.ok(), ends) << checked.message() << ", seed " << harness::Seed() << "\n" << TextOf(steps, loops);
    ++counts[ends];
  }
  EXPECT_GT(counts[true], 1000) << "seed " << harness::Seed();
  EXPECT_GT(counts[false], 1000) << "seed " << harness::Seed();
}

// A step of all ranks of one part: a collective of all, or of two groups, or a message around the ring.
struct SharedStep {
  const char* line;  // behind the id
  char what;
  std::vector<Ints> sets;  // pairs of messages
  int channel;
};
const std::vector<Ints> kRing = {{0, 1}, {1, 2}, {2, 3}, {3, 0}};
const std::vector<SharedStep> kSharedSteps = {
    {" f32[1] = all_reduce %1 fold=add groups=[[0,1,2,3]] channel=0\n", 'c', {{0, 1, 2, 3}}, 0},
    {" f32[1] = all_reduce %1 fold=add groups=[[2,0],[1,3]] channel=0\n", 'c', {{2, 0}, {1, 3}}, 0},
    {" = send %1 pairs=[[0,1],[1,2],[2,3],[3,0]] channel=1\n", 's', kRing, 1},
    {" f32[1] = recv pairs=[[0,1],[1,2],[2,3],[3,0]] channel=1\n", 'r', kRing, 1},
    {" = send %1 pairs=[[0,1],[1,2],[2,3],[3,0]] channel=2\n", 's', kRing, 2},
    {" f32[1] = recv pairs=[[0,1],[1,2],[2,3],[3,0]] channel=2\n", 'r', kRing, 2},
};

// Whatever the number of rounds of a loop whose end is an argument.
TEST(CheckInterleavingsTest, AcceptedLoopsEndForAnyNumberOfRounds) {
  harness::Random random(harness::Seed());
  int accepted = 0;
  for (int i = 0; i < 6000; ++i) {
    std::vector<const SharedStep*> list(1 + random.Below(7));
    for (const SharedStep*& step : list) step = &kSharedSteps[random.Below(kSharedSteps.size())];
    const Repeated loop = RandomLoop(list.size(), &random);
    std::string text = "axccl-program 1\nranks 4\npart main on [0,1,2,3]\n  argument %1 f32[1]\n  argument %2 i32[]\n";
    for (size_t k = 0; k <= list.size(); ++k) {
      if (k == loop.begin)
        text +=
            "  %3 i32[] = while %2\n  cond\n    argument %4 i32[]\n    %5 i1[] = compare %4 %2 direction=LT\n"
            "    return %5\n  body\n    argument %6 i32[]\n";
      if (k == loop.end) text += "    return %6\n";
      if (k < list.size())
        text += (k >= loop.begin && k < loop.end ? "    %" : "  %") + std::to_string(10 + k) + list[k]->line;
    }
    const Status checked = Check(Parse(text + "  return\n").value());
    if (!checked.ok()) continue;
    ++accepted;
    for (int rounds = 0; rounds < 4; ++rounds) {
      Steps steps(4);
      for (int64_t rank = 0; rank < 4; ++rank) {
        std::vector<Step> all;
        for (const SharedStep* step : list) {
          for (const Ints& set : step->sets) {
            const size_t own = step->what == 's' ? 0 : 1;
            const bool is_in =
                step->what == 'c' ? std::find(set.begin(), set.end(), rank) != set.end() : set[own] == rank;
            if (is_in) all.push_back({step->what, set, step->channel, 1});
          }
        }
        steps[static_cast<size_t>(rank)] = WrittenOut(all, {loop.begin, loop.end, rounds});
      }
      ASSERT_TRUE(Interleavings(steps).AllEnd()) << rounds << " rounds, seed " << harness::Seed() << "\n" << text;
    }
  }
  EXPECT_GT(accepted, 300) << "seed " << harness::Seed();
}

}  // namespace
}  // namespace axccl::program
