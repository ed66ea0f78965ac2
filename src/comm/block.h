// A rank's block of shared memory and when it may be given back.
//
// Peers may still read a block for a while after its owner has destroyed the communicator, so it goes back to the heap
// only when every rank has let go of it or is dead, and nothing of it is being sent any more. Until then it is in
// limbo, which every creation and release looks through, and the service thread as long as there is a block in it that
// is being sent, or that a companion hangs on: memory of a GPU is scarce. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/exec/layout.h"
#include "transports/transport.h"

namespace axccl::comm {

// A rank that may use another's block.
struct Holder {
  std::shared_ptr<transport::Reach> reach;  // null: not reached, but it may have mapped the block's owner
  uint32_t pid = 0;                         // then; 0: it holds nothing
  bool Gone() const;
};

class Block {
 public:
  // A zeroed block with its header filled in; in memory of `node` if it is not topo::kNowhere and the system lets us.
  static Result<std::unique_ptr<Block>> Create(int rank, int ranks, const exec::BlockLayout& layout, int node);
  // Nobody was told where it is: frees at once. Otherwise Release must have been called.
  ~Block();

  std::byte* data() const { return data_; }
  exec::BlockHeader* header() const { return reinterpret_cast<exec::BlockHeader*>(data_); }
  const exec::BlockLayout& layout() const { return layout_; }
  uint64_t heap_offset() const { return heap_offset_; }
  // Bytes of the block, and of what was taken, that take up memory.
  uint64_t resident_bytes() const;

  // More memory of the heap that peers may still use: freed with the block.
  void Keep(const std::vector<void*>& memory) { kept_.insert(kept_.end(), memory.begin(), memory.end()); }
  // Takes such memory, zeroed, for as long as the block lives; where it is in the heap. Any thread.
  Result<std::byte*> Take(uint64_t bytes, uint64_t* heap_offset);
  // Anything else, likewise.
  void Keep(std::shared_ptr<void> companion) { companion_ = std::move(companion); }
  // Whether anything hangs on it that should go as soon as it can, and not at the next occasion.
  bool has_companion() const { return companion_ != nullptr; }

  // Gives the block up: closed for peers, and freed once all `holders` (by rank) have let go or died. Until then
  // nothing else gets its address.
  static void Release(std::unique_ptr<Block>&& block, std::vector<Holder> holders);
  // Frees what can be freed of the released blocks.
  static void SweepLimbo();

 private:
  Block() = default;
  std::byte* data_ = nullptr;
  uint64_t heap_offset_ = 0;
  exec::BlockLayout layout_;
  int node_ = -1;  // that its memory was asked of, topo::kNowhere: of none
  std::vector<void*> kept_;
  mutable std::mutex mutex_;
  std::vector<std::pair<std::byte*, uint64_t>> taken_;  // under mutex_: memory and its length
  std::shared_ptr<void> companion_;
};

// Bytes of [memory, memory + bytes), whole pages, that take up memory.
uint64_t ResidentBytes(const std::byte* memory, uint64_t bytes);

}  // namespace axccl::comm
