// Memory for objects that come and go all the time: a class that derives from Recycled<itself> keeps the memory of up
// to kKept deleted objects for the next ones, so that creating one is cheap and, mostly, cannot fail.
//
// The class must be final. Thread-safe.
#pragma once

#include <cstddef>
#include <mutex>
#include <new>

#include "src/base/spin_lock.h"

namespace axccl {

template <class T, int kKept = 64>
class Recycled {
 public:
  static void* operator new(size_t bytes) {
    static_assert(sizeof(T) >= sizeof(Block) && alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
    {
      const std::lock_guard lock(kept_.lock);
      if (Block* const block = kept_.first; block != nullptr) {
        kept_.first = block->next;
        --kept_.count;
        return block;
      }
    }
    return ::operator new(bytes);
  }
  // Keeps memory for one more object, unless there is enough.
  static void Reserve() { Keep(::operator new(sizeof(T))); }
  static void operator delete(void* memory) noexcept { Keep(memory); }

 protected:
  ~Recycled() = default;

 private:
  struct Block {
    Block* next;
  };
  struct Kept {
    SpinLock lock;
    Block* first = nullptr;
    int count = 0;
  };
  static void Keep(void* memory) noexcept {
    {
      const std::lock_guard lock(kept_.lock);
      if (kept_.count < kKept) {
        kept_.first = new (memory) Block{kept_.first};
        ++kept_.count;
        return;
      }
    }
    ::operator delete(memory);
  }

  static inline constinit Kept kept_{};
};

}  // namespace axccl
