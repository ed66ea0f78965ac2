// Simulated peers of the lines of this process, which call it or are called by it.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/base/service_fd.h"
#include "tests/harness/process_ids.h"
#include "tests/harness/run_ranks.h"
#include "transports/remote/line_proof.h"
#include "transports/remote/lines.h"

namespace axccl::remote {

using service::Fd;

inline constexpr std::chrono::seconds kPatient{15};

inline sockaddr_storage Loopback() {
  sockaddr_storage storage{};
  auto* const in = reinterpret_cast<sockaddr_in*>(&storage);
  in->sin_family = AF_INET;
  in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return storage;
}

template <class T>
bool SendTo(const Fd& fd, const T& what) {
  return send(fd.get(), &what, sizeof what, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof what);
}
template <class T>
bool ReceiveFrom(const Fd& fd, T* what) {
  return recv(fd.get(), what, sizeof *what, MSG_WAITALL) == static_cast<ssize_t>(sizeof *what);
}
// Whether the other side has closed the connection; what it sent before is ignored.
inline bool Ended(const Fd& fd) {
  char some[64];
  ssize_t got = 0;
  while ((got = recv(fd.get(), some, sizeof some, 0)) > 0) continue;
  return got == 0 || errno == ECONNRESET;
}
inline bool EndedYet(const Fd& fd) {
  pollfd look{fd.get(), POLLRDHUP, 0};
  return poll(&look, 1, 0) > 0;
}

inline void BePatient(const Fd& fd) {
  const timeval limit{kPatient.count(), 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

inline Fd ConnectTo(const sockaddr_storage& address) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  BePatient(fd);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(sockaddr_in)), 0);
  return fd;
}

// The lines of this process, and the losses that they report.
class Watched {
 public:
  explicit Watched(uint8_t self, bool in_use = true) {
    lines_ = Lines::Get(harness::ProcessId(self), {Loopback()}, {"lo"}).value();
    EXPECT_TRUE(lines_
                    ->Add({[losses = losses_](const Lines::ProcessId&, const std::string& why) {
                             std::lock_guard lock(losses->mutex);
                             losses->lost.push_back(why);
                           },
                           [in_use] { return in_use; }})
                    .ok());
  }
  Lines* operator->() { return lines_; }
  std::vector<std::string> lost() {
    std::lock_guard lock(losses_->mutex);
    return losses_->lost;
  }
  std::string AwaitLoss() {
    const auto limit = std::chrono::steady_clock::now() + kPatient;
    while (lost().empty() && std::chrono::steady_clock::now() < limit) usleep(1000);
    return lost().empty() ? "" : lost()[0];
  }

 private:
  // The lines, which live as long as the process, may report some after the test.
  struct Losses {
    std::mutex mutex;
    std::vector<std::string> lost;
  };
  const std::shared_ptr<Losses> losses_ = std::make_shared<Losses>();
  Lines* lines_ = nullptr;
};

// A simulated peer.
struct Peer {
  explicit Peer(uint8_t number) : identity(LineIdentity::Make().value()) { process = harness::ProcessId(number); }

  LineProcess process{};
  LineIdentity identity;
};

inline void InAProcess(const std::function<void()>& body) {
  harness::RunRanks(harness::Processes(1), [&](harness::RankContext&) { body(); });
}

// ---- called ----

struct Exchanged {
  LineHello hello;
  LineNonce of_called{};
  LineProof proof;
};

// The peer calls; *exchanged gets what it sent. Returns true if the line was accepted.
inline bool Call(const Peer& peer, const LineKeys& keys, const Fd& fd, Exchanged* exchanged,
                 const LineProcess& to = harness::ProcessId(9), LineUse use = LineUse::kLife) {
  exchanged->hello = LineHello{.from = peer.process, .to = to, .nonce = FreshNonce(), .use = use};
  LineAnswer answer;
  if (!SendTo(fd, exchanged->hello) || !ReceiveFrom(fd, &answer)) return false;
  EXPECT_TRUE(SameProof(answer.proof, keys.CalledProof(exchanged->hello, answer.nonce)));
  exchanged->of_called = answer.nonce;
  exchanged->proof = keys.CallerProof(exchanged->hello, answer.nonce);
  char taken;
  return SendTo(fd, exchanged->proof) && ReceiveFrom(fd, &taken);
}

// The notices that come next over the peer's end of a line: at least one, unless the line ends.
inline std::vector<Notice> ReadNotices(const Fd& line, const LineSession& session) {
  NoticeReader reader(session.receives);
  std::vector<Notice> got;
  for (std::byte byte; got.empty() && ReceiveFrom(line, &byte);) EXPECT_TRUE(reader.Read({&byte, 1}, &got));
  return got;
}

// ---- calling ----

class Listener {
 public:
  Listener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), address_(Loopback()) {
    socklen_t bytes = sizeof address_;
    BePatient(fd_);
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<sockaddr*>(&address_), sizeof(sockaddr_in)), 0);
    EXPECT_EQ(listen(fd_.get(), 8), 0);
    EXPECT_EQ(getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address_), &bytes), 0);
  }
  const sockaddr_storage& address() const { return address_; }
  Fd Accept() {
    Fd fd(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    BePatient(fd);
    return fd;
  }

 private:
  Fd fd_;
  sockaddr_storage address_;
};

// Answers the call of this process up to its proof; returns it with the keys of the line.
inline LineSession AnswerCall(const LineKeys& keys, const Fd& line, LineUse use) {
  LineHello hello;
  EXPECT_TRUE(ReceiveFrom(line, &hello));
  EXPECT_EQ(hello.use, use);
  LineAnswer answer{FreshNonce(), {}};
  answer.proof = keys.CalledProof(hello, answer.nonce);
  LineProof proof;
  EXPECT_TRUE(SendTo(line, answer) && ReceiveFrom(line, &proof));
  EXPECT_TRUE(SameProof(proof, keys.CallerProof(hello, answer.nonce)));
  return keys.Session(hello, answer.nonce, false);
}

}  // namespace axccl::remote
