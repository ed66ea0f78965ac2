// A stranger in the path between two hosts can end a job, but not change it: whatever does not arrive as it was sent
// (data, if they are sealed) ends its connection, and a call that succeeds has the right result.
//
// AXCCL_TEST_FULL=1 changes 1,000 bits of data, and 150 bits of what ranks send when they meet, and makes 150 cuts.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/client.h"
#include "tests/harness/random.h"
#include "tests/net/run_on_hosts.h"
#include "tests/net/stranger.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::FullTests;
using harness::Random;
using harness::RankContext;
using harness::TestHosts;

constexpr int kPidCell = 30, kOutcomeCell = 40;               // + rank
constexpr int64_t kCallerProof = 80 + 32, kCalledProof = 64;  // bytes with which a line begins
constexpr int kMostCalls = 5000;                              // some seconds
constexpr int64_t kLeaveBytes = 32;                           // of the last frame of a rank that has met the others

void RunInTheMiddle(const std::function<void(RankContext&, Stranger*)>& body,
                    std::vector<std::pair<std::string, std::string>> environment = {}) {
  environment.emplace_back("NCCL_SOCKET_FAMILY", "AF_INET");
  RunOnHosts(
      2, 2,
      [&](const TestHosts&, RankContext& context) {
        Stranger stranger(TestHosts::Address(context.rank()).c_str());
        context.Set(kPidCell + context.rank(), static_cast<uint64_t>(getpid()));
        body(context, &stranger);
        ASSERT_TRUE(context.Barrier(9));
      },
      std::move(environment), 1, std::chrono::minutes(FullTests() ? 15 : 1));
}

// The sum of what a rank and its peer put there: `number` and `number` + 1.
ncclResult_t AllReduce(ncclComm_t comm, axcclStream_t stream, int rank, int number) {
  std::vector<int> data(50'000, number + rank);
  ncclResult_t result = ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, comm, Cuda(stream));
  if (result == ncclSuccess) result = axcclStreamSynchronize(stream);
  if (result == ncclSuccess) {
    EXPECT_EQ(data, std::vector<int>(data.size(), 2 * number + 1));
  }
  return result;
}

// What both ranks have found so far.
struct Outcome {
  bool attacked = false, failed = false;
  int connections = 0;

  bool noticed() const { return failed || connections > 1; }
};

Outcome Look(RankContext& context, const Stranger& stranger, Talk talk, ncclResult_t result) {
  Outcome outcome;
  context.Set(kOutcomeCell + context.rank(), uint64_t{stranger.attacked()} << 1 | (result != ncclSuccess));
  context.Set(kOutcomeCell + 2 + context.rank(), static_cast<uint64_t>(stranger.connections(talk)));
  EXPECT_TRUE(context.Barrier(3));
  for (int rank = 0; rank < 2; ++rank) {
    outcome.attacked |= (context.Get(kOutcomeCell + rank) & 2) != 0;
    outcome.failed |= (context.Get(kOutcomeCell + rank) & 1) != 0;
    outcome.connections += static_cast<int>(context.Get(kOutcomeCell + 2 + rank));
  }
  EXPECT_TRUE(context.Barrier(4));
  return outcome;
}

// Makes a communicator, uses it and aborts it, under attack. A caller that is cut off calls again after a moment, and
// its communicator works meanwhile.
Outcome Meet(RankContext& context, Stranger* stranger, const Attack& attack) {
  stranger->Begin(attack);
  ncclUniqueId id;
  if (!harness::ShareUniqueId(context, &id)) return {};
  ncclComm_t comm = nullptr;
  axcclStream_t stream = nullptr;
  EXPECT_OK(axcclStreamCreate(&stream, axcclStreamNonBlocking));
  ncclResult_t result = ncclCommInitRank(&comm, 2, id, context.rank());
  const auto call = [&](int number) {
    if (result == ncclSuccess) result = AllReduce(comm, stream, context.rank(), number);
  };
  call(1);
  Outcome outcome = Look(context, *stranger, attack.talk, result);
  for (int number = 2; number < kMostCalls && outcome.attacked && !outcome.noticed(); ++number) {
    call(number);
    outcome = Look(context, *stranger, attack.talk, result);
    if (context.AnyFailed()) return outcome;
  }
  const ncclResult_t allowed[] = {ncclSuccess, ncclRemoteError, ncclInvalidUsage, ncclTimeout};
  EXPECT_NE(std::find(std::begin(allowed), std::end(allowed), result), std::end(allowed)) << result;
  stranger->HangUp();  // the next communicator makes new connections
  if (comm != nullptr) {
    while (result == ncclSuccess && !context.AnyFailed()) call(0);
    EXPECT_OK(ncclCommAbort(comm));
  }
  EXPECT_OK(axcclStreamDestroy(stream));
  EXPECT_TRUE(context.Barrier(2));
  return outcome;
}

TEST(InThePath, PiecesAndDelaysCostOnlyTime) {
  RunInTheMiddle([](RankContext& context, Stranger* stranger) {
    for (int round = 0; round < (FullTests() ? 50 : 3); ++round) {
      const Outcome outcome = Meet(context, stranger, {Attack::kPieces, Talk::kData, false, 0, 0});
      EXPECT_FALSE(outcome.failed) << ncclGetLastError(nullptr);
      EXPECT_GE(outcome.connections, 1) << "no connection leads through the stranger";
    }
  });
}

// Those who can only reach the ports push out no process whose proof is on its way.
class HostileNetwork : public testing::TestWithParam<Talk> {};

TEST_P(HostileNetwork, CrowdsAtThePortsEndNoConnectionOverALongPath) {
  RunInTheMiddle(
      [](RankContext& context, Stranger* stranger) {
        const Outcome outcome = Meet(context, stranger, {Attack::kCrowd, GetParam(), true, 0, 0});
        EXPECT_FALSE(outcome.failed) << ncclGetLastError(nullptr);
        context.Set(60 + context.rank(), static_cast<uint64_t>(stranger->crowds()));
        ASSERT_TRUE(context.Barrier(5));
        EXPECT_GE(context.Get(60) + context.Get(61), 1u) << "no stranger has come meanwhile";
      },
      {{"AXCCL_INIT_TIMEOUT", "15"}});
}

std::string TalkName(const testing::TestParamInfo<Talk>& info) {
  constexpr const char* kNames[kTalks] = {"Meeting", "Life", "Data"};
  return kNames[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Connections, HostileNetwork, testing::Values(Talk::kMeeting, Talk::kLife, Talk::kData),
                         TalkName);

class MeetingTest : public testing::TestWithParam<Attack::What> {};

// One connection after the other is attacked once, anywhere in what it sends until ranks have met. The receiver ends
// the connection: a rank gets an error, or the caller has called again.
TEST_P(MeetingTest, NoAttackGoesUnnoticed) {
  const auto body = [](RankContext& context, Stranger* stranger) {
    // How long what each side sends is, where there is no attack.
    int64_t lengths[2] = {};
    for (const bool of_caller : {false, true}) {
      while (Meet(context, stranger, {}).failed && !context.AnyFailed()) continue;  // on a busy machine
      if (context.rank() == 1) context.Set(50, static_cast<uint64_t>(stranger->passed(Talk::kMeeting, of_caller)));
      ASSERT_TRUE(context.Barrier(5));
      lengths[of_caller] = static_cast<int64_t>(context.Get(50)) - (of_caller ? kLeaveBytes : 0);
      ASSERT_GT(lengths[of_caller], 100);
      ASSERT_TRUE(context.Barrier(6));
    }
    Random random(harness::Scramble(harness::Seed(), 17, GetParam()));
    int reached = 0;
    const int rounds = FullTests() ? 150 : 12;
    for (int round = 0; round < rounds; ++round) {
      Attack attack;
      attack.what = GetParam();
      attack.talk = static_cast<Talk>(round % kTalks);
      attack.of_caller = random.OneIn(2);
      const int64_t proof = attack.of_caller ? kCallerProof : kCalledProof;
      const int64_t length = attack.talk == Talk::kMeeting ? lengths[attack.of_caller] : proof;
      attack.byte = static_cast<int64_t>(random.Below(static_cast<uint64_t>(length)));
      attack.bit = static_cast<int>(random.Below(8));
      ASSERT_TRUE(context.Step("round %d: connection %d, caller %d, byte %d, bit %d", round, round % kTalks,
                               attack.of_caller, static_cast<int>(attack.byte), attack.bit));
      const Outcome outcome = Meet(context, stranger, attack);
      reached += outcome.attacked;
      EXPECT_TRUE(!outcome.attacked || outcome.noticed())
          << "connection " << round % kTalks << ", caller " << attack.of_caller << ", byte " << attack.byte << ", bit "
          << attack.bit;
      if (context.AnyFailed()) return;
    }
    EXPECT_GT(reached, rounds * 2 / 3) << "most attacks did not reach what they were to change";
  };
  RunInTheMiddle(body, {{"AXCCL_INIT_TIMEOUT", "2"}});
}

INSTANTIATE_TEST_SUITE_P(Attacks, MeetingTest, testing::Values(Attack::kFlip, Attack::kCut),
                         [](const auto& info) { return info.param == Attack::kFlip ? "Flip" : "Cut"; });

class SealedDataTest : public testing::TestWithParam<const char*> {};

// Each in its own communicator. Both ranks get an error that names the other one.
TEST_P(SealedDataTest, EveryFlippedBitIsRejectedOnBothSides) {
  const auto body = [](RankContext& context, Stranger* stranger) {
    Random random(harness::Scramble(harness::Seed(), 18));
    const std::string other = "rank " + std::to_string(1 - context.rank()) + " (pid ";
    const int rounds = FullTests() ? 1000 : 20;
    for (int round = 0; round < rounds; ++round) {
      Attack attack{Attack::kFlip, Talk::kData, random.OneIn(2), 0, static_cast<int>(random.Below(8))};
      attack.byte = (attack.of_caller ? kCallerProof : kCalledProof + 1) + static_cast<int64_t>(random.Below(150'000));
      ASSERT_TRUE(context.Step("round %d: byte %d", round, static_cast<int>(attack.byte)));
      stranger->Begin(attack);
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      ncclResult_t result = ncclSuccess;
      for (int call = 0; call < 50 && result == ncclSuccess && !context.AnyFailed(); ++call)
        result = AllReduce(clique.comm(), clique.stream(), context.rank(), call);
      const std::string text = ncclGetLastError(nullptr);
      EXPECT_EQ(result, ncclRemoteError) << attack.byte << ", bit " << attack.bit;
      EXPECT_NE(text.find(other + std::to_string(context.Get(kPidCell + 1 - context.rank()))), std::string::npos)
          << text;
      ASSERT_OK(ncclCommAbort(clique.comm()));
      clique.ForgetComms();
      ASSERT_TRUE(context.Barrier(2));
    }
  };
  RunInTheMiddle(body, {{"AXCCL_ENCRYPT", GetParam()}});
}

INSTANTIATE_TEST_SUITE_P(Settings, SealedDataTest, testing::Values("auth", "1"),
                         [](const auto& info) { return std::string(info.param) == "1" ? "Encrypted" : "Auth"; });

}  // namespace
}  // namespace axccl::tests
