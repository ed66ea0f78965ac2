// The format of messages between ranks: this header and the stretches, and as data the bytes of the stretches one after
// the other. In the byte order of the machine (little-endian only). The receiver checks all of it.
//
// What one rank sends to another is numbered from 0, messages and flushes alike, because it may travel over several
// rails, and it takes effect in that order. Numbers wrap. States that go without a turn, because nothing was sent
// before, have numbers of their own, from 1 (Reach::TakeState).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transports/transport.h"

namespace axccl::remote {

inline constexpr uint32_t kMaxStretches = 32;
// A message with at least this much data is large: it may use any rail, and its data is stored on arrival, not in its
// turn.
inline constexpr size_t kLargeBytes = transport::Reach::kLargeBytes;
// Limit on messages that arrive before a missing one; a peer that is farther ahead sends nonsense.
inline constexpr uint32_t kMostAhead = 1u << 18;

struct WireStretch {
  uint64_t offset;
  uint32_t bytes;
  uint8_t of_receiver;  // of the receiver's block; otherwise of the sender's
  uint8_t guarded;
  uint8_t on_device;  // in the part on devices, which the receiver fetches
  uint8_t reserved;
};
static_assert(sizeof(WireStretch) == 16);

enum WireFlag : uint16_t {
  kState = 1,    // a state, with or without a turn
  kRepeats = 2,  // may come again, by another way
};

struct WireHeader {
  uint64_t comm;
  uint32_t from, to;  // ranks
  uint64_t area;      // the memory to which offsets refer: the key of an area; 0: the block
  uint64_t line;      // offset; ~0: none
  uint16_t stretches;
  uint16_t flags;
  uint32_t turn;  // number of the message
  std::byte line_bytes[64];
};
static_assert(sizeof(WireHeader) == 104);
inline constexpr size_t kMostHeaderBytes = sizeof(WireHeader) + kMaxStretches * sizeof(WireStretch);

// A received header.
struct Message {
  WireHeader head;
  std::array<WireStretch, kMaxStretches> stretch;

  std::span<const WireStretch> stretches() const { return {stretch.data(), head.stretches}; }
  // Such a message has no other stretch.
  bool on_device() const { return head.stretches == 1 && stretch[0].on_device != 0; }
};
// Returns false if it is not a message. Memory ranges in it are still unchecked.
bool ParseMessage(const void* header, size_t bytes, Message* message);
// Whether it stays within memory of that size, and has the right amount of data, and no stretch on a device among
// others.
bool FitsMemory(const Message& message, uint64_t memory_bytes, uint64_t data_bytes);

// Whether a message of number `turn` may arrive when all before `next` have; returns its number in full.
bool MayCome(uint32_t turn, uint64_t next, uint64_t* number);

// A message without data: requests an answer when everything that was sent before has been received, or is that answer.
struct WireControl {
  enum Kind : uint32_t { kFlush = 1, kFlushed = 2 };
  uint64_t comm;
  uint32_t from, to;
  uint32_t kind;
  uint32_t number;  // of the flush
  uint32_t turn;    // among the messages; answers have none
  uint32_t reserved;
};
static_assert(sizeof(WireControl) == 32);
// The answer to a flush.
inline WireControl Answer(const WireControl& flush) {
  return WireControl{flush.comm, flush.to, flush.from, WireControl::kFlushed, flush.number, 0, 0};
}

}  // namespace axccl::remote
