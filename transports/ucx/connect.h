// Links to ranks that this process shares no memory with. What the rest of the library sees of UCX.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "transports/transport.h"

namespace axccl::ucx {

// How to hold a lifeline to a process; see lifeline.h. Plain data.
struct LifelineAddress {
  sockaddr_storage address{};
  std::array<uint8_t, 16> token{};  // shown to who listens
};

struct SelfOptions {
  std::string devices;   // network devices to use, comma-separated, as UCX names them
  std::string families;  // of addresses, as UCX names them ("inet", "inet6"), for TCP; empty: any
  std::array<uint8_t, 16> process{};  // ProcessAddress::process_id
  sockaddr_storage local{};           // to listen at for lifelines; the port does not count
};
struct NetworkAddress {
  std::vector<std::byte> worker;
  LifelineAddress lifeline;
};
// What others need to send to this process. The first call of the process counts. kInvalidUsage where there is no UCX.
Result<NetworkAddress> SelfAddress(const SelfOptions& options);

struct RemoteOptions {
  uint64_t comm = 0;  // the same on both sides, and no other communicator's
  uint32_t self = 0, peer = 0;
  std::array<uint8_t, 16> process{};  // the peer's, ProcessAddress::process_id
  NetworkAddress address;             // its SelfAddress
  uint32_t pid = 0;
  std::string host;  // its name
  std::byte* block = nullptr;  // own
  uint64_t block_bytes = 0;
  std::function<void()> arrived;  // called when a line has come, from within Progress and Send: must not block
};
// Where a mirror has the block.
inline constexpr size_t kBlockOffset = 4096;

// After SelfAddress. Messages may come from then on.
Result<std::shared_ptr<transport::RemoteRank>> Connect(RemoteOptions options);

}  // namespace axccl::ucx
