#include "transports/remote/memory.h"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace axccl::remote {
namespace {

// Readers may look at parts of the memory meanwhile that they validate otherwise, such as entries of logs; those are
// small.
constexpr size_t kByWords = 512;

void CopyWords(std::byte* to, const std::byte* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, from + at, sizeof(word));
    __atomic_store_n(reinterpret_cast<uint64_t*>(to + at), word, __ATOMIC_RELAXED);
  }
}

// Copies the first word last, because readers take it for the number of what follows. They may read meanwhile, word by
// word, and look at the number again.
void CopyGuarded(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kWord = sizeof(uint64_t);
  const auto word_of = [&](size_t at) {
    uint64_t word;
    std::memcpy(&word, from + at, kWord);
    return word;
  };
  auto* const words = reinterpret_cast<uint64_t*>(to);
  auto* const rest = reinterpret_cast<uint8_t*>(to);
  __atomic_store_n(words, uint64_t{0}, __ATOMIC_RELAXED);
  std::atomic_thread_fence(std::memory_order_release);
  size_t at = kWord;
  for (; at + kWord <= bytes; at += kWord) __atomic_store_n(words + at / kWord, word_of(at), __ATOMIC_RELAXED);
  for (; at < bytes; ++at) __atomic_store_n(rest + at, static_cast<uint8_t>(from[at]), __ATOMIC_RELAXED);
  __atomic_store_n(words, word_of(0), __ATOMIC_SEQ_CST);  // before the look at who waits for it
}

}  // namespace

Result<std::byte*> MapMirror(uint64_t bytes, uint32_t peer) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return SystemError(errno, "mapping %llu bytes for what comes from rank %u", static_cast<unsigned long long>(bytes),
                       peer);
  return static_cast<std::byte*>(memory);
}

Result<std::shared_ptr<Memory>> Memory::WithMirror(uint64_t key, std::byte* own, uint64_t bytes, uint32_t peer) {
  AXCCL_ASSIGN_OR_RETURN(std::byte* const mirror, MapMirror(bytes, peer));
  auto memory = std::make_shared<Memory>(key, own, mirror, bytes);
  memory->mapped_ = true;
  return memory;
}

Memory::~Memory() {
  if (mapped_) munmap(mirror_, bytes_);
}

bool Memory::FitsDevice(const Message& message) const {
  if (!message.on_device()) return true;
  const WireStretch& stretch = message.stretch[0];
  return device() != nullptr && stretch.guarded == 0 && PlaceOf(stretch) != nullptr;
}

void Memory::Store(const Message& message, const void* data) const {
  const auto* from = static_cast<const std::byte*>(data);
  for (const WireStretch& stretch : message.stretches()) {
    std::byte* const to = PlaceOf(stretch);
    if (stretch.guarded != 0) {
      CopyGuarded(to, from, stretch.bytes);
    } else if (stretch.bytes <= kByWords && stretch.bytes % 8 == 0 && stretch.offset % 8 == 0) {
      CopyWords(to, from, stretch.bytes);
    } else if (stretch.bytes < sizeof(uint64_t)) {  // a mark, which somebody waits for
      for (uint32_t i = 0; i < stretch.bytes; ++i)
        __atomic_store_n(reinterpret_cast<uint8_t*>(to + i), static_cast<uint8_t>(from[i]), __ATOMIC_RELEASE);
    } else {
      std::memcpy(to, from, stretch.bytes);
    }
    from += stretch.bytes;
  }
}

void Memory::StoreGuarded(const Message& message, const std::byte* data) const {
  for (const WireStretch& stretch : message.stretches()) {
    if (stretch.guarded == 0) continue;
    CopyGuarded(PlaceOf(stretch), data, stretch.bytes);
    data += stretch.bytes;
  }
}

}  // namespace axccl::remote
