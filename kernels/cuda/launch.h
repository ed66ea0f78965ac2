// The data that the host passes to the interpreter kernel: programs, channels and tasks, laid out for the device.
//
// Plain data, with the same bytes on both sides. Programs and channels are in device memory, where programs never
// change; tasks are passed as kernel parameters. A *strand* is a lane of one task. A launch has `num_tasks * lanes`
// strands and any number of blocks: block b runs the strands b, b + blocks, b + 2 * blocks, ... alternately, and
// switches to the next whenever one has to wait. So a launch makes progress whatever part of its blocks the device runs
// at a time, as long as the ranks it waits for are in the same launch or run elsewhere.
//
// The counters of a channel are in device memory and the kernels advance them, so a launch may be captured and
// replayed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/sizes.h"
#include "src/base/types.h"
#include "src/plan/region.h"
#include "src/plan/turns.h"

namespace axccl::kernels::cuda {

using plan::kRotation;
inline constexpr uint32_t kMaxLanes = 64;
inline constexpr size_t kPackedBytes = 512;     // of data in a packed slot of words
inline constexpr size_t kRowedBytes = 8 << 10;  // of rows
inline constexpr uint32_t kMaxThreads = 512;    // of a block; every number from 1 on works
inline constexpr uint32_t kMaxStrands = 256;  // of a block: a launch has num_tasks * lanes / kMaxStrands blocks or more
inline constexpr uint32_t kMaxOperands = 256;  // of a step: programs with more cannot run

// One copy of an endpoint, in device memory of the rank that signals it. `value` is turn * 2^16 + v and is stored last.
struct alignas(kCacheLine) Line {
  uint64_t value;
  uint32_t signature;  // of the signalling rank's call and plan
  uint32_t sequence;   // low 32 bits of the operation's number + 1, so that a line never stored belongs to no operation
  uint8_t reserved[48];
};
static_assert(sizeof(Line) == 64);

// A packed slot holds small published data. Its pieces contain flags that show whether they have arrived, so neither
// side needs to order accesses. Each of the two kinds has its own memory, which starts as zeros: no flags.
enum class Packing : uint8_t { kNone, kWords, kRows };

// Words of 8 bytes, 4 of data and 4 of a flag: the low half of the turn + 1.
inline constexpr size_t kPackedSlotBytes = 2 * kPackedBytes;
AXCCL_HD constexpr uint32_t PackedWords(uint64_t bytes) { return static_cast<uint32_t>((bytes + 3) / 4); }
AXCCL_HD constexpr uint32_t PackedFlag(uint64_t turn) { return static_cast<uint32_t>(turn + 1); }

// Rows of 128 bytes: 7 places of 16 bytes for data and one for a flag, the turn + 1. Eight neighbouring threads store a
// row in one instruction, and a warp stores four. Used only where the devices and their connections deliver such a row
// as a whole.
inline constexpr uint32_t kRowBytes = 128;
inline constexpr uint32_t kRowPlaces = 8, kRowPieces = 7;
AXCCL_HD constexpr uint32_t PackedRows(uint64_t bytes) {
  return static_cast<uint32_t>((bytes + 16 * kRowPieces - 1) / (16 * kRowPieces));
}
AXCCL_HD constexpr uint32_t StoredRows(uint64_t bytes) { return (PackedRows(bytes) + 3) / 4 * 4; }
AXCCL_HD constexpr uint64_t RowFlag(uint64_t turn) { return turn + 1; }
inline constexpr size_t kRowedSlotBytes = StoredRows(kRowedBytes) * kRowBytes;
// The first endpoint of a channel has slots of rows and of words. So much do most plans need. On a channel of `ranks`
// ranks, more of the first endpoints have slots of words, for plans by which a rank publishes a block for each other
// one (oneshot), and on the default channel of rows, too. Plans pack no slots of other endpoints. Slots of rows are
// large, and blocks for many ranks small.
inline constexpr uint32_t kMostRowedRanks = 16;
AXCCL_HD constexpr uint32_t WordedEndpoints(uint32_t ranks) { return ranks > 2 ? ranks - 1 : 1; }
AXCCL_HD constexpr uint32_t RowedEndpoints(uint32_t ranks) {
  return ranks <= kMostRowedRanks ? WordedEndpoints(ranks) : 1;
}

// A rank's announcement of its buffers to its peers, before a direct program or a task of several programs
// (Task::staged). There is one for each parity of the sequence number. An address is `offset` bytes from the entry
// `map` of the reader's Member::maps; map 0 is the address space itself. Grown scratch begins where its entry says.
inline constexpr uint32_t kUnmapped = ~0u;  // a value of `map`: not all members can access the buffer
struct alignas(kCacheLine) Announcement {
  uint64_t input_offset, output_offset;
  uint32_t input_map, output_map;
  uint64_t factor;       // the Factor of the rank's input
  uint32_t scratch_map;  // of the rank's grown scratch; kUnmapped: it has none, or not all members can access it
  uint32_t reserved0;
  uint64_t reserved[3];
};
static_assert(sizeof(Announcement) == 64);

inline constexpr uint32_t kMaxViewDims = 8;
// Limit for all operands of a step together, in dimensions of more than one index.
inline constexpr uint32_t kMaxViewStrides = 1536;

// The addresses of one rank's operand of a call on views. Ranks also announce it before a direct program: one for each
// operand, behind the announcements, again with room for each parity.
struct ViewPlace {
  uint64_t input_offset = 0, output_offset = 0;  // of the first element, as in Announcement
  uint32_t input_map = 0, output_map = 0;
  int64_t input_step = 0, output_step = 0;                                      // bytes from one block to the next
  int64_t input_strides[kMaxViewDims] = {}, output_strides[kMaxViewDims] = {};  // elements
};
static_assert(sizeof(ViewPlace) == 168);

// ---- programs ----

enum class StepKind : uint8_t { kCopy, kReduce, kSignal, kWait, kAwait, kNotify };

inline constexpr int16_t kAllPeers = -1;

// As exec::Step; `parts` counts the parts of each operand. Signals: `parts` slots travel with it to members on other
// machines, from `operands` on in Program::far_slots.
struct Step {
  StepKind kind = StepKind::kSignal;
  uint8_t finish = 0;     // the step writes final results
  int16_t peer = 0;       // signal: destination or kAllPeers; wait: source
  uint8_t from_lane = 0;  // wait
  // For signals and waits with packed slots: they belong to the packed slot of the endpoint. For moves: how they
  // use slots of all ranks, if they do.
  enum : uint8_t { kStoresToAll = 1, kFoldsOfAll = 2 };
  uint8_t packed = 0;
  uint16_t endpoint = 0;
  uint16_t value = 0;  // signal: the value it sets; wait: the value it needs; await, notify: the chunk
  uint16_t num_dst = 0, num_src = 0;
  uint16_t parts = 0;
  uint32_t operands = 0;    // moves: first of num_dst + num_src, destinations first; signals: see above
  uint32_t data_parts = 0;  // moves: first of `parts`
};
static_assert(sizeof(Step) == 24);

enum class Space : uint8_t { kInput, kOutput, kSlot, kAllSlots };

// The place of an operand, independent of the size of the call: block `block` of the rank's input or output, or slot
// `slot` of the rank's scratch and of the step's lane (see Cut), or that slot of all ranks. The further parts of a step
// are in the next slots.
struct Operand {
  uint16_t rank = 0;  // position in the group
  uint16_t block = 0;
  uint16_t slot = 0;
  int16_t endpoint = -1;  // for slots: the endpoint to whose packed slot it can belong; -1: never packed
  Space space = Space::kInput;
  uint8_t between = 0;  // 1: a slot that ranks of several machines use (Member::scratch)
  uint8_t reserved[2] = {};
};
static_assert(sizeof(Operand) == 12);

// As exec::Outbound::Slot, of one step.
struct FarSlot {
  uint16_t reader = 0, slot = 0, data_part = 0;
  uint16_t of_reader = 0;
};
static_assert(sizeof(FarSlot) == 8);

// One rank's part of a plan. It is independent of sizes, so it is made once for each plan and rank. Steps, operands,
// data parts and slots for other machines follow it in memory, at `*_at` bytes from its start.
struct Program {
  uint64_t plan_id[2] = {};  // content hash
  uint32_t bytes = 0;        // including everything that follows it
  uint32_t lanes = 1;
  uint32_t slots = 0;     // of a lane
  uint32_t prologue = 0;  // direct programs: number of steps of lane 0 in the exchange that announces buffers
  uint8_t complete = 0;   // plan::Plan::complete
  uint8_t is_barrier = 0;
  Packing packing = Packing::kNone;  // how its slots may be packed; rows include words
  uint8_t multicast = 0;             // its slots are in Channel::multicast
  uint8_t beyond_first = 0;          // some are of other endpoints, of which only default channels have slots of rows
  uint8_t reserved[3] = {};
  uint32_t steps_at = 0, operands_at = 0, data_parts_at = 0, far_slots_at = 0;
  uint32_t lane_begin[kMaxLanes + 1] = {};  // steps of lane l are [lane_begin[l], lane_begin[l + 1])

  AXCCL_HD const Step* steps() const { return At<Step>(steps_at); }
  AXCCL_HD const Operand* operands() const { return At<Operand>(operands_at); }
  AXCCL_HD const uint16_t* data_parts() const { return At<uint16_t>(data_parts_at); }
  AXCCL_HD const FarSlot* far_slots() const { return At<FarSlot>(far_slots_at); }

 private:
  template <class T>
  AXCCL_HD const T* At(uint32_t offset) const {
    return reinterpret_cast<const T*>(reinterpret_cast<const uint8_t*>(this) + offset);
  }
};

// How the data of a call is cut, as in exec::Prepared. Slot s of a lane in turn t starts at
//   t % kRotation * Channel::half_bytes + sets.OffsetOf(t) + (lane * Program::slots + s) * slot_bytes
// bytes of the rank's scratch (or of its grown scratch or MulticastArea, which have other halves); if slots are packed,
// it is the packed slot of its endpoint and that turn.
struct Cut {
  plan::Partition partition;
  uint64_t turns = 1;
  uint64_t slot_bytes = 0;
  plan::SlotSets sets;
  Packing packing = Packing::kNone;  // how slots are packed, if the program's slots may be
  uint8_t whole = 0;                 // every move is of a whole block: no partition to resolve
  uint8_t between = 1;               // where slots that ranks of several machines use are: an index of Member::scratch
  uint8_t reserved[5] = {};
};
static_assert(sizeof(Cut) == 72);

// ---- channels ----

// In host memory that the device sees; one for each rank of a communicator. The host writes `abort`; kernels write the
// rest, `report` last, once.
struct alignas(kCacheLine) Control {
  uint32_t abort = 0;     // nonzero: stop
  uint32_t report = 0;    // a Report
  uint32_t position = 0;  // the member that the report is about
  uint32_t reserved = 0;
  uint64_t sequence = 0;  // number of the operation
  uint64_t turn = 0;
};

// What an operation waits for, in host memory that the device sees; one for each channel of a rank. A strand whose wait
// lasts long writes it now and then, `look` last. So the host sees which operation has not ended, and that it waits.
struct alignas(kCacheLine) Wait {
  uint64_t call = 0;   // Task::call
  uint64_t count = 0;  // elements of a block
  uint64_t look = 0;   // see Look
  // Operations of the channel so far: whose slots were packed, in words, in rows; and that used the first of several
  // programs (Task::staged), could have used grown scratch and did not, and did (Task::grown).
  uint64_t packed[2] = {};
  uint64_t mapped = 0, cramped = 0, grown = 0;

  // The operation's number (32 bits of it), the awaited member, and a number that changes each time.
  static constexpr uint32_t kUnmet = 0xffff;  // a position: members that have not been found yet (Meeting)
  static constexpr uint32_t kInput = 0xfffe;  // a position: an input chunk; `count` is its number
  AXCCL_HD static constexpr uint64_t Look(uint64_t sequence, uint32_t position, uint32_t time) {
    return sequence << 32 | uint64_t{position & 0xffff} << 16 | (time & 0xffff);
  }
  static constexpr uint32_t SequenceOf(uint64_t look) { return static_cast<uint32_t>(look >> 32); }
  static constexpr uint32_t PositionOf(uint64_t look) { return static_cast<uint32_t>(look >> 16 & 0xffff); }
};

// What a rank's kernels publish to members on other machines, in the order in which a thread of the host is to send it:
// slots, and the line that goes with those before it. In host memory that the device sees, one for each rank.
struct alignas(kCacheLine) ProxyRing {
  static constexpr uint32_t kEntries = 64;

  struct alignas(kCacheLine) Entry {
    uint64_t offset = 0;     // of the slot or line in the rank's block, or of the slot in the member's
    uint64_t value = 0;      // of a line
    uint64_t call = 0;       // of a line: its signature and sequence
    uint32_t bytes = 0;      // of a slot; 0: a line
    uint32_t rank = 0;       // of the member, in the communicator
    uint32_t position = 0;   // of the member, in the group of the channel
    uint32_t channel = 0;    // Channel::number
    uint32_t of_member = 0;  // 1: a slot of the member's block
    uint32_t on_device = 0;  // 1: a slot in memory of the device
    uint32_t number = 0;     // of the entry, from 1; stored last
  };

  uint32_t taken = 0;  // written by the host: entries whose places may be used again
  Entry entries[kEntries];
};

enum class Report : uint32_t {
  kNone = 0,
  kMismatch = 1,  // the member's line has the signature or sequence number of another call
  kAborted = 2,   // a strand stopped because of `abort`
};

// Counters of one rank on one channel. The last strand of an operation advances them; strands read them at the start of
// the next.
struct State {
  uint64_t sequence = 0;  // number of the next operation
  uint64_t turn = 0;      // the next turn
  plan::Run last;
  uint32_t strands_done = 0;   // of the running operation
  uint32_t broken = 0;         // an operation stopped early: nothing runs on this channel any more
  uint64_t barriers_done = 0;  // 1 + the turn of the last barrier before an operation
  uint64_t mapped = 0;         // as Wait::mapped, and these
  uint64_t cramped = 0, grown = 0;
  enum : uint32_t { kFirst, kStaged, kGrown };
  uint32_t taken = kFirst;  // which of several programs the running operation uses
  uint64_t unmet = 0;       // 1: Channel::members are not there yet
  uint64_t packed[2] = {};  // as Wait::packed
};

// The parts of the member's memory, at the addresses of this rank's device. That of a member on another machine is a
// mirror in host memory. The others have theirs on their devices, if they reach each other's, and then scratch[1] alone
// is in host memory, where it is sent from and arrives; if adapters reach the devices, it may be scratch[kAdapters].
struct alignas(16) Member {
  uint8_t* lines = nullptr;  // Line[plan::LineIndex]
  // For lane 0: [(endpoint * kRotation + copy) * kPackedSlotBytes] and [(...) * kRowedSlotBytes].
  uint8_t* packed = nullptr;
  uint8_t* rows = nullptr;
  uint8_t* announcements = nullptr;  // Announcement[2], then Channel::view_bytes of ViewPlace for each parity
  // [1], [kAdapters]: for slots that ranks of several machines use (Operand::between, Cut::between); [kAdapters], on
  // the devices, is [0] or the mirror of a member on another machine. [kGrown]: grown scratch, which kernels put here
  // as it is announced.
  static constexpr uint32_t kGrown = 2, kAdapters = 3;
  uint8_t* scratch[4] = {};
  const uint64_t* maps = nullptr;  // addresses of its exports, by number; [0] = 0
  uint8_t* block = nullptr;        // that has all of these but scratch[1] and later ones
  uint32_t rank = 0;               // in the communicator
  uint32_t is_far = 0;             // 1: on another machine, and all of these are in a mirror
};

// The addresses of a channel's members, for channels that each member creates by itself. The host finds the members
// while the first operations may already be waiting for them, and writes this in host memory that the device sees. The
// members follow, each as Member.
struct alignas(kCacheLine) Meeting {
  uint64_t met = 0;  // written last; 1: the members are there

  AXCCL_HD Member* members() { return reinterpret_cast<Member*>(this + 1); }
};

// Memory of the devices of all ranks that one address reaches (NVLink SHARP), for programs with slots of all ranks.
struct MulticastArea {
  uint8_t* all = nullptr;   // that address, for `multimem` instructions alone
  uint8_t* own = nullptr;   // the rank's own memory behind it
  uint64_t half_bytes = 0;  // as Channel::half_bytes
};

// The addresses of a member's buffers in this operation; direct programs fill it in as announcements arrive.
struct Binding {
  uint8_t* input = nullptr;
  uint8_t* output = nullptr;
  Factor factor{};
};

// One rank's side of a channel, at the start of a cache line. Members, at MembersAt(), and bindings follow it in
// memory.
struct Channel {
  State state;
  Control* control = nullptr;
  Wait* wait = nullptr;
  Meeting* meeting = nullptr;  // used if State::unmet is set
  const Program* barrier = nullptr;
  ProxyRing* ring = nullptr;          // null: no member is on another machine
  uint32_t* posted = nullptr;         // entries so far, of all channels of the rank
  uint32_t number = 0;                // in entries of the ring
  uint64_t half_bytes = 0;            // scratch that turns of one parity use
  uint64_t grown_half_bytes = 0;      // the same of grown scratch
  uint32_t endpoints = 0, lanes = 0;  // of the lines
  uint32_t size = 0, self = 0;
  uint32_t bindings_at = 0;
  uint64_t view_bytes = 0;
  MulticastArea multicast;
  uint64_t zeros[kMaxViewDims] = {};  // the source for outputs that are filled with zeros, and its strides

  AXCCL_HD Member* members() { return At<Member>(MembersAt()); }
  static constexpr uint32_t MembersAt() { return (sizeof(Channel) + kCacheLine - 1) / kCacheLine * kCacheLine; }
  AXCCL_HD Binding* bindings() { return At<Binding>(bindings_at); }
  AXCCL_HD Line* LineOf(uint32_t position, uint32_t lane, uint32_t endpoint, uint64_t turn) {
    return reinterpret_cast<Line*>(members()[position].lines) + plan::LineIndex(endpoints, lane, endpoint, turn);
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

// The parameters of the kernel that shows whether a MulticastArea works: kBytes of `pattern` go to all ranks, and the
// sums of the floats of all ranks to `sums`.
struct MulticastProbe {
  static constexpr uint64_t kBytes = 512;
  const uint8_t* pattern = nullptr;
  uint8_t* pattern_of_all = nullptr;
  const uint8_t* numbers_of_all = nullptr;
  uint8_t* sums = nullptr;
};

// ---- tasks ----

// One operand of a call on views. A block of the call holds a block of each operand, one after the other, as on the
// host.
struct ViewOperand {
  uint64_t at = 0;        // offset in bytes of its block in that of the call
  uint64_t count = 0;     // elements of its block
  uint32_t element = 1;   // bytes of an element
  uint32_t num_dims = 0;  // of its block
  int64_t sizes[kMaxViewDims] = {};
  // The rank gets no block: its output, with the shape of a block, is filled with zeros at the end.
  uint32_t is_zero = 0;
  uint32_t reserved = 0;
  ViewPlace own;
};

// In memory that the device sees. The operands follow it.
struct ViewTable {
  uint32_t num_operands = 0;
  uint32_t reserved = 0;

  AXCCL_HD const ViewOperand* operands() const { return reinterpret_cast<const ViewOperand*>(this + 1); }
};
static_assert(sizeof(ViewTable) % alignof(ViewOperand) == 0);

// What a start of a plan with slices needs besides, in device memory: how blocks are cut, and the words of the chunks
// (axccl/pipelines.h), also in device memory.
struct Sliced {
  static constexpr uint32_t kNotYet = 0, kThere = 1, kFailed = 2;  // values of a word

  plan::Slicing slicing;
  uint32_t* in = nullptr;
  uint32_t* out = nullptr;
  // Stamps, in host memory that the device sees. For each chunk of the input, if they are awaited, and of the output:
  // that of the last start in which it was seen to be ready, and came.
  uint32_t* seen = nullptr;
  uint32_t* came = nullptr;
  // Of the last start that has begun, and has ended well: outside of graphs, and in them.
  uint32_t* begun = nullptr;
  uint32_t* ended = nullptr;
  uint32_t num_in = 0, num_out = 0;
};

// A call in the short way (small.h), lowered from the rank's program.
struct Small {
  enum : uint16_t {
    kIsSmall = 1,    // without it, the interpreter makes the call
    kPublishes = 2,  // the input, in the packed slot of endpoint 0
    kKeepsOwn = 4,   // the input is, or is among, what the output is made of
    kReduces = 8,    // the blocks of all ranks to the output
    kGathers = 16,   // the blocks of all ranks in the output
    kTakes = 32,     // the output is the block of rank `source`
    kScales = 64,    // what it publishes is scaled, and, without kScalesOwn, its own block is what it publishes
    // The input has a block for each rank, in order: each other rank's is published in the packed slot and by the line
    // of the endpoint Between(self, that rank), and its own stays.
    kForEach = 128,
    kInRows = 256,     // blocks travel in rows, and are not kept
    kScalesOwn = 512,  // the reduction scales its own block, which is that of the input
  };
  uint16_t bytes = 0;  // of a block
  uint16_t ranks = 0, self = 0;
  uint16_t does = 0;
  uint16_t source = 0;

  // Of what `owner` publishes for `reader` alone: the distance of the two on the circle of ranks, less one.
  AXCCL_HD static uint32_t Between(uint32_t ranks, uint32_t owner, uint32_t reader) {
    return (reader > owner ? reader - owner : ranks + reader - owner) - 1;
  }
  AXCCL_HD uint32_t Between(uint32_t owner, uint32_t reader) const { return Between(ranks, owner, reader); }
  // By which this rank reads what another one publishes, or its line.
  AXCCL_HD uint32_t EndpointFrom(uint32_t owner) const { return (does & kForEach) != 0 ? Between(owner, self) : 0; }
  AXCCL_HD bool OwnIsPublished() const { return (does & (kScales | kScalesOwn)) == kScales; }
  // Where its own block begins in the input.
  AXCCL_HD uint32_t OwnAt() const { return (does & kForEach) != 0 ? uint32_t{self} * bytes : 0; }
  AXCCL_HD bool TakesAll() const { return (does & (kReduces | kGathers)) != 0; }
  // The ranks whose words this rank reads begin with `first`; its own block is where its words would be.
  AXCCL_HD uint32_t sources() const { return TakesAll() ? ranks : (does & kTakes) != 0 ? 1 : 0; }
  AXCCL_HD uint32_t first() const { return TakesAll() ? 0 : (does & kTakes) != 0 ? source : self; }
  // The blocks that it keeps until it writes its output.
  AXCCL_HD uint32_t kept() const { return TakesAll() ? ranks : (does & (kTakes | kKeepsOwn)) != 0 ? 1 : 0; }
  AXCCL_HD uint32_t KeptBytes() const { return kept() * ((bytes + 15u) / 16 * 16); }
  AXCCL_HD bool InRows() const { return (does & kInRows) != 0; }
  // What it waits for: pairs of words, or rows, and lines of all ranks.
  AXCCL_HD uint32_t pieces() const { return InRows() ? PackedRows(bytes) : (PackedWords(bytes) + 1) / 2; }
  AXCCL_HD uint32_t items() const { return sources() * pieces() + ranks; }
};
static_assert(sizeof(Small) == 10);
inline constexpr uint32_t kMostKeptBytes = 6 << 10;

// One rank's call.
struct Task {
  Channel* channel = nullptr;
  const Program* program = nullptr;
  const void* input = nullptr;
  void* output = nullptr;
  uint64_t input_offset = 0, output_offset = 0;  // announced values, see Announcement
  uint32_t input_map = 0, output_map = 0;
  Cut cut;
  // Null, or what runs instead of `program` and `cut` unless all members announce that all can access their buffers.
  // Ranks announce that before a barrier, which always precedes such an operation, and all use the same program after
  // it. When an announcement is overwritten, no rank reads the one from two operations before any more: a rank that
  // begins an operation knows that all have ended the one before the last, because a barrier separates operations that
  // could run further apart (see plan::NeedsBarrier; after a task like this, the barrier is not left out even if the
  // plan is the same).
  const Program* staged = nullptr;
  Cut staged_cut;
  // Null, or what runs instead of `staged` if all members announce that all can access their grown scratch, where its
  // slots are.
  const Program* grown = nullptr;
  Cut grown_cut;
  const void* scalar_pointer = nullptr;  // kPreMultiply: an element of `type` in device memory, or null: use `scalar`
  uint64_t scalar = 0;                   // the bytes of an element; kResult: of the Factor
  const ViewTable* views = nullptr;      // null: input and output are blocks one after the other
  // Null, or the task is a start of a plan with slices, which is direct and has no prologue: the signal of endpoint 0
  // in lane 0 brings the rank's announcement, and every wait for it reads it.
  const Sliced* sliced = nullptr;
  uint64_t call = 0;       // the host's number of the call
  uint32_t signature = 0;  // of call and plan
  DataType type = DataType::kInt8;
  Combine combine = Combine::kSum;
  Scaling scaling = Scaling::kNone;
  uint8_t group_order = 0;  // contributions are rounded as if they were stored
  Small small;
  uint32_t scratch_map = kUnmapped;  // announced

  // Of all programs that it may use: the most lanes.
  AXCCL_HD uint32_t MostLanes() const {
    uint32_t most = cut.partition.lanes;
    if (staged != nullptr && staged_cut.partition.lanes > most) most = staged_cut.partition.lanes;
    return grown != nullptr && grown_cut.partition.lanes > most ? grown_cut.partition.lanes : most;
  }
};
static_assert(sizeof(Task) == 352);

inline constexpr uint32_t kMaxTasks = 11;

// The kernel's parameters, within the 4 KiB that every driver takes.
struct Launch {
  uint32_t num_tasks = 0;
  uint32_t lanes = 1;          // strands of a task; those beyond the lanes of its program do nothing
  const Task* more = nullptr;  // if there are more than kMaxTasks: all of them, in memory that the device sees
  // Of a start. In a graph, all launches have the same stamp; so the number of the operation on the channel is theirs.
  uint32_t stamp = 0;
  uint32_t in_graph = 0;  // 0 or 1
  Task tasks[kMaxTasks];

  static constexpr uint32_t kGraphStamp = 1u << 31;
  AXCCL_HD uint32_t StampOf(uint64_t sequence) const {
    return in_graph == 0 ? stamp : kGraphStamp | static_cast<uint32_t>(sequence + 1);
  }
  AXCCL_HD const Task& TaskOf(uint32_t index) const { return more != nullptr ? more[index] : tasks[index]; }
};
static_assert(sizeof(Launch) <= 4096);

// The beginning of a Launch of one task, as most are: parameters are copied with every launch.
struct alignas(Launch) OneTask {
  uint8_t bytes[offsetof(Launch, tasks) + sizeof(Task)];
};

}  // namespace axccl::kernels::cuda
