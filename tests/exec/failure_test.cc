// Operations that cannot succeed: ranks that call different things, members that die, close or abort, deadlines.
//
// The checks for these read the clock, so ranks are polled until they have ended; no test depends on how long that
// takes.
#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "tests/exec/traffic.h"

namespace axccl::exec {
namespace {

using device::host::Poll;
using plan::Kind;

Call MakeCall(Kind kind, uint64_t count, void* input, void* output) {
  Call call;
  call.kind = kind;
  call.count = count;
  call.type = DataType::kInt32;
  call.input = input;
  call.output = output;
  return call;
}

// The call on views with blocks of that form, dense along the last dimension.
Call WithView(Call call, const BlockForm& form) {
  ViewOperand operand;
  operand.form = form;
  operand.type = call.type;
  operand.block_bytes = call.count * ElementSize(call.type);
  int64_t stride = 1;
  for (int d = form.shape.dims; d-- > 0; stride *= 8 * form.shape.sizes[d])
    operand.input_strides[d] = operand.output_strides[d] = stride;
  call.views = std::make_shared<ViewList>(ViewList{{operand}});
  return call;
}

// Ranks with one buffer each, large enough for all the calls here.
class FailureTest : public testing::Test {
 protected:
  // Replaces the ensemble by a new one.
  void Make(EnsembleOptions options) {
    ensemble_ = nullptr;
    inputs_.clear(), outputs_.clear(), operations_.clear();
    ensemble_ = std::make_unique<Ensemble>(options);
    for (int rank = 0; rank < options.ranks; ++rank) {
      inputs_.push_back(ensemble_->Allocate(rank, kBytes, 64, true));
      outputs_.push_back(ensemble_->Allocate(rank, kBytes, 64, true));
    }
    operations_.resize(static_cast<size_t>(options.ranks));
  }

  // Starts the next operation of a rank.
  Operation* Begin(int rank, Call call) {
    call.input = inputs_[static_cast<size_t>(rank)];
    call.output = outputs_[static_cast<size_t>(rank)];
    if (call.views != nullptr) {
      ViewList list = *call.views;
      list.operands[0].input = call.input;
      list.operands[0].output = call.output;
      call.views = std::make_shared<ViewList>(std::move(list));
    }
    auto& operation = operations_[static_cast<size_t>(rank)];
    operation = std::make_unique<Operation>(ensemble_->channel(rank), call);
    return operation.get();
  }
  Poll Step(int rank) { return ensemble_->Step(rank, operations_[static_cast<size_t>(rank)].get()); }
  // Steps `rank` until it has ended, without steps of the others.
  Status Finish(int rank) {
    while (Step(rank) != Poll::kDone) {
    }
    return operations_[static_cast<size_t>(rank)]->status();
  }
  // Steps all ranks that have begun until they have ended.
  void FinishAll() {
    for (bool all = false; !all;) {
      all = true;
      for (int rank = 0; rank < ensemble_->ranks(); ++rank) {
        if (operations_[static_cast<size_t>(rank)] != nullptr) all &= Step(rank) == Poll::kDone;
      }
    }
  }

  static constexpr size_t kBytes = 64u << 10;
  std::unique_ptr<Ensemble> ensemble_;
  std::vector<std::byte*> inputs_, outputs_;
  std::vector<std::unique_ptr<Operation>> operations_;
};

std::string Text(const Status& status) { return std::string(status.message()); }

class MismatchTest : public FailureTest, public testing::WithParamInterface<std::tuple<int, const char*>> {};

// Rank 1 makes another call than the others. Each rank that fails names both calls.
TEST_P(MismatchTest, EveryRankThatFailsNamesBothCalls) {
  const auto [ranks, algorithms] = GetParam();
  Call usual = MakeCall(Kind::kAllReduce, 100, nullptr, nullptr);
  std::vector<Call> others;
  others.push_back(usual), others.back().count = 101;
  others.push_back(usual), others.back().count = 9000;
  others.push_back(usual), others.back().type = DataType::kFloat32;
  others.push_back(usual), others.back().combine = Combine::kMin;
  others.push_back(usual), others.back().scaling = Scaling::kAverage;
  others.push_back(usual), others.back().kind = Kind::kAllGather;
  others.push_back(usual), others.back().kind = Kind::kBroadcast;
  others.push_back(usual), others.back().kind = Kind::kBroadcast, others.back().root = 1;
  for (const Call& other : others) {
    EnsembleOptions options;
    options.ranks = ranks;
    options.algorithms = algorithms;
    Make(options);
    for (int rank = 0; rank < ranks; ++rank) Begin(rank, rank == 1 ? other : usual);
    FinishAll();
    int failures = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const Status status = operations_[static_cast<size_t>(rank)]->status();
      if (status.ok()) continue;
      ++failures;
      EXPECT_EQ(status.code(), Code::kInvalidUsage) << Text(status);
      EXPECT_NE(Text(status).find(DescribeCall(usual.Packed(), usual.count)), std::string::npos) << Text(status);
      EXPECT_NE(Text(status).find(DescribeCall(other.Packed(), other.count)), std::string::npos) << Text(status);
      EXPECT_NE(Text(status).find("rank 1 called " + DescribeCall(other.Packed(), other.count)), std::string::npos);
    }
    // All ranks except rank 1 wait for each other, and some of them for rank 1.
    EXPECT_GE(failures, ranks - 1) << DescribeCall(other.Packed(), other.count);
  }
}

// Calls on views: all ranks must give blocks of the same form, with as many elements as they may have.
TEST_P(MismatchTest, FormsOfViewsAreCompared) {
  const auto [ranks, algorithms] = GetParam();
  BlockForm form;
  form.shape = {2, {4, 25}};
  form.concat = 1;
  std::vector<BlockForm> forms(3, form);
  forms[0].concat = 0;
  forms[1].shape = {2, {25, 4}};
  forms[2].shape = {3, {4, 5, 5}};
  for (int other = 0; other <= 3; ++other) {
    EnsembleOptions options;
    options.ranks = ranks;
    options.algorithms = algorithms;
    Make(options);
    const Call flat = MakeCall(Kind::kAllGather, 100, nullptr, nullptr);
    const Call usual = WithView(flat, form);
    const Call odd = other == 3 ? flat : WithView(flat, forms[static_cast<size_t>(other)]);
    for (int rank = 0; rank < ranks; ++rank) Begin(rank, rank == 1 ? odd : usual);
    FinishAll();
    const std::string words = DescribeCall(odd);
    int failures = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const Status status = operations_[static_cast<size_t>(rank)]->status();
      if (status.ok()) continue;
      ++failures;
      EXPECT_EQ(status.code(), Code::kInvalidUsage) << Text(status);
      EXPECT_NE(Text(status).find("called axcclAllGather of blocks [4, 25] int32 concatenated along dimension 1"),
                std::string::npos)
          << Text(status);
      EXPECT_NE(Text(status).find("rank 1 called " + words), std::string::npos) << Text(status);
    }
    EXPECT_GE(failures, ranks - 1) << words;
  }
}

INSTANTIATE_TEST_SUITE_P(All, MismatchTest,
                         testing::Combine(testing::Values(2, 3, 5),
                                          testing::Values("oneshot", "direct", "all_reduce:ring", "all_reduce:tree")));

// Rank 1 runs the call that all ranks make by another algorithm, or cuts the data into other tiles, as another build of
// the library might: no rank takes its signals for those of its own plan.
TEST_F(FailureTest, PlansThatDifferAreAnError) {
  struct Difference {
    Kind kind;
    const char *usual, *odd;
    uint64_t count;
    Layout layout;
  };
  const Difference differences[] = {
      {Kind::kAllReduce, "ring", "rhd", 100, Layout::kThreads},
      {Kind::kAllReduce, "oneshot", "twoshot", 100, Layout::kHeap},
      {Kind::kAllGather, "direct", "oneshot", 100, Layout::kHeap},
      {Kind::kAllGather, "direct", "pull", 100, Layout::kHeap},
      {Kind::kAllToAll, "pairwise", "bruck", 10, Layout::kNothing},
      {Kind::kAllGather, "bruck", "ring", 9000, Layout::kThreads},
      {Kind::kAllReduce, "oneshot", "tree", 100, Layout::kRemote},
  };
  for (const Difference& d : differences) {
    for (const int ranks : {2, 3, 5}) {
      SCOPED_TRACE(std::string(d.usual) + " and " + d.odd + ", " + std::to_string(ranks) + " ranks");
      EnsembleOptions options;
      options.ranks = ranks;
      options.layout = d.layout;
      options.algorithms_of.assign(static_cast<size_t>(ranks), d.usual);
      options.algorithms_of[1] = d.odd;
      Make(options);
      for (int rank = 0; rank < ranks; ++rank) Begin(rank, MakeCall(d.kind, d.count, nullptr, nullptr));
      FinishAll();
      for (int rank = 0; rank < ranks; ++rank) {
        const Status status = operations_[static_cast<size_t>(rank)]->status();
        EXPECT_EQ(status.code(), Code::kInternalError) << "rank " << rank << ": " << Text(status);
        for (const char* word : {d.usual, d.odd, "both called", "libaxccl"})
          EXPECT_NE(Text(status).find(word), std::string::npos) << "no \"" << word << "\" in: " << Text(status);
      }
    }
  }
}

// Rank 0 ends the first operation without a signal from rank 2, which takes more turns for it.
TEST_F(FailureTest, MismatchOfAnEarlierOperationIsFoundInALaterOne) {
  EnsembleOptions options;
  options.ranks = 3;
  options.algorithms = "broadcast:ring;all_reduce:oneshot";
  options.scratch_bytes = 4096;
  Make(options);
  const Call small = MakeCall(Kind::kBroadcast, 10, nullptr, nullptr);
  const Call large = MakeCall(Kind::kBroadcast, 15000, nullptr, nullptr);
  ASSERT_GT(ensemble_->host(2)->plans().Prepare(large, tune::Access::kMapped).value()->turns, 2u);
  for (int rank : {0, 1, 2}) Begin(rank, rank == 2 ? large : small);
  // Rank 1 fails only after a signal from rank 2.
  EXPECT_EQ(Step(1), Poll::kBlocked);
  EXPECT_EQ(Step(0), Poll::kDone);
  ASSERT_TRUE(operations_[0]->status().ok());
  Begin(0, MakeCall(Kind::kAllReduce, 10, nullptr, nullptr));
  FinishAll();
  for (int rank : {0, 1, 2}) {
    const Status status = operations_[static_cast<size_t>(rank)]->status();
    EXPECT_EQ(status.code(), Code::kInvalidUsage) << "rank " << rank << ": " << Text(status);
    EXPECT_NE(Text(status).find("mismatch at operation 0"), std::string::npos) << Text(status);
  }
}

class RemoteTest : public FailureTest, public testing::WithParamInterface<const char*> {
 protected:
  void MakeThree(Layout layout) {
    EnsembleOptions options;
    options.ranks = 3;
    options.layout = layout;
    options.algorithms = GetParam();
    Make(options);
  }
};

TEST_P(RemoteTest, DeadMemberIsNamed) {
  MakeThree(Layout::kHeap);
  for (int rank : {0, 1}) Begin(rank, MakeCall(Kind::kAllReduce, 100, nullptr, nullptr));
  for (int rank : {0, 1}) EXPECT_EQ(Step(rank), Poll::kBlocked);
  ensemble_->process(2).Die();
  const Status first = Finish(0);
  EXPECT_EQ(first.code(), Code::kRemoteError) << Text(first);
  EXPECT_NE(Text(first).find("rank 2 (pid 1002) died"), std::string::npos) << Text(first);
  EXPECT_TRUE(ensemble_->owner(0)->failed());
  // Rank 1 reads the failure of rank 0, or detects the death itself: the text is the same.
  EXPECT_EQ(Text(Finish(1)), Text(first));
}

TEST_P(RemoteTest, ClosedMemberIsNamed) {
  MakeThree(Layout::kThreads);
  for (int rank : {0, 1}) Begin(rank, MakeCall(Kind::kAllReduce, 100, nullptr, nullptr));
  ensemble_->header(2)->closed.store(1);
  FinishAll();
  for (int rank : {0, 1}) {
    const Status status = operations_[static_cast<size_t>(rank)]->status();
    EXPECT_EQ(status.code(), Code::kRemoteError) << Text(status);
    EXPECT_NE(Text(status).find("rank 2, which has destroyed or aborted"), std::string::npos) << Text(status);
  }
}

// A member that has ended its operation and leaves is no failure for the members that have not ended yet.
TEST_P(RemoteTest, MemberThatLeftAfterItsPartIsNotMissed) {
  MakeThree(Layout::kHeap);
  for (int rank : {0, 1, 2}) Begin(rank, MakeCall(Kind::kAllReduce, 100, nullptr, nullptr));
  for (bool left = false; !left;) {
    for (int rank : {0, 1, 2}) left |= Step(rank) == Poll::kDone;
  }
  for (int rank : {0, 1, 2}) {
    if (!operations_[static_cast<size_t>(rank)]->finished()) continue;
    ASSERT_TRUE(operations_[static_cast<size_t>(rank)]->status().ok());
    ensemble_->header(rank)->closed.store(1);
    ensemble_->process(rank).Die();
  }
  FinishAll();
  for (int rank : {0, 1, 2})
    EXPECT_TRUE(operations_[static_cast<size_t>(rank)]->status().ok())
        << Text(operations_[static_cast<size_t>(rank)]->status());
}

TEST_P(RemoteTest, FailureOfAMemberIsReportedInItsWords) {
  MakeThree(Layout::kThreads);
  for (int rank : {0, 1}) Begin(rank, MakeCall(Kind::kAllReduce, 100, nullptr, nullptr));
  ensemble_->owner(2)->Fail(MakeStatus(Code::kSystemError, "rank 2 ran out of luck"));
  for (int rank : {0, 1}) {
    const Status status = Finish(rank);
    EXPECT_EQ(status.code(), Code::kSystemError);
    EXPECT_EQ(Text(status), "rank 2 ran out of luck");
  }
}

TEST_P(RemoteTest, DeadlineNamesOperationAndRank) {
  EnsembleOptions options;
  options.algorithms = GetParam();
  options.timeout_seconds = 1e-6;
  Make(options);
  Begin(0, MakeCall(Kind::kAllReduce, 100, nullptr, nullptr));
  const Status status = Finish(0);
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_NE(Text(status).find("for rank 1 in ncclAllReduce count 100 int32 sum (operation 0)"), std::string::npos)
      << Text(status);
}

TEST_P(RemoteTest, OwnFailureEndsTheOperation) {
  MakeThree(Layout::kThreads);
  Begin(0, MakeCall(Kind::kAllReduce, 100, nullptr, nullptr));
  EXPECT_EQ(Step(0), Poll::kBlocked);
  ensemble_->owner(0)->Fail(MakeStatus(Code::kInvalidUsage, "aborted"));
  EXPECT_EQ(Step(0), Poll::kDone);
  EXPECT_EQ(Text(operations_[0]->status()), "aborted");
}

INSTANTIATE_TEST_SUITE_P(All, RemoteTest, testing::Values("oneshot", "direct", "ring", "tree"),
                         [](const auto& info) { return std::string(info.param); });

// A rank that aborts takes its buffers away: no rank begins to use them after that, though they were announced.
TEST_F(FailureTest, BuffersOfAnAbortedRankAreLeftAlone) {
  for (const bool under_way : {false, true}) {
    EnsembleOptions options;
    options.algorithms = "direct";
    Make(options);
    std::memset(outputs_[0], 0x5b, kBytes);
    for (int rank : {0, 1}) Begin(rank, MakeCall(Kind::kAllReduce, 100, nullptr, nullptr));
    // Rank 1 begins before the abort, or after it.
    if (under_way) {
      EXPECT_EQ(Step(1), Poll::kBlocked);
    }
    EXPECT_EQ(Step(0), Poll::kBlocked);
    std::memset(outputs_[0], 0x5b, kBytes);
    ensemble_->owner(0)->Fail(MakeStatus(Code::kRemoteError, "rank 0 aborted its communicator"));
    EXPECT_EQ(Text(Finish(1)), "rank 0 aborted its communicator");
    for (size_t i = 0; i < kBytes; ++i) ASSERT_EQ(outputs_[0][i], std::byte{0x5b}) << "byte " << i;
  }
}

// Rank 0 has done its part and waits only for rank 1, which is late: rank 1 reads after rank 0 has failed and reused
// its memory. What it reads then is never reported as data.
TEST_F(FailureTest, WhatALateReaderFindsIsNoResult) {
  for (const bool fails : {false, true}) {
    EnsembleOptions options;
    options.layout = Layout::kMixed;
    options.algorithms = "pull";
    Make(options);
    inputs_[0] = ensemble_->Allocate(0, kBytes, 64, false);  // rank 1 reads it by system call
    std::byte* const input = ensemble_->AlwaysAccessible(0, inputs_[0]);
    std::memset(input, 1, kBytes);
    for (const int rank : {0, 1}) Begin(rank, MakeCall(Kind::kAllGather, 100, nullptr, nullptr));
    EXPECT_EQ(Step(0), Poll::kBlocked);
    bool late = false;
    ensemble_->owner(1)->BeforeReads([&] {
      if (std::exchange(late, true)) return;
      EXPECT_EQ(Step(0), Poll::kBlocked) << "rank 1 still reads from it";
      if (!fails) return;
      ensemble_->owner(0)->Fail(MakeStatus(Code::kTimeout, "rank 0 waited too long"));
      std::memset(input, 2, kBytes);
    });
    const Status status = Finish(1);
    EXPECT_TRUE(late);
    EXPECT_EQ(Text(status), fails ? "rank 0 waited too long" : "");
    if (!fails) {
      EXPECT_EQ(outputs_[1][0], std::byte{1});
      EXPECT_TRUE(Finish(0).ok());
    }
  }
}

// A process whose memory is gone has died, although its death is not visible yet.
TEST_F(FailureTest, ProcessThatIsGoneIsTheDeathOfItsRank) {
  EnsembleOptions options;
  options.ranks = 3;
  options.layout = Layout::kCall;
  options.algorithms = "direct";
  Make(options);
  for (int rank = 0; rank < 3; ++rank) Begin(rank, MakeCall(Kind::kAllReduce, 100, nullptr, nullptr));
  // All ranks have seen that memory is plain, and begun to read it by calls.
  for (const int rank : {2, 1, 0, 2, 1}) EXPECT_EQ(Step(rank), Poll::kBlocked);
  ensemble_->process(2).Vanish();
  const Status status = Finish(0);
  EXPECT_EQ(status.code(), Code::kRemoteError);
  EXPECT_EQ(Text(status), "rank 2 (pid 1002) died; abort the communicator and make a new one without it");
}

// A peer's text is printed on terminals and in logs of others, so control characters are removed from it.
TEST_F(FailureTest, TextsOfPeersAreFitForATerminal) {
  Make({});
  for (int rank : {0, 1}) Begin(rank, MakeCall(Kind::kAllReduce, 100, nullptr, nullptr));
  EXPECT_EQ(Step(0), Poll::kBlocked);
  BlockHeader* const header = ensemble_->header(1);
  std::strcpy(header->error_text, "out of \x1b]0;luck\x07\n\x80 today");
  header->error.store(static_cast<uint32_t>(Code::kSystemError));
  EXPECT_EQ(Text(Finish(0)), "out of ?]0;luck??? today");
}

// Every announcement of a peer is checked.
class AnnouncementTest : public FailureTest, public testing::WithParamInterface<uint64_t> {};

TEST_P(AnnouncementTest, BufferOutsideTheHeapIsRefused) {
  EnsembleOptions options;
  options.layout = Layout::kHeap;
  options.algorithms = "direct";
  Make(options);
  for (int rank : {0, 1}) Begin(rank, MakeCall(Kind::kAllReduce, 100, nullptr, nullptr));
  EXPECT_EQ(Step(0), Poll::kBlocked);
  OpRecord* record = ensemble_->layout().channel.RecordOf(reinterpret_cast<std::byte*>(ensemble_->header(0)), 0);
  record->word[OpRecord::kOutput].store(ensemble_->process(0).heap().bytes() - GetParam());
  const Status status = Finish(1);
  EXPECT_EQ(status.code(), Code::kRemoteError);
  EXPECT_NE(Text(status).find("rank 0 announced a buffer outside its heap"), std::string::npos) << Text(status);
}

// Distance of the buffer of 400 bytes from the end of the heap; "negative" ones lie behind it, up to the end of all
// addresses.
INSTANTIATE_TEST_SUITE_P(All, AnnouncementTest, testing::Values(399, 1, 0, ~uint64_t{0}, uint64_t{1} << 63));

// The address and the strides of a view are checked, and with them its extent.
TEST_F(FailureTest, ViewOutsideTheHeapIsRefused) {
  struct Lie {
    int word;
    uint64_t value;
  };
  // The words of the announcement of a view of two dimensions.
  const int kOutput = OpRecord::kDetailWords + 2, kInputStrides = kOutput + 2, kOutputStrides = kInputStrides + 2;
  const uint64_t heap = 64u << 20;  // larger than the real one
  const Lie lies[] = {
      {kOutput, heap},
      {kOutput, ~uint64_t{0}},
      {kOutput, uint64_t{1} << 63},
      {kOutput + 1, static_cast<uint64_t>(MemoryKind::kUnused)},
      {kOutput + 1, static_cast<uint64_t>(MemoryKind::kPlain)},
      {kOutputStrides, heap},
      {kOutputStrides, uint64_t{1} << 62},
      {kOutputStrides + 1, ~heap},
      {kOutputStrides, uint64_t{1} << 63},
      {kInputStrides + 1, uint64_t{1} << 40},
      {kInputStrides, ~uint64_t{0} << 61},
      {OpRecord::kDetails, 7},
      {OpRecord::kDetails, ~uint64_t{0}},
      {OpRecord::kDetails, uint64_t{1} << 61 | 8},
  };
  for (const Lie& lie : lies) {
    EnsembleOptions options;
    options.layout = Layout::kHeap;
    options.algorithms = "direct";
    Make(options);
    BlockForm form;
    form.shape = {2, {4, 25}};
    for (int rank : {0, 1}) Begin(rank, WithView(MakeCall(Kind::kAllReduce, 100, nullptr, nullptr), form));
    EXPECT_EQ(Step(0), Poll::kBlocked);
    OpRecord* record = ensemble_->layout().channel.RecordOf(reinterpret_cast<std::byte*>(ensemble_->header(0)), 0);
    record->word[lie.word].store(lie.value);
    const Status status = Finish(1);
    EXPECT_EQ(status.code(), Code::kRemoteError) << lie.word << " " << lie.value;
    EXPECT_NE(Text(status).find("rank 0 announced "), std::string::npos) << Text(status);
    const bool count = lie.word == OpRecord::kDetails;
    EXPECT_NE(Text(status).find(count ? "another number of views" : " outside its heap"), std::string::npos)
        << Text(status);
  }
}

}  // namespace
}  // namespace axccl::exec
