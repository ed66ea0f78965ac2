// A rank that speaks the wire format by hand, rightly or wrongly. Blocking sockets with a receive limit of 10 s.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "src/base/service_fd.h"
#include "src/boot/unique_id.h"
#include "src/boot/wire.h"

namespace axccl::boot {

class RawRank {
 public:
  // Connects to the id's first address.
  explicit RawRank(const UniqueId& id);

  bool SendBytes(const void* data, size_t bytes);
  // Receives `bytes` bytes; false if the connection was cut before.
  bool ReceiveBytes(void* data, size_t bytes);
  // True once the hub has closed the connection (after reading what it still sent).
  bool Cut();

  // Sends `hello` (with this id and a nonce filled in) and checks the hub's answer and proof.
  bool Greet(Hello hello);
  // This rank's proof, after Greet.
  Proof MyProof() const;
  bool SendFrame(FrameType type, std::span<const std::byte> payload);
  // Sends the proof and a good kJoin frame; `spoil` is XORed into the first byte of the proof.
  bool Join(uint8_t spoil = 0);
  // Receives the next frame except kAdmitted. Returns an error frame's status; ok for any other frame, kInternalError
  // "cut" at the end.
  Status ReceiveFrame(FrameType* type);

  const IdFields& fields() const { return fields_; }
  const Hello& hub() const { return hub_; }
  const Hello& mine() const { return mine_; }

 private:
  IdFields fields_;
  service::Fd fd_;
  Hello mine_, hub_;
  FrameCipher cipher_;
};

}  // namespace axccl::boot
