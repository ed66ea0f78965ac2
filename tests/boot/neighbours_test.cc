// The neighbours of a rank in a tree, and what it sends to which of them (src/boot/neighbours.h).
#include "src/boot/neighbours.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "src/base/service.h"
#include "tests/harness/run_ranks.h"

namespace axccl::boot {
namespace {

constexpr int kParent = Neighbours::kParent, kOwnHub = Neighbours::kOwnHub, kHubAbove = Neighbours::kHubAbove;

const Branch kBranch = BranchOf(1, 40, 1);

TEST(NeighboursTest, AreCompleteOnceTheParentAndAllChildrenHaveCome) {
  Neighbours neighbours(kBranch);
  ASSERT_EQ(neighbours.num_children(), static_cast<int>(kBranch.children.size()));
  std::string all = "rank 0";
  for (const int child : kBranch.children) all += ", rank " + std::to_string(child);
  EXPECT_EQ(neighbours.Missing(), all);
  for (int which = kParent; which < neighbours.num_children(); ++which) {
    EXPECT_FALSE(neighbours.complete());
    neighbours.At(which).came = true;
  }
  EXPECT_TRUE(neighbours.complete()) << "the hubs do not count";
  EXPECT_EQ(neighbours.Missing(), "");
}

TEST(NeighboursTest, ARankWithoutParentDoesNotMissIt) {
  const Neighbours alone(BranchOf(0, 1, 1));
  EXPECT_TRUE(alone.complete());
  EXPECT_EQ(alone.Missing(), "");
}

TEST(NeighboursTest, OnlyTheParentAndChildrenCountAsLeft) {
  Neighbours neighbours(kBranch);
  neighbours.At(kOwnHub).left = neighbours.At(kHubAbove).left = true;
  EXPECT_EQ(neighbours.FirstThatLeft(), nullptr);
  neighbours.At(1).left = true;
  EXPECT_EQ(neighbours.FirstThatLeft(), &neighbours.At(1));
  neighbours.At(kParent).left = true;
  EXPECT_EQ(neighbours.FirstThatLeft(), &neighbours.At(kParent));
}

// ---- with links ----

// Neighbours with links, and the other ends of these.
class Linked {
 public:
  ~Linked() {
    OnLoop([&](Neighbours* neighbours) {
      for (int which = kHubAbove; which < neighbours->num_children(); ++which) {
        if (const auto link = std::exchange(neighbours->At(which).link, nullptr)) link->Close();
      }
    });
  }
  void OnLoop(const std::function<void(Neighbours*)>& task) {
    ASSERT_TRUE(loop_->Run([&] { task(&neighbours_); }).ok());
  }
  void Connect(int which) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    peers_.emplace(which, service::Fd(ends[0]));
    Status started;
    OnLoop([&](Neighbours* neighbours) {
      neighbours->At(which).link =
          std::make_shared<Link>(loop_, service::Fd(ends[1]), FrameCipher(Key{}, Role::kRank), Role::kRank, 40);
      started = neighbours->At(which).link->Start(nullptr, which);
    });
    ASSERT_TRUE(started.ok()) << started.message();
  }
  void ConnectAll() {
    for (int which = kHubAbove; which < neighbours_.num_children(); ++which) Connect(which);
  }
  bool HasLink(int which) { return neighbours_.At(which).link != nullptr; }
  bool HasLeft(int which) { return neighbours_.At(which).left; }
  int num_children() const { return neighbours_.num_children(); }
  // What has been sent to that neighbour since the last call.
  std::vector<FrameType> SentTo(int which) {
    std::vector<FrameType> types;
    const int fd = peers_.at(which).get();
    FrameHeader header;
    while (recv(fd, &header, sizeof header, MSG_DONTWAIT) == ssize_t{sizeof header}) {
      types.push_back(header.type);
      std::vector<std::byte> payload(header.bytes);
      if (payload.empty()) continue;
      EXPECT_EQ(recv(fd, payload.data(), payload.size(), MSG_WAITALL), static_cast<ssize_t>(payload.size()));
    }
    return types;
  }

 private:
  service::Loop* const loop_ = service::Loop::Get().value();
  Neighbours neighbours_{kBranch};
  std::map<int, service::Fd> peers_;
};

// In a process of its own, as other tests of this program fork.
void WithLinks(const std::function<void(Linked*)>& body) {
  harness::RunRanks(harness::Processes(1), [&](harness::RankContext&) {
    Linked linked;
    body(&linked);
  });
}

TEST(NeighboursTest, FramesGoToTheNeighboursThatHaveALink) {
  WithLinks([](Linked* linked) {
    linked->Connect(kParent);
    linked->Connect(1);
    linked->OnLoop([](Neighbours* neighbours) {
      neighbours->Send(kParent, FrameType::kContribute, std::vector<std::byte>(5));
      neighbours->Send(kOwnHub, FrameType::kExpired, {});
      neighbours->SendToChildren(FrameType::kGathered, std::vector<std::byte>(9));
    });
    EXPECT_EQ(linked->SentTo(kParent), std::vector{FrameType::kContribute});
    EXPECT_EQ(linked->SentTo(1), std::vector{FrameType::kGathered});
  });
}

TEST(NeighboursTest, ChildrenAreBusyUntilTheKernelHasTakenAll) {
  WithLinks([](Linked* linked) {
    linked->Connect(0);
    linked->Connect(kParent);
    bool before = false, after = true;
    linked->OnLoop([&](Neighbours* neighbours) {
      const std::vector<std::byte> more_than_sockets_hold(16u << 20);
      neighbours->Send(kParent, FrameType::kContribute, more_than_sockets_hold);
      before = neighbours->ChildrenIdle();
      neighbours->Send(0, FrameType::kGathered, more_than_sockets_hold);
      after = neighbours->ChildrenIdle();
    });
    EXPECT_TRUE(before) << "the parent does not count";
    EXPECT_FALSE(after);
  });
}

TEST(NeighboursTest, LeavingTheHubsKeepsTheOtherLinks) {
  WithLinks([](Linked* linked) {
    linked->ConnectAll();
    linked->OnLoop([](Neighbours* neighbours) { neighbours->LeaveHubs(); });
    for (const int hub : {kOwnHub, kHubAbove}) {
      EXPECT_EQ(linked->SentTo(hub), std::vector{FrameType::kLeave});
      EXPECT_TRUE(linked->HasLeft(hub));
      EXPECT_FALSE(linked->HasLink(hub));
    }
    EXPECT_TRUE(linked->SentTo(kParent).empty());
    linked->OnLoop([](Neighbours* neighbours) { neighbours->LeaveAll(); });
    EXPECT_TRUE(linked->SentTo(kOwnHub).empty());
    for (int which = kParent; which < linked->num_children(); ++which) {
      EXPECT_EQ(linked->SentTo(which), std::vector{FrameType::kLeave});
      EXPECT_FALSE(linked->HasLink(which));
    }
  });
}

TEST(NeighboursTest, TheEndReachesAllAndHubsDoNotTakeItForAnErrorOfThisRank) {
  WithLinks([](Linked* linked) {
    linked->ConnectAll();
    linked->OnLoop([](Neighbours* neighbours) { neighbours->EndAll(Status(Code::kRemoteError, "rank 3 is gone")); });
    for (int which = kHubAbove; which < linked->num_children(); ++which) {
      const FrameType expected = Neighbours::IsHub(which) ? FrameType::kFailed : FrameType::kError;
      EXPECT_EQ(linked->SentTo(which), std::vector{expected}) << which;
      EXPECT_FALSE(linked->HasLink(which));
    }
  });
}

}  // namespace
}  // namespace axccl::boot
