// The package's class Communicator: a channel of all ranks, which also makes other communicators and channels.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/python/core/channel.h"

namespace axccl::python {

namespace nb = nanobind;

class Communicator : public Channel {
 public:
  explicit Communicator(std::shared_ptr<Rank> rank) : Channel(std::move(rank)) {}
  // Raises axccl.ArgumentError if `unique_id` is not one, or `timeout` is negative.
  static std::shared_ptr<Rank> Join(int rank, int size, nb::handle unique_id, std::optional<std::string> name,
                                    std::optional<double> timeout);
  // All ranks of a communicator of this process.
  static nb::list MakeAll(int size);

  // Seconds that a wait may last, 0: forever.
  void SetTimeout(double seconds);
  double timeout() const;
  // None for a rank that takes no part (`color` None).
  nb::object Split(std::optional<int> color, int key);
  // Groups are lists of ids; `mode` says what an id is.
  std::unique_ptr<Channel> MakeChannel(nb::handle groups, int64_t id, const std::string& mode,
                                       std::optional<int> replicas, bool group_order);
  // Groups of the ranks that differ only in their coordinates along some axes of a mesh.
  std::unique_ptr<Channel> MakeMeshChannel(nb::dict mesh, nb::handle along, int64_t id, bool group_order);
  std::string Link(int peer) const;
  std::string LastAlgorithm() const;

 private:
  std::unique_ptr<Channel> CreateChannel(axcclGroups_t groups, int64_t id, bool group_order);
};

// 128 bytes, new for each call.
nb::bytes MakeUniqueId();
// `bytes` bytes that peers reach, as a one-dimensional NumPy array of uint8 that frees them.
nb::object AllocateBytes(size_t bytes);

}  // namespace axccl::python
