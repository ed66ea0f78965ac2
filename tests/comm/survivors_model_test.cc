// All interleavings of steps, messages, deaths and their detection, for few ranks that shrink a communicator by the
// rules of survivors.h: living ranks never form different groups, and none waits without end. And that each part of the
// rules is needed: without it, one of these fails.
#include "src/comm/survivors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace axccl::comm {
namespace {

// What a rank publishes, in order.
struct Event {
  enum Kind : uint8_t { kBegin, kContribute, kAbandon, kDone, kGiveUp };
  Kind kind;
  uint8_t attempt;  // index
  uint8_t round;
};

struct Rank {
  enum Phase : uint8_t { kRunning, kFormed, kOut, kAway };
  std::vector<Attempt> attempts;
  std::vector<bool> complete;  // by attempt: this rank has what all have contributed before the last round
  std::vector<Event> log;
  uint8_t round = 0;
  Phase phase = kRunning;
  size_t formed = 0;
  bool dead = false;
  std::vector<uint8_t> seen;  // of the others' logs
  std::vector<bool> lost;     // the others that it knows to be dead; it sees no more of their logs
};

using World = std::vector<Rank>;
using Rule = std::function<NextStep(int, std::span<const Attempt>, std::span<const SeenRank>)>;

struct Model {
  std::vector<RankSet> groups;  // of each rank, at first
  int deaths = 1;
  bool agreed = true;  // whether no rank leaves out one that is alive
  Rule rule = NextOf;
  int rounds = 2;       // of exchange
  bool vanish = false;  // what a rank has contributed vanishes when it abandons the attempt
  bool late = false;    // ranks call at any time, and leave out whom they know to be dead then
};

struct Verdict {
  std::string trouble;  // "" if there is none
  size_t worlds = 0;
};

bool In(const RankSet& group, ptrdiff_t rank) { return std::binary_search(group.begin(), group.end(), rank); }

std::string Encode(const World& world) {
  std::string code;
  for (const Rank& rank : world) {
    for (const Attempt& attempt : rank.attempts) {
      for (const int member : attempt.group) code += static_cast<char>('0' + member);
      code += '/';
    }
    for (const Event& event : rank.log) code += static_cast<char>(event.kind * 32 + event.attempt * 4 + event.round);
    code += static_cast<char>(rank.round * 64 + rank.phase * 4 + rank.dead);
    code.append(rank.seen.begin(), rank.seen.end());
    for (const bool lost : rank.lost) code += lost ? 'x' : '.';
    for (const bool complete : rank.complete) code += complete ? 'c' : '.';
    code += '|';
  }
  return code;
}

class Search {
 public:
  explicit Search(const Model& model) : model_(model) {}

  Verdict Run() {
    World first(model_.groups.size());
    for (size_t i = 0; i < first.size(); ++i) {
      first[i].seen.resize(first.size());
      first[i].lost.resize(first.size());
      first[i].phase = Rank::kAway;
      if (!model_.late) Call(&first[i], model_.groups[i]);
    }
    Visit(std::move(first));
    while (!open_.empty() && verdict_.trouble.empty()) {
      const World world = std::move(open_.back());
      open_.pop_back();
      Expand(world);
    }
    return verdict_;
  }

 private:
  static void Call(Rank* rank, RankSet group) {
    rank->phase = Rank::kRunning;
    std::erase_if(group, [&](int member) { return rank->lost[static_cast<size_t>(member)]; });
    Begin(rank, {1, std::move(group)});
  }

  static void Begin(Rank* rank, Attempt attempt) {
    const auto index = static_cast<uint8_t>(rank->attempts.size());
    rank->attempts.push_back(std::move(attempt));
    rank->complete.push_back(false);
    rank->round = 0;
    rank->log.push_back({Event::kBegin, index, 0});
    rank->log.push_back({Event::kContribute, index, 0});
  }

  void Visit(World world) {
    if (!known_.insert(Encode(world)).second) return;
    ++verdict_.worlds;
    open_.push_back(std::move(world));
  }

  // Whether rank `i` sees that `j` has contributed to its current round.
  bool Has(const World& world, size_t i, size_t j) const {
    const Rank& rank = world[i];
    const Rank& other = world[j];
    bool has = false;
    for (size_t k = 0; k < rank.seen[j]; ++k) {
      const Event& event = other.log[k];
      const bool same = other.attempts[event.attempt] == rank.attempts.back();
      if (event.kind == Event::kContribute && same && event.round == rank.round) has = true;
      if (event.kind == Event::kAbandon && same && model_.vanish) has = false;
    }
    return has;
  }

  static SeenRank See(const World& world, size_t i, size_t j) {
    SeenRank seen{static_cast<int>(j), world[i].lost[j], {}};
    std::vector<std::pair<uint8_t, SeenAttempt>> attempts;
    for (size_t k = 0; k < world[i].seen[j]; ++k) {
      const Event& event = world[j].log[k];
      const auto same = [&](const auto& other) { return other.first == event.attempt; };
      const auto found = std::find_if(attempts.begin(), attempts.end(), same);
      const Attempt& attempt = world[j].attempts[event.attempt];
      if (event.kind == Event::kBegin) attempts.push_back({event.attempt, {attempt, SeenAttempt::kUnderWay}});
      if (event.kind == Event::kAbandon) attempts.erase(found);
      if (event.kind == Event::kGiveUp) found->second.state = SeenAttempt::kGivenUp;
      if (event.kind != Event::kDone) continue;
      if (found == attempts.end()) {
        attempts.push_back({event.attempt, {attempt, SeenAttempt::kDone}});
      } else {
        found->second.state = SeenAttempt::kDone;
      }
    }
    for (auto& [index, attempt] : attempts) seen.attempts.push_back(std::move(attempt));
    return seen;
  }

  static void Form(Rank* rank, size_t attempt) {
    rank->log.push_back({Event::kDone, static_cast<uint8_t>(attempt), 0});
    rank->phase = Rank::kFormed;
    rank->formed = attempt;
  }

  // What rank `i` does next; false: it waits.
  bool Step(World* world, size_t i) {
    Rank& rank = (*world)[i];
    const auto current = static_cast<uint8_t>(rank.attempts.size() - 1);
    std::vector<SeenRank> missing;
    for (const int member : rank.attempts.back().group) {
      const auto j = static_cast<size_t>(member);
      if (j != i && !Has(*world, i, j)) missing.push_back(See(*world, i, j));
    }
    if (missing.empty()) {
      if (++rank.round == model_.rounds) return Form(&rank, current), true;
      if (rank.round == model_.rounds - 1) rank.complete[current] = true;
      rank.log.push_back({Event::kContribute, current, rank.round});
      return true;
    }
    const NextStep next = model_.rule(static_cast<int>(i), rank.attempts, missing);
    switch (next.what) {
      case NextStep::kWait:
        return false;
      case NextStep::kRegroup:
        rank.log.push_back({Event::kAbandon, current, 0});
        Begin(&rank, next.attempt);
        return true;
      case NextStep::kAdopt:
        if (!rank.complete[next.index]) verdict_.trouble = "a rank adopts what it has not formed";
        rank.log.push_back({Event::kAbandon, current, 0});
        Form(&rank, next.index);
        return true;
      case NextStep::kLeftOut:
      case NextStep::kFail:
        rank.log.push_back({Event::kGiveUp, current, 0});
        rank.phase = Rank::kOut;
        if (model_.agreed) verdict_.trouble = "a rank gives up";
        return true;
    }
    return false;
  }

  void Check(const World& world, bool moved) {
    for (const Rank& rank : world) {
      if (rank.dead) continue;
      if (!moved && rank.phase == Rank::kRunning) verdict_.trouble = "a rank waits without end";
      for (const Rank& other : world) {
        if (other.dead || rank.phase != Rank::kFormed || other.phase != Rank::kFormed) continue;
        const Attempt& formed = rank.attempts[rank.formed];
        const RankSet& wanted = model_.groups[static_cast<size_t>(&other - world.data())];
        const bool apart = !In(model_.groups[static_cast<size_t>(&rank - world.data())], &other - world.data()) &&
                           !In(wanted, &rank - world.data());
        // Ranks that leave each other out may both go on.
        if (formed != other.attempts[other.formed] && !apart)
          verdict_.trouble = "two ranks have formed different groups";
      }
    }
  }

  void Expand(const World& world) {
    const auto dead = std::count_if(world.begin(), world.end(), [](const Rank& rank) { return rank.dead; });
    bool moved = false;
    for (size_t i = 0; i < world.size(); ++i) {
      const Rank& rank = world[i];
      if (rank.dead) continue;
      if (dead < model_.deaths) {
        World next = world;
        next[i].dead = true;
        Visit(std::move(next));
      }
      if (rank.phase != Rank::kRunning && rank.phase != Rank::kAway) continue;
      for (size_t j = 0; j < world.size(); ++j) {
        if (j == i || rank.lost[j]) continue;
        if (rank.seen[j] < world[j].log.size()) {
          World next = world;
          ++next[i].seen[j];
          Visit(std::move(next));
          moved = true;
        }
        if (world[j].dead) {
          World next = world;
          next[i].lost[j] = true;
          Visit(std::move(next));
          moved = true;
        }
      }
      World next = world;
      if (rank.phase == Rank::kAway) Call(&next[i], model_.groups[i]);
      if (rank.phase == Rank::kAway || Step(&next, i)) {
        Visit(std::move(next));
        moved = true;
      }
    }
    Check(world, moved);
  }

  const Model& model_;
  std::unordered_set<std::string> known_;
  std::vector<World> open_;
  Verdict verdict_;
};

Verdict Explore(const Model& model) { return Search(model).Run(); }

std::vector<RankSet> All(int ranks) {
  RankSet everyone;
  for (int rank = 0; rank < ranks; ++rank) everyone.push_back(rank);
  return std::vector<RankSet>(static_cast<size_t>(ranks), everyone);
}

TEST(SurvivorsModel, ThreeRanksOfWhichTwoMayDie) {
  for (const bool vanish : {false, true}) {
    const Verdict verdict = Explore({.groups = All(3), .deaths = 2, .vanish = vanish});
    EXPECT_EQ(verdict.trouble, "");
    EXPECT_GT(verdict.worlds, 100'000u);
  }
}

TEST(SurvivorsModel, RanksThatCallAtAnyTime) {
  const Verdict verdict = Explore({.groups = All(3), .deaths = 1, .late = true});
  EXPECT_EQ(verdict.trouble, "");
  EXPECT_GT(verdict.worlds, 100'000u);
}

// One rank has seen more than the others; ranks leave each other out.
TEST(SurvivorsModel, RanksThatDisagree) {
  const std::vector<std::vector<RankSet>> cases = {
      {{0, 1}, {0, 1, 2}, {0, 1, 2}}, {{0, 1, 2}, {1, 2}, {0, 1, 2}}, {{0, 2}, {1, 2}, {2}}, {{0, 1}, {1, 2}, {0, 2}}};
  for (const auto& groups : cases) {
    const Verdict verdict = Explore({.groups = groups, .deaths = groups == cases[0] ? 1 : 0, .agreed = false});
    EXPECT_EQ(verdict.trouble, "");
    EXPECT_GT(verdict.worlds, 50u);
  }
}

// ---- without one part of the rules ----

void ExpectTrouble(const Model& model) {
  const Verdict verdict = Explore(model);
  EXPECT_NE(verdict.trouble, "") << verdict.worlds << " worlds";
}

TEST(SurvivorsModel, NeedsAdoption) {
  ExpectTrouble(
      {.groups = All(3), .rule = [](int self, std::span<const Attempt> mine, std::span<const SeenRank> missing) {
         return NextOf(self, mine.last(1), missing);
       }});
}

TEST(SurvivorsModel, NeedsTheLastRound) { ExpectTrouble({.groups = All(3), .rounds = 1}); }

TEST(SurvivorsModel, NeedsTheDead) {
  ExpectTrouble(
      {.groups = All(3), .rule = [](int self, std::span<const Attempt> mine, std::span<const SeenRank> missing) {
         std::vector<SeenRank> seen(missing.begin(), missing.end());
         for (SeenRank& rank : seen) rank.gone = false;
         return NextOf(self, mine, seen);
       }});
}

TEST(SurvivorsModel, NeedsTheGroupsOfOthers) {
  ExpectTrouble(
      {.groups = All(3), .rule = [](int self, std::span<const Attempt> mine, std::span<const SeenRank> missing) {
         std::vector<SeenRank> seen(missing.begin(), missing.end());
         for (SeenRank& rank : seen)
           std::erase_if(rank.attempts, [](const auto& a) { return a.state == SeenAttempt::kUnderWay; });
         return NextOf(self, mine, seen);
       }});
}

// A rank that goes on with a smaller group must wait for all of it: some may be done with the larger one.
TEST(SurvivorsModel, NeedsTheLivingToComeAlong) {
  ExpectTrouble(
      {.groups = All(3), .rule = [](int self, std::span<const Attempt> mine, std::span<const SeenRank> missing) {
         NextStep next = NextOf(self, mine, missing);
         if (next.what == NextStep::kRegroup) next.attempt.group = {self};
         return next;
       }});
}

TEST(Quorum, IsOnOneSideAtMost) {
  for (unsigned side = 1; side < 63; ++side) {
    RankSet here, there;
    for (int rank = 0; rank < 6; ++rank) (side >> rank & 1 ? here : there).push_back(rank);
    EXPECT_NE(HasQuorum(here, there), HasQuorum(there, here)) << side;
    // One side knows of more deaths than the other.
    RankSet known = there;
    known.erase(known.begin());
    EXPECT_FALSE(HasQuorum(here, there) && HasQuorum(known, here)) << side;
  }
  EXPECT_TRUE(HasQuorum({4}, {}));
}

}  // namespace
}  // namespace axccl::comm
