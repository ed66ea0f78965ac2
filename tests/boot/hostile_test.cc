// Strangers at the rendezvous: silence, garbage, forged and replayed handshakes, other versions.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "src/base/service_acceptor.h"
#include "src/boot/boot.h"
#include "src/boot/hub.h"
#include "src/boot/wire.h"
#include "tests/boot/meeting.h"
#include "tests/boot/raw_rank.h"
#include "tests/harness/random.h"
#include "tests/harness/run_ranks.h"

namespace axccl::boot {
namespace {

using harness::RankContext;

#define EXPECT_MENTIONS(status, text) \
  EXPECT_NE((status).message().find(text), std::string_view::npos) << (status).message()

Hello HelloOf(int rank, int nranks) {
  Hello hello;
  hello.rank = rank;
  hello.nranks = nranks;
  return hello;
}

// The bytes that follow the greeting.
struct Credentials {
  Proof proof{};
  FrameHeader header;
  JoinBody body;
};

void InAProcess(const std::function<void(const UniqueId&)>& body) {
  harness::RunRanks(harness::Processes(1), [&](RankContext& context) { body(ShareId(context)); });
}

Hub::Counts Counts() { return Hub::Get().value()->Count().value(); }

TEST(HandshakeTest, WorksByHand) {
  InAProcess([](const UniqueId& id) {
    RawRank raw(id);
    ASSERT_TRUE(raw.Greet(HelloOf(0, 1)));
    EXPECT_EQ(raw.hub().version, kProtocolVersion);
    ASSERT_TRUE(raw.Join());
    FrameType type{};
    ASSERT_TRUE(raw.ReceiveFrame(&type).ok());
    EXPECT_EQ(type, FrameType::kStart);
    ASSERT_TRUE(raw.SendFrame(FrameType::kLeave, {}));
    EXPECT_TRUE(raw.Cut());
    EXPECT_EQ(Counts().meetings, 0u);
  });
}

TEST(HandshakeTest, GarbageHellosAreCutWithoutAnAnswer) {
  InAProcess([](const UniqueId& id) {
    harness::Random random(harness::Seed());
    for (int i = 0; i < 50; ++i) {
      RawRank raw(id);
      std::vector<uint64_t> garbage(10 + random.Below(50));
      for (uint64_t& word : garbage) word = random.Next();
      if (random.OneIn(2)) garbage[0] = Hello::kMagic;  // the right magic does not help
      raw.SendBytes(garbage.data(), garbage.size() * 8);
      EXPECT_TRUE(raw.Cut());
    }
    Hello hub = HelloOf(0, 1);
    hub.role = Role::kHub;
    RawRank raw(id);
    EXPECT_FALSE(raw.Greet(hub)) << "only ranks are answered";
    EXPECT_EQ(Counts().guests, 0u);
    EXPECT_TRUE(JoinStatus(id, 0, 1).ok()) << "the id still works";
  });
}

TEST(HandshakeTest, WrongProofsAreCutAndChangeNothing) {
  InAProcess([](const UniqueId& id) {
    for (size_t byte = 0; byte < sizeof(Proof); byte += 5) {
      RawRank raw(id);
      ASSERT_TRUE(raw.Greet(HelloOf(0, 1)));
      Credentials credentials;
      credentials.proof = raw.MyProof();
      credentials.proof[byte] ^= 1;
      ASSERT_TRUE(raw.SendBytes(&credentials, sizeof credentials));
      EXPECT_TRUE(raw.Cut());
    }
    {  // a wrong proof, and everything else right
      RawRank raw(id);
      ASSERT_TRUE(raw.Greet(HelloOf(0, 1)));
      ASSERT_TRUE(raw.Join(1));
      EXPECT_TRUE(raw.Cut());
    }
    {  // a right proof, and a join frame that is not sealed
      RawRank raw(id);
      ASSERT_TRUE(raw.Greet(HelloOf(0, 1)));
      Credentials credentials;
      credentials.proof = raw.MyProof();
      credentials.header.type = FrameType::kJoin;
      credentials.header.bytes = sizeof(JoinBody);
      ASSERT_TRUE(raw.SendBytes(&credentials, sizeof credentials));
      EXPECT_TRUE(raw.Cut());
    }
    EXPECT_EQ(Counts().meetings, 0u);
    EXPECT_TRUE(JoinStatus(id, 0, 1).ok());
  });
}

TEST(HandshakeTest, ReplayedHandshakesAreCut) {
  InAProcess([](const UniqueId& id) {
    RawRank honest(id);
    ASSERT_TRUE(honest.Greet(HelloOf(0, 2)));
    RawRank replayed(id);
    const Hello hello = honest.mine();
    Credentials credentials;
    credentials.proof = honest.MyProof();
    ASSERT_TRUE(replayed.SendBytes(&hello, sizeof hello));
    Hello hub;
    ASSERT_TRUE(replayed.ReceiveBytes(&hub, sizeof hub));
    EXPECT_NE(hub.nonce, honest.hub().nonce);
    ASSERT_TRUE(replayed.SendBytes(&credentials, sizeof credentials));
    EXPECT_TRUE(replayed.Cut());
    ASSERT_TRUE(honest.Join());
    EXPECT_TRUE(Session::Join(id, 1, 2, Patient(), nullptr).ok());
  });
}

TEST(HandshakeTest, AHubWithoutTheSecretIsNotBelieved) {
  InAProcess([](const UniqueId& id) {
    IdFields forged = Unpack(id).value();
    forged.secret[7] ^= 1;
    const Status status = JoinStatus(Pack(forged), 0, 1);
    EXPECT_EQ(status.code(), Code::kInvalidUsage);
    EXPECT_MENTIONS(status, "does not know the secret");
    IdFields unknown = Unpack(id).value();
    unknown.id[7] ^= 1;
    EXPECT_MENTIONS(JoinStatus(Pack(unknown), 0, 1), "does not know the unique id");
    EXPECT_EQ(Counts().meetings, 0u);
  });
}

TEST(HandshakeTest, OtherVersionsAreNamedToBothSides) {
  harness::RunRanks(harness::Threads(2), [](RankContext& context) {
    const UniqueId id = ShareId(context);
    const std::string here = "version " + std::to_string(kProtocolVersion) + ";";
    if (context.rank() == 0) {
      const Status status = JoinStatus(id, 0, 2);
      const auto start = Clock::time_point(std::chrono::nanoseconds(context.Await(0)));
      EXPECT_LT(Clock::now() - start, std::chrono::seconds(1) * harness::TimeScale())
          << "the error needs no further data";
      EXPECT_EQ(status.code(), Code::kInvalidUsage);
      EXPECT_MENTIONS(status, "version 77");
      EXPECT_MENTIONS(status, here.c_str());
      return;
    }
    while (Counts().meetings != 1) sched_yield();
    const auto start = Clock::now();
    context.Set(0, static_cast<uint64_t>(std::chrono::nanoseconds(start.time_since_epoch()).count()));
    RawRank raw(id);
    Hello hello = HelloOf(1, 2);
    hello.version = 77;
    ASSERT_TRUE(raw.Greet(hello));
    const Proof proof = raw.MyProof();
    ASSERT_TRUE(raw.SendBytes(&proof, sizeof proof));
    FrameType type{};
    const Status status = raw.ReceiveFrame(&type);
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(1) * harness::TimeScale());
    EXPECT_EQ(status.code(), Code::kInvalidUsage);
    EXPECT_MENTIONS(status, "version 77");
    EXPECT_MENTIONS(status, here.c_str());
  });
}

TEST(HandshakeTest, AnotherVersionWithoutTheSecretIsCutAndChangesNothing) {
  InAProcess([](const UniqueId& id) {
    RawRank raw(id);
    Hello hello = HelloOf(1, 2);
    hello.version = 77;
    ASSERT_TRUE(raw.Greet(hello));
    Proof proof = raw.MyProof();
    proof[3] ^= 1;
    ASSERT_TRUE(raw.SendBytes(&proof, sizeof proof));
    EXPECT_TRUE(raw.Cut());
    EXPECT_EQ(Counts().meetings, 0u);
    EXPECT_TRUE(JoinStatus(id, 0, 1).ok());
  });
}

TEST(HandshakeTest, ImpossibleRanksAreRefused) {
  InAProcess([](const UniqueId& id) {
    for (const auto& [rank, nranks] :
         {std::pair{5, 2}, {-1, 2}, {0, 0}, {0, -7}, {0, 0x7fffffff}, {0x7ffffffe, 0x7fffffff}}) {
      RawRank raw(id);
      ASSERT_TRUE(raw.Greet(HelloOf(rank, nranks)));
      ASSERT_TRUE(raw.Join());
      FrameType type{};
      EXPECT_EQ(raw.ReceiveFrame(&type).code(), Code::kInvalidArgument) << rank << " " << nranks;
      EXPECT_TRUE(raw.Cut());
    }
    EXPECT_EQ(Counts().meetings, 0u);
    EXPECT_TRUE(JoinStatus(id, 0, 1).ok());
  });
}

TEST(FrameOfARankTest, MisplacedForgedAndOverlongFramesEndTheMeeting) {
  for (int kind = 0; kind < 5; ++kind) {
    harness::RunRanks(harness::Threads(2), [kind](RankContext& context) {
      const UniqueId id = ShareId(context);
      if (context.rank() == 0) {
        Result<std::unique_ptr<Session>> session = Session::Join(id, 0, 2, Patient(), nullptr);
        uint64_t mine = 0, all[2];
        const Status status = session.ok() ? session.value()->AllGather(&mine, sizeof mine, all) : session.status();
        EXPECT_EQ(status.code(), Code::kRemoteError) << kind << ": " << status.message();
        EXPECT_MENTIONS(status, "rank 1 (pid");
        return;
      }
      RawRank raw(id);
      ASSERT_TRUE(raw.Greet(HelloOf(1, 2)));
      ASSERT_TRUE(raw.Join());
      FrameType type{};
      ASSERT_TRUE(raw.ReceiveFrame(&type).ok());
      std::vector<std::byte> payload(kMaxContribution + 1);
      FrameHeader header;
      header.type = FrameType::kContribute;
      header.sequence = 1;
      if (kind == 0) raw.SendFrame(FrameType::kContribute, payload);                     // a byte too long
      if (kind == 1) raw.SendFrame(FrameType::kGathered, std::span(payload).first(16));  // ranks do not send this
      if (kind == 2) raw.SendFrame(FrameType::kJoin, std::span(payload).first(sizeof(JoinBody)));  // a second time
      if (kind == 3) {  // right except for the MAC
        header.bytes = 8;
        raw.SendBytes(&header, sizeof header);
        raw.SendBytes(payload.data(), 8);
      }
      if (kind == 4) {
        header.bytes = 0xffffffff;
        raw.SendBytes(&header, sizeof header);
      }
      EXPECT_TRUE(raw.Cut());
    });
  }
}

uint64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// All kinds of attacks, in turn. Those that need the secret (a replay has recorded its use) use an earlier handshake.
class Besieger {
 public:
  explicit Besieger(const UniqueId& id) : id_(id), honest_(id) {
    EXPECT_TRUE(honest_.Greet(HelloOf(5, 8)));
    proof_ = honest_.MyProof();
  }

  void Attack(int i) {
    sockets_.push_back(std::make_unique<RawRank>(id_));
    RawRank& raw = *sockets_.back();
    uint64_t garbage[40];
    for (uint64_t& word : garbage) word = random_.Next();
    Hello hello = HelloOf(i % 8, 8);
    Credentials credentials;
    switch (i % 10) {
      case 0:
        raw.SendBytes(garbage, 1 + random_.Below(sizeof garbage));
        break;
      case 1:  // the right magic, then silence
        raw.SendBytes(&hello.magic, sizeof hello.magic);
        break;
      case 2:  // the right id, then silence
        (void)raw.Greet(hello);
        break;
      case 3:  // as a present or future rank, without the secret
        if (raw.Greet(hello)) (void)raw.Join(1);
        break;
      case 4:  // what a rank has sent before
        hello = honest_.mine();
        credentials.proof = proof_;
        raw.SendBytes(&hello, sizeof hello);
        raw.SendBytes(&credentials, sizeof credentials);
        break;
      case 5:  // absurd counts
        hello.nranks = i % 20 < 10 ? 0x7fffffff : 0;
        if (raw.Greet(hello)) (void)raw.Join(i % 4 < 2);
        break;
      default:
        break;  // silence
    }
  }

  size_t size() const { return sockets_.size(); }
  bool Cut(size_t i) { return sockets_[i]->Cut(); }

 private:
  const UniqueId id_;
  harness::Random random_{harness::Seed()};
  RawRank honest_;
  Proof proof_;
  std::vector<std::unique_ptr<RawRank>> sockets_;
};

double JoinAndExchange(RankContext& context, const UniqueId& id) {
  const auto start = Clock::now();
  Result<std::unique_ptr<Session>> session = Session::Join(id, context.rank(), 8, Patient(), nullptr);
  EXPECT_TRUE(session.ok()) << session.status().message();
  if (!session.ok()) return 1e9;
  for (int i = 0; i < 3; ++i) ExpectExchange(session.value().get(), context.rank(), 8, 200, static_cast<uint64_t>(i));
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

TEST(SiegeTest, EightRanksStartThroughTwoThousandSocketsOfStrangers) {
  harness::RunOptions options;
  options.deadline = std::chrono::seconds(40);
  harness::RunRanks(
      harness::Processes(9),
      [](RankContext& context) {
        const UniqueId quiet = ShareId(context, 0), besieged = ShareId(context, 1);
        (void)ShareId(context, 2);  // no rank joins with this id, so the listener stays open to the end
        constexpr int kBesieger = 8, kSockets = 2000;
        if (context.rank() != kBesieger) {
          const double before_ms = JoinAndExchange(context, quiet);
          context.Barrier(1, 8);
          const uint64_t resident = ResidentBytes();
          context.Set(1, 1);
          context.Await(0);  // the first half of the sockets is connected
          const double ms = JoinAndExchange(context, besieged);
          EXPECT_LT(ms, before_ms + 1000.0 * harness::TimeScale());
          context.Await(2);  // everything has been sent
          if (context.rank() == 0) {
            const uint64_t grown = std::max(ResidentBytes(), resident) - resident;
            EXPECT_LT(grown, uint64_t{10} << 20);
            EXPECT_LE(Counts().guests, 64u + 2 * 8);
            std::printf(
                "             8 ranks joined in %.2f ms, under siege in %.2f ms, resident memory grew by %llu KiB\n",
                before_ms, ms, static_cast<unsigned long long>(grown >> 10));
          }
          context.Barrier(2);
          return;
        }
        rlimit limit{};
        ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
        limit.rlim_cur = limit.rlim_max;
        ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
        context.Await(1);
        Besieger besieger(besieged);
        for (int i = 0; i < kSockets / 2; ++i) besieger.Attack(i);
        context.Set(0, 1);
        for (int i = 0; i < kSockets / 2; ++i) besieger.Attack(i);  // while the ranks join
        const auto last = Clock::now();
        for (size_t i = 0; i < besieger.size(); ++i) ASSERT_TRUE(besieger.Cut(i)) << i;
        EXPECT_LT(Clock::now() - last, service::kGuestTime + std::chrono::milliseconds(500) * harness::TimeScale());
        context.Set(2, 1);
        context.Barrier(2);
      },
      options);
}

// The path to the hub may be so long that any number of strangers come between a rank's hello and its proof.
TEST(SiegeTest, StrangersPushOutNoRankWhoseProofIsOnItsWay) {
  InAProcess([](const UniqueId& id) {
    for (;;) {
      RawRank rank(id);
      ASSERT_TRUE(rank.Greet(HelloOf(0, 1)));
      const auto greeted = Clock::now();
      for (int round = 0; round < 3; ++round) {
        std::vector<std::unique_ptr<RawRank>> strangers;
        for (int i = 0; i < 300; ++i) strangers.push_back(std::make_unique<RawRank>(id));
        for (size_t i = 0; i < 300 - service::kMostStrangers; ++i) ASSERT_TRUE(strangers[i]->Cut()) << i;
      }
      FrameType type{};
      const bool joined = rank.Join() && rank.ReceiveFrame(&type).ok();
      if (!joined && Clock::now() - greeted >= service::kGuestTime) continue;  // on a busy machine
      EXPECT_TRUE(joined);
      EXPECT_EQ(type, FrameType::kStart);
      return;
    }
  });
}

}  // namespace
}  // namespace axccl::boot
