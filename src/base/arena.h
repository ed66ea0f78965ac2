// Memory that is taken from a GPU's driver in large chunks and never given back.
//
// CUDA's documents allow a driver to wait for all kernels when it allocates or frees memory, and some do. A kernel of
// the library may run until a call comes that needs memory, so what calls need is taken before the first of them
// (Reserve).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "src/base/free_list.h"
#include "src/base/status.h"

namespace axccl {

// Thread-safe.
class Arena {
 public:
  // `more` takes so many bytes from the driver.
  using More = std::function<Result<uintptr_t>(size_t bytes)>;
  Arena(size_t chunk_bytes, More more) : chunk_bytes_(chunk_bytes), more_(std::move(more)) {}

  Result<uintptr_t> Take(size_t bytes);
  void Return(uintptr_t memory);
  // Sees to it that there is as much as all who have reserved some need. Each takes its reservation back at its end.
  Status Reserve(size_t bytes);
  void Unreserve(size_t bytes);

 private:
  struct Taken {
    FreeList* chunk;
    FreeList::Range range;
  };
  static constexpr size_t kUnit = 512;  // bytes; sizes and addresses are multiples

  Status Grow(size_t bytes);

  const size_t chunk_bytes_;
  const More more_;
  std::mutex mutex_;
  size_t all_ = 0, reserved_ = 0;               // bytes
  std::deque<FreeList> chunks_;                 // by address
  std::unordered_map<uintptr_t, Taken> taken_;  // by address
};

}  // namespace axccl
