// The calls that a channel has prepared: for each, the plan that runs it on this rank, and the division of its data.
//
// All ranks of a channel prepare the same calls in the same order and choose alike, so they run the same plans and
// evict at the same time. Used by the thread that drives the channel's operations; any thread may call size().
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "src/base/hash.h"
#include "src/base/status.h"
#include "src/exec/call/call.h"
#include "src/exec/channel/members.h"
#include "src/exec/layout.h"
#include "src/exec/prepared/outbound.h"
#include "src/exec/prepared/program.h"
#include "src/plan/region.h"
#include "src/plan/turns.h"
#include "src/tune/tune.h"

namespace axccl::exec {

// The place of an operand of a move: *base + offset[turn % kRotation], and part_bytes further for each further part of
// it. For slots in scratch, add Prepared::sets.OffsetOf(turn).
struct OperandPlace {
  std::byte* const* base = nullptr;  // of a member's block or scratch, or the result of FindBuffer
  uint64_t offset[plan::kRotation] = {};
  uint64_t part_bytes = 0;  // scratch only: the partition gives the parts of a buffer
};

// A plain call (Prepared::plain), with everything resolved that does not depend on the call's buffers and the turn.
// Plain calls touch this rank's buffers, and slots.
struct PlainOperand {
  // The address of the buffer; for slots, the offset of the turn's set, or that set in scratch that is apart.
  enum Base : uint32_t { kSlot, kApart, kInput, kOutput, kBases };
  Base base = kSlot;
  uintptr_t offset[plan::kRotation] = {};  // from the base
};
struct PlainStep {
  plan::OpKind kind = plan::OpKind::kNop;
  uint16_t value = 0;  // signal: the value it sets; wait: the value it needs
  union {
    uint16_t num_dst = 0;
    uint16_t num_readers;
  };
  uint16_t num_src = 0;
  // Moves: num_dst + num_src of PlainProgram::operands. Signals: num_readers of PlainProgram::readers, which it may
  // wake.
  union {
    const PlainOperand* operands = nullptr;
    const Member* const* readers;
  };
  Line* line[plan::kRotation] = {};  // signal: this rank's; wait: the member's
};
static_assert(sizeof(PlainStep) == 32 + 8 * (plan::kRotation - 2));
// May be moved; the steps of a copy point into the lists of the original.
struct PlainProgram {
  std::vector<PlainStep> steps;  // lane 0 of the program
  std::vector<PlainOperand> operands;
  std::vector<const Member*> readers;
  uint64_t block_bytes = 0;
};

// A call that is ready to run: its program, and the division of its data.
struct Prepared {
  std::shared_ptr<const Program> program;
  plan::Partition partition;
  plan::Slicing slicing;  // of a plan with slices, instead
  uint64_t turns = 1;
  uint64_t slot_bytes = 0;  // stride between scratch slots
  plan::SlotSets sets;
  bool inline_slots = false;  // slots live in endpoint lines
  bool whole = false;         // a tile of one part on one lane: every move is of the whole block
  // Whole, in one turn and through scratch alone, with no more than a slot an operand, and small: see PlainCall.
  bool plain = false;
  bool together = false;  // consecutive copies run as one: blocks lie side by side
  // Inputs and outputs are too large for the cache: outputs are written around it. The second, for calls in place.
  bool around_cache = false, around_cache_in_place = false;
  uint64_t plan_word = 0;                    // of plan and tiles, for the op record: see PlanWord
  uint32_t signature = 0;                    // of call, plan and tiles, for the lines
  std::shared_ptr<const Outbound> outbound;  // if some members are remote
  std::vector<OperandPlace> places;          // for the program's operands
  PlainProgram plain_program;                // of a plain call, where operands have places
  plan::Run run;                             // what it leaves behind on its channel

 private:
  friend class PlanCache;
  mutable const Prepared* redirected_ = nullptr;  // see PlanCache::Redirect
  mutable uint32_t redirected_for_ = 0;           // number of calls
};

struct PlanOptions {
  uint64_t inline_bytes = kLineData;  // slots up to this size live in lines
  bool by_runs = true;                // the choice of plans also depends on the runs of views
  // Sets of slots are used in rotation as long as they fit into this much scratch: the second-level cache of a core.
  uint64_t rotated_bytes = 1u << 20;
  uint64_t scratch_bytes = 0;  // instead of those of the channel's layout; 0: these
  // Scratch that one operation reaches on all ranks, for plans with slots of all ranks; 0: there are no such plans. And
  // whether that operation folds as the call does.
  uint64_t multicast_bytes = 0;
  bool (*multicast_folds)(const Call& call) = nullptr;
  // Blocks of up to so many bytes may bring their own flags, by the call's kind.
  std::array<uint64_t, plan::kNumKinds> flagged_bytes = {};

  // Sets what of the query of a call depends on these.
  void AddTo(tune::Query* query, const Call& call) const;
};

// Returns where the executor keeps the address of a member's buffer (the input or output that the operand names), which
// it knows when an operation runs. The result must stay valid as long as the cache.
using FindBuffer = std::function<std::byte* const*(const plan::Operand& operand)>;

class PlanCache {
 public:
  // Without `find_buffer` prepared calls have no places: for executors that do not use them. `members` must outlive the
  // cache.
  PlanCache(const Members* members, const PlanOptions& options, FindBuffer find_buffer);
  PlanCache(const PlanCache&) = delete;
  PlanCache& operator=(const PlanCache&) = delete;

  // The prepared form of `call` when the ranks' buffers allow `access`. Call it for an operation that starts: it may
  // evict what was prepared for earlier ones.
  Result<const Prepared*> Prepare(const Call& call, tune::Access access) { return Find(call, access, true); }
  // The same, while what was prepared for the operation at its start is still needed.
  Result<const Prepared*> PrepareBeside(const Call& call, tune::Access access) { return Find(call, access, false); }
  Result<const Prepared*> PrepareBarrier();
  // The prepared form of a call that a plan with slices runs. Not kept.
  Result<Prepared> PrepareSliced(const Call& call, std::shared_ptr<const Program> program,
                                 const plan::Slicing& slicing) const;
  // What was prepared for a call that is not on views, with these packed words; null if nothing was, or is no more.
  const Prepared* FindPrepared(uint64_t packed, uint64_t count, tune::Access access) {
    const uint64_t how = How(access, false, false);
    if (last_key_.packed == packed && last_key_.count == count && last_key_.how == how) return last_prepared_;
    return Lookup({packed, count, how});
  }

  // Makes `to`, also in the cache, run instead of `from` for the next `calls` calls. It is for a small direct call
  // whose ranks turned out to have plain memory, so that they need not announce it again. All ranks have seen the same
  // announcements, so they agree.
  void Redirect(const Prepared& from, const Prepared& to, uint32_t calls) {
    from.redirected_ = &to;
    from.redirected_for_ = calls;
  }
  // Returns what will run for the next call whose prepared form is `from`.
  static const Prepared* NextOf(const Prepared* from) { return from->redirected_for_ == 0 ? from : from->redirected_; }
  // The same for a call that runs now: counts it.
  const Prepared* Redirected(const Prepared* from) {
    if (from->redirected_for_ == 0) return from;
    --from->redirected_for_;
    return from->redirected_;
  }

  // The place of a prepared call's slot in the block of the member that `operand` names.
  OperandPlace PlaceOfSlot(const Prepared& prepared, uint32_t lane, const plan::Operand& operand) const;

  // The number of calls in the cache, and about how many bytes they take.
  size_t size() const { return size_.load(std::memory_order_relaxed); }
  size_t bytes() const { return bytes_; }
  // Limits on prepared calls, and on the bytes of all of a channel's ranks that are in one process: plans for many
  // ranks have many operations, broadcasts from every root need as many plans, and a process may have all ranks. A rank
  // may have 8 MiB of that. Applications use few shapes; building one again takes a fraction of a millisecond for 8
  // ranks, and some 50 ms for 256.
  static constexpr size_t kMaxPrepared = 4096;
  static constexpr size_t kMaxBytesOfProcess = size_t{64} << 20, kMaxBytes = size_t{8} << 20;

 private:
  struct Key {
    uint64_t packed, count;
    uint64_t how;  // see How
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const { return Mix(Mix(Mix(kHashSeed, key.packed), key.count), key.how); }
  };
  // As in tune::Query.
  static uint64_t How(tune::Access access, bool short_runs, bool split_rows) {
    return static_cast<uint64_t>(access) * 4 + short_runs * 2 + split_rows;
  }

  uint64_t ScratchBytes() const {
    return options_.scratch_bytes != 0 ? options_.scratch_bytes : members_.own().layout.scratch_bytes;
  }
  tune::Query QueryOf(const Call& call, tune::Access access, bool short_runs, bool split_rows) const;
  Result<const Prepared*> Find(const Call& call, tune::Access access, bool may_forget);
  bool Full() const;
  const Prepared* Lookup(const Key& key);
  Result<Prepared> Build(const Call& call, tune::Access access, bool short_runs, bool split_rows) const;
  Status Fit(const Call& call, uint64_t tile_bytes, int lanes, Prepared* prepared) const;
  void Locate(const Call& call, Prepared* prepared) const;
  void ResolvePlain(const Call& call, Prepared* prepared) const;
  Status PlanMessages(Prepared* prepared) const;

  const Members& members_;
  const PlanOptions options_;
  const FindBuffer find_buffer_;
  std::unordered_map<Key, Prepared, KeyHash> prepared_;
  std::atomic<size_t> size_{0};  // of the cache
  size_t bytes_ = 0;             // of all entries of the cache: an average over the ranks
  const size_t max_bytes_;
  static constexpr Key kNoKey{~0ull, 0, 0};
  Key last_key_ = kNoKey;
  const Prepared* last_prepared_ = nullptr;
  Prepared barrier_;
};

}  // namespace axccl::exec
