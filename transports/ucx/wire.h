// What messages between ranks look like. Their header is this, and the stretches; their data, those of the stretches
// one after the other. Bytes of the machine (little-endian only). A receiver checks all of it.
//
// What one rank sends to another is numbered from 0, messages and flushes alike, since it may come by several rails,
// and takes effect in that order. Numbers wrap.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transports/transport.h"

namespace axccl::ucx {

inline constexpr unsigned kMessage = 1, kControl = 2, kGreeting = 3;  // ids of active messages
inline constexpr uint32_t kMaxStretches = 32;
// A message with as many bytes of data is large: it goes by any rail, and its data are stored when they come, not in
// its turn.
inline constexpr size_t kLargeBytes = transport::Reach::kLargeBytes;
// Messages that come before one that is missing; a peer that is so far ahead sends nonsense.
inline constexpr uint32_t kMostAhead = 1u << 18;

struct WireStretch {
  uint64_t offset;
  uint32_t bytes;
  uint8_t of_receiver;  // of the receiver's block; else of the sender's
  uint8_t guarded;
  uint8_t reserved[2];
};
static_assert(sizeof(WireStretch) == 16);

struct WireHeader {
  uint64_t comm;
  uint32_t from, to;  // ranks
  uint64_t area;      // what offsets are in: the key of an area; 0: the block
  uint64_t line;      // offset; ~0: none
  uint32_t stretches;
  uint32_t turn;  // its number
  std::byte line_bytes[64];
};
static_assert(sizeof(WireHeader) == 104);

// A header that has come.
struct Message {
  WireHeader head;
  std::array<WireStretch, kMaxStretches> stretch;

  std::span<const WireStretch> stretches() const { return {stretch.data(), head.stretches}; }
};
// False: it is none. What it says of memory is still to be checked.
bool ParseMessage(const void* header, size_t bytes, Message* message);
// Whether it keeps to memory of so many bytes, and has as much data with it.
bool FitsMemory(const Message& message, uint64_t memory_bytes, uint64_t data_bytes);

// Whether a message of number `turn` may come when all before `next` have; its number in full.
bool MayCome(uint32_t turn, uint64_t next, uint64_t* number);

// Beside the data: asks to be told when all that was sent before has been taken in, and tells it.
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

// Between processes; see endpoint.h.
struct WireGreeting {
  std::array<uint8_t, 16> process;  // the sender's
  uint32_t asks;                    // not 0: it has not been greeted yet
  uint32_t reserved;
};
static_assert(sizeof(WireGreeting) == 24);

}  // namespace axccl::ucx
