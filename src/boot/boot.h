// Rendezvous: how ranks that share nothing but a unique id find each other and exchange their addresses at init.
//
// The process that created the id serves it from one background thread (epoll, shared by all its ids). Every rank connects
// over TCP, proves that it knows the id's secret (keyed BLAKE2b over both hellos, mutual), and takes part in a few
// exchanges; then the connection is closed. Every wait ends with data, a closed peer, *abort, or the deadline.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/base/status.h"

namespace axccl::boot {

using Clock = std::chrono::steady_clock;

// 128 opaque bytes: version, flags, addresses and a 32-byte secret that is never sent.
struct UniqueId {
  uint8_t bytes[128];
};

// A fresh id, served by this process. With NCCL_COMM_ID=host:port set, the id of that address instead (served by the process
// in which rank 0 joins); its secret comes from AXCCL_SECRET or AXCCL_SECRET_FILE, else only loopback is allowed, with a warning.
Result<UniqueId> CreateUniqueId();
// Whether the bytes are an id of this library version (an all-zero or foreign id is an error that says so).
Status CheckUniqueId(const UniqueId& id);

// One rank's part in a rendezvous.
class Session {
 public:
  virtual ~Session() = default;

  // Joins as `rank` of `nranks`. Errors within 1 s of being known, on every rank: another rank passed a different nranks,
  // reused a rank, has another protocol version, or is gone (kRemoteError naming it); deadline: kTimeout naming the missing ranks.
  static Result<std::unique_ptr<Session>> Join(const UniqueId& id, int rank, int nranks, Clock::time_point deadline,
                                               const std::atomic<bool>* abort);

  // Every rank contributes `bytes` bytes (the same number everywhere, at most 4096); all[r * bytes] receives rank r's.
  virtual Status AllGather(const void* mine, size_t bytes, void* all) = 0;
  // Tells the other ranks why this one gives up (they get it as the error of their current or next call).
  virtual void Fail(const Status& reason) = 0;
};

}  // namespace axccl::boot
