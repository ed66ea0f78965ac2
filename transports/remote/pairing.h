// Selects the pairs of rails over which two processes send to each other. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transports/remote/address.h"

namespace axccl::remote {

struct RailPair {
  uint8_t own = 0, peer = 0;  // index of the rail

  bool operator==(const RailPair&) const = default;
};

// Returns the pairs of rails on common networks, of these only the fastest: a slower one would hold up the others. If
// no common network is as fast as the best rail of each side, or there is none, paths lead through routers, and only
// the first rail of each is used. Networks whose speed one side does not know are used only if the speed of no common
// network is known. Both sides find the same pairs, each in the order of its own rails, and at least one. Neither
// argument may be empty.
std::vector<RailPair> PairRails(std::span<const RailAddress> own, std::span<const RailAddress> peer);

}  // namespace axccl::remote
