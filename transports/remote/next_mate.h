// Of the processes of this machine (mates.h) that know each other, each notices the end of the next one, in a ring: it
// holds a connection to a socket of no file system on which that one listens. The connection ends with it, and not when
// it is stopped. So a process that watches the dead one from another machine, and is stopped, is not the only one that
// knows.
//
// Nobody accepts the connections or sends anything. Other users may connect, which tells them no more than /proc does;
// if they leave no room for the mate, it is as if there were no such socket.
//
// Lives on the service thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "src/base/service.h"
#include "src/base/service_fd.h"
#include "src/base/status.h"

namespace axccl::remote {

class NextMate {
 public:
  using ProcessId = std::array<uint8_t, 16>;
  using Ended = std::function<void(const ProcessId&)>;

  // `ended` is called when a mate ends to which this process, `self`, was connected, and of those that refuse to be
  // connected: they have ended before.
  Status Start(service::Loop* loop, const ProcessId& self, Ended ended);
  // From now on, these and this process are a ring, as each of them is told.
  void Add(std::span<const ProcessId> mates);

 private:
  using Ring = std::set<ProcessId>;  // of mates that may live

  // To the next one in the ring. Returns those that refuse.
  std::vector<ProcessId> Connect(Ring* ring);
  void OnEnd(ProcessId ended);

  service::Loop* loop_ = nullptr;
  ProcessId self_{};
  Ended ended_;
  service::Fd listener_;
  // A mate may be in several, and does not know all others of each.
  std::vector<Ring> rings_;
  std::map<ProcessId, service::Fd> connections_;
};

}  // namespace axccl::remote
