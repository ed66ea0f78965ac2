#include "transports/remote/pairing.h"

#include <algorithm>

namespace axccl::remote {
namespace {

uint64_t Fastest(std::span<const RailAddress> rails) {
  uint64_t megabits = 0;
  for (const RailAddress& rail : rails) megabits = std::max(megabits, rail.megabits);
  return megabits;
}

}  // namespace

std::vector<RailPair> PairRails(std::span<const RailAddress> own, std::span<const RailAddress> peer) {
  std::vector<RailPair> pairs;
  // Returns 0 if the speed of one of the two is not known.
  const auto speed = [&](const RailPair& pair) { return std::min(own[pair.own].megabits, peer[pair.peer].megabits); };
  uint64_t fastest = 0;
  for (uint8_t i = 0; i < own.size(); ++i) {
    for (uint8_t k = 0; k < peer.size(); ++k) {
      if (own[i].network.empty() || own[i].network != peer[k].network) continue;
      pairs.push_back({i, k});
      fastest = std::max(fastest, speed(pairs.back()));
    }
  }
  if (fastest != 0) std::erase_if(pairs, [&](const RailPair& pair) { return speed(pair) < fastest; });
  if (pairs.empty() || (fastest != 0 && fastest < std::min(Fastest(own), Fastest(peer)))) return {{0, 0}};
  return pairs;
}

}  // namespace axccl::remote
