// Memory of simulated processes. Each owns a heap that peers map at another address, and private memory that peers can
// only reach by calls.
//
// Both kinds are mapped twice. The owner uses its own view; peers use the other one, as in reality, so a pointer that
// is passed where an offset belongs does not work by accident. The owner's view of private memory is inaccessible while
// another process runs: a direct access instead of a call is a fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transports/transport.h"

namespace axccl::exec {

// Memory that is mapped twice.
class TwiceMapped {
 public:
  explicit TwiceMapped(size_t bytes);
  ~TwiceMapped();
  TwiceMapped(const TwiceMapped&) = delete;
  TwiceMapped& operator=(const TwiceMapped&) = delete;

  std::byte* own() const { return own_; }
  std::byte* peer() const { return peer_; }
  size_t bytes() const { return bytes_; }
  bool Contains(const void* p, size_t bytes) const;
  // Makes the owner's view accessible or inaccessible.
  void SetAccessible(bool accessible);

 private:
  const size_t bytes_;
  std::byte* own_ = nullptr;
  std::byte* peer_ = nullptr;
};

// A process as it is seen by one process, through one view of its heap.
class FakePeer : public transport::PeerProcess {
 public:
  FakePeer(std::byte* heap, size_t heap_bytes, uint32_t pid, bool is_self);
};

// A simulated process. Not thread-safe.
class FakeProcess {
 public:
  explicit FakeProcess(uint32_t pid, size_t heap_bytes, size_t private_bytes);

  uint32_t pid() const { return pid_; }
  TwiceMapped& heap() { return heap_; }
  TwiceMapped& secret() { return private_; }
  // The process in its own view, and in the view of peers.
  FakePeer* self() { return &self_; }
  FakePeer* peer() { return &peer_; }
  // Marks the process dead, as the kernel does with a robust futex.
  void Die();
  // Removes the process's memory while its death is not visible yet.
  void Vanish() { gone_ = true; }
  bool gone() const { return gone_; }

  // Memory for a buffer.
  std::byte* AllocateHeap(size_t bytes, size_t alignment);
  std::byte* AllocatePrivate(size_t bytes, size_t alignment);

 private:
  static std::byte* Take(const TwiceMapped& memory, size_t* used, size_t bytes, size_t alignment);

  const uint32_t pid_;
  bool gone_ = false;
  TwiceMapped heap_, private_;
  size_t heap_used_ = sizeof(transport::ProcessPage), private_used_ = 0;
  FakePeer self_, peer_;
};

}  // namespace axccl::exec
