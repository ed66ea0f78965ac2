#include "src/boot/wire.h"

#include <sodium.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "src/base/format.h"

namespace axccl::boot {
namespace {

const unsigned char* Bytes(const void* p) { return static_cast<const unsigned char*>(p); }

std::array<uint8_t, 32> KeyedHash(const Secret& secret, std::string_view purpose, const Hello& rank, const Hello& hub) {
  std::array<uint8_t, 32> hash;
  crypto_generichash_state state;
  crypto_generichash_init(&state, secret.data(), secret.size(), hash.size());
  crypto_generichash_update(&state, Bytes(purpose.data()), purpose.size());
  crypto_generichash_update(&state, Bytes(&rank), sizeof rank);
  crypto_generichash_update(&state, Bytes(&hub), sizeof hub);
  crypto_generichash_final(&state, hash.data(), hash.size());
  sodium_memzero(&state, sizeof state);
  return hash;
}

}  // namespace

void FillNonce(Hello* hello) { randombytes_buf(hello->nonce.data(), hello->nonce.size()); }

// The purposes have equal length, so no two inputs can be taken for one another.
Proof Prove(const Secret& secret, Role prover, const Hello& rank, const Hello& hub) {
  return KeyedHash(secret, prover == Role::kHub ? "axccl proof of hub " : "axccl proof of rank", rank, hub);
}

bool SameProof(const Proof& a, const Proof& b) { return sodium_memcmp(a.data(), b.data(), a.size()) == 0; }

Key ConnectionKey(const Secret& secret, const Hello& rank, const Hello& hub) {
  return KeyedHash(secret, "axccl connection   ", rank, hub);
}

bool PayloadLimit(Role receiver, FrameType type, int nranks, size_t* limit) {
  const bool hub = receiver == Role::kHub, parent = receiver == Role::kParent, child = receiver == Role::kChild;
  const size_t everybody = kMaxContribution * static_cast<size_t>(nranks);
  switch (type) {
    case FrameType::kJoin:
      *limit = sizeof(JoinBody);
      return hub || parent;
    case FrameType::kStart:
      *limit = child ? 0 : sizeof(StartBody);
      return !hub && !parent;
    case FrameType::kContribute:
      *limit = parent ? everybody : kMaxContribution;
      return hub || parent;
    case FrameType::kGathered:
      *limit = everybody;
      return !hub && !parent;
    case FrameType::kError:
      *limit = sizeof(uint32_t) + kMaxText;
      return true;
    case FrameType::kLeave:
      *limit = 0;
      return hub || parent || child;
    case FrameType::kFailed:
      *limit = sizeof(uint32_t) + kMaxText;
      return hub;
    case FrameType::kExpired:
      *limit = sizeof(uint32_t) + kMaxText;
      return true;
    case FrameType::kAdmitted:
      *limit = 0;
      return !hub && !parent;
  }
  return false;
}

FrameHeader FrameCipher::Seal(FrameType type, std::span<const std::byte> payload) {
  FrameHeader header;
  header.bytes = static_cast<uint32_t>(payload.size());
  header.type = type;
  header.sequence = sent_++;
  header.mac = Mac(self_, header, payload);
  return header;
}

bool FrameCipher::Open(const FrameHeader& header, std::span<const std::byte> payload) {
  if (header.sequence != received_ || header.bytes != payload.size()) return false;
  const auto mac = Mac(self_ == Role::kHub ? Role::kRank : Role::kHub, header, payload);
  if (sodium_memcmp(mac.data(), header.mac.data(), mac.size()) != 0) return false;
  ++received_;
  return true;
}

std::array<uint8_t, 16> FrameCipher::Mac(Role sender, const FrameHeader& header,
                                         std::span<const std::byte> payload) const {
  std::array<uint8_t, 16> mac;
  crypto_generichash_state state;
  crypto_generichash_init(&state, key_.data(), key_.size(), mac.size());
  crypto_generichash_update(&state, Bytes(&sender), sizeof sender);
  crypto_generichash_update(&state, Bytes(&header), offsetof(FrameHeader, mac));
  crypto_generichash_update(&state, Bytes(payload.data()), payload.size());
  crypto_generichash_final(&state, mac.data(), mac.size());
  return mac;
}

std::string EncodeError(const Status& status) {
  const uint32_t code = static_cast<uint32_t>(status.code());
  std::string payload(reinterpret_cast<const char*>(&code), sizeof code);
  payload += Printable(status.message().substr(0, kMaxText));
  return payload;
}

Status DecodeError(std::span<const std::byte> payload) {
  uint32_t code = static_cast<uint32_t>(Code::kRemoteError);
  if (payload.size() >= sizeof code) {
    std::memcpy(&code, payload.data(), sizeof code);
    payload = payload.subspan(sizeof code);
  }
  if (code == 0 || code > static_cast<uint32_t>(Code::kTimeout)) code = static_cast<uint32_t>(Code::kRemoteError);
  const std::string_view text(reinterpret_cast<const char*>(payload.data()), payload.size());
  return Status(static_cast<Code>(code), Printable(text));
}

Code CodeForOthers(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
    case Code::kInvalidUsage:
    case Code::kTimeout:
      return code;
    default:
      return Code::kRemoteError;
  }
}

}  // namespace axccl::boot
