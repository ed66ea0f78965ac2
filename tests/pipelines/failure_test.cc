// Ranks that die, abort or stop, in each state of a pipeline: on the others, every call returns, every word ends, as 1
// with the right value or as 2, and nothing is left behind.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/harness/client.h"
#include "tests/harness/residue.h"
#include "tests/harness/timing.h"
#include "tests/pipelines/gate.h"
#include "tests/pipelines/int_pipeline.h"

namespace axccl::tests {
namespace {

using harness::AllowedNs;
using harness::Clique;
using harness::Cuda;
using harness::Entries;
using harness::Memory;
using harness::NowNs;
using harness::Processes;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::Threads;

constexpr int kRanks = 3, kVictim = 2;
constexpr int64_t kSlices = 3;
constexpr int kGoneCell = 20, kPidCell = 21, kSeenCell = 22;  // kSeenCell + rank

// kStops: and goes on when the others have waited for as long as they are to. kFreezes: it is killed as it is. kIsLeft:
// it stops, and the others abort.
enum class Way { kDies, kAborts, kStops, kFreezes, kIsLeft };
enum class When { kBeforeStart, kBetweenChunks, kAfterTheLastChunk, kInFinish };

struct Trial {
  Way way;
  When when;
  axcclPipelineKind_t kind;
  Memory memory;

  std::string Text() const {
    constexpr const char* kWays[] = {"Dies", "Aborts", "Stops", "Freezes", "IsLeft"};
    constexpr const char* kMoments[] = {"BeforeStart", "BetweenChunks", "AfterTheLastChunk", "InFinish"};
    return std::string(kWays[static_cast<int>(way)]) + kMoments[static_cast<int>(when)];
  }
  // Whether survivors get chunks that cannot come.
  bool Holds() const { return when == When::kBetweenChunks || when == When::kInFinish; }
  // Whether the victim goes on in the end.
  bool Continues() const { return way == Way::kStops || way == Way::kIsLeft; }
};

void AwaitStopped(const RankContext& context, pid_t process) {
  for (std::string text; !context.AnyFailed(); harness::LookLater()) {
    std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
    std::getline(stat, text);
    const size_t name = text.rfind(')');
    if (name != std::string::npos && text.compare(name, 3, ") T") == 0) return;
  }
}

// One rank's part in a trial.
class Part {
 public:
  Part(RankContext& context, const Trial& trial, ncclComm_t comm, axcclStream_t stream)
      : context_(context), trial_(trial), comm_(comm), stream_(stream) {
    IntCase c = CaseOf(trial.kind, kRanks, kSlices);
    c.columns = 100, c.produced = true, c.memory = trial.memory;
    pipeline_ = std::make_unique<IntPipeline>(c, context.rank(), axcclDefaultChannel(comm));
    out_ = pipeline_->Words(axcclOut), in_ = pipeline_->Words(axcclIn);
  }

  void Go() {
    ASSERT_OK(pipeline_->Step(0, Cuda(stream_)));
    ASSERT_OK(axcclStreamSynchronize(stream_));
    ASSERT_EQ(pipeline_->Check(0), "");
    ASSERT_TRUE(context_.Barrier(1));
    context_.rank() == kVictim ? Victim() : Survivor();
  }
  // How long words took to end after what ends them.
  double WaitedNs() const { return static_cast<double>(ended_) - static_cast<double>(left_ != 0 ? left_ : GoneNs()); }
  bool aborted() const { return left_ != 0 || (trial_.way == Way::kAborts && context_.rank() == kVictim); }

 private:
  uint64_t GoneNs() const { return context_.Get(kGoneCell); }
  void Leave() {
    context_.Set(kPidCell, static_cast<uint64_t>(getpid()));
    context_.Set(kGoneCell, NowNs());
    if (trial_.way == Way::kDies) context_.Die();
    if (trial_.way == Way::kFreezes) context_.Freeze();
    if (trial_.Continues()) raise(SIGSTOP);
    if (trial_.way == Way::kAborts) {
      EXPECT_OK(ncclCommAbort(comm_));
    }
  }

  // All of the input, or all but the last chunk in the order.
  void Declare(bool all) {
    for (int64_t p = all ? 0 : 1; p <= pipeline_->in_chunks() - 1; ++p) {
      (void)pipeline_->Declare(pipeline_->ChunkAt(axcclIn, all ? p : p - 1), 1);
    }
  }
  void SeeFirst() {
    for (int64_t chunk = 0; chunk < pipeline_->out_chunks(); chunk += kSlices) {
      ASSERT_OK(axcclPipelineWait(pipeline_->handle(), chunk));
      ASSERT_EQ(pipeline_->CheckChunk(chunk, 1), "");
    }
    context_.Set(kSeenCell + context_.rank(), 1);
  }
  // A chunk of the victim's output that needs what a survivor holds back.
  int64_t HeldChunk() const {
    const int holder = trial_.kind == axcclPipelineAllToAll ? 0 : kVictim - 1;
    return (pipeline_->out_chunks() == kSlices ? 0 : holder * kSlices) + kSlices - 1;
  }
  void AwaitSurvivors() {
    for (int r = 0; r < kVictim; ++r) context_.Await(kSeenCell + r);
  }

  void Victim() {
    if (trial_.when == When::kBeforeStart) return LeaveForGood();
    pipeline_->Prepare(1);
    ASSERT_OK(axcclPipelineStart(pipeline_->handle(), Cuda(stream_)));
    Declare(trial_.when != When::kBetweenChunks);
    std::thread poller([this] { Poll(); });
    if (trial_.when == When::kAfterTheLastChunk) {
      for (int64_t chunk = 0; chunk < pipeline_->out_chunks(); ++chunk)
        EXPECT_OK(axcclPipelineWait(pipeline_->handle(), chunk));
      poller.join();
      return LeaveForGood();
    }
    if (trial_.when == When::kInFinish) {
      EXPECT_OK(axcclPipelineFinish(pipeline_->handle(), Cuda(stream_)));
    }
    // Another thread leaves while this one waits.
    std::thread leaver([this] {
      AwaitSurvivors();
      Leave();
    });
    if (trial_.when == When::kInFinish) {
      EXPECT_NE(axcclStreamSynchronize(stream_), ncclSuccess);
    } else {
      EXPECT_NE(axcclPipelineWait(pipeline_->handle(), HeldChunk()), ncclSuccess);
    }
    leaver.join();
    poller.join();
    EXPECT_TRUE(failed_);
  }
  void LeaveForGood() {
    Leave();
    if (trial_.way == Way::kAborts) pipeline_ = nullptr;
  }

  void Survivor() {
    if (trial_.when == When::kBeforeStart) context_.Await(kGoneCell);
    pipeline_->Prepare(1);
    const ncclResult_t started = axcclPipelineStart(pipeline_->handle(), Cuda(stream_));
    if (started != ncclSuccess) {
      EXPECT_EQ(trial_.when, When::kBeforeStart);
      return ExpectCode(started);
    }
    std::thread poller([this] { Poll(); });
    Declare(!trial_.Holds());
    if (trial_.Holds()) SeeFirst();
    context_.Await(kGoneCell);
    if (trial_.way == Way::kFreezes && context_.rank() == 0) KillTheFrozen();
    if (trial_.way == Way::kIsLeft) LeaveTheStopped();
    poller.join();
    // What the victim declares, and what rank 0 holds back, is all that rank 1 needs of an all_to_all.
    const bool has_all = trial_.when == When::kInFinish && trial_.kind == axcclPipelineAllToAll && context_.rank() == 1;
    if (trial_.when != When::kAfterTheLastChunk && !has_all) {
      EXPECT_TRUE(failed_);
    }
    if (trial_.way == Way::kIsLeft) {
      pipeline_ = nullptr;
      return;
    }
    UseAllCalls();
    const ncclResult_t finished = axcclPipelineFinish(pipeline_->handle(), Cuda(stream_));
    const ncclResult_t ended = axcclStreamSynchronize(stream_);
    if (trial_.when == When::kAfterTheLastChunk && ended == ncclSuccess) {
      EXPECT_EQ(pipeline_->Check(1), "");
      return;
    }
    if (finished != ncclSuccess) ExpectCode(finished);
    ExpectCode(ended);
    ncclResult_t state = ncclSuccess;
    EXPECT_OK(ncclCommGetAsyncError(comm_, &state));
    ExpectCode(state);
  }
  void KillTheFrozen() {
    const auto victim = static_cast<pid_t>(context_.Get(kPidCell));
    AwaitStopped(context_, victim);
    context_.Set(kGoneCell, NowNs());
    kill(victim, SIGKILL);
  }
  void LeaveTheStopped() {
    AwaitStopped(context_, static_cast<pid_t>(context_.Get(kPidCell)));
    ASSERT_TRUE(context_.Barrier(4, kVictim));
    left_ = NowNs();
    EXPECT_OK(ncclCommAbort(comm_));
  }
  void UseAllCalls() {
    for (int64_t chunk = 0; chunk < pipeline_->out_chunks(); ++chunk) {
      int done = -1;
      const ncclResult_t waited = axcclPipelineWait(pipeline_->handle(), chunk);
      const ncclResult_t tested = axcclPipelineTest(pipeline_->handle(), chunk, &done);
      if (axcclDeviceLook(&out_[chunk]) == 1) {
        EXPECT_EQ(waited, ncclSuccess);
        EXPECT_EQ(tested, ncclSuccess);
        EXPECT_EQ(done, 1);
      } else {
        ExpectCode(waited);
        ExpectCode(tested);
        EXPECT_EQ(done, 0);
      }
      (void)axcclPipelineStreamWait(pipeline_->handle(), chunk, Cuda(stream_));
    }
    for (int64_t chunk = 0; chunk < pipeline_->in_chunks(); ++chunk)
      (void)axcclPipelineReady(pipeline_->handle(), chunk);
  }
  void ExpectCode(ncclResult_t result) const {
    const bool stops = trial_.way == Way::kStops;
    EXPECT_TRUE(result == ncclRemoteError || (stops && result == ncclTimeout))
        << result << ": " << ncclGetLastError(nullptr);
    EXPECT_TRUE(harness::LastErrorHas("rank ")) << ncclGetLastError(nullptr);
  }

  // A thread that only looks at words.
  void Poll() {
    for (int64_t chunk = 0; chunk < pipeline_->out_chunks(); ++chunk) {
      if (axcclDeviceAwait(&out_[chunk]) == 1) {
        EXPECT_EQ(pipeline_->CheckChunk(chunk, 1), "");
      } else {
        failed_ = true;
      }
    }
    for (int64_t chunk = 0; chunk < pipeline_->in_chunks(); ++chunk) (void)axcclDeviceAwait(&in_[chunk]);
    ended_ = NowNs();
  }

  RankContext& context_;
  const Trial trial_;
  const ncclComm_t comm_;
  const axcclStream_t stream_;
  std::unique_ptr<IntPipeline> pipeline_;
  const uint32_t *out_ = nullptr, *in_ = nullptr;
  std::atomic<bool> failed_{false};
  uint64_t left_ = 0, ended_ = 0;
};

void RunTrial(RankContext& context, const Trial& trial, double deadline) {
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  ASSERT_TRUE(context.Step("%s, %s", trial.Text().c_str(), KindName(trial.kind)));
  Part part(context, trial, clique.comm(), clique.stream());
  part.Go();
  if (context.rank() == 0 && trial.Continues()) {
    // What all survivors do comes first.
    ASSERT_TRUE(context.Barrier(2, 2));
    const auto victim = static_cast<pid_t>(context.Get(kPidCell));
    AwaitStopped(context, victim);
    kill(victim, SIGCONT);
  } else if (context.rank() == 1 && trial.Continues()) {
    ASSERT_TRUE(context.Barrier(2, 2));
  }
  if (context.rank() != kVictim && trial.Holds()) {
    EXPECT_LT(part.WaitedNs() - deadline * 1e9, static_cast<double>(AllowedNs(700)));
  }
  if (!part.aborted()) {
    EXPECT_OK(ncclCommAbort(clique.comm()));
  }
  clique.ForgetComms();
}

class FailureTest : public testing::TestWithParam<Trial> {};

TEST_P(FailureTest, EveryWordEnds) {
  constexpr double kDeadline = 0.4;
  RunOptions options;
  Trial trial = GetParam();
  if (trial.way == Way::kStops) options.environment = {{"AXCCL_TIMEOUT", std::to_string(kDeadline)}};
  for (const auto kind : {axcclPipelineAllGather, axcclPipelineAllReduce, axcclPipelineAllToAll}) {
    trial.kind = kind;
    trial.memory = kind == axcclPipelineAllReduce ? Memory::kMalloc : Memory::kMemAlloc;
    const auto run = [&trial](RankContext& context) {
      RunTrial(context, trial, trial.way == Way::kStops ? kDeadline : 0);
    };
    RunRanks(Processes(kRanks), run, options);
    if (trial.way == Way::kAborts) RunRanks(Threads(kRanks), run, options);
    if (trial.way == Way::kStops) break;
  }
}

std::vector<Trial> Trials() {
  std::vector<Trial> trials;
  for (const Way way : {Way::kDies, Way::kAborts, Way::kStops, Way::kFreezes, Way::kIsLeft}) {
    for (const When when : {When::kBeforeStart, When::kBetweenChunks, When::kAfterTheLastChunk, When::kInFinish})
      trials.push_back({way, when, axcclPipelineAllGather, Memory::kMalloc});
  }
  return trials;
}
INSTANTIATE_TEST_SUITE_P(Trials, FailureTest, testing::ValuesIn(Trials()),
                         [](const auto& info) { return info.param.Text(); });

// ---- aborts around a stream that has not come to the start ----

// The run leaves while the stream comes to the start, at the same time on all ranks of a process.
TEST(PipelineFailure, TheStreamComesToAStartThatHasFailed) {
  RunRanks(Threads(kRanks), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    for (int round = 0; round < 40; ++round) {
      const auto kind = kPipelineKinds[round % 6];
      ASSERT_TRUE(context.Step("round %d: %s", round, KindName(kind)));
      ncclComm_t comm = nullptr;
      ASSERT_OK(ncclCommSplit(clique.comm(), 0, context.rank(), &comm, nullptr));
      IntCase c = CaseOf(kind, kRanks, kSlices);
      c.columns = 100;
      if (kind == axcclPipelinePermute) c.pairs = {0, 1, 1, 2};
      IntPipeline pipeline(c, context.rank(), axcclDefaultChannel(comm));
      const uint32_t* const words = pipeline.Words(axcclOut);
      ASSERT_OK(pipeline.Step(0, Cuda(clique.stream())));
      ASSERT_TRUE(clique.Synchronize());
      pipeline.Prepare(1);
      Gate gate;
      ASSERT_OK(axcclLaunchHostFunc(clique.stream(), Gate::Pass, &gate));
      ASSERT_OK(axcclPipelineStart(pipeline.handle(), Cuda(clique.stream())));
      ASSERT_OK(axcclPipelineFinish(pipeline.handle(), Cuda(clique.stream())));
      ASSERT_TRUE(context.Barrier(1));
      if (round % 2 == 0) {
        std::thread opener([&] { gate.Open(); });
        EXPECT_OK(ncclCommAbort(comm));
        opener.join();
      } else {
        if (context.rank() == 0) {
          EXPECT_OK(ncclCommAbort(comm));
        }
        EXPECT_TRUE(context.Barrier(2));
        gate.Open();
        if (context.rank() != 0) {
          const ncclResult_t ended = axcclStreamSynchronize(clique.stream());
          EXPECT_TRUE(ended == ncclRemoteError || ended == ncclSuccess) << ncclGetLastError(nullptr);
          if (ended == ncclSuccess) {
            EXPECT_EQ(pipeline.Check(1), "");
          }
          EXPECT_OK(ncclCommAbort(comm));
        }
      }
      (void)axcclStreamSynchronize(clique.stream());
      for (int64_t chunk = 0; chunk < pipeline.out_chunks(); ++chunk) {
        if (axcclDeviceAwait(&words[chunk]) == 1) {
          EXPECT_EQ(pipeline.CheckChunk(chunk, 1), "");
        }
      }
      EXPECT_OK(axcclPipelineDestroy(pipeline.Take()));
      ASSERT_TRUE(context.Barrier(3));
      ASSERT_FALSE(testing::Test::HasFailure());
    }
  });
}

// A stream that comes to wait for a chunk after that is known not to come must not go on to what reads the chunk.
TEST(PipelineFailure, AStreamThatWaitsForAFailedChunkFails) {
  RunRanks(Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    IntPipeline pipeline(CaseOf(axcclPipelineAllGather, 2, kSlices), context.rank(),
                         axcclDefaultChannel(clique.comm()));
    ASSERT_OK(pipeline.Step(0, Cuda(clique.stream())));
    ASSERT_TRUE(clique.Synchronize());
    ASSERT_TRUE(context.Barrier(1));
    if (context.rank() == 0) {
      ASSERT_OK(axcclPipelineStart(pipeline.handle(), Cuda(clique.stream())));
      ASSERT_TRUE(context.Barrier(2));
      for (int64_t slice = 0; slice < kSlices; ++slice) {
        const int64_t of_peer = kSlices + slice;
        EXPECT_EQ(axcclPipelineWait(pipeline.handle(), of_peer), ncclRemoteError) << ncclGetLastError(nullptr);
        EXPECT_OK(axcclPipelineStreamWait(pipeline.handle(), of_peer, Cuda(clique.stream(0, 1))));
        EXPECT_EQ(axcclStreamSynchronize(clique.stream(0, 1)), ncclRemoteError) << ncclGetLastError(nullptr);
      }
    } else {
      ASSERT_TRUE(context.Barrier(2));
    }
    EXPECT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
    (void)axcclStreamSynchronize(clique.stream());
  });
}

// ---- residue ----

TEST(PipelineFailure, NothingIsLeftOfPipelinesThatWereAborted) {
  RunOptions options;
  options.deadline = std::chrono::seconds(40);
  RunRanks(
      Processes(2),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        const auto life = [&](int round) {
          ncclComm_t comm = nullptr;
          ASSERT_OK(ncclCommSplit(clique.comm(), 0, context.rank(), &comm, nullptr));
          IntCase c = CaseOf(kPipelineKinds[round % 6], 2, kSlices);
          c.columns = round % 3 == 0 ? 3000 : 100;
          c.memory = round % 2 == 0 ? Memory::kMalloc : Memory::kMemAlloc;
          c.produced = true;
          IntPipeline pipeline(c, context.rank(), axcclDefaultChannel(comm));
          pipeline.Prepare(0);
          ASSERT_OK(axcclPipelineStart(pipeline.handle(), Cuda(clique.stream())));
          if (round % 4 < 2 && pipeline.in_chunks() > 0) {
            ASSERT_OK(pipeline.Declare(0, 0));
          }
          ASSERT_TRUE(context.Barrier(1));
          std::thread aborter([&] { EXPECT_OK(ncclCommAbort(comm)); });
          if (round % 4 == 1) {
            (void)axcclPipelineWait(pipeline.handle(), kSlices - 1);
          }
          aborter.join();
          for (int64_t chunk = 0; chunk < pipeline.out_chunks(); ++chunk)
            (void)axcclDeviceAwait(&pipeline.Words(axcclOut)[chunk]);
          EXPECT_OK(axcclPipelineDestroy(pipeline.Take()));
          (void)axcclStreamSynchronize(clique.stream());
        };
        constexpr int kWarm = 24, kRounds = 60;
        for (int round = 0; round < kWarm; ++round) life(round);
        ASSERT_TRUE(context.Barrier(2));
        const int files = Entries("/proc/self/fd"), threads = Entries("/proc/self/task");
        const int shared = harness::SharedMappings();
        for (int round = 0; round < kRounds; ++round) {
          ASSERT_TRUE(context.Step("round %d", round));
          life(round);
        }
        ASSERT_TRUE(context.Barrier(2));
        EXPECT_LE(Entries("/proc/self/fd"), files + 4);
        EXPECT_LE(Entries("/proc/self/task"), threads + 2);
        EXPECT_LE(harness::SharedMappings(), shared + 8);
        EXPECT_OK(ncclCommAbort(clique.comm()));
        clique.ForgetComms();
      },
      options);
}

// ---- residue of ranks that died ----

constexpr int kVictims = 16, kFirstCounted = 4;
constexpr int kBornCell = 0, kDeadCell = 32;  // + victim

// What rank 0 and a victim have in common. The victim dies in one state after the other.
struct Pair {
  Pair(int victim, int rank) {
    ncclUniqueId id;
    std::memcpy(&id, RankBoard(), sizeof(id));
    EXPECT_OK(ncclCommInitRank(&comm, 2, id, rank));
    EXPECT_OK(axcclStreamCreate(&stream, axcclStreamNonBlocking));
    IntCase c = CaseOf(victim % 3 == 0 ? axcclPipelineAllReduce : axcclPipelineAllGather, 2, kSlices);
    c.columns = victim % 2 == 0 ? 3000 : 100, c.produced = true;
    c.memory = victim % 2 == 0 ? Memory::kMalloc : Memory::kMemAlloc;
    pipeline = std::make_unique<IntPipeline>(c, rank, axcclDefaultChannel(comm));
    EXPECT_OK(pipeline->Step(0, Cuda(stream)));
    EXPECT_OK(axcclStreamSynchronize(stream));
    pipeline->Prepare(1);
  }
  // The other rank may die at any time.
  void Begin(int64_t declared) {
    EXPECT_OK(axcclPipelineStart(pipeline->handle(), Cuda(stream)));
    for (int64_t chunk = 0; chunk < declared; ++chunk) {
      (void)pipeline->Declare(chunk, 1);
      if (chunk < kSlices - 1) (void)axcclPipelineWait(pipeline->handle(), chunk);
    }
  }

  static std::byte*& RankBoard() {
    static std::byte* board = nullptr;
    return board;
  }
  ncclComm_t comm = nullptr;
  axcclStream_t stream = nullptr;
  std::unique_ptr<IntPipeline> pipeline;
};

[[noreturn]] void LiveAndDie(RankContext& context, int victim) {
  context.Await(kBornCell + victim);
  Pair pair(victim, 1);
  const auto when = static_cast<When>(victim % 4);
  if (when != When::kBeforeStart) pair.Begin(when == When::kBetweenChunks ? kSlices - 1 : kSlices);
  if (when == When::kAfterTheLastChunk) (void)axcclPipelineWait(pair.pipeline->handle(), kSlices - 1);
  if (when == When::kInFinish) (void)axcclPipelineFinish(pair.pipeline->handle(), Cuda(pair.stream));
  context.Set(kDeadCell + victim, 1);
  context.Die();
}

void Outlive(RankContext& context, int victim) {
  ASSERT_TRUE(context.Step("victim %d", victim));
  ncclUniqueId id;
  ASSERT_OK(ncclGetUniqueId(&id));
  std::memcpy(context.board(), &id, sizeof(id));
  context.Set(kBornCell + victim, 1);
  Pair pair(victim, 0);
  const auto when = static_cast<When>(victim % 4);
  if (when == When::kBeforeStart) context.Await(kDeadCell + victim);
  const uint32_t* const words = pair.pipeline->Words(axcclOut);
  std::thread poller([&] {
    for (int64_t chunk = 0; chunk < pair.pipeline->out_chunks(); ++chunk) (void)axcclDeviceAwait(&words[chunk]);
  });
  if (when == When::kBeforeStart) {
    (void)axcclPipelineStart(pair.pipeline->handle(), Cuda(pair.stream));
  } else {
    pair.Begin(when == When::kAfterTheLastChunk ? kSlices : kSlices - 1);
  }
  context.Await(kDeadCell + victim);
  poller.join();
  (void)axcclPipelineFinish(pair.pipeline->handle(), Cuda(pair.stream));
  (void)axcclStreamSynchronize(pair.stream);
  EXPECT_OK(ncclCommAbort(pair.comm));
  pair.pipeline = nullptr;
  EXPECT_OK(axcclStreamDestroy(pair.stream));
}

TEST(PipelineFailure, NothingIsLeftOfRanksThatDied) {
  RunOptions options;
  options.deadline = std::chrono::seconds(40);
  RunRanks(
      Processes(1 + kVictims),
      [](RankContext& context) {
        Pair::RankBoard() = context.board();
        if (context.rank() != 0) LiveAndDie(context, context.rank() - 1);
        const auto held = [] {
          return std::array{Entries("/proc/self/fd"), Entries("/proc/self/task"), harness::SharedMappings()};
        };
        std::array<int, 3> before{};
        for (int victim = 0; victim < kVictims; ++victim) {
          if (victim == kFirstCounted) before = held();
          Outlive(context, victim);
          ASSERT_FALSE(testing::Test::HasFailure());
        }
        // A thread of the library unmaps memory of peers.
        const auto grown = [&] {
          const std::array<int, 3> now = held();
          return std::max({now[0] - before[0], now[1] - before[1], now[2] - before[2]});
        };
        const uint64_t until = NowNs() + AllowedNs(3000);
        while (grown() > 2 && NowNs() < until) harness::LookLater();
        for (size_t i = 0; i < before.size(); ++i) EXPECT_LE(held()[i], before[i] + 2) << "count " << i;
      },
      options);
}

}  // namespace
}  // namespace axccl::tests
