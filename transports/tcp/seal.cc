#include "transports/tcp/seal.h"

#include <sodium.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "transports/tcp/gcrypt.h"

namespace axccl::tcp {
namespace {

static_assert(kTagBytes == crypto_aead_aes256gcm_ABYTES && kTagBytes == crypto_aead_chacha20poly1305_ietf_ABYTES);
static_assert(kHeadBytes == sizeof(uint32_t) + crypto_shorthash_BYTES);
static_assert(crypto_aead_aes256gcm_NPUBBYTES == 12 && crypto_aead_chacha20poly1305_ietf_NPUBBYTES == 12);

unsigned char* Bytes(std::byte* p) { return reinterpret_cast<unsigned char*>(p); }
const unsigned char* Bytes(const std::byte* p) { return reinterpret_cast<const unsigned char*>(p); }

}  // namespace

remote::Cipher CipherOfProcess() {
  const bool ready = sodium_init() >= 0;
  return ready && crypto_aead_aes256gcm_is_available() != 0 ? remote::Cipher::kAesGcm : remote::Cipher::kChaCha;
}

struct Seal::State {
  alignas(16) crypto_aead_aes256gcm_state aes;
  std::unique_ptr<Gcrypt> gcrypt;  // for the same cipher; may be null
  std::array<uint8_t, 32> key;
  remote::Cipher cipher;
  bool hidden;
  std::array<uint8_t, crypto_shorthash_KEYBYTES> length_key;
  uint64_t records = 0;

  // Of the next record's length.
  using Tag = std::array<unsigned char, crypto_shorthash_BYTES>;
  Tag TagOf(uint32_t length) const {
    const uint64_t text[2] = {records, length};
    Tag tag;
    crypto_shorthash(tag.data(), reinterpret_cast<const unsigned char*>(text), sizeof(text), length_key.data());
    return tag;
  }
  std::array<unsigned char, 12> Nonce() {
    std::array<unsigned char, 12> nonce{};
    std::memcpy(nonce.data(), &records, sizeof(records));
    ++records;
    return nonce;
  }
};

Seal::Seal(const std::array<uint8_t, 32>& key, remote::Cipher cipher, bool hidden) : state_(std::make_unique<State>()) {
  state_->key = key;
  state_->cipher = cipher;
  state_->hidden = hidden;
  constexpr char kLength[] = "length";
  crypto_generichash(state_->length_key.data(), state_->length_key.size(),
                     reinterpret_cast<const unsigned char*>(kLength), sizeof(kLength), key.data(), key.size());
  if (cipher != remote::Cipher::kAesGcm) return;
  crypto_aead_aes256gcm_beforenm(&state_->aes, key.data());
  state_->gcrypt = Gcrypt::Make(key);
}

Seal::~Seal() {
  state_->gcrypt = nullptr;
  sodium_memzero(state_.get(), sizeof(State));
}

size_t Seal::LengthOf(const std::byte* record) const {
  uint32_t bytes = 0;
  std::memcpy(&bytes, record, sizeof(bytes));
  const State::Tag tag = state_->TagOf(bytes);
  if (sodium_memcmp(tag.data(), record + sizeof(bytes), tag.size()) != 0 || bytes == 0 || bytes > kRecordBytes)
    return 0;
  return kHeadBytes + bytes + kTagBytes;
}

// What is hidden is encrypted on its way into the record, and its length goes in beside it; what is not is sealed with
// its length in front.
size_t Seal::Close(std::byte* record, const std::byte* text, size_t bytes) {
  const auto length = static_cast<uint32_t>(bytes);
  const State::Tag length_tag = state_->TagOf(length);
  std::memcpy(record, &length, sizeof(length));
  std::memcpy(record + sizeof(length), length_tag.data(), length_tag.size());
  const auto nonce = state_->Nonce();
  unsigned char* const sealed = Bytes(record) + kHeadBytes;
  if (!state_->hidden && text != record + kHeadBytes) std::memcpy(sealed, text, bytes);
  unsigned char* const tag = sealed + bytes;
  const size_t hidden = state_->hidden ? bytes : 0;
  const size_t open = kHeadBytes + bytes - hidden;
  if (state_->gcrypt != nullptr &&
      state_->gcrypt->Close(nonce, {Bytes(record), open}, Bytes(text), hidden, sealed, Gcrypt::Tag(tag, kTagBytes))) {
    // The same bytes as libsodium's.
  } else if (state_->cipher == remote::Cipher::kAesGcm) {
    crypto_aead_aes256gcm_encrypt_detached_afternm(sealed, tag, nullptr, Bytes(text), hidden, Bytes(record), open,
                                                   nullptr, nonce.data(), &state_->aes);
  } else {
    crypto_aead_chacha20poly1305_ietf_encrypt_detached(sealed, tag, nullptr, Bytes(text), hidden, Bytes(record), open,
                                                       nullptr, nonce.data(), state_->key.data());
  }
  return kHeadBytes + bytes + kTagBytes;
}

bool Seal::Open(const std::byte* record, size_t record_bytes, std::byte* to) {
  const size_t bytes = record_bytes - kHeadBytes - kTagBytes;
  const auto nonce = state_->Nonce();
  const unsigned char* const sealed = Bytes(record) + kHeadBytes;
  const unsigned char* const tag = sealed + bytes;
  const size_t hidden = state_->hidden ? bytes : 0;
  const size_t open = kHeadBytes + bytes - hidden;
  bool opened;
  if (state_->gcrypt != nullptr) {
    opened = state_->gcrypt->Open(nonce, {Bytes(record), open}, sealed, hidden,
                                  std::span<const unsigned char, kTagBytes>(tag, kTagBytes), Bytes(to));
  } else if (state_->cipher == remote::Cipher::kAesGcm) {
    opened = crypto_aead_aes256gcm_decrypt_detached_afternm(Bytes(to), nullptr, sealed, hidden, tag, Bytes(record),
                                                            open, nonce.data(), &state_->aes) == 0;
  } else {
    opened = crypto_aead_chacha20poly1305_ietf_decrypt_detached(Bytes(to), nullptr, sealed, hidden, tag, Bytes(record),
                                                                open, nonce.data(), state_->key.data()) == 0;
  }
  if (opened && !state_->hidden && to != record + kHeadBytes) std::memcpy(to, sealed, bytes);
  return opened;
}

}  // namespace axccl::tcp
