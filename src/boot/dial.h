// A rank's end of a connection: blocking calls on the rank's thread, bounded by deadline and stop.
//
// Connects to the server of an id (a hub, or the rank above in a tree), proves that both know its secret, and sends and
// receives whole frames. Release gives the socket to the service thread. Used by one thread.
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

// The hub watches every rank's deadline and knows which ranks are missing, so a rank waits this much longer for its
// text.
inline constexpr std::chrono::milliseconds kGrace{500};

// For the other side of a connection to answer the first hello; doubled with each attempt that it does not answer,
// because it may be stopped or slow.
inline constexpr std::chrono::milliseconds kGreeting{5'000}, kLongestGreeting{600'000};

struct Patience {
  Clock::time_point deadline;
  service::Stop stop;
  Clock::time_point start = Clock::now();
};

// The error of a wait of `rank` that ended without data. `whom` names what it waited for, and may be empty.
Status WaitFailed(service::Wait wait, int rank, int nranks, const std::string& whom, const char* what);

class Dial {
 public:
  // `whom`: the name of the other side in messages; empty: the process that serves the id.
  Dial(const IdFields& id, Role role, int rank, int nranks, const Patience& patience, std::string whom = "");
  ~Dial();
  Dial(const Dial&) = delete;
  Dial& operator=(const Dial&) = delete;

  // Connects, verifies the other side, lets `fill` (may be null) complete what to send, and returns once this rank is
  // admitted. Retries while the server of NCCL_COMM_ID may still start, and when the connection is cut in favour of
  // younger ones, or its first answer does not come. This function fills in patience, pid and host.
  Status Enter(const std::function<Status(JoinBody*)>& fill);
  Status Send(FrameType type, std::span<const std::byte> payload);
  // Sends as much as the socket takes at once, and closes.
  void SendLast(FrameType type, std::span<const std::byte> payload);
  // Receives a frame of `type` with exactly payload.size() bytes; an error frame becomes the status. Sets *retry (may
  // be null) to true if the other side closed the connection instead.
  Status Receive(FrameType type, std::span<std::byte> payload, bool* retry = nullptr);

  explicit operator bool() const { return static_cast<bool>(fd_); }
  void Close() { fd_.Close(); }
  service::Fd Release() { return std::move(fd_); }
  const FrameCipher& cipher() const { return cipher_; }
  // The address of this end with port 0: where others on the same network can reach this process.
  Result<Address> LocalAddress() const;

 private:
  // The result of one attempt to connect.
  struct Attempt {
    Status status;       // ok: connected
    bool retry = false;  // a later attempt may succeed
  };

  Status Connect();
  Status SendJoin(JoinBody join);
  std::string Where() const;
  bool from_environment() const { return (id_.flags & kFromEnvironment) != 0; }
  std::vector<std::byte> Seal(FrameType type, std::span<const std::byte> payload);
  Attempt ConnectOnce(const Address& address);
  Status ConnectFailed(const Address& address, int error) const;
  Attempt Greet();
  Attempt CheckGreeting(const Hello& hub, Clock::time_point limit);
  Status Failed(service::Wait wait, const char* what) const;
  Status Lost(const char* what) const;
  Status SendAll(const void* data, size_t bytes, Clock::time_point deadline);
  // Sets *retry (may be null) if the other side closed the connection, or did not answer by a deadline before that of
  // this rank.
  Status ReceiveAll(void* data, size_t bytes, Clock::time_point deadline, bool* retry);

  IdFields id_;
  const Role role_;
  const int rank_;
  const int nranks_;
  const Patience patience_;
  std::string whom_;
  service::Fd fd_;
  FrameCipher cipher_;
  Hello mine_, hub_;
  bool admitted_ = false;
  std::chrono::milliseconds greeting_ = kGreeting;  // for the next attempt
};

// Pid, host and remaining time of this process, which other ranks show in messages.
JoinBody Self(Clock::time_point deadline);

}  // namespace axccl::boot
