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

// Of one process, and of one pair of processes.
inline constexpr size_t kMostRails = 4;

// A network device for a process to use, or all of them together; see rail.h.
struct RailOptions {
  std::string devices;       // comma-separated, as UCX names them; empty: all
  std::string network;       // "10.77.0.0/24"; empty: not known
  uint64_t megabits = 0;     // per second; 0: not known
  sockaddr_storage local{};  // to listen at for lifelines; the port does not count
};
struct SelfOptions {
  std::vector<RailOptions> rails;     // 1 to kMostRails, of different networks, the best first
  std::string families;               // of addresses, as UCX names them ("inet", "inet6"), for TCP; empty: any
  std::array<uint8_t, 16> process{};  // ProcessAddress::process_id
};

// The public one of a process.
using LineKey = std::array<uint8_t, 32>;

struct RailAddress {
  std::string network;
  uint64_t megabits = 0;
  std::vector<std::byte> worker;
  sockaddr_storage lifeline{};
};
struct NetworkAddress {
  std::vector<RailAddress> rails;
  LineKey key{};  // by which it proves itself on lifelines; see line_proof.h
};
// What others need to send to this process. The first call of the process counts. kInvalidUsage where there is no UCX.
Result<NetworkAddress> SelfAddress(const SelfOptions& options);

struct ConnectOptions {
  uint64_t comm = 0;  // the same on both sides, and no other communicator's
  uint32_t self = 0, peer = 0;
  std::array<uint8_t, 16> process{};  // the peer's, ProcessAddress::process_id
  NetworkAddress address;             // its SelfAddress
  uint32_t pid = 0;
  std::string host;            // its name
  std::byte* block = nullptr;  // own
  uint64_t block_bytes = 0;
  std::function<void()> arrived;  // called when a line has come, from within Progress and Publish: must not block
};

// After SelfAddress. Messages may come from then on.
Result<std::shared_ptr<transport::Reach>> Connect(ConnectOptions options);

}  // namespace axccl::ucx
