// Plain memory that the application has registered, on pages of the heap, so that peers can map it.
//
// The pages that a buffer touches are exchanged for pages of the heap (exchange.h), and for private ones again when its
// last registration ends, wherever the application has moved them by then (mremap). It notices nothing: addresses and
// content stay, and other threads may use the memory, and what else is in its first and last page, all the time. Memory
// that cannot be exchanged stays as it is: correct, and reached by copies.
//
// A forked child has private memory with the content as of the fork, for which the thread that forks copies what is
// registered; malloc_heap.cc calls BeforeFork and AfterFork.
//
// Thread-safe. Lock order: changing_, mutex_, those of the heap and of malloc.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "src/base/status.h"
#include "transports/shm/heap.h"

namespace axccl::shm {

class RegisteredMemory {
 public:
  // Less is not worth it: copies of it stay in the cache.
  static constexpr size_t kLeastBytes = size_t{32} << 10;

  static RegisteredMemory& Process();

  // Returns a number for Remove; 0, with nothing to remove, for memory that is in the heap already. An error says why
  // the memory stays as it is.
  Result<uint64_t> Add(Heap* heap, const void* p, size_t bytes);
  // Undoes that Add. No operation uses the memory any more. What the application has unmapped, or mapped anew, since
  // then is left alone. kSystemError: the memory is still on pages of the heap, and still added.
  Status Remove(const void* p, size_t bytes, uint64_t number);

  // As Heap's functions of these names.
  bool Contains(const void* p, size_t bytes, uint64_t* offset) const {
    return count_.load(std::memory_order_acquire) != 0 && FindOffset(p, bytes, offset);
  }
  Status TakeBack(const void* p, size_t bytes);
  bool TakenBack(const void* p, size_t bytes) const {
    return count_.load(std::memory_order_acquire) != 0 && AnyTakenBack(p, bytes);
  }

  void BeforeFork() noexcept;
  void AfterFork(bool in_child) noexcept;

 private:
  struct Area {
    size_t bytes;
    std::byte* pages;  // in the heap
    uint64_t offset;   // of those
    uint64_t number;
    int uses;
    bool taken_back;
  };
  // For a child that is being forked.
  struct Copy {
    std::byte* at;
    size_t bytes;
    std::byte* copy;
  };
  using Areas = std::map<std::byte*, Area>;

  bool FindOffset(const void* p, size_t bytes, uint64_t* offset) const;
  bool AnyTakenBack(const void* p, size_t bytes) const;
  Areas::node_type Take(Areas::iterator area);
  void Insert(Areas::node_type area);
  void ForgetUnmapped(const std::byte* begin, const std::byte* end);

  std::mutex changing_;              // held while memory is exchanged
  mutable std::shared_mutex mutex_;  // guards the next two, which change only while both are held
  std::atomic<size_t> count_{0};     // of areas_
  Areas areas_;                      // disjoint
  Heap* heap_ = nullptr;             // guarded by changing_, as what follows
  uint64_t last_number_ = 0;
  std::vector<Copy> copies_;
};

}  // namespace axccl::shm
