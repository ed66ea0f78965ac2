// Notices: short messages that two processes send each other on a lifeline, among the bytes that keep it busy.
//
//   one byte 0          the machine is there
//   one byte 1          a notice follows: its head and 16 bytes that authenticate it
//                       and, unless it is empty, its text and 16 such bytes again
//
// These are BLAKE2b of the part and its number on the line, keyed with the line's key for that direction, so a notice
// is useless when it is changed, repeated, left out, or sent back. A length is believed only once it is authenticated:
// with a wrong one, the reader would wait for what never comes. No connection and no state but that of one end.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transports/remote/line_proof.h"

namespace axccl::remote {

struct Notice {
  enum Kind : uint32_t {
    kGivenUp = 1,  // the sender has given the receiver's process up
    kRevoked = 2,  // `rank` has revoked communicator `comm`
    kAsked = 3,    // what is `rank` of the receiver's machine doing in `comm`? Question `number` of the sender
    kShown = 4,    // the answer to that question (comm/board.h); no text: the sender cannot tell
    kMessage = 5,  // a message between two ranks, of a transport that has no other line to the receiver yet
    kState = 6,    // the same, without a turn
    kPass = 7,     // for another process of the receiver's machine: its id, and the head and text of a notice
    kEnded = 8,    // a process of the sender's machine has ended: its id
    kPassed = 9,   // of notices of kind kPass on this line, it has taken to these processes so many: id, uint32, ...
  };
  static constexpr size_t kMostText = 60u << 10;

  uint32_t kind = 0;
  uint32_t rank = 0;
  uint64_t comm = 0;
  uint32_t number = 0;
  std::vector<std::byte> text = {};  // at most kMostText
};

// As a notice begins.
struct NoticeHead {
  uint32_t kind = 0, rank = 0;
  uint64_t comm = 0;
  uint32_t number = 0, bytes = 0;  // of the text
};
static_assert(sizeof(NoticeHead) == 24);

// A whole notice, head and text, for what brings it to its receiver on behalf of its sender.
std::vector<std::byte> PackNotice(const Notice& notice);
// Returns false if it is none.
bool UnpackNotice(std::span<const std::byte> bytes, Notice* notice);

inline constexpr std::byte kBeatByte{0}, kNoticeByte{1};
using NoticeTag = std::array<uint8_t, 16>;

class NoticeWriter {
 public:
  using Key = std::array<uint8_t, 32>;
  explicit NoticeWriter(const Key& key = {}) : key_(key) {}
  // Appends the bytes to be sent.
  void Write(const Notice& notice, std::vector<std::byte>* bytes);

 private:
  void Append(std::span<const std::byte> part, std::vector<std::byte>* bytes);

  Key key_;
  uint64_t number_ = 0;
};

class NoticeReader {
 public:
  explicit NoticeReader(const NoticeWriter::Key& key = {}) : key_(key) {}
  // Takes received bytes and appends the notices that they complete. Returns false if they are not what the other end
  // has written; the line is useless then.
  bool Read(std::span<const std::byte> bytes, std::vector<Notice>* notices);

 private:
  bool TakePart(std::vector<Notice>* notices);

  NoticeWriter::Key key_;
  uint64_t number_ = 0;
  size_t expected_ = 0;            // bytes of the part that is coming; 0: none is
  NoticeHead head_{};              // of the notice whose text is coming
  std::vector<std::byte> buffer_;  // what has come of the part and its tag
};

}  // namespace axccl::remote
