// The two messages with which a process gives its heap, or another file (offered_file.h), to another process, and the
// owner's side of the exchange.
//
// Over SOCK_SEQPACKET: the client sends one Request. The owner checks the client's user by SO_PEERCRED and compares the
// token in constant time, answers with one Reply that carries the descriptor of the token's file, and closes. After a
// wrong token or version, the Reply has no descriptor and heap_bytes 0. So it is if the owner cannot send the
// descriptor; then `trouble` says why, so that the client does not take the owner for dead. Anything else gets no
// answer. Byte order and layout are those of the machine: both ends are always on the same one.
#pragma once

#include <array>
#include <cstdint>

#include "src/base/status.h"
#include "transports/transport.h"

namespace axccl::shm {

struct Request {
  static constexpr uint64_t kMagic = 0x7165526c63637841ull;
  uint64_t magic = kMagic;
  uint32_t version = transport::ProcessPage::kVersion;
  uint32_t reserved = 0;
  std::array<uint8_t, 16> token{};
};
static_assert(sizeof(Request) == 32);

struct Reply {
  static constexpr uint64_t kMagic = 0x7065526c63637841ull;
  uint64_t magic = kMagic;
  uint32_t version = transport::ProcessPage::kVersion;
  uint32_t pid = 0;
  uint64_t heap_bytes = 0;
  std::array<uint8_t, 16> process_id{};
  std::array<char, 120> trouble{};  // why heap_bytes is 0; empty: refused
};
static_assert(sizeof(Reply) == 160);

// Starts giving this process's heap to peers and takes the liveness mutex on the service thread; returns the address
// that peers need. Called once per process.
Result<transport::ProcessAddress> StartHandover();

}  // namespace axccl::shm
