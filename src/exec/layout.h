// The memory that ranks of a communicator share: the layout of a rank's block.
//
// Every rank owns one block, allocated in its process's heap and mapped by all local peers: a header, and for each of
// its channels op records, endpoint lines and scratch. All ranks compute the same layout from the same numbers, so
// offsets are never sent.
//
// The owner writes a block. Others write only its waiter word, that the communicator is revoked, that they have
// released the block, and that they have found and use a channel that the owner has created. Nothing read from a peer's
// block is used as an index, a length or an unchecked address.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/base/sizes.h"
#include "src/plan/schedule.h"
#include "src/tensor/view.h"

namespace axccl::exec {

inline constexpr size_t kLineData = 48;

// One copy of an endpoint: a counter, the identity of the signal, and room for a small payload that travels with it.
// `value` is stored last, as a release; device/host/waiting.h says why the look at the waiter word needs no more.
struct alignas(kCacheLine) Line {
  std::atomic<uint64_t> value;      // turn * 2^16 + v
  std::atomic<uint32_t> signature;  // of the operation and plan that signalled
  std::atomic<uint32_t> sequence;   // low 32 bits of the operation's sequence number
  std::byte data[kLineData];
};
static_assert(sizeof(Line) == 64);

// The kind of memory that holds a rank's buffer, as written in an op record: none, its heap, plain memory.
enum class MemoryKind : uint64_t { kUnused = 0, kHeap = 1, kPlain = 2 };

// The call of a rank with a sequence number. Written before the operation's first signal; guarded by `sequence` as a
// seqlock (0 = being written), so that peers may read it at any time.
struct OpRecord {
  enum Word {
    kCall,
    kCount,
    kPlan,  // the plan that the rank runs for the call (PlanWord); 0: unknown
    // For calls on views: how many, the hash of all their forms, the scale, and the form and type of the first.
    kOperands,
    kHash,
    kScale,
    kForm,
    kType,
    kSlices,  // for pipelines: see Slices::Packed
    kSizes,
    kCallWords = kSizes + tensor::kMaxDims,  // so far, what the call is
    kInputKind = kCallWords,
    kOutputKind,  // announced: for several operands, the kind that is hardest to access
    kInput,
    kOutput,  // announced, for calls without views
    kFactor,  // announced, if each rank has its own
    // Of a GPU rank, which announces nothing here: the words of RecordedStamps.
    kStamps = kInput,
    kIdentity,
    kStart,
    // Announced, for calls on views: how many words the operands take, and those words if there is room for them; more
    // are in the announcements of the channel (see host/view_operands.h).
    kDetails = kFactor + 1,
    kDetailWords,
    kWords = 38
  };
  static constexpr uint64_t kRoom = kWords - kDetailWords;
  // How far the operation has come, for readers on the same machine (comm/op_board.h): a State and, for the start of a
  // pipeline, how many input chunks have been declared ready, and how many output chunks are there. Not guarded, and in
  // front of what mirrors get, because it changes while the operation runs.
  std::atomic<uint64_t> progress;
  std::atomic<uint64_t> sequence;  // sequence number + 1
  std::atomic<uint64_t> word[kWords];

  // kEnqueued: the rank's device runs it. How far it is shows in the StartStamps of a pipeline, and nowhere of others.
  enum State : uint64_t { kUnderWay = 0, kDone = 1, kEnqueued = 2, kStates = 4 };
  static constexpr uint64_t kReadyChunk = kStates, kThereChunk = uint64_t{1} << 32;
  static State StateIn(uint64_t progress) { return static_cast<State>(progress % kStates); }
  static uint32_t ReadyIn(uint64_t progress) { return static_cast<uint32_t>(progress % kThereChunk / kReadyChunk); }
  static uint32_t ThereIn(uint64_t progress) { return static_cast<uint32_t>(progress / kThereChunk); }
};
static_assert(sizeof(OpRecord) == 320 && OpRecord::kRoom >= 12);

// Ranks run at most a few operations ahead of each other on a channel (the reuse of scratch ensures that), so a short
// ring is enough.
inline constexpr int kRecords = 16;
// Starts of a pipeline on host ranks, which are at most one ahead of each other.
inline constexpr int kRecordsOfPipeline = 4;

inline constexpr size_t kErrorText = 448;

// How communicators, and windows, are made from one (comm/control_exchange.h): each such call of a rank has an entry in
// a log in the rank's block, and while it runs a slot that holds the rank's contribution.
inline constexpr size_t kControlBytes = 4096;  // of a contribution
inline constexpr size_t kControlText = 320;
inline constexpr int kControlCalls = 64;
inline constexpr int kControlSlots = 16;

// An entry of the log. `name` is stored last. It says which call it is and, in the low bits, how far it has come. After
// the call has ended, its rank reads no contributions of others to it any more. The ranks that take part follow, one
// bit each.
struct ControlEntry {
  // kAbandoned: the rank goes on with another attempt at the same shrink.
  enum State : uint64_t { kUnderWay = 1, kDone, kFailed, kRefused, kAbandoned, kStateBits = 7 };
  alignas(kCacheLine) std::atomic<uint64_t> name;  // 0: being written
  std::atomic<uint64_t> number;                    // among all such calls of the rank
  std::atomic<uint64_t> count;                     // among those of the same ranks; of a shrink, among all shrinks
  std::atomic<uint64_t> kind;
  std::atomic<uint64_t> code;     // of a failure
  std::atomic<uint64_t> against;  // for a refusal: the name of the call that does not match this one
  alignas(kCacheLine) std::atomic<uint64_t> text[kControlText / sizeof(uint64_t)];
  static constexpr uint64_t kMemberBits = 64;
  static uint64_t Words(uint32_t ranks) { return (ranks + kMemberBits - 1) / kMemberBits; }
  static uint64_t Bytes(uint32_t ranks) { return RoundUp(sizeof(ControlEntry) + Words(ranks) * sizeof(uint64_t), 64); }
  std::atomic<uint64_t>* Members() { return reinterpret_cast<std::atomic<uint64_t>*>(this + 1); }
};

// A slot, of which each of two rounds has its own: a rank that begins a round knows that all have contributed to the
// one before, and so read the one before that. The first word says which call and round the rest belongs to, and is 0
// while it is being written.
inline constexpr size_t kControlSlotBytes = kControlBytes + kCacheLine;

// What a launch that stands still waits in, for the ranks that it waits for (standstill.h). Valid only as a whole: if
// its checksum does not match, it is being written, or has arrived in part.
struct alignas(kCacheLine) WaitBoard {
  static constexpr size_t kMost = 16, kTextBytes = 160, kMostWaits = 8;
  enum EntryWord { kKind, kPeer, kBegin, kEnd, kText, kEntryWords = kText + kTextBytes / sizeof(uint64_t) };
  // The index of the entry, the rank, and which step of that rank ends before this one can.
  enum WaitWord { kEntry, kRank, kTheirStep, kWaitWords };
  enum Word {
    kChecksum,
    kOrder,        // 0: unused
    kCollectives,  // number of collectives begun
    kStep,         // a name that no other step of the rank has
    kEntries,
    kWaits,
    kFirstWait,
    kFirst = kFirstWait + kMostWaits * kWaitWords,
    kWords = kFirst + kMost * kEntryWords
  };
  std::atomic<uint64_t> word[kWords];
};
// The number of channels at a time on which a rank can stand still and publish it.
inline constexpr int kWaitBoards = 8;

struct BlockHeader {
  static constexpr uint64_t kMagic = 0x6b636f6c42784105ull;
  uint64_t magic;
  uint32_t rank;
  uint32_t ranks;
  uint64_t probe;                                    // a random word, to test process_vm_readv with
  alignas(kCacheLine) std::atomic<uint32_t> waiter;  // 1 + doorbell of the thread that sleeps for this rank, 0 = none
  std::atomic<uint32_t> processor;  // 1 + where a thread last waited for this rank; see host/handover.h
  alignas(kCacheLine) std::atomic<uint32_t> closed;  // the owner has destroyed its communicator
  // 1 + the rank that has revoked the communicator, 0 = none. Ranks of the same machine set it, too.
  alignas(kCacheLine) std::atomic<uint32_t> revoked;
  // The owner's failure, as an ErrorWord, 0 = none; written after error_text.
  alignas(kCacheLine) std::atomic<uint32_t> error;
  char error_text[kErrorText];
  alignas(kCacheLine)
      std::atomic<uint32_t> writing;  // steps under way in which the owner may write into buffers of other processes
  WaitBoard boards[kWaitBoards];
};

// The word `error`: the Code and, if the failure is that the communicator was revoked, 1 + the rank that did.
inline constexpr uint32_t kErrorCodes = 256;
constexpr uint32_t ErrorWord(uint32_t code, uint32_t revoked) { return code + kErrorCodes * revoked; }
constexpr uint32_t CodeInError(uint32_t word) { return word % kErrorCodes; }
constexpr uint32_t RevokedInError(uint32_t word) { return word / kErrorCodes; }
// Whether the owner has failed otherwise.
inline bool HasFailed(const BlockHeader& header) {
  const uint32_t word = header.error.load(std::memory_order_acquire);
  return word != 0 && RevokedInError(word) == 0;
}

// Each channel that a rank has created (channels.h of the API) has a slot in its block. It says which channel it is and
// where this rank's part of it is, so that peers can check what they have found, and has a byte for each member that
// says that the member has found it. The members' ranks follow, then these bytes. Slots lie close together, so a
// channel without operations takes no pages for itself.
//
// A slot of a pipeline's channel that all of its ranks have says, elsewhere, which call they must all have created.
// `on`, `use` and `records` are for readers of the op records, which are at the start of the part (comm/op_board.h).
//
// Slots are found through a table with open addressing. A word that is not 0 holds the channel's key and, in the low
// bits, its slot, and says that the slot belongs to that channel; kGoneSlot: the rank had the channel and it is gone. A
// peer counts itself as a user of the slot before it reads the word again; the owner frees slot and part when it has
// removed the word and there are no users.
struct ChannelSlot {
  std::atomic<uint64_t> offset;  // of the part in the owner's heap
  std::atomic<int64_t> id;
  std::atomic<uint32_t> users;
  uint32_t reserved;
  // For GPU ranks: 1 + the area of the rank's device that the channel has, 0 before it has one.
  std::atomic<uint64_t> area;
  uint32_t generation;
  uint32_t size;
  // kMessages and kPipeline: of, or on, the channel that the application knows as `on`, or the communicator's own.
  enum Use : uint32_t { kCalls = 0, kMessages = 1, kPipeline = 2, kOfCommunicator = 4 };
  uint32_t use;
  uint32_t records;  // 0: nothing runs on the channel
  int64_t on;
  int32_t* Ranks() { return reinterpret_cast<int32_t*>(this + 1); }
  // `ranks`: those of the group; `size` comes from shared memory.
  std::atomic<uint8_t>* Joined(size_t ranks) { return reinterpret_cast<std::atomic<uint8_t>*>(Ranks() + ranks); }
  // The bytes of one slot, for a communicator of `ranks`.
  static uint64_t Bytes(uint32_t ranks) {
    return RoundUp(sizeof(ChannelSlot) + ranks * (sizeof(int32_t) + 1), kCacheLine);
  }
};
inline constexpr uint32_t kChannelWords = 8192;
// Slots. A rank may have one channel less at a time: half of the words, so that a key is found close to its place.
inline constexpr uint32_t kMaxChannels = kChannelWords / 2;
inline constexpr uint64_t kSlotBits = kMaxChannels - 1;  // of a word
inline constexpr uint32_t kGoneSlot = kMaxChannels - 1;
inline constexpr uint32_t kSlotProbes = 64;
// The n-th place for a key.
inline uint32_t PlaceOfKey(uint64_t key, uint32_t n) {
  return static_cast<uint32_t>((key / kMaxChannels + n) % kChannelWords);
}

// Room for announcements: of thousands of operands, or of hundreds with pieces for 64 ranks. Only what is used occupies
// memory.
inline constexpr uint64_t kAnnouncementWords = (256u << 10) / sizeof(uint64_t);
inline constexpr uint64_t kPairAnnouncementWords = (128u << 10) / sizeof(uint64_t);

// For a pair channel: the offsets of further memory in the owner's heap, which the owner takes when it first needs it;
// 0: not yet.
struct Apart {
  std::atomic<uint64_t> scratch, announcements;
};

struct ChannelLayout {
  uint32_t endpoints = 0;  // per lane
  uint32_t lanes = 0;
  uint64_t num_records = kRecords;  // a power of two
  uint64_t records = 0;             // offsets from the start of the block
  uint64_t lines = 0;
  uint64_t scratch = 0;
  uint64_t scratch_bytes = 0;
  // Announcements of views that the op record has no room for. There are two pieces, used alternately: a rank that has
  // ended an operation knows that all have begun it, and so ended the one before, so announcements of the operation
  // before that are no longer read.
  uint64_t announcements = 0;
  uint64_t announcement_words = 0;  // of each piece
  // 0, or the offset of the Apart that says where scratch and announcements are; their offsets are in that memory then.
  uint64_t apart = 0;
  uint64_t packed = 0, rows = 0;  // on devices: packed slots of words and of rows, see CudaLayout

  // `memory`: the block, unless they are apart.
  std::atomic<uint64_t>* AnnouncementOf(std::byte* memory, uint64_t sequence) const {
    return reinterpret_cast<std::atomic<uint64_t>*>(memory + announcements) + sequence % 2 * announcement_words;
  }
  Apart* ApartOf(std::byte* block) const { return reinterpret_cast<Apart*>(block + apart); }
  uint64_t OffsetOfLine(uint32_t lane, uint32_t endpoint, uint64_t turn) const {
    return lines + plan::LineIndex(endpoints, lane, endpoint, turn) * sizeof(Line);
  }
  Line* LineOf(std::byte* block, uint32_t lane, uint32_t endpoint, uint64_t turn) const {
    return reinterpret_cast<Line*>(block + OffsetOfLine(lane, endpoint, turn));
  }
  uint64_t OffsetOfRecord(uint64_t sequence) const {
    return records + (sequence & (num_records - 1)) * sizeof(OpRecord);
  }
  OpRecord* RecordOf(std::byte* block, uint64_t sequence) const {
    return reinterpret_cast<OpRecord*>(block + OffsetOfRecord(sequence));
  }
  // A created channel of a group of `size`; *bytes: its total size.
  static ChannelLayout Created(uint32_t size, uint32_t lanes, uint64_t scratch_bytes, uint64_t* bytes);
  // A channel that one plan alone runs on, for one operand.
  static ChannelLayout ForPlan(uint32_t lanes, uint32_t endpoints, uint64_t scratch_bytes, int num_records,
                               uint64_t* bytes);
};

// The blocks of a communicator with `ranks` ranks: the default channel, and one channel for each ordered pair. Few
// pairs are used, so their scratch and announcements are apart from the blocks; they are inside if ranks share no
// memory and have mirrors of each other's blocks.
struct BlockLayout {
  ChannelLayout channel;
  uint32_t ranks = 0;
  uint64_t released = 0;            // offset of one atomic byte for each rank: set when that rank releases the block
  uint64_t calls = 0;               // offset of kControlCalls control entries
  uint64_t contributions = 0;       // offset of kControlSlots slots, for two rounds each
  uint64_t keys = 0;                // offset of the words of created channels, kChannelWords
  uint64_t slots = 0;               // offset of their slots, kMaxChannels
  uint64_t created = 0;             // offset of the calls that pipelines were created for, by slot
  uint64_t pairs = 0;               // offset of the pair channels
  uint64_t pair_bytes = 0;          // control part of one pair channel
  uint64_t pair_scratch = 0;        // offset of the pair channels' scratch; 0: apart
  uint64_t pair_announcements = 0;  // likewise, announcements
  uint64_t bytes = 0;               // of the whole block

  std::atomic<uint8_t>* ReleasedBy(std::byte* block, int rank) const {
    return reinterpret_cast<std::atomic<uint8_t>*>(block + released) + rank;
  }
  ControlEntry* ControlCall(std::byte* block, uint64_t index) const {
    return reinterpret_cast<ControlEntry*>(block + calls + index * ControlEntry::Bytes(ranks));
  }
  std::atomic<uint64_t>* ContributionOf(std::byte* block, int slot, uint64_t round) const {
    const uint64_t index = 2 * static_cast<uint64_t>(slot) + round % 2;
    return reinterpret_cast<std::atomic<uint64_t>*>(block + contributions + index * kControlSlotBytes);
  }
  std::atomic<uint64_t>* KeyOf(std::byte* block, uint32_t index) const {
    return reinterpret_cast<std::atomic<uint64_t>*>(block + keys) + index;
  }
  ChannelSlot* SlotOf(std::byte* block, uint32_t index) const {
    return reinterpret_cast<ChannelSlot*>(block + slots + index * ChannelSlot::Bytes(ranks));
  }
  // OpRecord::kCallWords of them; see RecordedCall.
  std::atomic<uint64_t>* CreatedCallOf(std::byte* block, uint32_t slot) const {
    return reinterpret_cast<std::atomic<uint64_t>*>(block + created) + size_t{slot} * OpRecord::kCallWords;
  }
  static BlockLayout Make(uint32_t ranks, uint32_t lanes, uint64_t scratch_bytes, bool mirrored = false);
  // The pair channel src -> dst in the block of `owner`, which is one of the two.
  ChannelLayout Pair(uint32_t src, uint32_t dst, uint32_t owner) const;
};

}  // namespace axccl::exec
