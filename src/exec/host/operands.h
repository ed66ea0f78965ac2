// The operands of a call: how they are announced, how those of other members are bound, and how they are moved.
//
// They have one of three forms, which is chosen once, when an operation is made: flat (one operand whose blocks are
// dense and consecutive), views, and views with uneven blocks. A form has no state: what belongs to an operation is in
// its Binding, what is kept between operations in the channel's Workspace. The thread that drives the operation calls,
// in this order: Start, Announce, Bind for every other member, Settle, Move, End. Only direct programs announce and
// bind; programs that use scratch need Start, Move and End.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/exec/host/binding.h"

namespace axccl::exec {

// The range from the lowest byte of an operand of this rank to its highest.
struct Memory {
  const std::byte* lowest;
  uint64_t bytes;
};

// The progress of a lane in a step.
struct MoveProgress {
  uint32_t part = 0;
  uint64_t offset = 0;  // elements of the part that are done
};

enum class Moved : uint8_t { kAll, kSome, kFailed };

class Operands {
 public:
  static const Operands* FormOf(const Call& call);

  // Takes this rank's operands from the call.
  virtual Status Start(Binding* binding) const = 0;
  // Whether all members know the sizes of all blocks from the call alone. If not, they have to announce them.
  virtual bool sizes_known() const = 0;
  // Whether members may read the operands by system call.
  virtual bool may_read_by_call() const = 0;
  // Writes where this rank's operands are, for other members.
  virtual Status Announce(Binding* binding, OpRecord* record) const = 0;
  // Reads the member's announcement, each word once. Whatever it contains, only memory in the member's heap is
  // accessed.
  virtual Status Bind(Binding* binding, int position) const = 0;
  // All members are bound: computes what depends on all their operands together.
  virtual Status Settle(Binding* binding) const = 0;
  // Continues a step, which is `together` steps that run as one, until `budget` bytes are used up.
  virtual Moved Move(const Binding& binding, const Step& step, uint32_t lane, uint64_t turn, uint32_t together,
                     MoveProgress* progress, int64_t* budget, Status* status) const = 0;
  // The last step is done.
  virtual void End(const Binding& binding) const = 0;

  // The memory that other members may write to.
  virtual size_t NumOutputs(const Binding& binding) const = 0;
  virtual Memory OutputOf(const Binding& binding, size_t index) const = 0;

 protected:
  ~Operands() = default;
};

// The place of a buffer, as its rank announces it.
struct AnnouncedBuffer {
  uint64_t address = 0;  // kHeap: offset in the heap
  MemoryKind kind = MemoryKind::kUnused;
};
AnnouncedBuffer LocateBuffer(const Channel& channel, const void* p, uint64_t bytes);

// Its address for this rank; null if it is not mapped.
struct ReachedBuffer {
  std::byte* where = nullptr;
  bool by_call = false;  // in the member's process, which is another one: can only be read by system call, if at all
};
Result<ReachedBuffer> ReachBuffer(const Member& member, const AnnouncedBuffer& announced, uint64_t bytes);

inline uint64_t Word(const OpRecord& record, int word) { return record.word[word].load(std::memory_order_relaxed); }
inline void SetWord(OpRecord* record, int word, uint64_t value) {
  record->word[word].store(value, std::memory_order_relaxed);
}

}  // namespace axccl::exec
