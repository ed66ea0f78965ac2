// The content of the 128 bytes of a unique id, and the sources of ids.
//
// Layout, in the byte order of the machine (little-endian only):
//
//   offset  bytes  field
//        0      4  magic "AxId"
//        4      1  version of this layout, 1
//        5      1  flags, see IdFlags
//        6      1  number of addresses in use, 1 or 2
//        7      1  0
//        8     16  id: random, or derived from secret and port (kFromEnvironment)
//       24     32  secret, never sent
//       56     48  two addresses of 24 bytes: family (4 or 6), 0, port, 16 bytes of IP, scope id (IPv6)
//      104     16  0
//      120      8  checksum of the 120 bytes before (detects truncated and mangled ids, proves nothing)
//
// Plain data; functions are thread-safe.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/boot/boot.h"
#include "src/boot/secret.h"

namespace axccl::boot {

using IdBytes = std::array<uint8_t, 16>;

enum IdFlags : uint8_t {
  kFromEnvironment = 1,  // made from NCCL_COMM_ID: the process of rank 0 listens
  kUserSecret = 2,       // the secret is one of this user on this machine: loopback only
};

struct Address {
  uint8_t family = 0;  // 4 or 6
  uint8_t reserved = 0;
  uint16_t port = 0;  // host byte order
  std::array<uint8_t, 16> ip{};
  uint32_t scope = 0;
};
static_assert(sizeof(Address) == 24);

struct IdFields {
  std::array<char, 4> magic{'A', 'x', 'I', 'd'};
  uint8_t version = 1;
  uint8_t flags = 0;
  uint8_t num_addresses = 0;
  uint8_t reserved = 0;
  IdBytes id{};
  Secret secret{};
  std::array<Address, 2> address{};
  std::array<uint8_t, 16> spare{};
  std::array<uint8_t, 8> checksum{};
};
static_assert(sizeof(IdFields) == sizeof(UniqueId));

// Fills in the checksum.
UniqueId Pack(IdFields fields);
// The fields of a valid id, otherwise the error of CheckUniqueId.
Result<IdFields> Unpack(const UniqueId& id);

// The id of "host:port" or "[v6]:port" (the value of NCCL_COMM_ID), with the secret of the environment or, on loopback,
// of this user (secret.h). Equal port and secret give equal ids, however the host is written.
Result<UniqueId> IdFromText(const std::string& host_port);

// Convert to and from the socket calls' structs; `bytes` is the length to pass. FromSockaddr: other families give
// family 0.
sockaddr_storage ToSockaddr(const Address& address, socklen_t* bytes);
Address FromSockaddr(const sockaddr* address);
std::string ToText(const Address& address);    // "127.0.0.1:4711", "[::1]:4711"
std::string HostText(const Address& address);  // "127.0.0.1", "[::1]"
bool IsLoopback(const Address& address);

}  // namespace axccl::boot
