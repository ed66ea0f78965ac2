// What a rank knows of the other members: their access, how they are connected, and whether they are alive.
#include "src/exec/channel/members.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "src/exec/platform/window.h"
#include "tests/exec/ensemble.h"

namespace axccl::exec {
namespace {

std::string Text(const Status& status) { return std::string(status.message()); }

TEST(Members, KnowTheWeakestAccess) {
  for (const Layout layout : kLayouts) {
    EnsembleOptions options;
    options.ranks = 3;
    options.layout = layout;
    Ensemble ensemble(options);
    const Members& members = ensemble.channel(1)->members();
    EXPECT_EQ(members.size(), 3);
    EXPECT_EQ(members.self(), 1);
    EXPECT_EQ(&members.own(), &members[1]);
    EXPECT_EQ(members.owner(), ensemble.owner(1));
    const bool calls = layout == Layout::kCall || layout == Layout::kMixed, remote = layout == Layout::kRemote;
    const tune::Access plain = layout == Layout::kThreads ? tune::Access::kMapped
                               : calls                    ? tune::Access::kCall
                                                          : tune::Access::kNone;
    EXPECT_EQ(members.plain_access(), plain) << LayoutName(layout);
    EXPECT_EQ(members.heap_access(), remote ? tune::Access::kNone : tune::Access::kMapped) << LayoutName(layout);
    EXPECT_EQ(members.inbox() != nullptr, remote) << LayoutName(layout);
    EXPECT_EQ(members.Mirrored(plan::kAllPeers).size(), remote ? 2u : 0u) << "the members of ranks 0 and 2";
    EXPECT_EQ(members.Mirrored(2).size(), remote ? 1u : 0u);
    EXPECT_TRUE(members.Mirrored(1).empty());
    EXPECT_EQ(members.placement().is_flat(), layout != Layout::kRemote) << LayoutName(layout);
    EXPECT_TRUE(members.has_scratch());
  }
}

// By the machines of all ranks: the size of a team, and where that of each rank begins.
TEST(Members, FormTeamsOfOneSize) {
  const auto teams = [](const std::vector<int>& machines) {
    std::vector<Member> members(machines.size());
    for (size_t r = 0; r < machines.size(); ++r) members[r].machine = machines[r];
    std::vector<int> found{LsaTeamOf(members, 0).size};
    for (size_t r = 0; r < machines.size(); ++r) found.push_back(LsaTeamOf(members, static_cast<int>(r)).first);
    return found;
  };
  using Found = std::vector<int>;
  EXPECT_EQ(teams({0}), Found({1, 0}));
  EXPECT_EQ(teams({0, 0, 0}), Found({3, 0, 0, 0}));
  EXPECT_EQ(teams({0, 0, 5, 5}), Found({2, 0, 0, 2, 2}));
  EXPECT_EQ(teams({3, 3, 3, 3, 0, 0}), Found({2, 0, 0, 2, 2, 4, 4}));
  EXPECT_EQ(teams({0, 0, 0, 1, 1}), Found({1, 0, 1, 2, 3, 4}));
  EXPECT_EQ(teams({0, 1, 0, 1}), Found({1, 0, 1, 2, 3}));
  EXPECT_EQ(teams({0, 0, 1, 1, 0, 0}), Found({2, 0, 0, 2, 2, 4, 4}));  // two teams of a machine
}

// Finds the second of two members at its second attempt, and is found by it at the third.
class LateConnector : public Connector {
 public:
  explicit LateConnector(std::byte* block) : block_(block) {}

  Result<int> Connect(std::vector<Member>* members) override {
    if (++looks_ == 1) return 1;
    (*members)[1].block = block_;
    return HasJoined(1) ? -1 : 1;
  }
  bool HasJoined(int) const override { return looks_ > 2; }
  Status CheckMissing(int position) const override {
    return missing_.ok() ? MakeStatus(Code::kRemoteError, "position %d never comes", position) : missing_;
  }
  Status CheckLeft(int position) const override {
    return MakeStatus(Code::kRemoteError, "position %d has left", position);
  }
  void SetMissing(Status missing) { missing_ = std::move(missing); }
  Result<int> TakeArea() override { return 3; }
  void PublishArea() override { ++published_; }
  std::string Name() const override { return "channel 7"; }

  int looks() const { return looks_; }
  int published() const { return published_; }

 private:
  std::byte* const block_;
  Status missing_;
  int looks_ = 0, published_ = 0;
};

TEST(Members, AreConnectedOnce) {
  Ensemble ensemble(EnsembleOptions{});
  Member other = ensemble.MakeMember(0, 1);
  LateConnector connector(std::exchange(other.block, nullptr));
  Members members(ensemble.owner(0), {ensemble.MakeMember(0, 0), other}, 0, &connector);
  ASSERT_EQ(members.connector(), &connector);
  EXPECT_EQ(members.TakeArea().value(), 3);
  EXPECT_EQ(members.own().area, 3);
  EXPECT_EQ(members[1].area, -1);
  members.PublishArea();
  EXPECT_EQ(connector.published(), 1);
  EXPECT_EQ(members.Connect().value(), 1);
  EXPECT_NE(members.connector(), nullptr);
  EXPECT_EQ(members[1].block, nullptr);
  EXPECT_FALSE(members.IsConnected(1));
  EXPECT_EQ(members.Connect().value(), 1);
  EXPECT_NE(members[1].block, nullptr);
  EXPECT_FALSE(members.IsConnected(1)) << "it has not found this rank";
  EXPECT_EQ(members.Connect().value(), -1);
  EXPECT_EQ(members.connector(), nullptr);
  EXPECT_TRUE(members.IsConnected(1));
  EXPECT_EQ(members.Connect().value(), -1);
  EXPECT_EQ(connector.looks(), 3) << "connected members are not searched for again";
  EXPECT_EQ(Text(members.CheckLeft(1)), "position 1 has left");
}

TEST(Members, WithoutAConnectorAreConnectedFromTheStart) {
  Ensemble ensemble(EnsembleOptions{});
  Members& members = ensemble.channel(0)->members();
  EXPECT_EQ(members.connector(), nullptr);
  EXPECT_EQ(members.Connect().value(), -1);
  EXPECT_TRUE(members.CheckLeft(1).ok());
  EXPECT_TRUE(members.IsConnected(1));
}

TEST(Members, OneThatClosesFailsThoseThatWaitForIt) {
  EnsembleOptions options;
  options.ranks = 3;
  Ensemble ensemble(options);
  const Members& members = ensemble.channel(0)->members();
  ensemble.header(2)->closed.store(1);
  for (const int waiting_for : {-1, 1}) EXPECT_TRUE(members.Check(waiting_for).ok()) << waiting_for;
  EXPECT_EQ(Text(members.Check(2)), "rank 0 waits for rank 2, which has destroyed or aborted its communicator");
  EXPECT_TRUE(members.CheckOwners().ok());
}

// A member's own failure is an error of all members; that it misses another member is not.
TEST(Members, FailuresArePublished) {
  struct Case {
    Code code;
    bool own;  // the failure is the member's own
  };
  for (const Case& c : {Case{Code::kInvalidUsage, true}, Case{Code::kRemoteError, false}}) {
    EnsembleOptions options;
    options.ranks = 3;
    Ensemble ensemble(options);
    const Members& members = ensemble.channel(0)->members();
    EXPECT_TRUE(members.CheckFailures().ok());
    ensemble.owner(2)->Fail(MakeStatus(c.code, "rank 2 ran out of luck"));
    for (const Status& status : {members.Check(-1), members.CheckOwners()}) {
      EXPECT_EQ(status.code(), c.code);
      EXPECT_EQ(Text(status), "rank 2 ran out of luck");
    }
    EXPECT_EQ(members.CheckFailures().code(), c.own ? c.code : Code::kOk);
    EXPECT_TRUE(ensemble.channel(2)->members().CheckOwners().ok()) << "its own failure is not another's";
  }
}

// A member that fails publishes its failure first, and then gives up its part. A rank that sees only the latter reports
// the former.
TEST(Members, FailuresExplainWhyAMemberHasLeft) {
  Ensemble ensemble(EnsembleOptions{});
  Member other = ensemble.MakeMember(0, 1);
  LateConnector connector(std::exchange(other.block, nullptr));
  Members members(ensemble.owner(0), {ensemble.MakeMember(0, 0), other}, 0, &connector);
  Members connected(ensemble.owner(0), {ensemble.MakeMember(0, 0), ensemble.MakeMember(0, 1)}, 0, &connector);
  while (connected.Connect().value() >= 0) continue;
  EXPECT_EQ(Text(members.CheckMissing(1)), "position 1 never comes");
  EXPECT_EQ(Text(connected.CheckLeft(1)), "position 1 has left");
  ensemble.owner(1)->Fail(MakeStatus(Code::kInvalidUsage, "the calls form a circle"));
  for (const Status& status : {members.CheckMissing(1), connected.CheckLeft(1)}) {
    EXPECT_EQ(status.code(), Code::kInvalidUsage);
    EXPECT_EQ(Text(status), "the calls form a circle");
  }
  connector.SetMissing(MakeStatus(Code::kInvalidUsage, "position 1 uses another channel"));
  EXPECT_EQ(Text(members.CheckMissing(1)), "position 1 uses another channel") << "it has not left";
}

// A code that this build does not define.
TEST(Members, FailuresOfAnyCodeAreErrors) {
  Ensemble ensemble(EnsembleOptions{});
  std::strcpy(ensemble.header(1)->error_text, "later");
  ensemble.header(1)->error.store(~0u);
  EXPECT_EQ(ensemble.channel(0)->members().CheckOwners().code(), Code::kRemoteError);
}

}  // namespace
}  // namespace axccl::exec
