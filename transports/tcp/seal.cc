#include "transports/tcp/seal.h"

#include <sodium.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace axccl::tcp {
namespace {

static_assert(kTagBytes == crypto_aead_aes256gcm_ABYTES && kTagBytes == crypto_aead_chacha20poly1305_ietf_ABYTES);
static_assert(crypto_aead_aes256gcm_NPUBBYTES == 12 && crypto_aead_chacha20poly1305_ietf_NPUBBYTES == 12);

unsigned char* Bytes(std::byte* p) { return reinterpret_cast<unsigned char*>(p); }

}  // namespace

remote::Cipher CipherOfProcess() {
  const bool ready = sodium_init() >= 0;
  return ready && crypto_aead_aes256gcm_is_available() != 0 ? remote::Cipher::kAesGcm : remote::Cipher::kChaCha;
}

struct Seal::State {
  alignas(16) crypto_aead_aes256gcm_state aes;
  std::array<uint8_t, 32> key;
  remote::Cipher cipher;
  bool hidden;
  uint64_t records = 0;

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
  if (cipher == remote::Cipher::kAesGcm) crypto_aead_aes256gcm_beforenm(&state_->aes, key.data());
}

Seal::~Seal() { sodium_memzero(state_.get(), sizeof(State)); }

size_t Seal::LengthOf(const std::byte* record) {
  uint32_t bytes = 0;
  std::memcpy(&bytes, record, sizeof(bytes));
  return bytes == 0 || bytes > kRecordBytes ? 0 : kLengthBytes + bytes + kTagBytes;
}

// What is hidden is encrypted in place, and its length goes in beside it; what is not is sealed with its length in
// front.
size_t Seal::Close(std::byte* record, size_t bytes) {
  const auto length = static_cast<uint32_t>(bytes);
  std::memcpy(record, &length, sizeof(length));
  const auto nonce = state_->Nonce();
  unsigned char* const text = Bytes(record) + kLengthBytes;
  unsigned char* const tag = text + bytes;
  const size_t hidden = state_->hidden ? bytes : 0;
  const size_t open = kLengthBytes + bytes - hidden;
  if (state_->cipher == remote::Cipher::kAesGcm) {
    crypto_aead_aes256gcm_encrypt_detached_afternm(text, tag, nullptr, text, hidden, Bytes(record), open, nullptr,
                                                   nonce.data(), &state_->aes);
  } else {
    crypto_aead_chacha20poly1305_ietf_encrypt_detached(text, tag, nullptr, text, hidden, Bytes(record), open, nullptr,
                                                       nonce.data(), state_->key.data());
  }
  return kLengthBytes + bytes + kTagBytes;
}

bool Seal::Open(std::byte* record, size_t record_bytes) {
  const size_t bytes = record_bytes - kLengthBytes - kTagBytes;
  const auto nonce = state_->Nonce();
  unsigned char* const text = Bytes(record) + kLengthBytes;
  const unsigned char* const tag = text + bytes;
  const size_t hidden = state_->hidden ? bytes : 0;
  const size_t open = kLengthBytes + bytes - hidden;
  if (state_->cipher == remote::Cipher::kAesGcm)
    return crypto_aead_aes256gcm_decrypt_detached_afternm(text, nullptr, text, hidden, tag, Bytes(record), open,
                                                          nonce.data(), &state_->aes) == 0;
  return crypto_aead_chacha20poly1305_ietf_decrypt_detached(text, nullptr, text, hidden, tag, Bytes(record), open,
                                                            nonce.data(), state_->key.data()) == 0;
}

}  // namespace axccl::tcp
