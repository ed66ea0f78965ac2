// A data line to another process: frames out and in, sealed or not.
//
// What is sent goes to the kernel at once as far as it takes it; the rest waits in a queue. Data that are large go from
// and to the memory of the ranks by gathering and scattering system calls, without a copy between (but for sealed
// ones).
//
// The lock of the peer guards all of it.
#pragma once

#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/service_fd.h"
#include "transports/remote/line_proof.h"
#include "transports/tcp/frame.h"
#include "transports/tcp/outgoing.h"
#include "transports/tcp/reach.h"
#include "transports/tcp/seal.h"

namespace axccl::tcp {

class Peer;

// How the two sides of a pair protect what they send.
struct Protection {
  remote::Sealing sealing = remote::Sealing::kNone;
  remote::Cipher cipher = remote::Cipher::kAesGcm;
};
// A large message, whose data are being stored.
struct LargeMessage {
  remote::Message message;
  Reach::Admission admitted;
  Reach* reach = nullptr;  // null: the data are dropped
  std::vector<iovec> places;
  size_t place = 0, rest = 0;  // the next of them; bytes that have not come
  std::vector<std::byte> guarded;
};

class Connection {
 public:
  Connection(Peer* peer, size_t lane, service::Fd fd, const remote::LineSession& session, const Protection& protection);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Peer* peer() const { return peer_; }
  size_t lane() const { return lane_; }
  int fd() const { return fd_.get(); }

  // Takes the frame if not all of it could be sent at once.
  void Send(std::unique_ptr<Outgoing>* frame);
  // Takes the frame, to be sent with the next.
  void Queue(std::unique_ptr<Outgoing> frame);
  // Sends what the socket takes of the queue.
  void SendMore();
  // Whether that is due.
  bool wants_to_send() const { return wants_; }
  size_t unsent() const { return unsent_; }
  // Drops the queue, and ends the connection. Its descriptor is closed by the thread that receives, after that.
  void End();
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  // For who looks whether something has come (Worker, whose lock guards it): more is to be expected until that look.
  uint64_t warm_until = 0;
  // Once it has ended, and nobody serves it any more. Its peer may keep it for long.
  void Close() {
    fd_.Close();
    buffer_.reset();
    sealed_.reset();
  }

  // Receives what there is, within limits. Returns whether there was anything.
  bool Receive();
  // Nothing is stored for it any more.
  void Forget(const Reach* reach);

 private:
  static constexpr size_t kBufferBytes = 128u << 10;
  static constexpr size_t kMostAtOnce = 512u << 10;
  static_assert(kBufferBytes >= 2 * (kMostFrameBytes + remote::kLargeBytes) + kRecordBytes);

  // What a sealed connection has besides.
  struct Sealed {
    // `most_bytes`: of a message. Its records go out together.
    Sealed(const remote::LineSession& session, const Protection& protection, size_t most_bytes);

    Seal out, in;
    std::vector<std::byte> records;  // that are being sent
    size_t sealed_bytes = 0, sealed_sent = 0;
    std::vector<std::byte> coming;  // records that are being received
    size_t coming_bytes = 0;
  };

  void Want(bool to_send);
  ssize_t Write();
  void FillRecords();
  size_t Gather(std::byte* text);
  void PopSent(size_t bytes);
  ssize_t ReadPlain(size_t* asked);
  ssize_t ReadSealed(size_t* asked);
  bool OpenRecords();
  std::byte* PlaceFor(size_t bytes) const;
  void Parse();
  bool ParseOne();
  void Begin(const remote::Message& message, size_t bytes);
  void StoreFromBuffer();
  void Stored(size_t bytes);
  void EndLarge();
  void Refuse() { Fail("it sent what is no message"); }
  void Fail(const std::string& why);
  void Compact();

  Peer* const peer_;
  const size_t lane_;
  service::Fd fd_;
  std::string trouble_;  // why nothing more can be sent or received; empty: it can
  std::atomic<bool> ended_{false};
  std::unique_ptr<Sealed> sealed_;

  std::deque<std::unique_ptr<Outgoing>> queue_;
  size_t unsent_ = 0;
  bool wants_ = false;  // the socket had no room

  std::unique_ptr<std::byte[]> buffer_;
  size_t begin_ = 0, end_ = 0;  // of what has been received there and not been looked at
  std::optional<LargeMessage> large_;
};

}  // namespace axccl::tcp
