// The settings on which the ranks of a communicator agree when it is made.
#pragma once

#include <cstdint>

#include "src/comm/net/network_source.h"
#include "src/cost/machine.h"

namespace axccl::comm {

// The decisions of rank 0 for all ranks of a communicator. Plain data, sent as bytes.
struct Settings {
  cost::Machine machine;
  NetworkSource network = NetworkSource::kFixed;
  uint64_t scratch_bytes = 0;
  uint64_t map_bytes = 0;                            // AXCCL_MAP_BYTES
  uint64_t grow_bytes = 0, grown_scratch_bytes = 0;  // AXCCL_GROW_BYTES, AXCCL_GROWN_SCRATCH_BYTES
  uint32_t lanes = 1, least_lanes = 1;
  uint32_t most_blocks = 64;  // maxCTAs: of a launch on a GPU, for each rank
  uint32_t allow_calls = 1;   // AXCCL_CMA
  uint32_t group_order = 0;   // AXCCL_ORDER
  uint32_t gpu_channels = 0;  // AXCCL_GPU_CHANNELS
  // Each rank has its own values of these.
  double notice_seconds = 0;  // AXCCL_WAIT_NOTICE
  char algorithms[512] = {};  // NCCL_ALGO
};

}  // namespace axccl::comm
