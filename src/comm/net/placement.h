// Applies the machine's topology when a communicator is made: to the library's own threads, the ranks' memory, and the
// NICs. docs/topology.md describes it for users.
//
// Only if there is a choice: more than one NUMA node, or more than one NIC of one network. Otherwise, and with
// AXCCL_PLACE=0, nothing is examined and everything stays as the system has it. Threads of the application stay where
// they are. The machine is examined once in a process. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/boot/interfaces.h"
#include "src/topo/machine.h"

namespace axccl::comm {

// The ranks of a communicator on this machine, numbered by their order on it.
struct LocalRanks {
  int count = 1;
  int self = 0;
  std::vector<int> of_process = {0};  // those of this process
};

// Adds the processors on which `local.self` is placed to those of this process's own threads. Returns the node for the
// rank's memory, or topo::kNowhere if it does not matter. `device`: the rank's host device. It stays where it is placed
// first, so that communicators of fewer ranks do not move a process back and forth.
int PlaceRank(int device, const LocalRanks& local);

// Of the interfaces `names` for data, returns those that this process should use, in the same order.
std::vector<std::string> PlaceInterfaces(const LocalRanks& local, const std::vector<boot::Interface>& interfaces,
                                         std::vector<std::string> names);

// How PlaceInterfaces chooses. Interfaces of one network, kind and speed are interchangeable. Of these, each rank needs
// one near it, if the machine has enough ranks to use all. Other interfaces stay, because one may be the only route to
// a peer; so do interfaces whose location is unknown. `allowed`: as in topo::PlaceOptions.
std::vector<std::string> NearInterfaces(const topo::Machine& machine, const LocalRanks& local,
                                        const std::vector<int>& allowed, const std::vector<boot::Interface>& interfaces,
                                        std::vector<std::string> names);

// Mbit/s of each interface of these names, from NCCL_TOPO_FILE if it is set, otherwise from Linux; 0: not known.
std::vector<uint64_t> SpeedsOf(const std::vector<std::string>& names);

// Writes NCCL_TOPO_DUMP_FILE, if it is set and `rank` is the one to write it. Failures are only logged.
void DumpTopology(int rank);

}  // namespace axccl::comm
