// All interleavings of a revoke (Communicator::SpreadRevoke) with deaths, for few ranks on two machines: if a rank that
// lives knows of it, all that live do in the end. And that this needs those who learn of it to pass it on.
#include <gtest/gtest.h>

#include <string>
#include <unordered_set>
#include <vector>

namespace axccl::comm {
namespace {

struct Rank {
  bool marked = false, dead = false;
  size_t told = 0;       // of the others: it has begun when it is not 0
  bool spreads = false;  // it has looked at its mark, or been told
  bool mail[4] = {};     // notices on their way to it, by sender
};
using World = std::vector<Rank>;

struct Model {
  size_t ranks = 4;
  int deaths = 2;
  bool pass_on = true;  // whether ranks that learn of it tell the others
};

std::string Encode(const World& world) {
  std::string code;
  for (const Rank& rank : world) {
    code += static_cast<char>(rank.marked + 2 * rank.dead + 4 * rank.spreads + 8 * static_cast<int>(rank.told));
    for (const bool mail : rank.mail) code += mail ? 'm' : '.';
  }
  return code;
}

bool SameMachine(size_t a, size_t b) { return a % 2 == b % 2; }

// Whom rank `self` marks or tells as the k-th: the ranks of its machine come first.
size_t Target(size_t self, size_t k, size_t ranks) {
  for (const bool here : {true, false}) {
    for (size_t other = 0; other < ranks; ++other) {
      if (other != self && SameMachine(self, other) == here && k-- == 0) return other;
    }
  }
  return self;
}

class Search {
 public:
  explicit Search(const Model& model) : model_(model) {}

  // Returns "" or what went wrong.
  std::string Run() {
    World first(model_.ranks);
    first[0].marked = first[0].spreads = true;
    Visit(first);
    while (!open_.empty() && trouble_.empty()) {
      const World world = std::move(open_.back());
      open_.pop_back();
      Expand(world);
    }
    return trouble_;
  }
  size_t worlds() const { return known_.size(); }

 private:
  void Visit(World world) {
    if (known_.insert(Encode(world)).second) open_.push_back(std::move(world));
  }

  void Expand(const World& world) {
    int dead = 0;
    bool moved = false;
    for (const Rank& rank : world) dead += rank.dead ? 1 : 0;
    const auto go = [&](auto change) {
      World next = world;
      change(next);
      Visit(std::move(next));
      moved = true;
    };
    for (size_t i = 0; i < world.size(); ++i) {
      const Rank& rank = world[i];
      for (size_t from = 0; from < world.size(); ++from) {
        if (!rank.mail[from]) continue;
        // What a dead rank has sent may be lost.
        if (world[from].dead) go([&](World& next) { next[i].mail[from] = false; });
        go([&](World& next) {
          next[i].mail[from] = false;
          if (rank.dead) return;
          next[i].marked = true;
          next[i].spreads |= model_.pass_on;
        });
      }
      if (rank.dead) continue;
      if (dead < model_.deaths) {
        World next = world;
        next[i].dead = true;
        Visit(std::move(next));
      }
      if (rank.marked && !rank.spreads && model_.pass_on) go([&](World& next) { next[i].spreads = true; });
      if (!rank.spreads || rank.told == model_.ranks - 1) continue;
      go([&](World& next) {
        const size_t target = Target(i, next[i].told++, model_.ranks);
        if (SameMachine(i, target)) {
          next[target].marked = true;
        } else {
          next[target].mail[i] = true;
        }
      });
    }
    if (moved) return;
    bool some = false, all = true;
    for (const Rank& rank : world) {
      some |= !rank.dead && rank.marked;
      all &= rank.dead || rank.marked;
    }
    if (some && !all) trouble_ = "a rank never learns of it";
  }

  const Model& model_;
  std::unordered_set<std::string> known_;
  std::vector<World> open_;
  std::string trouble_;
};

TEST(RevokeModel, AllThatLiveLearnOfIt) {
  for (const size_t ranks : {size_t{2}, size_t{3}, size_t{4}}) {
    const Model model{.ranks = ranks};
    Search search(model);
    EXPECT_EQ(search.Run(), "") << ranks;
    EXPECT_GT(search.worlds(), ranks * ranks);
  }
}

TEST(RevokeModel, NeedsThoseWhoLearnOfItToPassItOn) {
  const Model model{.deaths = 1, .pass_on = false};
  EXPECT_NE(Search(model).Run(), "");
}

}  // namespace
}  // namespace axccl::comm
