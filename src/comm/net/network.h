// How this process is reached by those it shares no memory with, as the environment has it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/boot/interfaces.h"
#include "src/comm/net/placement.h"
#include "transports/ucx/connect.h"

namespace axccl::comm {

struct LocalNetwork {
  std::vector<std::string> devices;   // as UCX names them, that data may go over
  std::vector<std::string> networks;  // of each device, where they are several rails; else empty
  boot::Address address;  // of the first rail: where this process listens for those who ask whether it is still there
  ucx::SelfOptions self;  // all of that for UCX, but for the process's id
};
// `local`: of the interfaces that will do, those near this rank are taken. kInvalidUsage where no device answers what
// is asked for.
Result<LocalNetwork> FindNetwork(const LocalRanks& local);

// An interface that data may go over.
struct Way {
  std::string name;
  std::string network;    // of the address that others are told; empty: not known
  uint64_t megabits = 0;  // 0: not known
};
struct Rails {
  std::vector<Way> taken;
  std::string left_out;  // "eth1 (same network as eth0), eth9 (four are in use)"
};
// Which of these become rails, over which messages go side by side: one of each network, the fastest and then the
// first, ucx::kMostRails at most. The fastest are first. What slower ones are for see ucx::PairRails. `ways` is not
// empty.
Rails ChooseRails(std::span<const Way> ways);

}  // namespace axccl::comm
