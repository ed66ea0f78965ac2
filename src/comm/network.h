// How this process is reached by those it shares no memory with, as the environment has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/boot/interfaces.h"
#include "src/comm/pair_class.h"
#include "src/comm/placement.h"
#include "transports/ucx/connect.h"

namespace axccl::comm {

struct LocalNetwork {
  std::vector<std::string> devices;   // as UCX names them, that data may go over
  std::vector<std::string> networks;  // of each device, where they are several rails; else empty
  boot::Address address;              // of the first rail: where this process listens for those who ask whether it is still there
  ucx::SelfOptions self;              // all of that for UCX, but for the process's id
};
// `local`: of the interfaces that will do, those near this rank are taken. kInvalidUsage where no device answers what is
// asked for.
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
// Which of these become rails, over which messages go side by side: one of each network, the fastest and then the first,
// ucx::kMostRails at most. The fastest are first. What slower ones are for see ucx::PairRails. `ways` is not empty.
Rails ChooseRails(std::span<const Way> ways);

// How a process is reached, as it is told to others. Plain data.
struct WireNetwork {
  struct Rail {
    uint64_t megabits;
    boot::Address lifeline;
    uint32_t bytes;  // in `data`, after those of the rails before it
    char network[56];
  };
  uint32_t rails;
  std::array<uint8_t, 16> token;
  NetworkText text;
  Rail rail[ucx::kMostRails];
  std::byte data[3000];
};
static_assert(sizeof(WireNetwork) <= 3800);

// kSystemError where UCX's addresses take more than there is room for.
Result<WireNetwork> Pack(const ucx::NetworkAddress& address, const NetworkText& text);
// kRemoteError, naming the rank, where it is none.
Result<ucx::NetworkAddress> Unpack(const WireNetwork& network, size_t rank);

}  // namespace axccl::comm
