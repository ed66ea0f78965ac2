// A rank's own end of a connection: blocking calls on the rank's thread, bounded by deadline and stop.
//
// Connects to who serves an id (a hub, or the rank above in a tree), proves that both know its secret, and sends and
// receives whole frames. Or lets go of the socket, for the service thread to go on with. Used by one thread.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "src/base/service_fd.h"
#include "src/base/status.h"
#include "src/boot/boot.h"
#include "src/boot/unique_id.h"
#include "src/boot/wire.h"

namespace axccl::boot {

// The hub watches every rank's deadline and knows who is missing; its word is worth waiting a little longer for.
inline constexpr std::chrono::milliseconds kGrace{500};

struct Patience {
  Clock::time_point deadline;
  service::Stop stop;
  Clock::time_point start = Clock::now();
};

// What a wait of `rank` that ended without data means. `whom` it waited on may be empty.
Status WaitFailed(service::Wait wait, int rank, int nranks, const std::string& whom, const char* what);

class Dial {
 public:
  // `whom`: how messages call the other side; empty: the process that serves the id.
  Dial(const IdFields& id, Role role, int rank, int nranks, const Patience& patience, std::string whom = "");
  ~Dial();
  Dial(const Dial&) = delete;
  Dial& operator=(const Dial&) = delete;

  // Connects, lets the other side prove itself, calls `fill` (may be null) for what to tell it, and is let in. Tries
  // again while NCCL_COMM_ID's server may still come, and when it is cut off because others press in. Patience, pid and
  // host are filled in.
  Status Enter(const std::function<Status(JoinBody*)>& fill);
  Status Send(FrameType type, std::span<const std::byte> payload);
  // Sends what the socket takes at once, and closes.
  void SendLast(FrameType type, std::span<const std::byte> payload);
  // Receives a frame of `type` with exactly payload.size() bytes; an error frame becomes the status.
  // *closed (may be null) becomes true when the other side closed instead.
  Status Receive(FrameType type, std::span<std::byte> payload, bool* closed = nullptr);

  explicit operator bool() const { return static_cast<bool>(fd_); }
  void Close() { fd_.Close(); }
  service::Fd Release() { return std::move(fd_); }
  const FrameCipher& cipher() const { return cipher_; }
  // This end of the connection, with port 0: where others on the same network can reach this process.
  Result<Address> LocalAddress() const;

 private:
  // What a failed attempt to connect means.
  struct Attempt {
    Status status;       // ok: connected
    bool retry = false;  // the other side may be there later
  };

  Status Connect();
  Status SendJoin(JoinBody join);
  std::string Where() const;
  bool from_environment() const { return (id_.flags & kFromEnvironment) != 0; }
  std::vector<std::byte> Seal(FrameType type, std::span<const std::byte> payload);
  Attempt ConnectOnce(const Address& address);
  Status ConnectFailed(const Address& address, int error) const;
  Attempt Greet();
  Attempt CheckGreeting(const Hello& hub);
  Status Failed(service::Wait wait, const char* what) const;
  Status Lost(const char* what) const;
  Status SendAll(const void* data, size_t bytes, Clock::time_point deadline);
  Status ReceiveAll(void* data, size_t bytes, Clock::time_point deadline, bool* closed);

  IdFields id_;
  const Role role_;
  const int rank_;
  const int nranks_;
  const Patience patience_;
  std::string whom_;
  service::Fd fd_;
  FrameCipher cipher_;
  Hello mine_, hub_;
};

// Pid and host of this process, for those who must name it.
JoinBody Self(Clock::time_point deadline);

}  // namespace axccl::boot
