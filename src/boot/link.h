// One end of an authenticated connection: frames in, frames out, on the service thread.
//
// A Link keeps itself alive while its socket is watched, and reports to its owner until the owner detaches, the peer
// closes, or a frame is bad (which counts as closed). Memory is bounded: one incoming frame of at most its type's
// limit, and the outgoing frames that the rank has queued. Everything runs on the service thread.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/base/service.h"
#include "src/boot/wire.h"

namespace axccl::boot {

class LinkOwner {
 public:
  virtual ~LinkOwner() = default;
  virtual void OnFrame(int rank, FrameType type, std::span<const std::byte> payload) = 0;
  // The connection is over, for `reason`. Called at most once.
  virtual void OnClosed(int rank, const std::string& reason) = 0;
  // The kernel has taken all that was queued.
  virtual void OnSent(int rank) {}
};

class Link : public std::enable_shared_from_this<Link> {
 public:
  // `receiver` is this end.
  Link(service::Loop* loop, service::Fd fd, const FrameCipher& cipher, Role receiver, int nranks);

  // Starts reading; passes frames to `owner` (may be null) with `rank`.
  Status Start(std::shared_ptr<LinkOwner> owner, int rank);
  // Queues a frame and sends what the socket takes.
  void Send(FrameType type, std::span<const std::byte> payload);
  void SendError(const Status& reason);
  // Whether the kernel has taken all that was queued.
  bool idle() const { return queue_.empty(); }
  // Sends the error and finishes. If there is no memory for it, the peer only sees the connection end. Does not throw.
  void End(const Status& reason);
  // As End, for a link that may not have been started.
  void Reject(const Status& reason);
  // Detaches the owner, sends what is queued, and closes once the peer has closed or 3 s have passed. (Closing at once
  // could destroy what the peer has not read yet.)
  void Finish();
  // Detaches the owner and closes now.
  void Close();

 private:
  using Lock = std::shared_ptr<Link>;

  void OnEvent(uint32_t events);
  bool ReadSome();     // false: nothing more to read now, or closed
  bool HandleFrame();  // false: closed
  void Flush();
  void FlushAgain();
  void Lost(const std::string& reason);

  service::Loop* const loop_;
  service::Fd fd_;
  FrameCipher cipher_;
  const Role receiver_;
  const int nranks_;
  std::shared_ptr<LinkOwner> owner_;
  int rank_ = -1;

  FrameHeader header_;
  std::vector<std::byte> payload_;
  size_t read_ = 0;  // bytes of header and payload read so far

  std::deque<std::vector<std::byte>> queue_;  // whole frames
  size_t written_ = 0;                        // of queue_.front()
  bool started_ = false;
  bool finishing_ = false;
  uint64_t finish_timer_ = 0;
  uint64_t again_timer_ = 0;
};

}  // namespace axccl::boot
