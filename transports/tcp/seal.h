// Records: how the bytes of a data line are sealed, if AXCCL_ENCRYPT asks for it.
//
//   4 bytes: length of the text   8 bytes: tag of the length   text, encrypted or not   16 bytes: tag
//
// AES-256-GCM where the processor has instructions for it, otherwise ChaCha20-Poly1305 (libsodium). Each direction of
// each line has a fresh key, and the nonce is the number of the record, which is not sent: a record that is changed,
// left out, repeated or moved does not open. The length has a tag of its own (SipHash-2-4), because a receiver that
// believed a wrong one might wait for ever.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transports/remote/address.h"

namespace axccl::tcp {

// Of text, at most: a large piece of a paced line (peer.cc) goes into one record, and so into one system call.
inline constexpr size_t kRecordBytes = 48u << 10;
inline constexpr size_t kHeadBytes = 12, kTagBytes = 16;
inline constexpr size_t kSealedBytes = kHeadBytes + kRecordBytes + kTagBytes;

// The cipher of this process, which both sides must have.
remote::Cipher CipherOfProcess();

// Seals and opens the records of one direction.
class Seal {
 public:
  // `hidden`: encrypted; otherwise only protected against changes.
  Seal(const std::array<uint8_t, 32>& key, remote::Cipher cipher, bool hidden);
  ~Seal();
  Seal(const Seal&) = delete;
  Seal& operator=(const Seal&) = delete;

  // Seals `bytes` of text into `record`, where the text may be already, from kHeadBytes on. Returns the length of the
  // record.
  size_t Close(std::byte* record, const std::byte* text, size_t bytes);
  // Returns the length of the whole record that begins so; 0: it is not the next one of the other side.
  size_t LengthOf(const std::byte* record) const;
  // Stores the text at `to`, which may be where it is in the record. Returns false, and may have stored zeros, if the
  // record is not the next one of the other side.
  bool Open(const std::byte* record, size_t record_bytes, std::byte* to);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace axccl::tcp
