// The hardware that a simulated group runs on: each rank has a memory, links inside its machine and a NIC. Plain data.
//
// All ranks are alike. The defaults model machines of eight H100 GPUs with 400 Gbit/s each: bandwidths from the data
// sheets, the rest assumed (perf/README.md, "Beyond the machines at hand").
#pragma once

#include "src/base/status.h"

namespace axccl::sim {

struct Fabric {
  // For each rank and lane: every operation of a schedule.
  double op_seconds = 4e-7;
  // For each rank: all that its copies and reductions read and write.
  double memory_bytes_per_second = 3.35e12;
  // For each rank and direction: what it reads or writes in the memory of other ranks of its machine, and they in its.
  double link_bytes_per_second = 4.5e11;
  // Between ranks of a machine: until the other rank sees the signal.
  double signal_seconds = 1.5e-6;
  // For each rank and direction: what it exchanges with ranks of other machines.
  double nic_bytes_per_second = 5e10;
  // For each message, at both NICs: the inverse of the NIC's message rate.
  double message_seconds = 2.5e-7;
  // Between NICs.
  double network_seconds = 5e-6;
  // For each lane: what it reads and writes in its rank's memory, and what it reads or writes in others'. 0: no limit.
  // A block of a GPU waits for the loads that it has in flight (cost::Gpu).
  double lane_memory_bytes_per_second = 0;
  double lane_link_bytes_per_second = 0;
  // For each rank and direction: what goes over its link to all ranks, or comes from all, at once (NVLink SHARP).
  // Assumed: at this rate, an all-reduce on eight H100 has the 480 GB/s of bus bandwidth that NCCL's NVLS is known for.
  double multicast_bytes_per_second = 3.1e11;
};

// Returns kInvalidArgument, naming the figure, if a figure is impossible: rates and the time between NICs must be
// finite and positive; no time may be negative.
Status Check(const Fabric& fabric);

}  // namespace axccl::sim
