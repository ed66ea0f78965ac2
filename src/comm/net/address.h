// How a process can be reached, in the form that ranks exchange. The receiver checks all of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "src/base/status.h"
#include "src/boot/unique_id.h"
#include "src/comm/net/pair_class.h"
#include "transports/remote/address.h"

namespace axccl::comm {

// Plain data.
struct WireNetwork {
  struct Rail {
    uint64_t megabits;
    boot::Address lifeline;
    uint32_t bytes;  // in `data`, after those of the rails before it
    char network[56];
  };
  uint32_t rails;
  remote::LineKey key;
  uint8_t sealing, cipher;
  NetworkText text;
  Rail rail[remote::kMostRails];
  std::byte data[3000];
};
static_assert(sizeof(WireNetwork) <= 3800);

// kSystemError if UCX's addresses need more room than there is.
Result<WireNetwork> Pack(const remote::NetworkAddress& address, const NetworkText& text);
// kRemoteError, naming the rank, if it is not an address.
Result<remote::NetworkAddress> Unpack(const WireNetwork& network, size_t rank);

}  // namespace axccl::comm
