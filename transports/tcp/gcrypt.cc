#include "transports/tcp/gcrypt.h"

#include <dlfcn.h>
#include <gcrypt.h>

#include <cstring>

#include "src/base/dynamic_functions.h"

namespace axccl::tcp {
namespace {

// clang-format off
#define AXCCL_GCRYPT_FUNCTIONS(X)                                                                                     \
  X(gcry_check_version) X(gcry_cipher_authenticate) X(gcry_cipher_checktag) X(gcry_cipher_close)                      \
  X(gcry_cipher_decrypt) X(gcry_cipher_encrypt) X(gcry_cipher_gettag) X(gcry_cipher_open) X(gcry_cipher_setiv)        \
  X(gcry_cipher_setkey) X(gcry_control)
// clang-format on

struct Library {
  AXCCL_DYNAMIC_FUNCTIONS(AXCCL_GCRYPT_FUNCTIONS)
};

// libgcrypt wants to be set up once in a process, by whoever comes first.
bool Load(Library* library) {
  void* const handle = dlopen("libgcrypt.so.20", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr || library->Find(handle) != nullptr) return false;
  if (library->gcry_control(GCRYCTL_INITIALIZATION_FINISHED_P) != 0) return true;
  return library->gcry_check_version(nullptr) != nullptr && library->gcry_control(GCRYCTL_DISABLE_SECMEM, 0) == 0 &&
         library->gcry_control(GCRYCTL_INITIALIZATION_FINISHED, 0) == 0;
}

// Null where it is not there.
const Library* GetLibrary() {
  static Library* const library = new Library;
  static const bool loaded = Load(library);
  return loaded ? library : nullptr;
}

}  // namespace

std::unique_ptr<Gcrypt> Gcrypt::Make(const std::array<uint8_t, 32>& key) {
  const Library* const library = GetLibrary();
  gcry_cipher_hd_t handle = nullptr;
  if (library == nullptr || library->gcry_cipher_open(&handle, GCRY_CIPHER_AES256, GCRY_CIPHER_MODE_GCM, 0) != 0)
    return nullptr;
  std::unique_ptr<Gcrypt> made(new Gcrypt(handle));
  return library->gcry_cipher_setkey(handle, key.data(), key.size()) == 0 ? std::move(made) : nullptr;
}

Gcrypt::~Gcrypt() { GetLibrary()->gcry_cipher_close(static_cast<gcry_cipher_hd_t>(handle_)); }  // wipes the key

bool Gcrypt::Begin(const Nonce& nonce, std::span<const unsigned char> open) const {
  const Library& gcrypt = *GetLibrary();
  auto* const handle = static_cast<gcry_cipher_hd_t>(handle_);
  return gcrypt.gcry_cipher_setiv(handle, nonce.data(), nonce.size()) == 0 &&
         gcrypt.gcry_cipher_authenticate(handle, open.data(), open.size()) == 0;
}

bool Gcrypt::Close(const Nonce& nonce, std::span<const unsigned char> open, const unsigned char* text, size_t bytes,
                   unsigned char* sealed, Tag tag) {
  const Library& gcrypt = *GetLibrary();
  auto* const handle = static_cast<gcry_cipher_hd_t>(handle_);
  const bool in_place = text == sealed;
  return Begin(nonce, open) &&
         (bytes == 0 ||
          gcrypt.gcry_cipher_encrypt(handle, sealed, bytes, in_place ? nullptr : text, in_place ? 0 : bytes) == 0) &&
         gcrypt.gcry_cipher_gettag(handle, tag.data(), tag.size()) == 0;
}

bool Gcrypt::Open(const Nonce& nonce, std::span<const unsigned char> open, const unsigned char* sealed, size_t bytes,
                  std::span<const unsigned char, 16> tag, unsigned char* text) {
  const Library& gcrypt = *GetLibrary();
  auto* const handle = static_cast<gcry_cipher_hd_t>(handle_);
  const bool in_place = text == sealed;
  const bool good = Begin(nonce, open) &&
                    (bytes == 0 || gcrypt.gcry_cipher_decrypt(handle, text, bytes, in_place ? nullptr : sealed,
                                                              in_place ? 0 : bytes) == 0) &&
                    gcrypt.gcry_cipher_checktag(handle, tag.data(), tag.size()) == 0;
  if (!good) std::memset(text, 0, bytes);
  return good;
}

}  // namespace axccl::tcp
