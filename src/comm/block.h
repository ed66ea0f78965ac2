// A rank's block of shared memory, and when it may be freed.
//
// Peers may still read a block for a while after its owner has destroyed the communicator, so it goes back to the heap
// only when every rank has released it or is dead, and nothing of it is being sent any more. Until then it is in limbo.
// Every creation and release checks the limbo, and so does the service thread while a block in it is being sent or
// keeps a companion alive, because GPU memory is scarce. Thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/exec/layout.h"
#include "transports/transport.h"

namespace axccl::comm {

// A rank that may use another's block.
struct Holder {
  std::shared_ptr<transport::Reach> reach;  // null: not connected, but it may have mapped the block's owner
  uint32_t pid = 0;                         // used if `reach` is null; 0: it holds nothing
  bool Gone() const;
};

class Block {
 public:
  // Makes a zeroed block with its header filled in, in memory of `node` unless that is topo::kNowhere or the system
  // refuses.
  static Result<std::unique_ptr<Block>> Create(int rank, int ranks, const exec::BlockLayout& layout, int node);
  // Frees at once, which is legal only if no other rank knows the address. Otherwise Release must have been called.
  ~Block();

  std::byte* data() const { return data_; }
  exec::BlockHeader* header() const { return reinterpret_cast<exec::BlockHeader*>(data_); }
  const exec::BlockLayout& layout() const { return layout_; }
  uint64_t heap_offset() const { return heap_offset_; }
  // Bytes of the block, and of what was taken, that occupy memory.
  uint64_t resident_bytes() const;

  // Keeps more memory of the heap that peers may still use: freed with the block.
  void Keep(const std::vector<void*>& memory) { kept_.insert(kept_.end(), memory.begin(), memory.end()); }
  // Takes such memory, zeroed, for as long as the block lives, and returns its offset in the heap. Any thread.
  Result<std::byte*> Take(uint64_t bytes, uint64_t* heap_offset);
  // Keeps any other object, likewise.
  void Keep(std::shared_ptr<void> companion) { companion_ = std::move(companion); }
  // Whether the block keeps something alive that should be freed as soon as possible, not at the next occasion.
  bool has_companion() const { return companion_ != nullptr; }

  // Gives the block up: closes it for peers, and frees it once all `holders` (by rank) have released it or died. Until
  // then its address is not reused.
  static void Release(std::unique_ptr<Block>&& block, std::vector<Holder> holders);
  // Frees those released blocks that can be freed.
  static void SweepLimbo();

 private:
  Block() = default;
  std::byte* data_ = nullptr;
  uint64_t heap_offset_ = 0;
  exec::BlockLayout layout_;
  int node_ = -1;  // the node requested for its memory; topo::kNowhere: none
  std::vector<void*> kept_;
  mutable std::mutex mutex_;
  std::vector<std::pair<std::byte*, uint64_t>> taken_;  // under mutex_: memory and its length
  std::shared_ptr<void> companion_;
};

// Publishes to the peers that the owner of the block closes it, and waits for what they still have to get, because it
// cannot be sent once the process has ended. Nothing arrives from them any more.
void PartFromPeers(exec::BlockHeader* header, std::span<const std::shared_ptr<transport::Reach>> reaches,
                   std::chrono::milliseconds patience);

// Bytes of [memory, memory + bytes), whole pages, that occupy memory.
uint64_t ResidentBytes(const std::byte* memory, uint64_t bytes);

}  // namespace axccl::comm
