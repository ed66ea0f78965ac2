// A stranger in the path between hosts: all connections that this process makes to other hosts lead through it. It may
// change one bit, end a connection after some byte, or pass everything on in small pieces, late. Or it is a long path:
// what follows a caller's hello arrives only after hundreds of others have called at the port, and been cut.
//
// The program's connect(2) takes precedence over the C library's. One for the process, which must have no connection to
// another host before; over IPv4. Thread-safe.
#pragma once

#include <netinet/in.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "src/base/service_fd.h"
#include "tests/harness/random.h"

namespace axccl::tests {

enum class Talk { kMeeting, kLife, kData };  // the rendezvous; the two uses of lines
inline constexpr int kTalks = 3;

struct Attack {
  enum What { kNone, kFlip, kCut, kPieces, kCrowd } what = kNone;
  // Of which the first connection is attacked (kCrowd: all of these are; kPieces: all connections are).
  Talk talk = Talk::kMeeting;
  bool of_caller = false;  // what the caller sends
  int64_t byte = 0;        // the first that is changed, or that does not arrive
  int bit = 0;
};

class Stranger {
 public:
  // `own`: the host's address.
  explicit Stranger(const char* own);
  ~Stranger();
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  // Applies to connections that are made from now on. Forgets what was counted.
  void Begin(const Attack& attack);
  // Ends all connections.
  void HangUp();
  bool attacked() const { return attacked_; }
  int crowds() const { return crowds_; }
  // How many such connections there were.
  int connections(Talk talk) const { return connections_[static_cast<size_t>(talk)]; }
  // How many bytes one side has sent over them.
  int64_t passed(Talk talk, bool of_caller) const { return passed_[static_cast<size_t>(talk)][of_caller]; }

  // Of connect(2): replaces the address if the connection is to lead through the stranger.
  void Redirect(int fd, sockaddr_in* to);

 private:
  struct Side {
    service::Fd fd;
    int64_t passed = 0;
  };
  struct Pair {
    Side caller, called;
    Talk talk = Talk::kMeeting;
    bool known = false, attacked = false, over = false;
  };

  void Main();
  void Accept();
  void Pass(Pair* pair, bool of_caller);
  void Look(Pair* pair, const std::byte* bytes, size_t count);
  void Crowd(const service::Fd& called);
  bool Forward(const service::Fd& to, const std::byte* bytes, size_t count);
  bool SendAll(const service::Fd& to, const std::byte* bytes, size_t count);

  sockaddr_in own_{};
  service::Fd listener_;
  std::mutex mutex_;
  std::map<uint16_t, sockaddr_in> destinations_;  // by the caller's port
  Attack attack_;
  bool armed_ = false;
  std::list<Pair> pairs_;  // on the thread
  harness::Random random_{harness::Scramble(harness::Seed(), 91)};
  std::array<std::atomic<int>, kTalks> connections_{};
  std::array<std::array<std::atomic<int64_t>, 2>, kTalks> passed_{};
  std::atomic<int> crowds_{0};
  std::atomic<bool> attacked_{false}, pieces_{false}, hang_up_{false}, over_{false};
  std::thread thread_;
};

}  // namespace axccl::tests
