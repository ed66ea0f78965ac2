// What is made of the machine's topology when a communicator is made: where the library's own threads run, where the
// ranks' memory lies, which NICs they use. docs/topology.md tells users.
//
// Only where there is something to choose: more than one NUMA node, or NIC of one network. Otherwise, and with
// AXCCL_PLACE=0, nothing is looked at and everything is as the system has it. Threads of the application stay where
// they are. The machine is looked at once a process. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/boot/interfaces.h"
#include "src/topo/machine.h"

namespace axccl::comm {

// Ranks of a communicator on this machine, counted by their order on it.
struct LocalRanks {
  int count = 1;
  int self = 0;
  std::vector<int> of_process = {0};  // those that this process has
};

// Gives the own threads of this process what `local.self` is placed on, beside what they have. Returns the node that
// the rank's memory should be at, topo::kNowhere where that does not matter. `device`: of the host, where the rank
// lives. It stays where it is placed first, so that communicators of fewer ranks do not pull a process to and fro.
int PlaceRank(int device, const LocalRanks& local);

// Of the interfaces `names` that data may go over, those that this process should use, in the same order.
std::vector<std::string> PlaceInterfaces(const LocalRanks& local, const std::vector<boot::Interface>& interfaces,
                                         std::vector<std::string> names);

// How PlaceInterfaces chooses: interfaces of one network, kind and speed can stand for each other. Of these, each rank
// needs one that is near it, if there are ranks enough on the machine to use all. Any other interface may be the only
// way to some peer and stays, and so do all of which it is not known where they are. `allowed`: as topo::PlaceOptions
// has it.
std::vector<std::string> NearInterfaces(const topo::Machine& machine, const LocalRanks& local,
                                        const std::vector<int>& allowed, const std::vector<boot::Interface>& interfaces,
                                        std::vector<std::string> names);

// Mbit/s of each interface of these names, by NCCL_TOPO_FILE where it is set, else as Linux tells; 0: not known.
std::vector<uint64_t> SpeedsOf(const std::vector<std::string>& names);

// NCCL_TOPO_DUMP_FILE, where it is set and `rank` is the one to write it. Failures are only reported.
void DumpTopology(int rank);

}  // namespace axccl::comm
