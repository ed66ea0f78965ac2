// How ranks that share no memory with this process can reach it, according to the environment.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/boot/interfaces.h"
#include "src/comm/net/placement.h"
#include "transports/remote/address.h"

namespace axccl::comm {

struct LocalNetwork {
  std::vector<std::string> devices;   // the devices for data, by UCX's names
  std::vector<std::string> networks;  // of each device, if they form several rails; otherwise empty
  boot::Address address;     // of the first rail: where this process listens for ranks that check whether it is alive
  bool over_ucx = false;     // else over TCP
  remote::SelfOptions self;  // all of that for the transport, except the process's id
};
// `local`: of the suitable interfaces, those near this rank are used. kInvalidUsage if no device matches the settings.
Result<LocalNetwork> FindNetwork(const LocalRanks& local);

// Whether this process may get a network over UCX; a guess that is never wrong if it is false.
bool MayUseUcx();

// An interface for data.
struct Way {
  std::string name;
  std::string network;    // of the address that other ranks get; empty: not known
  uint64_t megabits = 0;  // 0: not known
};
struct Rails {
  std::vector<Way> taken;
  std::string left_out;  // "eth1 (same network as eth0), eth9 (four are in use)"
};
// Selects the interfaces that become rails, over which messages travel in parallel: one of each network, the fastest
// and then the first, remote::kMostRails at most. The fastest come first. remote::PairRails says how slower ones are
// used. `ways` must not be empty.
Rails ChooseRails(std::span<const Way> ways);

}  // namespace axccl::comm
