// How two processes prove their identities to each other at the beginning of a line, and what keys it then has.
//
//   caller -> callee   LineHello
//   callee -> caller   LineAnswer
//   caller -> callee   LineProof
//   callee -> caller   one byte: the line is accepted
//
// Each process has a pair of X25519 keys of its own. The public one is sent with its address, in the authenticated
// exchange between the ranks that form a communicator. The keys that two processes derive from these (crypto_kx: one
// key for each direction) are known to no other process. A proof is BLAKE2b, keyed with the prover's key, over the
// hello and the other side's fresh nonce: it is useless when it is repeated, sent to another process, or sent back. No
// connection and no state but a guest's; thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "src/base/status.h"
#include "transports/remote/address.h"

namespace axccl::remote {

using LineProof = std::array<uint8_t, 32>;
using LineNonce = std::array<uint8_t, 32>;
using LineProcess = std::array<uint8_t, 16>;

// What a line is for: to show that the process is there, or to carry data.
enum class LineUse : uint32_t { kLife = 0, kData = 1 };

struct LineHello {
  static constexpr uint64_t kMagic = 0x20656e696c6c7861ull;  // "axlline "
  uint64_t magic = kMagic;
  LineProcess from{}, to{};
  LineNonce nonce{};
  LineUse use = LineUse::kLife;
  uint32_t reserved = 0;
};
static_assert(sizeof(LineHello) == 80);

struct LineAnswer {
  LineNonce nonce{};
  LineProof proof{};
};
static_assert(sizeof(LineAnswer) == 64);

LineNonce FreshNonce();
bool SameProof(const LineProof& a, const LineProof& b);  // constant time

// The keys of one line, fresh ones: for what this side sends, and for what it receives.
struct LineSession {
  std::array<uint8_t, 32> sends{}, receives{};
};

// The keys of two processes.
struct LineKeys {
  std::array<uint8_t, 32> caller{}, called{};  // the keys with which each proves its identity

  LineProof CallerProof(const LineHello& hello, const LineNonce& of_called) const;
  LineProof CalledProof(const LineHello& hello, const LineNonce& of_called) const;
  // `calls`: whether this side is the caller.
  LineSession Session(const LineHello& hello, const LineNonce& of_called, bool calls) const;
};

class LineIdentity {
 public:
  // Makes a new one. kSystemError if there is no source of randomness.
  static Result<LineIdentity> Make();

  const LineKey& public_key() const { return public_; }
  // `calls`: whether this side is the caller. kRemoteError if the other's key is not valid.
  Result<LineKeys> KeysWith(const LineKey& peer, bool calls) const;

 private:
  LineKey public_{};
  std::array<uint8_t, 32> secret_{};
};

// Parses a connection on the called side, byte for byte.
class LineGuest {
 public:
  enum class Verdict {
    kMore,     // needs more bytes
    kUnknown,  // the process that it claims to be may become known yet: call Look again then
    kAnswer,   // the caller must send answer()
    kProved,   // it has proved to be from()
    kDrop,
  };
  // `find`: returns the keys with a process that may call; null if it is not known.
  using Find = std::function<const LineKeys*(const LineProcess&)>;

  LineGuest(const LineProcess& self, Find find) : self_(self), find_(std::move(find)) {}

  // The buffer for the next bytes; Took says how many arrived.
  std::span<std::byte> room();
  Verdict Took(size_t bytes);
  // Call it after kUnknown.
  Verdict Look();

  bool answered() const { return answered_; }  // so it has named this process, and one that may call
  const LineAnswer& answer() const { return answer_; }
  const LineHello& hello() const { return hello_; }
  const LineProcess& from() const { return hello_.from; }

 private:
  const LineProcess self_;
  const Find find_;
  LineHello hello_;
  LineAnswer answer_;
  LineProof proof_{};
  size_t have_ = 0;  // first of the hello, then of the proof
  bool answered_ = false;
};

}  // namespace axccl::remote
