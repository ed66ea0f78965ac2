// The choice for calls with a root, on machines that have different numbers of ranks.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "src/tune/tune.h"

namespace axccl::tune {
namespace {

constexpr plan::Kind kRootedKinds[] = {plan::Kind::kBroadcast, plan::Kind::kReduce, plan::Kind::kGather,
                                       plan::Kind::kScatter};

// A machine that has its costs to itself, where `nanoseconds` is not used anywhere else.
std::unique_ptr<Chooser> Fresh(double nanoseconds, const char* filter = "") {
  cost::Machine machine;
  machine.op_seconds = nanoseconds * 1e-9;
  machine.link_bytes_per_second = 1e9;
  machine.cores = 16;
  return Chooser::Create(machine, filter, 1u << 20, 4).value();
}

Query Rooted(plan::Kind kind, const std::vector<int>& ranks_of_machines, int root, uint64_t bytes) {
  std::vector<int> machine_of;
  for (size_t m = 0; m < ranks_of_machines.size(); ++m)
    machine_of.insert(machine_of.end(), static_cast<size_t>(ranks_of_machines[m]), static_cast<int>(m));
  Query query{{kind, static_cast<int>(machine_of.size()), root}, bytes};
  query.placement = plan::Placement::Of(machine_of);
  return query;
}

// It does not matter which of the machines comes first, only on which of them the root is. The numbers of ranks decide
// which of them does something first, and so a little of the time.
TEST(Roots, CostWhatTheirMachineMakesThemCost) {
  const auto chooser = Fresh(12.81);
  const auto expect_alike = [&chooser](const Query& a, const Query& b) {
    const Choice choice = chooser->Choose(a), other = chooser->Choose(b);
    EXPECT_NEAR(choice.seconds, other.seconds, 0.1 * choice.seconds);
    // Of a gather or scatter, several algorithms take about the same time.
    const bool near_ties = a.contract.kind == plan::Kind::kGather || a.contract.kind == plan::Kind::kScatter;
    EXPECT_TRUE(near_ties || choice.algorithm == other.algorithm) << choice.algorithm << ", " << other.algorithm;
    const Split split = chooser->SplitTime(a, choice), mirrored = chooser->SplitTime(b, choice);
    EXPECT_NEAR(split.link, mirrored.link, 0.1 * split.link);
    EXPECT_NEAR(split.steps + split.copies + split.messages + split.link, choice.seconds, 1e-9);
  };
  for (const auto& [more, fewer] : {std::pair(15, 1), std::pair(8, 2), std::pair(3, 1)}) {
    for (const plan::Kind kind : kRootedKinds) {
      for (const uint64_t bytes : {uint64_t{1} << 10, uint64_t{1} << 16, uint64_t{1} << 24}) {
        SCOPED_TRACE(std::string(plan::KindName(kind)) + " of " + std::to_string(more) + " and " +
                     std::to_string(fewer) + " ranks, " + std::to_string(bytes) + " bytes");
        expect_alike(Rooted(kind, {more, fewer}, more, bytes), Rooted(kind, {fewer, more}, 0, bytes));
        expect_alike(Rooted(kind, {more, fewer}, 0, bytes), Rooted(kind, {fewer, more}, fewer, bytes));
      }
    }
  }
}

// With oneshot, each rank of the other machine reads the data of a root that is alone over the link.
TEST(Roots, ThatAreAloneSendOnce) {
  const auto chooser = Fresh(12.82);
  for (const plan::Kind kind : {plan::Kind::kBroadcast, plan::Kind::kReduce}) {
    const Query beside = Rooted(kind, {15, 1}, 0, 16u << 20), alone = Rooted(kind, {15, 1}, 15, 16u << 20);
    const auto oneshot = Fresh(12.82, "oneshot");
    EXPECT_LT(oneshot->Choose(beside).seconds, 2 * chooser->Choose(beside).seconds) << plan::KindName(kind);
    EXPECT_GT(oneshot->Choose(alone).seconds, 5 * chooser->Choose(alone).seconds) << plan::KindName(kind);
    EXPECT_NE(chooser->Choose(alone).algorithm, "oneshot") << plan::KindName(kind);
  }
}

// One root is costed for all on machines of its size, and for no other, whatever was asked before.
TEST(Roots, OnMachinesOfOneSizeAreCostedOnce) {
  const std::vector<int> machines = {4, 1, 4};
  const auto forward = Fresh(12.83, "oneshot"), backward = Fresh(12.84, "oneshot");
  for (const plan::Kind kind : kRootedKinds) {
    const auto ask = [kind, &machines](const auto& chooser, int root) {
      return chooser->Choose(Rooted(kind, machines, root, 1u << 20));
    };
    const Choice four = ask(forward, 0), one = ask(forward, 4);
    EXPECT_GT(one.seconds, 1.1 * four.seconds) << plan::KindName(kind);
    const uint64_t costed = NumCosted();
    for (const int root : {1, 2, 3, 5, 6, 7, 8}) EXPECT_EQ(ask(forward, root).seconds, four.seconds);
    EXPECT_EQ(ask(forward, 4).seconds, one.seconds);
    EXPECT_EQ(NumCosted(), costed) << plan::KindName(kind);
    EXPECT_NEAR(ask(backward, 4).seconds, one.seconds, 0.01 * one.seconds);
    EXPECT_NEAR(ask(backward, 8).seconds, four.seconds, 0.01 * four.seconds);
  }
}

}  // namespace
}  // namespace axccl::tune
