// A frame that is being sent: its head and header, and where its data are.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "transports/remote/memory.h"
#include "transports/tcp/frame.h"

namespace axccl::tcp {

class Reach;

class Outgoing {
 public:
  Outgoing() = default;
  Outgoing(const Outgoing&) = delete;
  Outgoing& operator=(const Outgoing&) = delete;

  static constexpr size_t kMostPieces = remote::kMaxStretches + 1;

  // `header` is copied; data are added below.
  void Begin(FrameKind kind, const void* header, size_t header_bytes);
  void Add(const std::byte* data, size_t bytes);
  void End();  // all data have been added
  // Copies the data, so that it needs the memory of no rank.
  void CopyData();
  // All bytes of a frame of which nothing has been sent.
  std::vector<std::byte> Copy() const;

  size_t bytes() const { return bytes_; }
  size_t rest() const { return bytes_ - sent_; }
  // What is still to be sent, of which `most` pieces fit. Returns how many there are.
  size_t Pieces(iovec* pieces, size_t most) const;
  void Sent(size_t bytes) { sent_ += bytes; }

  ~Outgoing() { Release(); }
  // It is sent later: until then, the owner is sending.
  void Hold();
  // It has been sent, and may be used for another frame.
  void Release();

  // Kept until all is sent.
  std::shared_ptr<Reach> owner;
  std::shared_ptr<remote::Memory> memory;
  size_t lane = 0;  // of a flush

 private:
  void AppendData(std::vector<std::byte>* bytes) const;

  std::array<std::byte, kMostFrameBytes> head_;
  size_t head_bytes_ = 0;
  std::array<iovec, remote::kMaxStretches> data_;
  size_t pieces_ = 0;
  std::vector<std::byte> copy_;
  bool held_ = false;
  size_t bytes_ = 0, sent_ = 0;
};

}  // namespace axccl::tcp
