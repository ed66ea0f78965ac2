#include "transports/remote/line_proof.h"

#include <sodium.h>

#include <string_view>
#include <utility>

namespace axccl::remote {
namespace {

static_assert(sizeof(LineKey) == crypto_kx_PUBLICKEYBYTES && crypto_kx_SECRETKEYBYTES == 32 &&
              crypto_kx_SESSIONKEYBYTES == 32);

const unsigned char* Bytes(const void* p) { return static_cast<const unsigned char*>(p); }

// Proofs and keys hash different texts, because they begin with different words.
constexpr char kProof[8] = {'p', 'r', 'o', 'o', 'f'}, kSession[8] = {'s', 'e', 's', 's', 'i', 'o', 'n'};

std::array<uint8_t, 32> Derive(const char (&label)[8], const std::array<uint8_t, 32>& key, const LineHello& hello,
                               const LineNonce& of_called) {
  std::array<uint8_t, 32> proof;
  crypto_generichash_state state;
  crypto_generichash_init(&state, key.data(), key.size(), proof.size());
  crypto_generichash_update(&state, Bytes(label), sizeof label);
  crypto_generichash_update(&state, Bytes(&hello), sizeof hello);
  crypto_generichash_update(&state, of_called.data(), of_called.size());
  crypto_generichash_final(&state, proof.data(), proof.size());
  sodium_memzero(&state, sizeof state);
  return proof;
}

}  // namespace

LineNonce FreshNonce() {
  LineNonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

bool SameProof(const LineProof& a, const LineProof& b) { return sodium_memcmp(a.data(), b.data(), a.size()) == 0; }

LineProof LineKeys::CallerProof(const LineHello& hello, const LineNonce& of_called) const {
  return Derive(kProof, caller, hello, of_called);
}

LineProof LineKeys::CalledProof(const LineHello& hello, const LineNonce& of_called) const {
  return Derive(kProof, called, hello, of_called);
}

LineSession LineKeys::Session(const LineHello& hello, const LineNonce& of_called, bool calls) const {
  LineSession session{Derive(kSession, caller, hello, of_called), Derive(kSession, called, hello, of_called)};
  if (!calls) std::swap(session.sends, session.receives);
  return session;
}

Result<LineIdentity> LineIdentity::Make() {
  if (sodium_init() < 0) return MakeStatus(Code::kSystemError, "libsodium finds no source of randomness");
  LineIdentity identity;
  crypto_kx_keypair(identity.public_.data(), identity.secret_.data());
  return identity;
}

Result<LineKeys> LineIdentity::KeysWith(const LineKey& peer, bool calls) const {
  LineKeys keys;
  const int failed = calls ? crypto_kx_client_session_keys(keys.called.data(), keys.caller.data(), public_.data(),
                                                           secret_.data(), peer.data())
                           : crypto_kx_server_session_keys(keys.caller.data(), keys.called.data(), public_.data(),
                                                           secret_.data(), peer.data());
  if (failed != 0) return MakeStatus(Code::kRemoteError, "a process announced something that is no public key");
  return keys;
}

std::span<std::byte> LineGuest::room() {
  const auto rest = [this](auto& of) { return std::as_writable_bytes(std::span(&of, 1)).subspan(have_); };
  return answered_ ? rest(proof_) : rest(hello_);
}

LineGuest::Verdict LineGuest::Took(size_t bytes) {
  have_ += bytes;
  if (have_ < (answered_ ? sizeof proof_ : sizeof hello_)) return Verdict::kMore;
  if (!answered_) return Look();
  const LineKeys* const keys = find_(hello_.from);
  const bool proved = keys != nullptr && SameProof(proof_, keys->CallerProof(hello_, answer_.nonce));
  return proved ? Verdict::kProved : Verdict::kDrop;
}

LineGuest::Verdict LineGuest::Look() {
  if (hello_.magic != LineHello::kMagic || hello_.to != self_ || hello_.from == self_ || hello_.use > LineUse::kData)
    return Verdict::kDrop;
  const LineKeys* const keys = find_(hello_.from);
  if (keys == nullptr) return Verdict::kUnknown;
  answer_.nonce = FreshNonce();
  answer_.proof = keys->CalledProof(hello_, answer_.nonce);
  answered_ = true;
  have_ = 0;
  return Verdict::kAnswer;
}

}  // namespace axccl::remote
