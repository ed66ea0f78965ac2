// The channels for messages between a rank and each of its peers, made when they are first used.
//
// Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "src/base/status.h"
#include "src/exec/channel/channel.h"

namespace axccl::comm {

class Communicator;

class PairChannels {
 public:
  // Of a communicator of `ranks`.
  PairChannels(Communicator* comm, int ranks) : comm_(comm), pairs_(2 * static_cast<size_t>(ranks)) {}

  // `sending`: from the rank to `peer`.
  Result<exec::Channel*> Of(int peer, bool sending);

 private:
  Result<std::vector<exec::Member>> MembersOf(int src, int dst) const;

  Communicator* const comm_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<exec::Channel>> pairs_;  // [2 * peer + receiving]
};

}  // namespace axccl::comm
