// What ranks record of their calls, and what is reported where the calls differ.
#include "src/exec/channel/call_log.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/exec/ensemble.h"

namespace axccl::exec {
namespace {

using plan::Kind;

Call MakeCall(uint64_t count) {
  Call call;
  call.kind = Kind::kAllReduce;
  call.type = DataType::kFloat32;
  call.count = count;
  return call;
}

Call OnViews(uint64_t pairs) {
  ViewOperand operand;
  operand.form.shape = {2, {4, 25}};
  operand.form.concat = 1;
  operand.type = DataType::kFloat32;
  operand.block_bytes = 400;
  ViewList list{{operand, operand}};
  list.pairs = pairs;
  Call call;
  call.kind = Kind::kAllGather;
  call.views = std::make_shared<const ViewList>(std::move(list));
  call.count = call.views->BlockCount();
  call.type = call.views->CommonType();
  return call;
}

class CallLogTest : public testing::Test {
 protected:
  void Make(int ranks) {
    EnsembleOptions options;
    options.ranks = ranks;
    ensemble_ = std::make_unique<Ensemble>(options);
  }
  CallLog& Log(int rank) { return ensemble_->channel(rank)->log(); }
  void RecordOnAll(const Call& call, int times = 1) {
    for (; times > 0; --times) {
      for (int rank = 0; rank < ensemble_->ranks(); ++rank) Log(rank).Record(call);
    }
  }
  // Records a call that runs that plan.
  void RecordPlan(int rank, const Call& call, uint64_t plan_word) {
    const uint64_t sequence = Log(rank).TakeNumber();
    CallLog::Close(Log(rank).Open(sequence, call, 0, plan_word), sequence);
  }
  static std::string Text(const Status& status) { return std::string(status.message()); }

  std::unique_ptr<Ensemble> ensemble_;
};

TEST_F(CallLogTest, NumbersOperations) {
  Make(2);
  EXPECT_EQ(Log(0).next(), 0u);
  EXPECT_EQ(Log(0).TakeNumber(), 0u);
  Log(0).Record(MakeCall(1));
  EXPECT_EQ(Log(0).next(), 2u);
  EXPECT_EQ(Log(0).TextOf(0), "") << "a number was taken, and nothing written down";
  EXPECT_EQ(Log(0).TextOf(1), "ncclAllReduce count 1 float sum");
}

TEST_F(CallLogTest, KeepsTheLastRecords) {
  Make(2);
  for (uint64_t i = 0; i < kRecords; ++i) Log(0).Record(MakeCall(i));
  EXPECT_EQ(Log(0).TextOf(0), "ncclAllReduce count 0 float sum");
  Log(0).Record(MakeCall(kRecords));
  EXPECT_EQ(Log(0).TextOf(0), "") << "too long ago";
  EXPECT_EQ(Log(0).TextOf(1), "ncclAllReduce count 1 float sum");
  EXPECT_EQ(Log(0).TextOf(kRecords), "ncclAllReduce count " + std::to_string(kRecords) + " float sum");
  EXPECT_EQ(Log(0).TextOf(kRecords + 1), "") << "not yet";
}

TEST_F(CallLogTest, NamesWhatMembersHaveCalled) {
  Make(2);
  EXPECT_EQ(Log(0).LastCallOf(1), "rank 1 has called nothing like it yet");
  EXPECT_FALSE(Log(0).HasRecorded(1, 0));
  for (uint64_t i = 0; i < 20; ++i) Log(1).Record(MakeCall(i));
  EXPECT_EQ(Log(0).LastCallOf(1), "rank 1 last called ncclAllReduce count 19 float sum (operation 19)");
  for (const uint64_t sequence : {uint64_t{0}, uint64_t{19}}) EXPECT_TRUE(Log(0).HasRecorded(1, sequence)) << sequence;
  EXPECT_FALSE(Log(0).HasRecorded(1, 20));
  // A record that is being written is not there yet, and the one in its place is gone.
  const uint64_t sequence = Log(1).TakeNumber();
  OpRecord* const record = Log(1).Open(sequence, MakeCall(20), 0, 0);
  EXPECT_FALSE(Log(0).HasRecorded(1, 20));
  EXPECT_EQ(Log(0).LastCallOf(1), "rank 1 last called ncclAllReduce count 19 float sum (operation 19)");
  CallLog::Close(record, sequence);
  EXPECT_TRUE(Log(0).HasRecorded(1, 20));
}

TEST_F(CallLogTest, SameCallsMatch) {
  Make(3);
  RecordOnAll(MakeCall(5), 3);
  RecordOnAll(OnViews(0), 2);
  Call call = MakeCall(7);
  Log(0).Record(call);
  call.second_name = true;
  Log(1).Record(call);
  EXPECT_TRUE(Log(0).FindMismatch().ok());
  EXPECT_TRUE(Log(2).FindMismatch().ok()) << "a rank that is behind has called nothing else";
  for (int rank : {1, 2}) EXPECT_TRUE(Log(0).CompareWith(rank).ok());
}

TEST_F(CallLogTest, MismatchNamesBothCalls) {
  Make(2);
  RecordOnAll(MakeCall(5));
  Log(0).Record(MakeCall(5));
  Log(1).Record(MakeCall(6));
  const Status status = Log(0).FindMismatch();
  EXPECT_EQ(status.code(), Code::kInvalidUsage);
  EXPECT_EQ(Text(status),
            "mismatch at operation 1: rank 0 called ncclAllReduce count 5 float sum, rank 1 called ncclAllReduce count "
            "6 float sum; all ranks of a communicator must make the same calls in the same order");
  EXPECT_EQ(Text(Log(0).CompareWith(1)), Text(status));
}

TEST_F(CallLogTest, MismatchOfAMessageNamesWhatItsSidesMustPass) {
  Make(2);
  for (const int rank : {0, 1}) {
    Call call = MakeCall(rank == 0 ? 4 : 5);
    call.kind = plan::Kind::kSendRecv;
    call.second_name = rank == 1;
    Log(rank).Record(call);
  }
  EXPECT_EQ(Text(Log(0).FindMismatch()),
            "mismatch at operation 0: rank 0 called ncclSend count 4 float, rank 1 called ncclRecv count 5 float; both "
            "sides of a message must pass the same count and datatype, and make their calls in the same order");
}

TEST_F(CallLogTest, MismatchCountsTheSides) {
  Make(4);
  for (int rank : {0, 2}) Log(rank).Record(MakeCall(5));
  Log(1).Record(MakeCall(6));
  const std::string text = Text(Log(0).FindMismatch());
  EXPECT_NE(text.find("; so far, of 4 ranks 2 called the former and 1 the latter; all ranks"), std::string::npos)
      << text;
  EXPECT_TRUE(Log(0).CompareWith(2).ok());
  EXPECT_TRUE(Log(0).CompareWith(3).ok());
  EXPECT_FALSE(Log(0).CompareWith(1).ok());
}

// The texts are alike, but the calls differ in more than the texts show.
TEST_F(CallLogTest, MismatchNamesWhatTheTextsHide) {
  Make(2);
  Log(0).Record(OnViews(1));
  Log(1).Record(OnViews(2));
  const std::string text = Text(Log(0).FindMismatch());
  const std::string both = "axcclAllGather of 2 operands, first of blocks [4, 25] float concatenated along dimension 1";
  EXPECT_NE(text.find("rank 0 called " + both + ", rank 1 called " + both + ", and later operands differ; all ranks"),
            std::string::npos)
      << text;
}

TEST_F(CallLogTest, MismatchOfPlansIsAnInternalError) {
  Make(2);
  for (const uint64_t theirs : {uint64_t{0x10101}, uint64_t{0}}) {  // 0: the plan is not recorded
    RecordPlan(0, MakeCall(5), 0x10101);
    RecordPlan(1, MakeCall(5), theirs);
  }
  EXPECT_TRUE(Log(0).FindMismatch().ok());
  RecordPlan(0, MakeCall(5), 0x10101);
  RecordPlan(1, MakeCall(5), 0x20201);
  const Status status = Log(0).FindMismatch();
  EXPECT_EQ(status.code(), Code::kInternalError);
  for (const char* words : {"mismatch at operation 2: ranks 0 and 1 both called ncclAllReduce count 5 float sum, but",
                            "in 1 lane (plan 000000000001)", "in 2 lanes (plan 000000000002)"})
    EXPECT_NE(Text(status).find(words), std::string::npos) << "no \"" << words << "\" in: " << Text(status);
}

TEST_F(CallLogTest, MismatchTooLongAgoIsForgotten) {
  Make(2);
  Log(0).Record(MakeCall(5));
  Log(1).Record(MakeCall(6));
  RecordOnAll(MakeCall(7), kRecords - 1);
  EXPECT_FALSE(Log(0).FindMismatch().ok());
  Log(1).Record(MakeCall(7));
  EXPECT_TRUE(Log(0).FindMismatch().ok()) << "the member has gone on, so the calls matched";
  Log(0).Record(MakeCall(7));
  EXPECT_TRUE(Log(0).FindMismatch().ok());
}

// A peer writes the records.
TEST_F(CallLogTest, AnyBitsAreLegal) {
  Make(2);
  RecordOnAll(OnViews(0));
  OpRecord* const record = ensemble_->layout().channel.RecordOf(reinterpret_cast<std::byte*>(ensemble_->header(1)), 0);
  record->word[OpRecord::kForm].store(~uint64_t{0});
  const std::string text = Text(Log(0).FindMismatch());
  EXPECT_NE(text.find("rank 1 called unreadable call"), std::string::npos) << text;
  record->word[OpRecord::kForm].store(0);
  record->word[OpRecord::kType].store(~uint64_t{0});
  EXPECT_NE(Text(Log(0).FindMismatch()).find("rank 1 called unreadable call"), std::string::npos);
}

// Members of a created channel that are not connected yet.
TEST_F(CallLogTest, MembersThatAreNotConnectedHaveCalledNothing) {
  Make(2);
  Member other = ensemble_->MakeMember(0, 1);
  other.block = nullptr;
  const Members members(ensemble_->owner(0), {ensemble_->MakeMember(0, 0), other}, 0);
  CallLog log(&members);
  log.Record(MakeCall(5));
  EXPECT_TRUE(log.FindMismatch().ok());
  EXPECT_FALSE(log.HasRecorded(1, 0));
  EXPECT_EQ(log.LastCallOf(1), "rank 1 has called nothing like it yet");
}

}  // namespace
}  // namespace axccl::exec
