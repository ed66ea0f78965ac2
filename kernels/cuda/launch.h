// What the host hands to the interpreter kernel: programs, channels and tasks, laid out for the device.
//
// Plain data, the same bytes on both sides. Programs and channels live in device memory, programs never change once
// they are there; tasks travel as kernel parameters. A *strand* is a lane of one task. A launch has `num_tasks * lanes`
// of them and any number of blocks: block b runs the strands b, b + blocks, b + 2 * blocks, ... side by side, going on
// to the next one whenever one has to wait. So a launch makes progress whatever part of its blocks the device runs at a
// time, as long as the ranks it waits for are in the same launch or run elsewhere.
//
// The counters of a channel are in device memory and advanced by the kernels, so a launch may be captured and replayed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/types.h"
#include "src/plan/region.h"

namespace axccl::kernels::cuda {

inline constexpr int kRotation = 2;  // copies of every line and slot, as plan::kRotation
inline constexpr uint32_t kMaxLanes = 64;
inline constexpr size_t kPackedBytes = 512;     // of data in a packed slot of words
inline constexpr size_t kRowedBytes = 8 << 10;  // of rows
inline constexpr uint32_t kMaxThreads = 512;    // of a block; any number from 1 will do
inline constexpr uint32_t kMaxStrands = 256;  // of a block: a launch has num_tasks * lanes / kMaxStrands blocks or more
inline constexpr uint32_t kMaxOperands = 256;  // of a step: programs with more cannot run

// One copy of an endpoint, in device memory of the rank that signals it. `value` is turn * 2^16 + v and is stored last.
struct alignas(64) Line {
  uint64_t value;
  uint32_t signature;  // of the call and plan that signalled
  uint32_t sequence;   // low 32 bits of the operation's number + 1: a line that was never stored is of none
  uint8_t reserved[48];
};
static_assert(sizeof(Line) == 64);

// A packed slot: what a rank publishes where it is small. It is made of pieces that say of themselves whether they are
// there, so neither side orders anything. Each of the two kinds has memory of its own, which starts as zeros: no flags.
enum class Packing : uint8_t { kNone, kWords, kRows };

// Words of 8 bytes, 4 of data and 4 of a flag: the low half of the turn + 1.
inline constexpr size_t kPackedSlotBytes = 2 * kPackedBytes;
AXCCL_HD constexpr uint32_t PackedWords(uint64_t bytes) { return static_cast<uint32_t>((bytes + 3) / 4); }
AXCCL_HD constexpr uint32_t PackedFlag(uint64_t turn) { return static_cast<uint32_t>(turn + 1); }

// Rows of 128 bytes, 7 places of 16 bytes for data and one for a flag, the turn + 1. Eight neighbouring threads store a
// row in one instruction, and a warp four of them. Only where the devices and what connects them let such a row arrive
// as a whole.
inline constexpr uint32_t kRowBytes = 128;
inline constexpr uint32_t kRowPlaces = 8, kRowPieces = 7;
AXCCL_HD constexpr uint32_t PackedRows(uint64_t bytes) {
  return static_cast<uint32_t>((bytes + 16 * kRowPieces - 1) / (16 * kRowPieces));
}
AXCCL_HD constexpr uint32_t StoredRows(uint64_t bytes) { return (PackedRows(bytes) + 3) / 4 * 4; }
AXCCL_HD constexpr uint64_t RowFlag(uint64_t turn) { return turn + 1; }
inline constexpr size_t kRowedSlotBytes = StoredRows(kRowedBytes) * kRowBytes;
// The first so many endpoints of a channel have slots of rows, which are large. Schedules pack slots of no other one.
inline constexpr uint32_t kRowedEndpoints = 1;

// What a rank tells its peers before a direct program, or before a task of two programs (Task::staged): where its
// buffers are. One for each parity of the sequence number. An address is `offset` bytes into what `map` stands for in
// the reader's Member::maps; map 0 is the address space itself.
inline constexpr uint32_t kUnmapped = ~0u;  // a map: not all members reach the buffer
struct alignas(64) Announcement {
  uint64_t input_offset, output_offset;
  uint32_t input_map, output_map;
  uint64_t factor;  // Factor of the rank's input
  uint64_t reserved[4];
};
static_assert(sizeof(Announcement) == 64);

inline constexpr uint32_t kMaxViewDims = 8;
inline constexpr uint32_t kMaxViewStrides = 1536;  // of all operands of a step, in dimensions of more than one index

// Where one rank has an operand of a call on views. What it tells its peers before a direct program, too: one for each
// operand, behind the announcements, again with room for each parity.
struct ViewPlace {
  uint64_t input_offset = 0, output_offset = 0;  // of the first element, as in Announcement
  uint32_t input_map = 0, output_map = 0;
  int64_t input_step = 0, output_step = 0;                                      // bytes from one block to the next
  int64_t input_strides[kMaxViewDims] = {}, output_strides[kMaxViewDims] = {};  // elements
};
static_assert(sizeof(ViewPlace) == 168);

// ---- programs ----

enum class StepKind : uint8_t { kCopy, kReduce, kSignal, kWait };

inline constexpr int16_t kAllPeers = -1;

// As exec::Step; `parts` counts the parts of each operand.
struct Step {
  StepKind kind = StepKind::kSignal;
  uint8_t finish = 0;     // writes final results
  int16_t peer = 0;       // signal: destination or kAllPeers; wait: source
  uint8_t from_lane = 0;  // wait
  uint8_t packed = 0;     // signals and waits, where slots are packed: of the packed slot of the endpoint
  uint16_t endpoint = 0;
  uint16_t value = 0;  // signal: the value it sets; wait: the value it needs
  uint16_t num_dst = 0, num_src = 0;
  uint16_t parts = 0;
  uint32_t operands = 0;    // moves: first of num_dst + num_src, destinations first
  uint32_t data_parts = 0;  // moves: first of `parts`
};
static_assert(sizeof(Step) == 24);

enum class Space : uint8_t { kInput, kOutput, kSlot };

// Where an operand is, whatever the size of the call: block `block` of the rank's input or output, or slot `slot` of
// the rank's scratch and of the lane of the step (see Cut). The further parts of a step are in the next slots.
struct Operand {
  uint16_t rank = 0;  // position in the group
  uint16_t block = 0;
  uint16_t slot = 0;
  int16_t endpoint = -1;  // slots: the endpoint whose packed slot it is where slots are packed; -1: never
  Space space = Space::kInput;
  uint8_t reserved[3] = {};
};
static_assert(sizeof(Operand) == 12);

// One rank's part of a plan. Depends on no size, so it is made once for a plan and rank. Steps, operands and data parts
// follow it in memory, at `*_at` bytes from its start.
struct Program {
  uint64_t plan_id[2] = {};  // content hash
  uint32_t bytes = 0;        // of all of it
  uint32_t lanes = 1;
  uint32_t slots = 0;     // of a lane
  uint32_t prologue = 0;  // direct programs: steps of lane 0 that announce
  uint8_t complete = 0;   // plan::Plan::complete
  uint8_t is_barrier = 0;
  Packing packing = Packing::kNone;  // how its slots may be packed: rows, then words, too
  uint8_t reserved = 0;
  uint32_t steps_at = 0, operands_at = 0, data_parts_at = 0;
  uint32_t lane_begin[kMaxLanes + 1] = {};  // steps of lane l are [lane_begin[l], lane_begin[l + 1])

  AXCCL_HD const Step* steps() const { return At<Step>(steps_at); }
  AXCCL_HD const Operand* operands() const { return At<Operand>(operands_at); }
  AXCCL_HD const uint16_t* data_parts() const { return At<uint16_t>(data_parts_at); }

 private:
  template <class T>
  AXCCL_HD const T* At(uint32_t offset) const {
    return reinterpret_cast<const T*>(reinterpret_cast<const uint8_t*>(this) + offset);
  }
};

// How the data of a call is cut, as in exec::Prepared. Slot s of a lane in turn t starts at
//   t % kRotation * Channel::half_bytes + SetOffset(t) + (lane * Program::slots + s) * slot_bytes
// bytes of the rank's scratch; where slots are packed it is the packed slot of its endpoint and that turn.
struct Cut {
  plan::Partition partition;
  uint64_t turns = 1;
  uint64_t slot_bytes = 0;
  uint64_t set_bytes = 0;
  uint32_t sets = 1, turns_per_set = 1;
  Packing packing = Packing::kNone;  // how slots are packed, where the program's may be
  uint8_t whole = 0;                 // every move is of a whole block: no partition to resolve
  uint8_t reserved[6] = {};

  AXCCL_HD uint64_t SetOffset(uint64_t turn) const {
    if (sets == 1) return 0;
    const uint64_t in_use = 1 + turn / turns_per_set;
    return turn / kRotation % (in_use < sets ? in_use : sets) * set_bytes;
  }
};
static_assert(sizeof(Cut) == 72);

// ---- channels ----

// In host memory that the device sees; one for each rank's communicator. The host writes `abort`; kernels write the
// rest, `report` last, once.
struct alignas(64) Control {
  uint32_t abort = 0;     // nonzero: break off
  uint32_t report = 0;    // a Report
  uint32_t position = 0;  // the member it is about
  uint32_t reserved = 0;
  uint64_t sequence = 0;  // of the operation
  uint64_t turn = 0;
  uint64_t mapped = 0;  // operations so far that took the first of two programs (Task::staged)
};

// What an operation waits for, in host memory that the device sees; one for each channel of a rank. A strand that waits
// in vain writes it now and then, `look` last: so the host sees which operation has not ended, and that it waits.
struct alignas(64) Wait {
  uint64_t call = 0;        // Task::call
  uint64_t count = 0;       // elements of a block
  uint64_t look = 0;        // see Look
  uint64_t packed[2] = {};  // operations of the channel so far whose slots were packed: in words, in rows

  // The operation's number (32 bits of it), the member waited for, and a number that is another one each time.
  static constexpr uint32_t kUnmet = 0xffff;  // position: of those that have not met (Meeting)
  AXCCL_HD static constexpr uint64_t Look(uint64_t sequence, uint32_t position, uint32_t time) {
    return sequence << 32 | uint64_t{position & 0xffff} << 16 | (time & 0xffff);
  }
  static constexpr uint32_t SequenceOf(uint64_t look) { return static_cast<uint32_t>(look >> 32); }
  static constexpr uint32_t PositionOf(uint64_t look) { return static_cast<uint32_t>(look >> 16 & 0xffff); }
};

enum class Report : uint32_t {
  kNone = 0,
  kMismatch = 1,  // the member's line has the signature or sequence number of another call
  kAborted = 2,   // a strand broke off because of `abort`
};

// Counters of one rank on one channel. Advanced by the last strand of an operation, read at the start of the next.
struct State {
  uint64_t sequence = 0;  // of the next operation
  uint64_t turn = 0;      // the next turn
  uint64_t last_plan[2] = {};
  uint64_t last_slot_bytes = 0;
  uint32_t last_complete = 1, last_was_barrier = 1;
  uint32_t strands_done = 0;   // of the operation that runs
  uint32_t broken = 0;         // an operation broke off: nothing runs on this channel any more
  uint64_t barriers_done = 0;  // 1 + the turn of the last barrier before an operation
  uint64_t mapped = 0;         // as Control::mapped
  uint32_t take_staged = 0;    // of the operation that runs: which of two programs
  uint64_t unmet = 0;          // 1: Channel::members are not there yet
  uint64_t packed[2] = {};     // as Wait::packed
};

// Parts of the member's device memory, as this rank's device sees them.
struct Member {
  uint8_t* lines = nullptr;          // Line[(lane * endpoints + endpoint) * kRotation + copy]
  uint8_t* packed = nullptr;         // [(endpoint * kRotation + copy) * kPackedSlotBytes], of lane 0
  uint8_t* rows = nullptr;           // [(endpoint * kRotation + copy) * kRowedSlotBytes], likewise, of kRowedEndpoints
  uint8_t* announcements = nullptr;  // Announcement[2], then Channel::view_bytes of ViewPlace for each parity
  uint8_t* scratch = nullptr;
  const uint64_t* maps = nullptr;  // addresses of what it has exported, by number; [0] = 0
};

// Where the members of a channel are that each of them has created for itself: the host finds that out while the first
// operations may be waiting for it already, and writes it here, in memory of the host that the device sees. The members
// follow, each as Member.
struct alignas(64) Meeting {
  uint64_t met = 0;  // last, 1: the members are there

  AXCCL_HD Member* members() { return reinterpret_cast<Member*>(this + 1); }
};

// Where a member's buffers are in this operation; filled in by direct programs as announcements come in.
struct Binding {
  uint8_t* input = nullptr;
  uint8_t* output = nullptr;
  Factor factor{};
};

// One rank's side of a channel. Members and bindings follow it in memory.
struct Channel {
  State state;
  Control* control = nullptr;
  Wait* wait = nullptr;
  Meeting* meeting = nullptr;  // where State::unmet says so
  const Program* barrier = nullptr;
  uint64_t half_bytes = 0;            // of scratch, that turns of one parity use
  uint32_t endpoints = 0, lanes = 0;  // of the lines
  uint32_t size = 0, self = 0;
  uint32_t members_at = 0, bindings_at = 0;
  uint64_t view_bytes = 0;
  uint64_t zeros[kMaxViewDims] = {};  // what outputs are filled with, and its strides

  AXCCL_HD Member* members() { return At<Member>(members_at); }
  AXCCL_HD Binding* bindings() { return At<Binding>(bindings_at); }
  AXCCL_HD Line* LineOf(uint32_t position, uint32_t lane, uint32_t endpoint, uint64_t turn) {
    const uint64_t index = (uint64_t{lane} * endpoints + endpoint) * kRotation + turn % kRotation;
    return reinterpret_cast<Line*>(members()[position].lines) + index;
  }
  AXCCL_HD Announcement* AnnouncementOf(uint32_t position, uint64_t sequence) {
    return reinterpret_cast<Announcement*>(members()[position].announcements) + sequence % 2;
  }
  AXCCL_HD ViewPlace* ViewsOf(uint32_t position, uint64_t sequence) {
    const uint64_t at = 2 * sizeof(Announcement) + sequence % 2 * view_bytes;
    return reinterpret_cast<ViewPlace*>(members()[position].announcements + at);
  }

 private:
  template <class T>
  AXCCL_HD T* At(uint32_t offset) {
    return reinterpret_cast<T*>(reinterpret_cast<uint8_t*>(this) + offset);
  }
};

// ---- tasks ----

enum class Scaling : uint8_t { kNone, kAverage, kPreMultiply };  // as exec::Scaling

// One operand of a call on views. A block of the call holds a block of each, one after the other, as on the host.
struct ViewOperand {
  uint64_t at = 0;        // of its block in that of the call, bytes
  uint64_t count = 0;     // elements of its block
  uint32_t element = 1;   // bytes of one
  uint32_t num_dims = 0;  // of its block
  int64_t sizes[kMaxViewDims] = {};
  uint32_t is_zero = 0;  // the rank gets no block: its output, of the shape of one, is filled with zeros at the end
  uint32_t reserved = 0;
  ViewPlace own;
};

// In memory that the device sees. The operands follow it.
struct ViewTable {
  uint32_t num_operands = 0;
  uint32_t scales_result = 0;
  Factor post{};  // of results, where it says so

  AXCCL_HD const ViewOperand* operands() const { return reinterpret_cast<const ViewOperand*>(this + 1); }
};
static_assert(sizeof(ViewTable) % alignof(ViewOperand) == 0);

// One rank's call.
struct Task {
  Channel* channel = nullptr;
  const Program* program = nullptr;
  const void* input = nullptr;
  void* output = nullptr;
  uint64_t input_offset = 0, output_offset = 0;  // announced, see Announcement
  uint32_t input_map = 0, output_map = 0;
  Cut cut;
  // Null, or what runs instead of `program` and `cut` unless all members say of their buffers that all reach them.
  // Ranks announce them before a barrier, which always comes before such an operation, and take the same program after
  // it. The announcements of two operations before are not read any more when they are written over: a rank that begins
  // an operation knows that all have ended the one before the last, as between two that could run side by side further
  // apart there is a barrier (see NeedsBarrier; after a task like this it is not left out for being the same plan).
  const Program* staged = nullptr;
  Cut staged_cut;
  const void* scalar_pointer = nullptr;  // kPreMultiply: an element of `type` in device memory, or null: `scalar`
  uint64_t scalar = 0;                   // bytes of one
  const ViewTable* views = nullptr;      // null: input and output are blocks one after the other
  uint64_t call = 0;                     // what the host calls it
  uint32_t signature = 0;                // of call and plan
  DataType type = DataType::kInt8;
  Combine combine = Combine::kSum;
  Scaling scaling = Scaling::kNone;
  uint8_t group_order = 0;  // contributions are rounded as if stored
};
static_assert(sizeof(Task) == 248);

inline constexpr uint32_t kMaxTasks = 16;

// The kernel's parameters, within the 4 KiB that every driver takes.
struct Launch {
  uint32_t num_tasks = 0;
  uint32_t lanes = 1;          // strands of a task; those beyond the lanes of its program have nothing to do
  const Task* more = nullptr;  // where there are more than kMaxTasks: all of them, in memory that the device sees
  Task tasks[kMaxTasks];

  AXCCL_HD const Task& TaskOf(uint32_t index) const { return more != nullptr ? more[index] : tasks[index]; }
};
static_assert(sizeof(Launch) <= 4096);

}  // namespace axccl::kernels::cuda
