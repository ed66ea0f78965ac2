// How two processes prove to each other, at the beginning of a lifeline, that they are who they say.
//
//   who calls  -> who is called   LineHello
//   who is called -> who calls    LineAnswer
//   who calls  -> who is called   LineProof
//   who is called -> who calls    one byte: the line is taken
//
// Each process has a pair of X25519 keys of its own; the public one goes with its address, by the authenticated
// exchange of those who form a communicator, and what two make of their keys (crypto_kx: one key for each direction)
// nobody else has. A proof is BLAKE2b, keyed with the prover's, over the hello and the other side's fresh nonce:
// worthless when said again, to another process, or back to who said it. No connection and no state but a guest's;
// thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "src/base/status.h"
#include "transports/ucx/connect.h"

namespace axccl::ucx {

using LineProof = std::array<uint8_t, 32>;
using LineNonce = std::array<uint8_t, 32>;
using LineProcess = std::array<uint8_t, 16>;

struct LineHello {
  static constexpr uint64_t kMagic = 0x656e696c6566696cull;  // "lifeline"
  uint64_t magic = kMagic;
  LineProcess from{}, to{};
  LineNonce nonce{};
};
static_assert(sizeof(LineHello) == 72);

struct LineAnswer {
  LineNonce nonce{};
  LineProof proof{};
};
static_assert(sizeof(LineAnswer) == 64);

LineNonce FreshNonce();
bool SameProof(const LineProof& a, const LineProof& b);  // constant time

// Of two processes.
struct LineKeys {
  std::array<uint8_t, 32> caller{}, called{};  // what each proves with

  LineProof CallerProof(const LineHello& hello, const LineNonce& of_called) const;
  LineProof CalledProof(const LineHello& hello, const LineNonce& of_called) const;
};

class LineIdentity {
 public:
  // A new one. kSystemError where there is no source of randomness.
  static Result<LineIdentity> Make();

  const LineKey& public_key() const { return public_; }
  // `calls`: whether this side does. kRemoteError where the other's key is none.
  Result<LineKeys> KeysWith(const LineKey& peer, bool calls) const;

 private:
  LineKey public_{};
  std::array<uint8_t, 32> secret_{};
};

// The called side's reading of a connection, byte for byte.
class LineGuest {
 public:
  enum class Verdict {
    kMore,     // nothing to do but wait for more bytes
    kUnknown,  // who it says it is may become known yet: Look again then
    kAnswer,   // send answer()
    kProved,   // it is from()
    kDrop,
  };
  // `find`: the keys with a process that may call; null where it is not known.
  using Find = std::function<const LineKeys*(const LineProcess&)>;

  LineGuest(const LineProcess& self, Find find) : self_(self), find_(std::move(find)) {}

  // Where the next bytes go, at most so many; then Took.
  std::span<std::byte> room();
  Verdict Took(size_t bytes);
  // After kUnknown.
  Verdict Look();

  const LineAnswer& answer() const { return answer_; }
  const LineProcess& from() const { return hello_.from; }

 private:
  const LineProcess self_;
  const Find find_;
  LineHello hello_;
  LineAnswer answer_;
  LineProof proof_{};
  size_t have_ = 0;  // of the hello, and then of the proof
  bool answered_ = false;
};

}  // namespace axccl::ucx
