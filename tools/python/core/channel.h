// Channels: the classes Channel and Communicator of the package, whose methods are the collectives. A method reads its
// operands, makes the result arrays that the caller left out, and calls the library once.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "axccl/axccl.h"
#include "tools/python/core/operands.h"
#include "tools/python/core/rank.h"

namespace axccl::python {

namespace nb = nanobind;

// What a call returns when it is given no `out`, for each operand: a shape as in the input, but for these axes.
struct Shape {
  int axis = -1;
  int64_t size = 0;
  int second_axis = -1;
  int64_t second_size = 0;
};

class Channel {
 public:
  // The communicator's own channel.
  explicit Channel(std::shared_ptr<Rank> rank);
  // A created channel, which is destroyed with the object or by Close.
  Channel(std::shared_ptr<Rank> rank, axcclChannel_t created);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int rank() const { return rank_in_group_; }
  int size() const { return size_; }
  int group() const { return group_; }
  int64_t id() const { return id_; }
  bool open() const { return rank_->open() && !closed_; }
  void CloseChannel();
  const std::shared_ptr<Rank>& owner() const { return rank_; }

  nb::object AllReduce(nb::handle x, nb::handle op, nb::handle out);
  nb::object AllGather(nb::handle x, int axis, nb::handle out);
  nb::object ReduceScatter(nb::handle x, nb::handle op, int axis, nb::handle out);
  nb::object AllToAll(nb::handle x, int split_axis, int concat_axis, nb::handle out);
  nb::object Broadcast(nb::handle x, int root, nb::handle out);
  nb::object Reduce(nb::handle x, nb::handle op, int root, nb::handle out);
  nb::object Gather(nb::handle x, int root, int axis, nb::handle out);
  nb::object Scatter(nb::handle x, int root, int axis, nb::handle out);
  void Barrier();

  nb::object AllGatherV(nb::handle x, nb::handle extents, int axis, nb::handle out);
  nb::object ReduceScatterV(nb::handle x, nb::handle extents, nb::handle op, int axis, nb::handle out);
  nb::object GatherV(nb::handle x, nb::handle extents, int root, int axis, nb::handle out);
  nb::object ScatterV(nb::handle x, nb::handle extents, int root, int axis, nb::handle out);
  nb::object AllToAllV(nb::handle x, nb::handle send_extents, nb::handle receive_extents, int axis, nb::handle out);
  nb::object RaggedAllToAll(nb::handle x, nb::handle out, nb::handle input_offsets, nb::handle send_extents,
                            nb::handle output_offsets, nb::handle receive_extents, int axis);

  void Send(nb::handle x, int peer);
  nb::object Recv(nb::handle out, int peer);
  nb::object SendRecv(nb::handle x, int destination, nb::handle out, int source);
  nb::object Permute(nb::handle x, nb::handle pairs, nb::handle out);

 private:
  // Raises axccl.Error if calls can be made no more.
  void Check(const char* call) const;
  template <class Enqueue>
  void Run(const char* call, Enqueue&& enqueue) {
    Check(call);
    rank_->Run(call, enqueue);
  }

  const std::shared_ptr<Rank> rank_;
  axcclChannel_t channel_;
  const bool created_;
  bool closed_ = false;
  int rank_in_group_ = -1, size_ = 0, group_ = 0;
  int64_t id_ = 0;
};

}  // namespace axccl::python
