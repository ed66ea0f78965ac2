// Built without libgcrypt's header.
#include "transports/tcp/gcrypt.h"

namespace axccl::tcp {

std::unique_ptr<Gcrypt> Gcrypt::Make(const std::array<uint8_t, 32>&) { return nullptr; }

Gcrypt::~Gcrypt() = default;

bool Gcrypt::Close(const Nonce&, std::span<const unsigned char>, const unsigned char*, size_t, unsigned char*, Tag) {
  return false;
}

bool Gcrypt::Open(const Nonce&, std::span<const unsigned char>, const unsigned char*, size_t,
                  std::span<const unsigned char, 16>, unsigned char*) {
  return false;
}

}  // namespace axccl::tcp
