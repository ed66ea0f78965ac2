// Strangers at the rendezvous: silence, garbage, forged and replayed handshakes, other versions.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

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

#define EXPECT_SAYS(status, text) EXPECT_NE((status).message().find(text), std::string_view::npos) << (status).message()

Hello HelloOf(int rank, int nranks) {
  Hello hello;
  hello.rank = rank;
  hello.nranks = nranks;
  return hello;
}

// What follows the greeting.
struct Credentials {
  Proof proof{};
  FrameHeader header;
  JoinBody body;
};

void InAProcess(const std::function<void(const UniqueId&)>& body) {
  harness::RunRanks(harness::Processes(1), [&](RankContext& context) { body(ShareId(context)); });
}

Hub::Counts Counts() { return Hub::Get().value()->Count().value(); }

TEST(HandshakeTest, ByHandItWorks) {
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
    EXPECT_TRUE(JoinStatus(id, 0, 1).ok()) << "and the id is as good as before";
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
    {  // a wrong proof, and all the rest as it should be
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
    EXPECT_SAYS(status, "does not know the secret");
    IdFields unknown = Unpack(id).value();
    unknown.id[7] ^= 1;
    EXPECT_SAYS(JoinStatus(Pack(unknown), 0, 1), "does not know the unique id");
    EXPECT_EQ(Counts().meetings, 0u);
  });
}

TEST(HandshakeTest, OtherVersionsAreNamedToBothSides) {
  harness::RunRanks(harness::Threads(2), [](RankContext& context) {
    const UniqueId id = ShareId(context);
    if (context.rank() == 0) {
      const Status status = JoinStatus(id, 0, 2);
      EXPECT_EQ(status.code(), Code::kInvalidUsage);
      EXPECT_SAYS(status, "version 77");
      EXPECT_SAYS(status, ("version " + std::to_string(kProtocolVersion) + ";").c_str());
      return;
    }
    while (Counts().meetings != 1) sched_yield();
    RawRank raw(id);
    Hello hello = HelloOf(1, 2);
    hello.version = 77;
    ASSERT_TRUE(raw.Greet(hello));
    const Proof proof = raw.MyProof();
    ASSERT_TRUE(raw.SendBytes(&proof, sizeof proof));
    FrameType type{};
    const Status status = raw.ReceiveFrame(&type);
    EXPECT_EQ(status.code(), Code::kInvalidUsage);
    EXPECT_SAYS(status, "version 77");
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

TEST(HandshakeTest, ImpossibleRanksAreTurnedAway) {
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
        EXPECT_SAYS(status, "rank 1 (pid");
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
      if (kind == 1) raw.SendFrame(FrameType::kGathered, std::span(payload).first(16));  // not for a rank to send
      if (kind == 2) raw.SendFrame(FrameType::kJoin, std::span(payload).first(sizeof(JoinBody)));  // a second time
      if (kind == 3) {  // right but for the MAC
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

TEST(SiegeTest, EightRanksStartThroughSilentSocketsAndGarbage) {
  harness::RunRanks(harness::Processes(9), [](RankContext& context) {
    const UniqueId id = ShareId(context);
    constexpr int kBesieger = 8;
    if (context.rank() != kBesieger) {
      context.Await(0);  // the siege stands
      const auto start = Clock::now();
      Result<std::unique_ptr<Session>> session = Session::Join(id, context.rank(), 8, Patient(), nullptr);
      ASSERT_TRUE(session.ok()) << session.status().message();
      for (int i = 0; i < 3; ++i)
        ExpectExchange(session.value().get(), context.rank(), 8, 200, static_cast<uint64_t>(i));
      EXPECT_LT(Clock::now() - start, std::chrono::seconds(1) * harness::TimeScale());
      if (context.rank() == 0) {
        const Hub::Counts counts = Counts();
        EXPECT_LE(counts.guests, 64u + 2 * 8);
        std::printf("             8 ranks joined under siege in %.2f ms, resident %llu MiB\n",
                    std::chrono::duration<double, std::milli>(Clock::now() - start).count(),
                    static_cast<unsigned long long>(ResidentBytes() >> 20));
      }
      context.Barrier(1);
      return;
    }
    harness::Random random(harness::Seed());
    std::vector<std::unique_ptr<RawRank>> besiegers;
    const auto besiege = [&](int i) {
      besiegers.push_back(std::make_unique<RawRank>(id));
      RawRank& raw = *besiegers.back();
      uint64_t garbage[16];
      for (uint64_t& word : garbage) word = random.Next();
      if (i % 3 == 1) raw.SendBytes(garbage, 1 + random.Below(sizeof garbage));
      if (i % 3 == 2) (void)raw.Greet(HelloOf(i % 8, 8));  // the right id, then silence
    };
    for (int i = 0; i < 200; ++i) besiege(i);
    context.Set(0, 1);
    for (int i = 0; i < 400; ++i) besiege(i);  // while they join
    for (size_t i = 0; i < 100; ++i) EXPECT_TRUE(besiegers[i]->Cut());
    context.Barrier(1);
  });
}

}  // namespace
}  // namespace axccl::boot
