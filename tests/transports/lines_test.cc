// Lines among strangers: a live line stays, whatever its port receives; a caller that is cut off calls again.
#include "transports/remote/lines.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "src/base/service_fd.h"
#include "tests/harness/process_ids.h"
#include "tests/harness/run_ranks.h"
#include "transports/remote/line_proof.h"

namespace axccl::remote {
namespace {

using harness::RankContext;
using service::Fd;

constexpr std::chrono::seconds kPatient{15};

sockaddr_storage Loopback() {
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
bool Ended(const Fd& fd) {
  char some[64];
  ssize_t got = 0;
  while ((got = recv(fd.get(), some, sizeof some, 0)) > 0) continue;
  return got == 0 || errno == ECONNRESET;
}
bool EndedYet(const Fd& fd) {
  pollfd look{fd.get(), POLLRDHUP, 0};
  return poll(&look, 1, 0) > 0;
}

void BePatient(const Fd& fd) {
  const timeval limit{kPatient.count(), 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

Fd ConnectTo(const sockaddr_storage& address) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  BePatient(fd);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(sockaddr_in)), 0);
  return fd;
}

// The lines of this process, and the losses that they report.
class Watched {
 public:
  explicit Watched(uint8_t self) {
    lines_ = Lines::Get(harness::ProcessId(self), {Loopback()}, {"lo"}).value();
    EXPECT_TRUE(lines_
                    ->Add({[losses = losses_](const Lines::ProcessId&, const std::string& why) {
                             std::lock_guard lock(losses->mutex);
                             losses->lost.push_back(why);
                           },
                           [] { return true; }})
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

void InAProcess(const std::function<void()>& body) {
  harness::RunRanks(harness::Processes(1), [&](RankContext&) { body(); });
}

// ---- called ----

struct Exchanged {
  LineHello hello;
  LineNonce of_called{};
  LineProof proof;
};

// The peer calls; *exchanged gets what it sent. Returns true if the line was accepted.
bool Call(const Peer& peer, const LineKeys& keys, const Fd& fd, Exchanged* exchanged,
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

TEST(LifelineTest, ALiveLineIsNeverReplaced) {
  InAProcess([] {
    Watched lines(9);
    const Peer peer(1);
    const sockaddr_storage port = lines->address(0);
    const LineKeys keys = peer.identity.KeysWith(lines->public_key(), true).value();
    ASSERT_TRUE(lines->Meet({peer.process, 1, 0, Loopback(), peer.identity.public_key()}, true).ok());
    const Fd line = ConnectTo(port);
    Exchanged exchanged;
    ASSERT_TRUE(Call(peer, keys, line, &exchanged));
    {  // a stranger repeats all that the peer sent
      const Fd stranger = ConnectTo(port);
      LineAnswer answer;
      ASSERT_TRUE(SendTo(stranger, exchanged.hello));
      ASSERT_TRUE(ReceiveFrom(stranger, &answer));
      ASSERT_TRUE(SendTo(stranger, exchanged.proof));
      EXPECT_TRUE(Ended(stranger));
    }
    {  // the peer itself gets no second line either
      const Fd second = ConnectTo(port);
      Exchanged again;
      EXPECT_FALSE(Call(peer, keys, second, &again));
    }
    EXPECT_FALSE(EndedYet(line));
    EXPECT_TRUE(lines.lost().empty()) << lines.lost()[0];
    // The end of the line is detected, although other connections came in between.
    shutdown(line.get(), SHUT_RDWR);
    EXPECT_NE(lines.AwaitLoss().find("its process has ended"), std::string::npos) << lines.AwaitLoss();
  });
}

TEST(LifelineTest, OneThatHasEndedMakesRoomForTheNextOnceTheyMeetAgain) {
  InAProcess([] {
    Watched lines(9);
    const Peer peer(1);
    const LineKeys keys = peer.identity.KeysWith(lines->public_key(), true).value();
    Exchanged exchanged;
    for (int round = 0; round < 3; ++round) {
      if (round > 0) {
        const Fd early = ConnectTo(lines->address(0));
        EXPECT_FALSE(Call(peer, keys, early, &exchanged)) << "it is lost to this process";
      }
      ASSERT_TRUE(lines->Settle(peer.process).ok());
      ASSERT_TRUE(lines->Meet({peer.process, 1, 0, Loopback(), peer.identity.public_key()}, true).ok());
      const Fd line = ConnectTo(lines->address(0));
      ASSERT_TRUE(Call(peer, keys, line, &exchanged)) << round;
    }
  });
}

// This process, and a peer whose line to it stands.
struct Connected {
  Connected() : keys(peer.identity.KeysWith(lines->public_key(), true).value()) {
    EXPECT_TRUE(lines->Meet({peer.process, 1, 0, Loopback(), peer.identity.public_key()}, true).ok());
    line = ConnectTo(lines->address(0));
    Exchanged exchanged;
    EXPECT_TRUE(Call(peer, keys, line, &exchanged));
    session = keys.Session(exchanged.hello, exchanged.of_called, true);
  }
  void Send(const std::vector<std::byte>& bytes) const {
    EXPECT_EQ(send(line.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }

  Watched lines{9};
  const Peer peer{1};
  const LineKeys keys;
  Fd line;
  LineSession session;  // the peer's
};

// What the first one has sent is waited for longer than what the second one has.
TEST(LifelineTest, LossesAreToldOfInTheOrderInWhichTheyAreSeen) {
  InAProcess([] {
    struct Seen {
      std::mutex mutex;
      std::vector<Lines::ProcessId> losing, lost;
    };
    const auto seen = std::make_shared<Seen>();
    Watched lines(9);
    const Peer first(1), second(2);
    const auto note = [seen](std::vector<Lines::ProcessId> Seen::*where) {
      return [seen, where](const Lines::ProcessId& process) {
        std::lock_guard lock(seen->mutex);
        ((*seen).*where).push_back(process);
      };
    };
    const auto count = [seen](std::vector<Lines::ProcessId> Seen::*where, size_t expected) {
      std::lock_guard lock(seen->mutex);
      return ((*seen).*where).size() == expected;
    };
    ASSERT_TRUE(lines
                    ->Add({.lost = [lost = note(&Seen::lost)](const Lines::ProcessId& process,
                                                              const std::string&) { lost(process); },
                           .in_use = [] { return true; },
                           .losing =
                               [losing = note(&Seen::losing), process = first.process](const Lines::ProcessId& of) {
                                 losing(of);
                                 return of == process;
                               }})
                    .ok());
    std::vector<Fd> held;
    for (const Peer* peer : {&first, &second}) {
      ASSERT_TRUE(lines->Meet({peer->process, 1, 0, Loopback(), peer->identity.public_key()}, true).ok());
      held.push_back(ConnectTo(lines->address(0)));
      Exchanged exchanged;
      ASSERT_TRUE(Call(*peer, peer->identity.KeysWith(lines->public_key(), true).value(), held.back(), &exchanged));
    }
    const auto await = [&](std::vector<Lines::ProcessId> Seen::*where, size_t expected) {
      const auto limit = std::chrono::steady_clock::now() + kPatient;
      while (!count(where, expected) && std::chrono::steady_clock::now() < limit) usleep(1000);
    };
    held[0].Close();
    await(&Seen::losing, 1);
    held[1].Close();
    await(&Seen::lost, 2);
    const std::vector<Lines::ProcessId> expected = {first.process, second.process};
    EXPECT_EQ(seen->losing, expected);
    EXPECT_EQ(seen->lost, expected);
  });
}

TEST(LifelineTest, NoticesArriveAndForgedOnesEndTheLine) {
  InAProcess([] {
    Connected c;
    std::mutex mutex;
    std::vector<Notice> heard;
    ASSERT_TRUE(c.lines
                    ->HearNotices([&](const Lines::ProcessId& from, const Notice& notice) {
                      EXPECT_EQ(from, harness::ProcessId(1));
                      std::lock_guard lock(mutex);
                      heard.push_back(notice);
                    })
                    .ok());
    // To the peer.
    c.lines->Tell(c.peer.process, {Notice::kRevoked, 5, 77});
    NoticeReader reader(c.session.receives);
    std::vector<Notice> got;
    for (std::byte byte; got.empty();) {
      ASSERT_TRUE(ReceiveFrom(c.line, &byte));
      ASSERT_TRUE(reader.Read({&byte, 1}, &got));
    }
    EXPECT_EQ(got[0].rank, 5u);
    EXPECT_EQ(got[0].comm, 77u);
    // From the peer: one, and the same bytes again.
    NoticeWriter writer(c.session.sends);
    std::vector<std::byte> bytes;
    writer.Write({Notice::kRevoked, 6, 88}, &bytes);
    for (int i = 0; i < 2; ++i) c.Send(bytes);
    EXPECT_NE(c.lines.AwaitLoss().find("is not from it"), std::string::npos) << c.lines.AwaitLoss();
    std::lock_guard lock(mutex);
    ASSERT_EQ(heard.size(), 1u);
    EXPECT_EQ(heard[0].rank, 6u);
    EXPECT_EQ(heard[0].comm, 88u);
  });
}

// The other side learns whether a process has ended, or has given it up.
TEST(LifelineTest, OneThatIsGivenUpIsTold) {
  InAProcess([] {
    Connected c;
    ASSERT_TRUE(c.lines->Settle(c.peer.process).ok());  // on the service thread, so the line stands by now
    c.lines->Cut(c.peer.process);
    NoticeReader reader(c.session.receives);
    std::vector<Notice> got;
    for (std::byte byte; ReceiveFrom(c.line, &byte);) ASSERT_TRUE(reader.Read({&byte, 1}, &got));
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].kind, Notice::kGivenUp);
  });
  InAProcess([] {
    Connected c;
    std::vector<std::byte> bytes;
    NoticeWriter(c.session.sends).Write({Notice::kGivenUp}, &bytes);
    c.Send(bytes);
    c.line.Close();
    EXPECT_NE(c.lines.AwaitLoss().find("has given this process up"), std::string::npos) << c.lines.AwaitLoss();
  });
}

// The communicator may have advanced further in the peer than here.
TEST(LifelineTest, ACallerIsAnsweredOnceItIsKnown) {
  InAProcess([] {
    Watched lines(9);
    const Peer peer(1);
    const LineKeys keys = peer.identity.KeysWith(lines->public_key(), true).value();
    const Fd line = ConnectTo(lines->address(0));
    const LineHello hello{.from = peer.process, .to = harness::ProcessId(9), .nonce = FreshNonce()};
    ASSERT_TRUE(SendTo(line, hello));
    ASSERT_TRUE(lines->Meet({peer.process, 1, 0, Loopback(), peer.identity.public_key()}, true).ok());
    LineAnswer answer;
    ASSERT_TRUE(ReceiveFrom(line, &answer));
    ASSERT_TRUE(SendTo(line, keys.CallerProof(hello, answer.nonce)));
    char taken;
    EXPECT_TRUE(ReceiveFrom(line, &taken));
    EXPECT_TRUE(lines.lost().empty());
  });
}

TEST(LifelineTest, AProcessHasOneKey) {
  InAProcess([] {
    Watched lines(9);
    const Peer one(1), other(1);
    ASSERT_TRUE(lines->Meet({one.process, 1, 0, Loopback(), one.identity.public_key()}, true).ok());
    ASSERT_TRUE(lines->Meet({one.process, 1, 0, Loopback(), one.identity.public_key()}, true).ok());
    EXPECT_EQ(lines->Meet({other.process, 1, 0, Loopback(), other.identity.public_key()}, true).code(),
              Code::kRemoteError);
  });
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

// As under an attack: the line is cut before and after the caller has sent its name, and after its proof.
TEST(LifelineTest, ACallerThatIsCutOffBeforeItsLineIsAcceptedCallsAgain) {
  InAProcess([] {
    Watched lines(1);
    const Peer peer(9);
    Listener listener;
    const LineKeys keys = peer.identity.KeysWith(lines->public_key(), false).value();
    ASSERT_TRUE(lines->Meet({peer.process, 1, 0, listener.address(), peer.identity.public_key()}, true).ok());
    for (int round = 0; round < 4; ++round) {
      const Fd line = listener.Accept();
      if (round == 0) continue;
      LineHello hello;
      ASSERT_TRUE(ReceiveFrom(line, &hello));
      EXPECT_EQ(hello.from, harness::ProcessId(1));
      EXPECT_EQ(hello.to, peer.process);
      if (round == 1) continue;
      LineAnswer answer{FreshNonce(), {}};
      answer.proof = keys.CalledProof(hello, answer.nonce);
      ASSERT_TRUE(SendTo(line, answer));
      LineProof proof;
      ASSERT_TRUE(ReceiveFrom(line, &proof));
      EXPECT_TRUE(SameProof(proof, keys.CallerProof(hello, answer.nonce)));
      if (round == 2) continue;
      EXPECT_TRUE(lines.lost().empty());
      ASSERT_TRUE(SendTo(line, 'x'));
      char beat;
      EXPECT_TRUE(ReceiveFrom(line, &beat));  // the line is established
    }
    EXPECT_NE(lines.AwaitLoss().find("its process has ended"), std::string::npos);
  });
}

// The first two answers may have been changed on the way.
TEST(LifelineTest, AnotherProcessInThePeersPlaceIsRejected) {
  InAProcess([] {
    Watched lines(1);
    const Peer peer(9), impostor(9);
    Listener listener;
    const LineKeys keys = impostor.identity.KeysWith(lines->public_key(), false).value();
    ASSERT_TRUE(lines->Meet({peer.process, 1, 0, listener.address(), peer.identity.public_key()}, true).ok());
    for (int round = 0; round < 3; ++round) {
      EXPECT_TRUE(lines.lost().empty());
      const Fd line = listener.Accept();
      LineHello hello;
      ASSERT_TRUE(ReceiveFrom(line, &hello));
      LineAnswer answer{FreshNonce(), {}};
      answer.proof = keys.CalledProof(hello, answer.nonce);
      ASSERT_TRUE(SendTo(line, answer));
      EXPECT_TRUE(Ended(line));
    }
    EXPECT_NE(lines.AwaitLoss().find("another process"), std::string::npos);
  });
}

TEST(LifelineTest, APeerThatIsGoneBeforeItIsCalledIsLost) {
  InAProcess([] {
    Watched lines(1);
    const Peer peer(9);
    sockaddr_storage nowhere;
    {
      const Listener gone;
      nowhere = gone.address();
    }
    ASSERT_TRUE(lines->Meet({peer.process, 1, 0, nowhere, peer.identity.public_key()}, true).ok());
    EXPECT_NE(lines.AwaitLoss().find("nothing listens at its address"), std::string::npos) << lines.AwaitLoss();
  });
}

// ---- data lines ----

// What has been handed over.
class Taken {
 public:
  explicit Taken(Watched* lines) {
    EXPECT_TRUE((*lines)
                    ->TakeDataLines([this](const Lines::Key& key, Fd fd, const LineSession& session) {
                      std::lock_guard lock(mutex_);
                      EXPECT_EQ(key.use, LineUse::kData);
                      fds_.push_back(std::move(fd));
                      sends_.push_back(session.sends);
                    })
                    .ok());
  }
  std::array<uint8_t, 32> Await() {
    const auto limit = std::chrono::steady_clock::now() + kPatient;
    while (count() == 0 && std::chrono::steady_clock::now() < limit) usleep(1000);
    std::lock_guard lock(mutex_);
    EXPECT_EQ(sends_.size(), 1u);
    return sends_.empty() ? std::array<uint8_t, 32>{} : sends_[0];
  }
  size_t count() {
    std::lock_guard lock(mutex_);
    return fds_.size();
  }

 private:
  std::mutex mutex_;
  std::vector<Fd> fds_;
  std::vector<std::array<uint8_t, 32>> sends_;
};

// Answers the call of this process up to its proof; returns it with the keys of the line.
LineSession AnswerCall(const LineKeys& keys, const Fd& line) {
  LineHello hello;
  EXPECT_TRUE(ReceiveFrom(line, &hello));
  EXPECT_EQ(hello.use, LineUse::kData);
  LineAnswer answer{FreshNonce(), {}};
  answer.proof = keys.CalledProof(hello, answer.nonce);
  LineProof proof;
  EXPECT_TRUE(SendTo(line, answer) && ReceiveFrom(line, &proof));
  EXPECT_TRUE(SameProof(proof, keys.CallerProof(hello, answer.nonce)));
  return keys.Session(hello, answer.nonce, false);
}

// The process with the larger number has called as well, and gives that up.
TEST(DataLineTest, OfTwoCallsThatOfTheSmallerNumberCounts) {
  InAProcess([] {
    Watched lines(9);
    Taken taken(&lines);
    const Peer peer(1);
    Listener listener;
    const LineKeys calls = peer.identity.KeysWith(lines->public_key(), true).value();
    ASSERT_TRUE(lines->Meet({peer.process, 1, 0, listener.address(), peer.identity.public_key()}, true).ok());
    lines->CallForData(peer.process);
    const Fd first = listener.Accept();
    LineHello hello;
    ASSERT_TRUE(ReceiveFrom(first, &hello));
    EXPECT_EQ(hello.from, harness::ProcessId(9));
    const Fd line = ConnectTo(lines->address(0));
    Exchanged exchanged;
    ASSERT_TRUE(Call(peer, calls, line, &exchanged, harness::ProcessId(9), LineUse::kData));
    EXPECT_TRUE(Ended(first));
    EXPECT_EQ(taken.Await(), calls.Session(exchanged.hello, exchanged.of_called, true).receives);
    lines->CallForData(peer.process);  // there is one
    ASSERT_TRUE(lines->Settle(peer.process).ok());
    EXPECT_EQ(taken.count(), 1u);
    EXPECT_TRUE(lines.lost().empty());
  });
}

// The process with the smaller number refuses the other's call while it calls itself.
TEST(DataLineTest, OfTwoCallsThatOfTheLargerNumberIsRefused) {
  InAProcess([] {
    Watched lines(1);
    Taken taken(&lines);
    const Peer peer(9);
    Listener listener;
    const LineKeys called = peer.identity.KeysWith(lines->public_key(), false).value();
    const LineKeys calls = peer.identity.KeysWith(lines->public_key(), true).value();
    ASSERT_TRUE(lines->Meet({peer.process, 1, 0, listener.address(), peer.identity.public_key()}, true).ok());
    const Fd life = listener.Accept();
    lines->CallForData(peer.process);
    const Fd line = listener.Accept();
    const LineSession session = AnswerCall(called, line);
    const Fd refused = ConnectTo(lines->address(0));
    Exchanged exchanged;
    EXPECT_FALSE(Call(peer, calls, refused, &exchanged, harness::ProcessId(1), LineUse::kData));
    ASSERT_TRUE(SendTo(line, 'x'));
    EXPECT_EQ(taken.Await(), session.receives);
    EXPECT_TRUE(lines.lost().empty());
  });
}

// Either of the two calls, whatever its number; without a call there is none.
TEST(DataLineTest, TheLargerNumberMayCall) {
  InAProcess([] {
    Watched lines(1);
    Taken taken(&lines);
    const Peer peer(9);
    Listener listener;
    const LineKeys calls = peer.identity.KeysWith(lines->public_key(), true).value();
    ASSERT_TRUE(lines->Meet({peer.process, 1, 0, listener.address(), peer.identity.public_key()}, true).ok());
    const Fd life = listener.Accept();
    LineHello hello;
    ASSERT_TRUE(ReceiveFrom(life, &hello));
    EXPECT_EQ(hello.use, LineUse::kLife);
    EXPECT_EQ(taken.count(), 0u);
    const Fd line = ConnectTo(lines->address(0));
    Exchanged exchanged;
    ASSERT_TRUE(Call(peer, calls, line, &exchanged, harness::ProcessId(1), LineUse::kData));
    EXPECT_EQ(taken.Await(), calls.Session(exchanged.hello, exchanged.of_called, true).receives);
  });
}

// It tells the caller that there is nothing to be had, like a lifeline.
TEST(DataLineTest, APeerThatIsGoneWhenItIsCalledIsLost) {
  InAProcess([] {
    Watched lines(9);
    const Peer peer(1);
    sockaddr_storage nowhere;
    {
      const Listener gone;
      nowhere = gone.address();
    }
    ASSERT_TRUE(lines->Meet({peer.process, 1, 0, nowhere, peer.identity.public_key()}, true).ok());
    lines->CallForData(peer.process);
    EXPECT_NE(lines.AwaitLoss().find("nothing listens at its address"), std::string::npos) << lines.AwaitLoss();
  });
}

}  // namespace
}  // namespace axccl::remote
