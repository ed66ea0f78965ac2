// A rank's failure: the first one stays, and all members read or are sent it.
#include "src/comm/failure.h"

#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <string>
#include <vector>

#include "tests/exec/ensemble.h"

namespace axccl::comm {
namespace {

using exec::BlockHeader;
using exec::Ensemble;
using exec::EnsembleOptions;
using exec::Member;
using transport::Reach;

std::string Text(const Status& status) { return std::string(status.message()); }

TEST(RankFailure, TheFirstStays) {
  BlockHeader header{};
  RankFailure failure(2, &header);
  EXPECT_FALSE(failure.failed());
  EXPECT_TRUE(failure.Get().ok());
  EXPECT_TRUE(failure.Set(MakeStatus(Code::kTimeout, "too late")));
  EXPECT_TRUE(failure.failed());
  EXPECT_FALSE(failure.Set(MakeStatus(Code::kInternalError, "later"), MakeStatus(Code::kRemoteError, "later")));
  EXPECT_EQ(failure.Get().code(), Code::kTimeout);
  EXPECT_EQ(Text(failure.Get()), "too late");
  EXPECT_EQ(header.error.load(), static_cast<uint32_t>(Code::kTimeout));
  EXPECT_STREQ(header.error_text, "rank 2: too late");
}

TEST(RankFailure, PeersGetATextThatNamesTheRank) {
  const struct {
    const char *own, *to_peers;
  } cases[] = {{"no descriptor is left", "rank 2: no descriptor is left"},
               {"rank 5 has died", "rank 5 has died"},
               {"mismatch at operation 3", "mismatch at operation 3"}};
  for (const auto& c : cases) {
    BlockHeader header{};
    RankFailure failure(2, &header);
    failure.Set(MakeStatus(Code::kSystemError, "%s", c.own));
    EXPECT_EQ(Text(failure.Get()), c.own);
    EXPECT_STREQ(header.error_text, c.to_peers);
  }
  BlockHeader header{};
  RankFailure(2, &header).Set(MakeStatus(Code::kSystemError, "%s", std::string(2 * exec::kErrorText, 'x').c_str()));
  EXPECT_EQ(std::string(header.error_text).size(), exec::kErrorText - 1);
}

class RecordingReach : public Reach {
 public:
  RecordingReach(transport::PeerProcess* process, std::byte* block, bool throws)
      : Reach(process, block), throws_(throws) {}
  const char* Name() const override { return "fake"; }
  bool TryCalls(uint64_t, uint64_t) override { return false; }
  Status Read(void*, uint64_t, size_t) override { return MakeStatus(Code::kInternalError, "no calls"); }
  void Publish(const std::shared_ptr<Area>&, std::span<const Stretch> stretches, LineAt line) override {
    if (throws_) throw std::bad_alloc();
    ASSERT_EQ(stretches.size(), 1u);
    EXPECT_EQ(stretches[0].offset, offsetof(BlockHeader, error_text));
    EXPECT_EQ(stretches[0].bytes, exec::kErrorText);
    EXPECT_EQ(line.offset, offsetof(BlockHeader, error));
    ++published;
  }
  int published = 0;

 private:
  const bool throws_;
};

// Memory may have run out, so that a message to one member cannot be made.
TEST(RankFailure, IsSentToEachMemberThatCanBeSentIt) {
  EnsembleOptions options;
  options.ranks = 3;
  Ensemble ensemble(options);
  std::vector<Member> members;
  std::vector<std::unique_ptr<RecordingReach>> reaches;
  for (int rank = 0; rank < 3; ++rank) {
    Member& member = members.emplace_back(ensemble.MakeMember(0, rank));
    reaches.push_back(std::make_unique<RecordingReach>(ensemble.process(rank).peer(), member.block, rank == 1));
    member.reach = reaches.back().get();
  }
  RankFailure failure(0, ensemble.header(0));
  ASSERT_TRUE(failure.Set(MakeStatus(Code::kSystemError, "no memory")));
  failure.Publish(members);
  EXPECT_EQ(reaches[1]->published, 0);
  EXPECT_EQ(reaches[2]->published, 1);
}

}  // namespace
}  // namespace axccl::comm
