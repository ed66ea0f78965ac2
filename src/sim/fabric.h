// What a simulated group runs on: ranks with a memory each, links inside machines and a NIC a rank between them. Plain
// data.
//
// All ranks are alike. The figures that stand here are those of eight H100 GPUs a machine with 400 Gbit/s each:
// bandwidths from the data sheets, the rest assumed (perf/README.md, "Beyond the machines at hand").
#pragma once

#include "src/base/status.h"

namespace axccl::sim {

struct Fabric {
  // Of a rank and lane: every operation of a schedule.
  double op_seconds = 4e-7;
  // Of a rank: what its copies and reductions read and write in all.
  double memory_bytes_per_second = 3.35e12;
  // Of a rank, each way: what it reads or writes in the memory of others of its machine, and they in its.
  double link_bytes_per_second = 4.5e11;
  // Between ranks of a machine, until the other has seen it.
  double signal_seconds = 1.5e-6;
  // Of a rank, each way: what it exchanges with ranks of other machines.
  double nic_bytes_per_second = 5e10;
  // Of a NIC, for each message, at both ends: what it can take in a second.
  double message_seconds = 2.5e-7;
  // Between NICs.
  double network_seconds = 5e-6;
};

// kInvalidArgument naming the figure that no machine has: rates have to be finite and more than nothing, as has the
// time between NICs; no time may be negative.
Status Check(const Fabric& fabric);

}  // namespace axccl::sim
