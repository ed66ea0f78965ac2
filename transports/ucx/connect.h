// Links to ranks that share no memory with this process. The interface of UCX for the rest of the library.
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

// Limit for one process, and for one pair of processes.
inline constexpr size_t kMostRails = 4;

// A network device for a process to use, or all of them together; see rail.h.
struct RailOptions {
  std::string devices;       // UCX's names, comma-separated; empty: all
  std::string network;       // "10.77.0.0/24"; empty: not known
  uint64_t megabits = 0;     // per second; 0: not known
  sockaddr_storage local{};  // where to listen for lifelines; the port is ignored
};
struct SelfOptions {
  std::vector<RailOptions> rails;     // 1 to kMostRails, of different networks, the best first
  std::string families;               // of addresses, by UCX's names ("inet", "inet6"), for TCP; empty: any
  std::array<uint8_t, 16> process{};  // ProcessAddress::process_id
};

// The public key of a process.
using LineKey = std::array<uint8_t, 32>;

struct RailAddress {
  std::string network;
  uint64_t megabits = 0;
  std::vector<std::byte> worker;
  sockaddr_storage lifeline{};
};
struct NetworkAddress {
  std::vector<RailAddress> rails;
  LineKey key{};  // with which it proves its identity on lifelines; see line_proof.h
};
// Returns what others need to send to this process. The options of the process's first call count. kInvalidUsage if UCX
// is not available.
Result<NetworkAddress> SelfAddress(const SelfOptions& options);

struct ConnectOptions {
  uint64_t comm = 0;  // the same on both sides, and different for other communicators
  uint32_t self = 0, peer = 0;
  std::array<uint8_t, 16> process{};  // the peer's, ProcessAddress::process_id
  NetworkAddress address;             // its SelfAddress
  uint32_t pid = 0;
  std::string host;            // its name
  std::byte* block = nullptr;  // of this rank
  uint64_t block_bytes = 0;
  std::function<void()> arrived;  // called when a line has arrived, from within Progress and Publish: must not block
};

// Must follow SelfAddress. From then on, messages may arrive.
Result<std::shared_ptr<transport::Reach>> Connect(ConnectOptions options);

}  // namespace axccl::ucx
