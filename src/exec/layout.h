// What ranks of a communicator share: the layout of a rank's block of shared memory.
//
// Every rank owns one block, allocated in its process's heap and mapped by all local peers: a header, and for each of
// its channels op records, endpoint lines and scratch. All ranks compute the same layout from the same numbers, so
// offsets never travel.
//
// The owner writes a block, others only its waiter word, the flag by which they let go of it, and that they have found
// and use a channel that the owner has created. Nothing read from a peer's block is used as an index, a length or an
// unchecked address.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/base/sizes.h"
#include "src/plan/schedule.h"
#include "src/tensor/view.h"

namespace axccl::exec {

constexpr uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

inline constexpr size_t kLineData = 48;

// One copy of an endpoint: a counter, what it was signalled for, and room for a small payload that travels with it.
// `value` is stored last, sequentially consistent (a release, and ordered before the look at the waiter word).
struct alignas(kCacheLine) Line {
  std::atomic<uint64_t> value;      // turn * 2^16 + v
  std::atomic<uint32_t> signature;  // of the operation and plan that signalled
  std::atomic<uint32_t> sequence;   // low 32 bits of the operation's sequence number
  std::byte data[kLineData];
};
static_assert(sizeof(Line) == 64);

// What a rank's buffer is in, as told in an op record: nothing, its heap, plain memory.
enum class MemoryKind : uint64_t { kUnused = 0, kHeap = 1, kPlain = 2 };

// What a rank called with a sequence number. Written before the operation's first signal; guarded by `sequence` as a
// seqlock (0 = being written), so that peers may read it at any time.
struct OpRecord {
  enum Word {
    kCall,
    kCount,
    kPlan,  // what the rank runs for the call (PlanWord); 0: it does not say
    kInputKind,
    kOutputKind,  // announced: of several operands, the farthest
    kInput,
    kOutput,  // announced, of calls without views
    kFactor,  // announced, where each rank has its own
    // Of calls on views: how many, the hash of all their forms, the scale, and the form and type of the first.
    kOperands,
    kHash,
    kScale,
    kForm,
    kType,
    kSizes,
    // Announced, of calls on views: how many words the operands take, and those words where there is room for them;
    // more are in the announcements of the channel (see host/view_operands.h).
    kDetails = kSizes + tensor::kMaxDims,
    kDetailWords,
    kWords = 39
  };
  static constexpr uint64_t kRoom = kWords - kDetailWords;
  std::atomic<uint64_t> sequence;  // sequence number + 1
  std::atomic<uint64_t> word[kWords];
};
static_assert(sizeof(OpRecord) == 320 && OpRecord::kRoom >= 12);

// Ranks run at most a few operations ahead of each other on a channel (scratch reuse sees to it), so a short ring will
// do.
inline constexpr int kRecords = 16;

inline constexpr size_t kErrorText = 448;

// How communicators are made from one (comm/control_exchange.h): each call of a rank that does so has an entry in a log
// in the rank's block, and while it goes on a slot that holds what the rank contributes.
inline constexpr size_t kControlBytes = 4096;  // of a contribution
inline constexpr size_t kControlText = 320;
inline constexpr int kControlCalls = 64;
inline constexpr int kControlSlots = 16;

// Of the log. `name` is stored last, and says which call it is and, in the low bits, how far it has come. After it has
// ended its rank reads nothing any more that others have contributed to it. The ranks that take part follow, a bit
// each.
struct ControlEntry {
  enum State : uint64_t { kUnderWay = 1, kDone, kFailed, kRefused, kStateBits = 7 };
  alignas(kCacheLine) std::atomic<uint64_t> name;  // 0: being written
  std::atomic<uint64_t> number;                    // of all such calls of the rank
  std::atomic<uint64_t> count;                     // of those of the same ranks
  std::atomic<uint64_t> kind;
  std::atomic<uint64_t> code;     // of a failure
  std::atomic<uint64_t> against;  // of a refusal: the name of the call that does not go with this one
  alignas(kCacheLine) std::atomic<uint64_t> text[kControlText / sizeof(uint64_t)];
  static constexpr uint64_t kMemberBits = 64;
  static uint64_t Words(uint32_t ranks) { return (ranks + kMemberBits - 1) / kMemberBits; }
  static uint64_t Bytes(uint32_t ranks) { return RoundUp(sizeof(ControlEntry) + Words(ranks) * sizeof(uint64_t), 64); }
  std::atomic<uint64_t>* Members() { return reinterpret_cast<std::atomic<uint64_t>*>(this + 1); }
};

// Of a slot, one for each of two rounds: who begins a round knows that all have contributed to the one before, and so
// read the one before that.
struct ControlTag {
  alignas(kCacheLine) std::atomic<uint64_t> value;  // of call and round; stored last
};

// What a launch that stands still waits in, for those it waits for (standstill.h). Told as a whole: what does not fit
// its checksum is being written, or came in part.
struct alignas(kCacheLine) WaitBoard {
  static constexpr size_t kMost = 16, kTextBytes = 160, kMostWaits = 8;
  enum EntryWord { kKind, kPeer, kBegin, kEnd, kText, kEntryWords = kText + kTextBytes / sizeof(uint64_t) };
  // In which of the entries, for which rank, and which step of that one ends before this one can.
  enum WaitWord { kEntry, kRank, kTheirStep, kWaitWords };
  enum Word {
    kChecksum,
    kOrder,        // 0: nobody's
    kCollectives,  // begun
    kStep,         // a name that no other step of the rank has
    kEntries,
    kWaits,
    kFirstWait,
    kFirst = kFirstWait + kMostWaits * kWaitWords,
    kWords = kFirst + kMost * kEntryWords
  };
  std::atomic<uint64_t> word[kWords];
};
// A rank may stand still on as many channels at a time and tell.
inline constexpr int kWaitBoards = 8;

struct BlockHeader {
  static constexpr uint64_t kMagic = 0x6b636f6c42784102ull;
  static constexpr uint64_t kProbe = 0x5afe0b5e55ed0001ull;
  uint64_t magic;
  uint32_t rank;
  uint32_t ranks;
  uint64_t probe;                                    // kProbe: a known word for testing process_vm_readv
  alignas(kCacheLine) std::atomic<uint32_t> waiter;  // 1 + doorbell of the thread that sleeps for this rank, 0 = none
  alignas(kCacheLine) std::atomic<uint32_t> closed;  // the owner has destroyed its communicator
  alignas(kCacheLine) std::atomic<uint32_t> error;   // Code of the owner's failure, 0 = none; written after error_text
  char error_text[kErrorText];
  alignas(kCacheLine)
      std::atomic<uint32_t> writing;  // steps under way in which the owner may write into buffers of other processes
  WaitBoard boards[kWaitBoards];
};

// Channels that a rank has created (channels.h of the API) have a slot in its block each: which channel it is and where
// this rank's part of it is, so that peers can check what they have found, and for each member a byte that says it has.
// Members' ranks follow, then these bytes. Slots lie close together, so that a channel that nothing is done on takes no
// pages for itself.
//
// Slots are found by a table with open addressing: a word that is not 0 is the channel's key and, in the low bits, its
// slot, and says that the slot is that channel's; kGoneSlot: it was the rank's and is gone. A peer counts itself as a
// user of the slot before it looks at the word again; the owner frees slot and part when it has taken the word away and
// there are no users.
struct ChannelSlot {
  std::atomic<uint64_t> offset;  // of the part in the owner's heap
  std::atomic<int64_t> id;
  std::atomic<uint32_t> users;
  std::atomic<uint32_t>
      area;  // of GPU ranks: 1 + the one of the rank's device that the channel has, 0 before it has one
  uint32_t generation;
  uint32_t size;
  int32_t* Ranks() { return reinterpret_cast<int32_t*>(this + 1); }
  // `ranks`: those of the group; `size` is what the memory says.
  std::atomic<uint8_t>* Joined(size_t ranks) { return reinterpret_cast<std::atomic<uint8_t>*>(Ranks() + ranks); }
  // Of one slot, of a communicator of `ranks`.
  static uint64_t Bytes(uint32_t ranks) {
    return RoundUp(sizeof(ChannelSlot) + ranks * (sizeof(int32_t) + 1), kCacheLine);
  }
};
inline constexpr uint32_t kChannelWords = 8192;
// Slots; channels a rank may have at a time are one less: half of the words, so that a key is found within a few of its
// place.
inline constexpr uint32_t kMaxChannels = kChannelWords / 2;
inline constexpr uint64_t kSlotBits = kMaxChannels - 1;  // of a word
inline constexpr uint32_t kGoneSlot = kMaxChannels - 1;
inline constexpr uint32_t kSlotProbes = 64;
// The n-th place for a key.
inline uint32_t PlaceOfKey(uint64_t key, uint32_t n) {
  return static_cast<uint32_t>((key / kMaxChannels + n) % kChannelWords);
}

// Room for what is announced: of thousands of operands, or of hundreds with pieces for 64 ranks. Only what is used
// takes up memory.
inline constexpr uint64_t kAnnouncementWords = (256u << 10) / sizeof(uint64_t);
inline constexpr uint64_t kPairAnnouncementWords = (128u << 10) / sizeof(uint64_t);

// Of a pair channel: where its owner has further memory for it, which it takes when it first needs it. Offsets in its
// heap; 0: nowhere yet.
struct Apart {
  std::atomic<uint64_t> scratch, announcements;
};

struct ChannelLayout {
  uint32_t endpoints = 0;  // per lane
  uint32_t lanes = 0;
  uint64_t records = 0;  // offsets from the start of the block
  uint64_t lines = 0;
  uint64_t scratch = 0;
  uint64_t scratch_bytes = 0;
  // What a rank announces of views that its op record has no room for. Two pieces, by turns: who has ended an operation
  // knows that all have begun it, and so ended the one before, so that what was announced two before is no longer read.
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
    const uint64_t copy = turn % plan::kRotation;
    return lines + (uint64_t{lane * endpoints + endpoint} * plan::kRotation + copy) * sizeof(Line);
  }
  Line* LineOf(std::byte* block, uint32_t lane, uint32_t endpoint, uint64_t turn) const {
    return reinterpret_cast<Line*>(block + OffsetOfLine(lane, endpoint, turn));
  }
  OpRecord* RecordOf(std::byte* block, uint64_t sequence) const {
    return reinterpret_cast<OpRecord*>(block + records) + sequence % kRecords;
  }
  // A created channel of a group of `size`; *bytes: of all of it.
  static ChannelLayout Created(uint32_t size, uint32_t lanes, uint64_t scratch_bytes, uint64_t* bytes);
};

// The blocks of a communicator with `ranks` ranks: the default channel, and one channel for each ordered pair. Few
// pairs are used, so their scratch and announcements are apart from the blocks; inside of them where ranks share no
// memory and have mirrors of each other's.
struct BlockLayout {
  ChannelLayout channel;
  uint32_t ranks = 0;
  uint64_t released = 0;            // offset of one atomic byte a rank: set when that rank lets go of the block
  uint64_t calls = 0;               // offset of kControlCalls control entries
  uint64_t tags = 0;                // offset of the tags of kControlSlots slots, two each
  uint64_t contributions = 0;       // offset of what they hold, likewise
  uint64_t keys = 0;                // offset of the words of created channels, kChannelWords
  uint64_t slots = 0;               // offset of their slots, kMaxChannels
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
  ControlTag* ControlTagOf(std::byte* block, int slot, uint64_t round) const {
    return reinterpret_cast<ControlTag*>(block + tags) + 2 * static_cast<uint64_t>(slot) + round % 2;
  }
  std::atomic<uint64_t>* ContributionOf(std::byte* block, int slot, uint64_t round) const {
    return reinterpret_cast<std::atomic<uint64_t>*>(block + contributions +
                                                    (2 * static_cast<uint64_t>(slot) + round % 2) * kControlBytes);
  }
  std::atomic<uint64_t>* KeyOf(std::byte* block, uint32_t index) const {
    return reinterpret_cast<std::atomic<uint64_t>*>(block + keys) + index;
  }
  ChannelSlot* SlotOf(std::byte* block, uint32_t index) const {
    return reinterpret_cast<ChannelSlot*>(block + slots + index * ChannelSlot::Bytes(ranks));
  }
  static BlockLayout Make(uint32_t ranks, uint32_t lanes, uint64_t scratch_bytes, bool mirrored = false);
  // The pair channel src -> dst in the block of `owner`, which is one of the two.
  ChannelLayout Pair(uint32_t src, uint32_t dst, uint32_t owner) const;
};

}  // namespace axccl::exec
