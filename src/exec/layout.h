// What ranks of a communicator share: the layout of a rank's block of shared memory.
//
// Every rank owns one block, allocated in its process's heap and mapped by all local peers: a header, and for each of its
// channels op records, endpoint lines and scratch. All ranks compute the same layout from the same numbers, so offsets never travel.
//
// The owner writes a block, others only its waiter word and the flag by which they let go of it.
// Nothing read from a peer's block is used as an index, a length or an unchecked address.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/plan/schedule.h"
#include "src/plan/view.h"

namespace axccl::exec {

constexpr uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

inline constexpr size_t kLineData = 48;

// One copy of an endpoint: a counter, what it was signalled for, and room for a small payload that travels with it.
// `value` is stored last, sequentially consistent (a release, and ordered before the look at the waiter word).
struct alignas(64) Line {
  std::atomic<uint64_t> value;      // turn * 2^16 + v
  std::atomic<uint32_t> signature;  // of the operation and plan that signalled
  std::atomic<uint32_t> sequence;   // low 32 bits of the operation's sequence number
  std::byte data[kLineData];
};
static_assert(sizeof(Line) == 64);

// How a rank's buffer may be reached, as told in an op record.
enum class Reach : uint64_t { kUnused = 0, kHeap = 1, kPlain = 2 };

// What a rank called with a sequence number. Written before the operation's first signal; guarded by `sequence` as a
// seqlock (0 = being written), so that peers may read it at any time.
struct OpRecord {
  enum Word {
    kCall, kCount,
    kFactor, kInputReach, kOutputReach,  // announced: of several operands, the farthest
    kInput, kOutput,                     // announced, of calls without views
    // Of calls on views: how many, the hash of all their forms, and the form and type of the first.
    kOperands, kHash, kForm, kType, kSizes,
    // Announced, of calls on views: how many words the operands take, and where they are: an offset in the heap, or
    // kHere for those that have room here (see operation_view.cc).
    kDetails = kSizes + plan::kMaxDims, kPlace, kHereWords,
    kWords = 39
  };
  static constexpr uint64_t kHere = ~uint64_t{0};
  static constexpr uint64_t kRoom = kWords - kHereWords;
  std::atomic<uint64_t> sequence;  // sequence number + 1
  std::atomic<uint64_t> word[kWords];
};
static_assert(sizeof(OpRecord) == 320 && OpRecord::kRoom >= 12);

// Ranks run at most a few operations ahead of each other on a channel (scratch reuse sees to it), so a short ring will do.
inline constexpr int kRecords = 16;

inline constexpr size_t kErrorText = 448;
// A contribution to an exchange outside of operations (making communicators from this one). Found by its tag, which is
// stored last. A rank keeps its last kControlSlots contributions; the others of an exchange are one behind at most.
inline constexpr size_t kControlBytes = 4096;
inline constexpr int kControlSlots = 16;

struct ControlSlot {
  alignas(64) std::atomic<uint64_t> tag;
  alignas(64) std::byte data[kControlBytes];
};

struct BlockHeader {
  static constexpr uint64_t kMagic = 0x6b636f6c42784101ull;
  static constexpr uint64_t kProbe = 0x5afe0b5e55ed0001ull;
  uint64_t magic;
  uint32_t rank;
  uint32_t ranks;
  uint64_t probe;  // kProbe: a known word for testing process_vm_readv
  alignas(64) std::atomic<uint32_t> waiter;  // 1 + doorbell of the thread that sleeps for this rank, 0 = none
  alignas(64) std::atomic<uint32_t> closed;  // the owner has destroyed its communicator
  alignas(64) std::atomic<uint32_t> error;   // Code of the owner's failure, 0 = none; written after error_text
  char error_text[kErrorText];
};

struct ChannelLayout {
  uint32_t endpoints = 0;  // per lane
  uint32_t lanes = 0;
  uint64_t records = 0;    // offsets from the start of the block
  uint64_t lines = 0;
  uint64_t scratch = 0;
  uint64_t scratch_bytes = 0;

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
};

// The blocks of a communicator with `ranks` ranks: the default channel, and one channel for each ordered pair.
struct BlockLayout {
  ChannelLayout channel;
  uint32_t ranks = 0;
  uint64_t released = 0;      // offset of one atomic byte a rank: set when that rank lets go of the block
  uint64_t control = 0;       // offset of kControlSlots control slots
  uint64_t pairs = 0;         // offset of the pair channels
  uint64_t pair_bytes = 0;    // control part of one pair channel
  uint64_t pair_scratch = 0;  // offset of the pair channels' scratch
  uint64_t pair_scratch_bytes = 0;
  uint64_t bytes = 0;         // of the whole block

  std::atomic<uint8_t>* ReleasedBy(std::byte* block, int rank) const {
    return reinterpret_cast<std::atomic<uint8_t>*>(block + released) + rank;
  }
  ControlSlot* ControlSlots(std::byte* block) const { return reinterpret_cast<ControlSlot*>(block + control); }
  static BlockLayout Make(uint32_t ranks, uint32_t lanes, uint64_t scratch_bytes);
  // The pair channel src -> dst in the block of `owner`, which is one of the two.
  ChannelLayout Pair(uint32_t src, uint32_t dst, uint32_t owner) const;
};

}  // namespace axccl::exec
