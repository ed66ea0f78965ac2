// Notices: short messages that two processes send each other on a lifeline, among the bytes that keep it busy.
//
//   one byte 0          the machine is there
//   one byte 1          a notice follows, and 16 bytes that authenticate it
//
// These are BLAKE2b of the notice and its number on the line, keyed with the line's key for that direction, so a notice
// is useless when it is changed, repeated, left out, or sent back. No connection and no state but that of one end.
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
  };
  uint32_t kind = 0;
  uint32_t rank = 0;
  uint64_t comm = 0;
};
static_assert(sizeof(Notice) == 16);

inline constexpr std::byte kBeatByte{0}, kNoticeByte{1};
using NoticeTag = std::array<uint8_t, 16>;

class NoticeWriter {
 public:
  using Key = std::array<uint8_t, 32>;
  explicit NoticeWriter(const Key& key = {}) : key_(key) {}
  // Appends the bytes to be sent.
  void Write(const Notice& notice, std::vector<std::byte>* bytes);

 private:
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
  NoticeWriter::Key key_;
  uint64_t number_ = 0;
  std::array<std::byte, sizeof(Notice) + sizeof(NoticeTag)> buffer_{};
  size_t have_ = 0;
  bool inside_ = false;  // a notice
};

}  // namespace axccl::remote
