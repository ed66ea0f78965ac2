// Memory of tensors that are no longer there, for those that come: an executor frees and allocates the same sizes in
// every round of a loop, and memory that is new to a process costs a fault for each page.
//
// While a pool is in use on a thread, Tensor::Zeros takes memory from it on that thread; whoever drops a tensor gives
// the memory back with Put. A buffer serves a tensor of exactly its size. The pool lets buffers go before what is given
// out and what it keeps together exceed the most that was given out at a time, so it needs no memory beyond that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace axccl::program {

// Used by one thread at a time.
class BufferPool {
 public:
  // For as long as this object is there, which is on the stack.
  class Use {
   public:
    explicit Use(BufferPool* pool);
    ~Use();
    Use(const Use&) = delete;

   private:
    BufferPool* const before_;
  };
  // The one that is in use on this thread; null: none.
  static BufferPool* OfThread();

  // All 0.
  std::vector<uint8_t> Take(size_t bytes);
  // Of any origin.
  void Put(std::vector<uint8_t> buffer);

  size_t kept_bytes() const { return kept_; }
  size_t reused() const { return reused_; }  // buffers

 private:
  std::multimap<size_t, std::vector<uint8_t>> buffers_;  // by size
  size_t given_ = 0, most_given_ = 0, kept_ = 0, reused_ = 0;
};

}  // namespace axccl::program
