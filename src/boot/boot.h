// Rendezvous: how ranks that share nothing but a unique id find each other and exchange their addresses at init.
//
// The process that created the id serves it from one background thread (epoll, shared by all its ids). Every rank
// connects over TCP, proves that it knows the id's secret (keyed BLAKE2b over both hellos, mutual), and takes part in a
// few exchanges (through that process, or, where ranks are many, in a tree); then the connection is closed. Every wait
// ends with data, a closed peer, the caller's `stop`, or the deadline.
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

// A fresh id, served by this process. With NCCL_COMM_ID=host:port set, the id of that address instead (served by the
// process in which rank 0 joins); its secret comes from AXCCL_SECRET or AXCCL_SECRET_FILE, else only loopback is
// allowed, for ranks of one user (secret.h). Fresh ids are served on the first interface that leads out of the machine,
// or on the one NCCL_SOCKET_IFNAME names (see interfaces.h).
Result<UniqueId> CreateUniqueId();
// Whether the bytes are an id of this library version (an all-zero or foreign id is an error that says so).
Status CheckUniqueId(const UniqueId& id);

// One rank's part in a rendezvous. Used by one thread at a time; sessions of different ranks are independent, in any
// number of threads. Processes that one forks before it joins are as good as any; those that it forks later get
// kInvalidUsage from everything here.
class Session {
 public:
  // Leaves. A rank may leave once it has what it wants; a rank that others still wait for ends their wait with an
  // error.
  virtual ~Session() = default;

  // Joins as `rank` of `nranks`. Errors within 1 s of being known, on every rank: another rank passed a different
  // nranks, reused a rank while one is missing, has another protocol version (kInvalidUsage), or is gone (kRemoteError
  // naming it). The first deadline that passes ends the rendezvous for all: kTimeout naming who waited for whom. (Where
  // the process that serves the id does not answer any more, up to half a second later.) `stop` (may be
  // empty) is asked on the rank's thread while it waits, also later in the session: once it is true, the wait ends
  // within 20 ms with kInvalidUsage, and the other ranks are told. An id of CreateUniqueId serves one rendezvous; later
  // calls are told so, or how it failed.
  static Result<std::unique_ptr<Session>> Join(const UniqueId& id, int rank, int nranks, Clock::time_point deadline,
                                               const service::Stop& stop);
  // The same with several ids, in the same order on every rank, whose makers share the work of the first meeting. Many
  // ranks (AXCCL_TREE_RANKS) meet in a tree: no rank then holds more than a handful of connections, and an exchange
  // takes a logarithmic number of steps. Fewer ranks meet at the first id.
  static Result<std::unique_ptr<Session>> Join(std::span<const UniqueId> ids, int rank, int nranks,
                                               Clock::time_point deadline, const service::Stop& stop);

  // Every rank contributes `bytes` bytes (the same number everywhere, 1 to 4096); all[r * bytes] receives rank r's.
  // After an error every further call returns that error; what `all` holds is then undefined.
  virtual Status AllGather(const void* mine, size_t bytes, void* all) = 0;
  // Tells the other ranks why this one gives up: they get the text as the error of their current or next call, with
  // the same code if it is kInvalidArgument, kInvalidUsage or kTimeout, else with kRemoteError. Never waits.
  virtual void Fail(const Status& reason) = 0;
};

}  // namespace axccl::boot
