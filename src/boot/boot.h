// Rendezvous: how ranks that share nothing but a unique id find each other and exchange their addresses at init.
//
// The process that created the id serves it from one background thread (epoll, shared by all its ids). Every rank
// connects over TCP, proves that it knows the id's secret (keyed BLAKE2b over both hellos, mutual), and takes part in a
// few exchanges, either through that process or, if there are many ranks, in a tree. Then the connection is closed.
// Every wait ends with data, a closed peer, the caller's `stop`, or the deadline.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/base/service_fd.h"
#include "src/base/status.h"

namespace axccl::boot {

using Clock = std::chrono::steady_clock;

// 128 opaque bytes: version, flags, addresses and a 32-byte secret that is never sent.
struct UniqueId {
  uint8_t bytes[128];
};

// Makes a fresh id, which this process serves. If NCCL_COMM_ID=host:port is set, returns the id of that address
// instead, which the process of rank 0 serves. Its secret comes from AXCCL_SECRET or AXCCL_SECRET_FILE; without these,
// only ranks of one user on loopback may join (secret.h). Fresh ids are served on the first interface that leads out of
// the machine, or on the one NCCL_SOCKET_IFNAME names (see interfaces.h).
Result<UniqueId> CreateUniqueId();
// Returns an error unless the bytes are an id of this library version. The text names an all-zero or foreign id as
// such.
Status CheckUniqueId(const UniqueId& id);
// Ends the rendezvous of a fresh id before all ranks have come, if this process serves it: ranks that wait there, and
// those that come later, get `reason`.
void GiveUp(const UniqueId& id, const Status& reason);

// One rank's part in a rendezvous. Used by one thread at a time; sessions of different ranks are independent, in any
// number of threads. Processes that a process forks before it joins may join themselves; in those that it forks later,
// every function here returns kInvalidUsage.
class Session {
 public:
  // Leaves the rendezvous. A rank may leave once it has what it needs; if others still wait for it, their waits end
  // with an error.
  virtual ~Session() = default;

  // Joins as `rank` of `nranks`. Errors reach every rank within 1 s of being known: another rank passed a different
  // nranks, reused a rank while one is missing, has another protocol version (kInvalidUsage), or is gone (kRemoteError
  // naming it). The first deadline that passes ends the rendezvous for all ranks with kTimeout, naming the rank that
  // waited and the ranks that it waited for. (If the process that serves the id no longer answers, up to half a second
  // later.) The rank's thread calls `stop` (may be empty) while it waits, also later in the session. Once it returns
  // true, the wait ends within 20 ms with kInvalidUsage, and the other ranks get the error. An id of CreateUniqueId
  // serves one rendezvous; later calls return an error that says so, or why that rendezvous failed.
  static Result<std::unique_ptr<Session>> Join(const UniqueId& id, int rank, int nranks, Clock::time_point deadline,
                                               const service::Stop& stop);
  // Joins with several ids, in the same order on every rank; the processes that made them share the work of the first
  // meeting. Many ranks (AXCCL_TREE_RANKS) meet in a tree: no rank then has more than a handful of connections, and an
  // exchange takes a logarithmic number of steps. Fewer ranks meet at the first id.
  static Result<std::unique_ptr<Session>> Join(std::span<const UniqueId> ids, int rank, int nranks,
                                               Clock::time_point deadline, const service::Stop& stop);

  // Every rank contributes `bytes` bytes (the same number everywhere, 1 to 4096); all[r * bytes] receives rank r's.
  // After an error every further call returns that error, and the content of `all` is undefined.
  virtual Status AllGather(const void* mine, size_t bytes, void* all) = 0;
  // Sends the other ranks the reason why this rank gives up. It becomes the error of their current or next call, with
  // the same code if it is kInvalidArgument, kInvalidUsage or kTimeout, else with kRemoteError. Never waits.
  virtual void Fail(const Status& reason) = 0;
};

}  // namespace axccl::boot
