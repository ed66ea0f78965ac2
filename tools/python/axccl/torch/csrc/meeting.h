// How the ranks of a group make its communicator. Ranks find each other through the group's store. A rank whose peer
// uses gloo for the same group would wait there until its timeout, and so would gloo: while ranks wait, each looks for
// what gloo writes into the store, and what it finds is an error on all of them.
//
// Any thread may call, without Python's lock.
#pragma once

#include <axccl/axccl.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>
#include <vector>

namespace axccl::torch {

// Non-blocking, so that it can be interrupted while it is made. `name` must outlive the config's use.
ncclConfig_t ConfigOf(const std::string& name);

// Waits until `comm`, which a call has begun to make, is made, and returns it. Throws what has gone wrong, after it has
// aborted `comm`.
ncclComm_t Made(const char* call, ncclComm_t comm, const std::string& name, std::chrono::milliseconds timeout);

// Makes the communicator of a group of `size` ranks. Collective.
ncclComm_t Meet(c10d::Store* store, int rank, int size, const std::string& name, std::chrono::milliseconds timeout);

// Splits a communicator. `ranks`: those of this rank's part in their order, or of any other part if this rank is in
// none: then null is returned. Collective.
ncclComm_t Split(ncclComm_t comm, const std::vector<int>& ranks, const std::string& name,
                 std::chrono::milliseconds timeout);

}  // namespace axccl::torch
