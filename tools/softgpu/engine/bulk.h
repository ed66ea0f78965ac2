// The unit of a block that copies in bulk (cp.async.bulk): copies that are under way, and what must be right for them.
//
// Copies are carried out late, in pieces and in any order (by the seed of the launch; in order without one), until
// something waits for them: what does not wait finds old bytes. What a store in bulk takes from shared memory and what
// it writes are two steps, as threads may wait for the first alone.
//
// The unit reaches shared memory by another way (proxy) than threads do. What they have written there since the last
// fence between the two ways it must not read, and the mbarriers they have initialised since it does not know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace softgpu::engine {

struct Block;
struct Instr;
class Warp;

struct BulkCopy {
  // Who began it.
  Warp* warp = nullptr;
  const Instr* instr = nullptr;
  uint32_t lane = 0;
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  bool from_global = false, to_global = false;
  uint32_t bytes = 0;
  std::byte* mbarrier = nullptr;  // is told of what is written; null: the copy belongs to a group of its thread
  uint32_t group = 0;             // its number among those of the thread
  // How far it is: what was read is in `data`.
  uint32_t read = 0, written = 0;
  std::vector<std::byte> data;

  bool Done() const { return written == bytes; }
};

class BulkUnit {
 public:
  // A new block begins. `watches_writes`: of threads, to shared memory.
  void Start(uint32_t shared_bytes, uint32_t threads, bool watches_writes);
  // The block has ended: a copy that was not waited for and needs its shared memory is an error.
  void End();

  void Begin(BulkCopy copy);
  bool idle() const { return copies_.empty(); }
  // Moves something on. Without a seed: all, in order.
  void Advance();
  void Finish();
  uint32_t OpenGroup(uint32_t thread) const { return open_groups_[thread]; }
  void CommitGroup(uint32_t thread) { ++open_groups_[thread]; }
  // Ends all of the thread's groups but the last `but`. `read`: as far as their sources go.
  void EndGroups(uint32_t thread, uint32_t but, bool read);

  // ---- of shared memory; offsets of it ----
  void Initialise(uint32_t mbarrier);
  void Invalidate(uint32_t mbarrier);
  bool IsInitialised(uint32_t mbarrier) const { return Find(mbarrier) != nullptr; }
  bool IsFenced(uint32_t mbarrier) const { return Find(mbarrier) != nullptr && Find(mbarrier)->fenced; }
  bool watches_writes() const { return watches_writes_; }
  void NoteWrite(uint64_t offset, uint32_t bytes);
  bool HasUnfencedWrite(uint64_t offset, uint32_t bytes) const;
  void FenceMbarriers();
  void FenceShared();

 private:
  struct Known {
    uint32_t offset;
    bool fenced;
  };
  static constexpr uint32_t kGranule = 16;  // of unfenced writes: what copies are multiples of

  const Known* Find(uint32_t offset) const;
  void Step(BulkCopy* copy, uint32_t most);
  void EndAll(const std::function<bool(const BulkCopy&)>& is_left);
  void Forget();

  std::vector<BulkCopy> copies_;
  std::vector<uint32_t> open_groups_;  // of threads
  std::vector<Known> mbarriers_;
  std::vector<bool> unfenced_;  // granules
  bool watches_writes_ = false;
};

}  // namespace softgpu::engine
