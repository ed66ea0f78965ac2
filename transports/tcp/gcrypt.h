// AES-256-GCM of libgcrypt, which uses wider instructions than libsodium's and takes a third of the time. It is loaded
// when first asked for (libgcrypt.so.20); without it, or without its header at build time, Make returns null.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace axccl::tcp {

// One key. Used by one thread at a time.
class Gcrypt {
 public:
  using Nonce = std::array<unsigned char, 12>;
  using Tag = std::span<unsigned char, 16>;

  static std::unique_ptr<Gcrypt> Make(const std::array<uint8_t, 32>& key);
  ~Gcrypt();
  Gcrypt(const Gcrypt&) = delete;
  Gcrypt& operator=(const Gcrypt&) = delete;

  // Encrypts `bytes` of `text` to `sealed`, which may be the same place, and stores the tag of that and of `open`.
  // Returns false if it did not, as in FIPS mode, where libgcrypt takes no nonce for what it encrypts.
  bool Close(const Nonce& nonce, std::span<const unsigned char> open, const unsigned char* text, size_t bytes,
             unsigned char* sealed, Tag tag);
  // The reverse. Returns false, and stores zeros, if the tag is wrong.
  bool Open(const Nonce& nonce, std::span<const unsigned char> open, const unsigned char* sealed, size_t bytes,
            std::span<const unsigned char, 16> tag, unsigned char* text);

 private:
  explicit Gcrypt(void* handle) : handle_(handle) {}
  bool Begin(const Nonce& nonce, std::span<const unsigned char> open) const;

  void* handle_;  // gcry_cipher_hd_t
};

}  // namespace axccl::tcp
