// The communicator of axccl.jax: this process's ranks, one for each of JAX's CPU devices, by the device's id.
//
// A world lives until the process leaves it and the last call on it has ended. Thread-safe: XLA runs the calls of
// several devices at the same time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "axccl/axccl.h"

namespace axccl::jax {

class Rank {
 public:
  // Joins as `rank` of `size`; waits for all ranks. Returns the text of the error, "" if there is none. `device` is a
  // host device that nothing else uses.
  std::string Join(const ncclUniqueId& id, int size, int rank, int device, double timeout);
  ~Rank();

  // Ends Join, of another thread, with an error. No effect before it waits.
  void AbandonJoin();

  ncclComm_t comm() const { return comm_; }
  // The channel of `ranks`, which are groups of `group_size` ranks one after the other; none: all ranks. Made at first
  // use, and kept.
  ncclResult_t Channel(const int64_t* ranks, size_t count, int64_t group_size, axcclChannel_t* channel);
  // A stream that no other call uses, so that a call gets its own errors. Null with the text set.
  axcclStream_t TakeStream(std::string* error);
  void GiveBack(axcclStream_t stream);

 private:
  ncclComm_t comm_ = nullptr;
  int size_ = 0;
  int device_ = 0;
  std::mutex mutex_;
  std::map<std::vector<int64_t>, axcclChannel_t> channels_;  // by group size, then ranks
  std::vector<axcclStream_t> streams_;                       // that no call uses
};

class World {
 public:
  // Makes ranks[i] of `size` the rank of the device ids[i], and the result the current world.
  static std::string Join(const ncclUniqueId& id, int size, const std::vector<int>& ids, const std::vector<int>& ranks,
                          double timeout);
  // Ends Join, of another thread, with an error, unless it has just begun: call it until Join returns.
  static void AbandonJoin();
  // The current world, or null.
  static std::shared_ptr<World> Current();
  // Ends the current world when its calls have ended.
  static void Leave();

  int size() const { return size_; }
  size_t local_ranks() const { return ranks_.size(); }
  // The rank of a device, as XLA calls it in a handler: the device's id among those of all processes. Null: none.
  Rank* rank(int device) {
    const auto found = ranks_.find(device);
    return found != ranks_.end() ? found->second.get() : nullptr;
  }

 private:
  int size_ = 0;
  std::map<int, std::unique_ptr<Rank>> ranks_;
};

}  // namespace axccl::jax
