// The unit of a block that copies in bulk (cp.async.bulk): the copies under way, and checks of what they require.
//
// Copies are carried out late, in pieces and in any order (by the seed of the launch; in order without one), until
// something waits for them, so code that does not wait finds old bytes. A store in bulk reads shared memory and writes
// its target in two steps, because threads may wait for the first step only.
//
// The unit reaches shared memory by another way (proxy) than threads do. It must not read what they have written there
// since the last fence between the two ways, and it does not know the mbarriers that they have initialised since.
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
  // The warp that began it.
  Warp* warp = nullptr;
  const Instr* instr = nullptr;
  uint32_t lane = 0;
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  bool from_global = false, to_global = false;
  uint32_t bytes = 0;
  // Gets the number of written bytes; null: the copy belongs to a group of its thread.
  std::byte* mbarrier = nullptr;
  uint32_t group = 0;  // its number among the thread's groups
  // Its progress: what was read is in `data`.
  uint32_t read = 0, written = 0;
  std::vector<std::byte> data;

  bool Done() const { return written == bytes; }
};

class BulkUnit {
 public:
  // Begins a new block. `watches_writes`: observes writes of threads to shared memory.
  void Start(uint32_t shared_bytes, uint32_t threads, bool watches_writes);
  // Ends the block: a copy that was not waited for and needs its shared memory is an error.
  void End();

  void Begin(BulkCopy copy);
  bool idle() const { return copies_.empty(); }
  // Advances some copy. Without a seed: all, in order.
  void Advance();
  void Finish();
  uint32_t OpenGroup(uint32_t thread) const { return open_groups_[thread]; }
  void CommitGroup(uint32_t thread) { ++open_groups_[thread]; }
  // Completes all of the thread's groups except the last `but`. `read`: only the reading of their sources.
  void EndGroups(uint32_t thread, uint32_t but, bool read);

  // ---- shared memory; arguments are offsets into it ----
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
  static constexpr uint32_t kGranule = 16;  // for unfenced writes; sizes of copies are multiples of it

  const Known* Find(uint32_t offset) const;
  void Step(BulkCopy* copy, uint32_t most);
  void EndAll(const std::function<bool(const BulkCopy&)>& is_left);
  void Forget();

  std::vector<BulkCopy> copies_;
  uint64_t in_flight_ = 0;             // bytes of the loads under way
  std::vector<uint32_t> open_groups_;  // by thread
  std::vector<Known> mbarriers_;
  std::vector<bool> unfenced_;  // by granule
  bool watches_writes_ = false;
};

}  // namespace softgpu::engine
