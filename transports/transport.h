// What a transport offers and what processes on one machine share.
//
// Every process that has a communicator owns one *heap*: a sealed memfd, sparse, mapped by every local peer process
// once. All shared memory of AxCCL lives in heaps: control lines, scratch, and what the user gets from ncclMemAlloc. A
// peer's object is therefore (peer heap base + offset), with no descriptor or mapping per object. Offset 0 is the
// ProcessPage.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "src/base/status.h"

namespace axccl::transport {

// A futex word that sleepers of this process wait on; any process may ring it.
struct alignas(64) Doorbell {
  std::atomic<uint32_t> rings{0};
};

inline constexpr int kDoorbells = 62;

// First page of a heap. Written by its owner, except doorbells, which any peer may ring. Peers treat everything in it
// as data to check, never as a bound or an index.
struct ProcessPage {
  static constexpr uint64_t kMagic = 0x6c63637841ull;
  static constexpr uint32_t kVersion = 1;
  uint64_t magic;
  uint32_t version;
  uint32_t pid;
  // Robust, process-shared, held for the life of the process by a thread of the library. The kernel marks it when the
  // process dies, however it dies; see ProcessDied.
  alignas(64) pthread_mutex_t liveness;
  std::array<Doorbell, kDoorbells> doorbell;
};
static_assert(sizeof(ProcessPage) <= 4096);

// True once the owner of the page is dead (killed, exited, exec'd). One relaxed load of a line that stays cached.
inline bool ProcessDied(const ProcessPage& page) {
  // glibc keeps the robust futex in the first word of the mutex; the kernel sets FUTEX_OWNER_DIED (bit 30) there.
  const uint32_t word = __atomic_load_n(reinterpret_cast<const uint32_t*>(&page.liveness), __ATOMIC_RELAXED);
  return (word & 0x40000000u) != 0;
}

// Everything a peer needs to attach to a process of the same machine. Travels over the authenticated bootstrap.
struct ProcessAddress {
  std::array<uint8_t, 16> process_id{};  // random per process: the identity mappings are cached by
  std::array<uint8_t, 16> host_id{};     // equal where processes can share memory (boot id, user, namespaces)
  std::array<uint8_t, 16> token{};       // shown to the owner when asking for the heap
  std::array<char, 48> socket{};         // abstract Unix socket name, without the leading NUL
  uint64_t heap_bytes = 0;
  uint32_t pid = 0;
  uint32_t reserved = 0;
};

// A mapped peer process. Shared by all communicators of this process; unmapped when the last one lets go.
class PeerProcess {
 public:
  virtual ~PeerProcess() = default;
  std::byte* heap() const { return heap_; }  // in this process; own process: the own heap
  size_t heap_bytes() const { return heap_bytes_; }
  ProcessPage* page() const { return reinterpret_cast<ProcessPage*>(heap_); }
  uint32_t pid() const { return pid_; }
  bool is_self() const { return is_self_; }
  bool Died() const { return !is_self_ && ProcessDied(*page()); }

 protected:
  std::byte* heap_ = nullptr;
  size_t heap_bytes_ = 0;
  uint32_t pid_ = 0;
  bool is_self_ = false;
};

}  // namespace axccl::transport
