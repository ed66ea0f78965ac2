// Lines among strangers: a live line stays, whatever its port receives; a caller that is cut off calls again.
#include "transports/remote/lines.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/process_ids.h"
#include "tests/transports/line_peer.h"
#include "transports/remote/line_proof.h"
#include "transports/remote/mates.h"
#include "transports/remote/next_mate.h"

namespace axccl::remote {
namespace {

// ---- called ----

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
  explicit Connected(Watched of_process = Watched(9))
      : lines(std::move(of_process)), keys(peer.identity.KeysWith(lines->public_key(), true).value()) {
    EXPECT_TRUE(lines->Meet({peer.process, 1, 0, Loopback(), peer.identity.public_key()}, true).ok());
    line = ConnectTo(lines->address(0));
    Exchanged exchanged;
    EXPECT_TRUE(Call(peer, keys, line, &exchanged));
    session = keys.Session(exchanged.hello, exchanged.of_called, true);
  }
  void Send(const std::vector<std::byte>& bytes) const {
    EXPECT_EQ(send(line.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }

  Watched lines;
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
    const std::vector<Notice> got = ReadNotices(c.line, c.session);
    ASSERT_FALSE(got.empty());
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

// Whether they are one that tells of the end of a process.
bool IsOfEnd(int number, const std::vector<Notice>& notices) {
  const Lines::ProcessId id = harness::ProcessId(number);
  return notices.size() == 1 && notices[0].kind == Notice::kEnded && notices[0].text.size() == id.size() &&
         std::memcmp(notices[0].text.data(), id.data(), id.size()) == 0;
}

// The mate is process 10. Of the other machine, processes 1 and 2, which watch this one, are told of its end. They end
// before they could tell process 3, so that process 9 does.
TEST(LifelineTest, TheEndOfAMateIsToldAgainIfThoseThatWereToldAreLost) {
  InAProcess([] {
    service::Loop* const loop = service::Loop::Get().value();
    auto mate = std::make_unique<NextMate>();
    ASSERT_TRUE(
        loop->Run([&] { return mate->Start(loop, harness::ProcessId(10), [](const NextMate::ProcessId&) {}); }).ok());
    Watched lines(9);
    ASSERT_TRUE(lines->AddMates({harness::ProcessId(10)}).ok());
    Listener listener;
    const Peer third(3);
    ASSERT_TRUE(lines->Meet({third.process, 1, 0, listener.address(), third.identity.public_key()}, false).ok());
    std::vector<Fd> held;
    std::vector<LineSession> sessions;
    for (const uint8_t number : {1, 2}) {
      const Peer peer(number);
      const LineKeys keys = peer.identity.KeysWith(lines->public_key(), true).value();
      ASSERT_TRUE(lines->Meet({peer.process, 1, 0, Loopback(), peer.identity.public_key()}, true).ok());
      held.push_back(ConnectTo(lines->address(0)));
      Exchanged exchanged;
      ASSERT_TRUE(Call(peer, keys, held.back(), &exchanged));
      sessions.push_back(keys.Session(exchanged.hello, exchanged.of_called, true));
    }
    ASSERT_TRUE(loop->Run([&] { mate.reset(); }).ok());
    for (size_t i = 0; i < held.size(); ++i) EXPECT_TRUE(IsOfEnd(10, ReadNotices(held[i], sessions[i])));
    held.clear();
    const Fd line = listener.Accept();
    const LineKeys keys = third.identity.KeysWith(lines->public_key(), false).value();
    const LineSession session = AnswerCall(keys, line, LineUse::kLife);
    ASSERT_TRUE(SendTo(line, 'x'));
    EXPECT_TRUE(IsOfEnd(10, ReadNotices(line, session)));
  });
}

// No rank here needs a process any more, but those of others do.
TEST(LifelineTest, TheEndOfAMateIsToldAlsoByAProcessThatNeedsNobody) {
  InAProcess([] {
    service::Loop* const loop = service::Loop::Get().value();
    auto mate = std::make_unique<NextMate>();
    ASSERT_TRUE(
        loop->Run([&] { return mate->Start(loop, harness::ProcessId(10), [](const NextMate::ProcessId&) {}); }).ok());
    Watched lines(9, false);
    ASSERT_TRUE(lines->AddMates({harness::ProcessId(10)}).ok());
    const Connected c(std::move(lines));
    ASSERT_TRUE(loop->Run([&] { mate.reset(); }).ok());
    EXPECT_TRUE(IsOfEnd(10, ReadNotices(c.line, c.session)));
  });
}

// A mate may share a communicator with process 5, which this process has never met.
TEST(LifelineTest, WhomAProcessDoesNotKnowItsMatesMayKnow) {
  InAProcess([] {
    service::Loop* const loop = service::Loop::Get().value();
    static auto* const mate = new Mates;
    static std::atomic<int> lost{0};
    Status started;
    ASSERT_TRUE(loop->Run([&] {
                      started = mate->Start(loop, harness::ProcessId(10),
                                            [&](const Mates::Head& head, std::span<const std::byte>) {
                                              if (head.kind == Mates::Head::kLost) lost = head.about[0];
                                            });
                    })
                    .ok());
    ASSERT_TRUE(started.ok());
    Connected c(Watched(9));
    ASSERT_TRUE(c.lines->AddMates({harness::ProcessId(10)}).ok());
    const Lines::ProcessId unknown = harness::ProcessId(5);
    const auto id = std::as_bytes(std::span(unknown));
    std::vector<std::byte> bytes;
    NoticeWriter(c.session.sends).Write({.kind = Notice::kEnded, .text = {id.begin(), id.end()}}, &bytes);
    c.Send(bytes);
    const auto limit = std::chrono::steady_clock::now() + kPatient;
    while (lost == 0 && std::chrono::steady_clock::now() < limit) usleep(1000);
    EXPECT_EQ(lost, 5);
  });
}

// Process 1, which is to call, does not; and a mate says that it is lost. This process sees for itself.
TEST(LifelineTest, WhoIsToCallIsCalledIfAMateHasLostIt) {
  InAProcess([] {
    service::Loop* const loop = service::Loop::Get().value();
    static auto* const mate = new Mates;
    Status started;
    ASSERT_TRUE(loop->Run([&] { started = mate->Start(loop, harness::ProcessId(10), nullptr); }).ok());
    ASSERT_TRUE(started.ok());
    Watched lines(9);
    Listener listener;
    const Peer peer(1);
    ASSERT_TRUE(lines->Meet({peer.process, 1, 0, listener.address(), peer.identity.public_key()}, true).ok());
    ASSERT_TRUE(loop->Run([&] {
                      mate->Add(harness::ProcessId(9));
                      mate->TellAll({Mates::Head::kLost, peer.process});
                    })
                    .ok());
    EXPECT_TRUE(static_cast<bool>(listener.Accept()));
  });
}

}  // namespace
}  // namespace axccl::remote
