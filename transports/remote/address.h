// What processes that share no memory tell each other before they connect, and how two ranks of them are connected.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace axccl::transport {
class Reach;
}

namespace axccl::remote {

// Limit for one process, and for one pair of processes.
inline constexpr size_t kMostRails = 4;

// What TCP protects on its way, and the best cipher that a process has for it (transports/tcp/seal.h).
enum class Sealing : uint8_t { kNone = 0, kAuth = 1, kAll = 2 };
enum class Cipher : uint8_t { kChaCha = 0, kAesGcm = 1 };

inline socklen_t BytesOf(const sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

// A network device for a process to use, or all of them together.
struct RailOptions {
  std::string devices;       // UCX's names, comma-separated; empty: all
  std::string network;       // "10.77.0.0/24"; empty: not known
  uint64_t megabits = 0;     // per second; 0: not known
  sockaddr_storage local{};  // where to listen for other processes; the port is ignored
};
struct SelfOptions {
  std::vector<RailOptions> rails;     // 1 to kMostRails, of different networks, the best first
  std::string families;               // of addresses, by UCX's names ("inet", "inet6"), for TCP; empty: any
  std::array<uint8_t, 16> process{};  // ProcessAddress::process_id
  Sealing sealing = Sealing::kNone;
};

// The public key of a process.
using LineKey = std::array<uint8_t, 32>;

struct RailAddress {
  std::string network;
  uint64_t megabits = 0;
  std::vector<std::byte> worker;  // UCX's; empty: it is reached by TCP
  sockaddr_storage lifeline{};    // where it listens for other processes
};
struct NetworkAddress {
  std::vector<RailAddress> rails;
  LineKey key{};  // with which it proves its identity; see line_proof.h
  Sealing sealing = Sealing::kNone;
  Cipher cipher = Cipher::kChaCha;
};

// A process that may pass on what another one tells the rest of its machine's, and its first rank in a communicator.
struct Relay {
  std::array<uint8_t, 16> process{};
  int rank = -1;
};

struct ConnectOptions {
  uint64_t comm = 0;  // the same on both sides, and different for other communicators
  uint32_t self = 0, peer = 0;
  std::array<uint8_t, 16> process{};  // the peer's, ProcessAddress::process_id
  NetworkAddress address;             // its SelfAddress
  // Where it may be asked whether it is there: of its rails, those that are used. The address of another one may be one
  // of a different process in this network.
  std::vector<sockaddr_storage> doors;
  uint32_t pid = 0;
  std::string host;            // its name
  std::byte* block = nullptr;  // of this rank
  uint64_t block_bytes = 0;
  std::function<void()> arrived;  // called when a line has arrived, from within Progress and Publish: must not block
  // This rank's reach of another rank of that process; null: this is the first one.
  const transport::Reach* sibling = nullptr;
  uint64_t machine = 0;  // the peer's: a number that is the same for all its processes
  bool watch = true;     // whether the two processes watch each other because of the communicator; both say the same
  // The processes of the peer's machine that have ranks of this communicator, those first that this process watches;
  // null: none passes on anything.
  std::shared_ptr<const std::vector<Relay>> relays;
};

}  // namespace axccl::remote
