// Which rails connect two processes.
#include "transports/remote/pairing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace axccl::remote {
namespace {

std::vector<RailAddress> Rails(std::vector<std::pair<std::string, uint64_t>> rails) {
  std::vector<RailAddress> made;
  for (auto& [network, megabits] : rails) made.push_back({std::move(network), megabits, {}, {}});
  return made;
}

using Pairs = std::vector<RailPair>;

struct Case {
  const char* why;
  std::vector<std::pair<std::string, uint64_t>> own, peer;
  Pairs expected;
};

TEST(PairRails, TakesTheFastestThatBothHave) {
  const std::vector<Case> cases = {
      {"one", {{"a", 0}}, {{"a", 0}}, {{0, 0}}},
      {"all that are equal", {{"a", 10}, {"b", 10}}, {{"a", 10}, {"b", 10}}, {{0, 0}, {1, 1}}},
      {"by network, not by place", {{"a", 10}, {"b", 10}}, {{"b", 10}, {"a", 10}}, {{0, 1}, {1, 0}}},
      {"the peer has one", {{"a", 10}, {"b", 10}}, {{"b", 0}}, {{1, 0}}},
      {"slow ones are left out", {{"a", 25}, {"b", 25}, {"m", 1}}, {{"a", 25}, {"b", 25}, {"m", 1}}, {{0, 0}, {1, 1}}},
      {"slow on the other side", {{"a", 25}, {"b", 25}}, {{"a", 25}, {"b", 10}}, {{0, 0}}},
      {"as slow as the slower side", {{"a", 25}, {"b", 25}}, {{"a", 10}, {"b", 10}}, {{0, 0}, {1, 1}}},
      {"the slow one is the only way", {{"a", 25}, {"m", 1}}, {{"m", 1}}, {{1, 0}}},
      {"no speed is known", {{"a", 0}, {"b", 0}}, {{"a", 0}, {"b", 0}}, {{0, 0}, {1, 1}}},
      {"no speed is known there", {{"a", 25}, {"b", 10}}, {{"a", 0}, {"b", 0}}, {{0, 0}, {1, 1}}},
      {"the speed of one is not known", {{"a", 25}, {"b", 0}}, {{"a", 25}, {"b", 0}}, {{0, 0}}},
      {"networks that only one has", {{"a", 10}, {"b", 10}}, {{"c", 10}, {"b", 10}}, {{1, 1}}},
      {"behind routers", {{"a", 10}, {"b", 10}}, {{"c", 10}, {"d", 10}}, {{0, 0}}},
      {"behind routers, but for the slow one", {{"a", 100}, {"m", 1}}, {{"c", 100}, {"m", 1}}, {{0, 0}}},
      {"of unknown networks", {{"", 0}}, {{"", 0}}, {{0, 0}}},
      {"of an unknown network there", {{"a", 10}, {"b", 10}}, {{"", 0}}, {{0, 0}}},
  };
  for (const Case& c : cases) {
    const auto own = Rails(c.own), peer = Rails(c.peer);
    EXPECT_TRUE(PairRails(own, peer) == c.expected) << c.why;
    // The other side gets the same result.
    Pairs theirs = PairRails(peer, own);
    EXPECT_EQ(theirs.size(), c.expected.size()) << c.why;
    for (const RailPair& pair : c.expected)
      EXPECT_EQ(std::count(theirs.begin(), theirs.end(), RailPair{pair.peer, pair.own}), 1) << c.why;
  }
}

}  // namespace
}  // namespace axccl::remote
