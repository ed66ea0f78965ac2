// The two messages by which a heap changes hands, and the owner's side of it.
//
// Over SOCK_SEQPACKET: the client sends one Request; the owner, having checked the client's user by SO_PEERCRED and the
// token in constant time, answers with one Reply that carries the heap's descriptor, and closes. A wrong token or
// version gets a Reply without one and with heap_bytes 0; so does one to whom the heap cannot be handed, with the
// trouble as text, lest he take the owner for dead; anything else gets no answer. Byte order and layout are those
// of the machine: both ends are always on the same one.
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
  std::array<char, 120> trouble{};  // where heap_bytes is 0: why; empty: refused
};
static_assert(sizeof(Reply) == 160);

// Starts handing out this process's heap and takes the liveness mutex on the service thread; returns the address peers
// need. Called once per process.
Result<transport::ProcessAddress> StartHandover();

}  // namespace axccl::shm
