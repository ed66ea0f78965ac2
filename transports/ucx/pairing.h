// Over which of their rails two processes send to each other. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transports/ucx/connect.h"

namespace axccl::ucx {

struct RailPair {
  uint8_t own = 0, peer = 0;  // index

  bool operator==(const RailPair&) const = default;
};

// Those of a network that both have, of which each is as fast as the fastest: a slower one would hold up the others.
// Where no such network is as fast as the best that each side has for itself, or they share none, ways lead through
// routers, and only the first rail of each is used. A network whose speed one side does not know is as fast as any only
// among its like. Both sides find the same pairs, each in the order of its own rails; never none. Neither is empty.
std::vector<RailPair> PairRails(std::span<const RailAddress> own, std::span<const RailAddress> peer);

}  // namespace axccl::ucx
