// Splits, shrinks and grows as programs written for NCCL make them: which communicator decides whether a call blocks,
// whose state shows how far it is, what settings the new communicator has, and where present ranks have the id of a
// grow from.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "tests/harness/client.h"

namespace axccl::tests {
namespace {

using harness::AwaitComm;
using harness::Clique;
using harness::Cuda;
using harness::ExpectLastErrorHas;
using harness::ExpectShape;
using harness::NonBlocking;
using harness::Processes;
using harness::RankContext;
using harness::RunCliques;
using harness::RunNonBlockingCliques;
using harness::RunOptions;
using harness::RunRanks;

ncclResult_t StateOf(ncclComm_t comm) {
  ncclResult_t state = ncclInternalError;
  EXPECT_OK(ncclCommGetAsyncError(comm, &state));
  return state;
}

RunOptions WithInitTimeout(const char* seconds) {
  RunOptions options;
  options.environment = {{"AXCCL_INIT_TIMEOUT", seconds}};
  return options;
}

// ---- the state of the parent ----

// NCCL: ncclCommSplit and ncclCommShrink of a communicator that does not block set its state to ncclInProgress, and end
// that when the new communicator is ready (ncclCommInitChildComm). Programs poll the parent, and then use the child.
TEST(ChildState, TheParentIsInProgressUntilTheChildIsReady) {
  enum class By { kSplit, kSplitWithoutColour, kShrink, kShrinkWithAbort };
  for (const By by : {By::kSplit, By::kSplitWithoutColour, By::kShrink, By::kShrinkWithAbort}) {
    RunNonBlockingCliques(Processes(3), [by](RankContext& context, Clique& clique) {
      const int r = context.rank();
      const bool shrinks = by == By::kShrink || by == By::kShrinkWithAbort;
      int out[] = {2};
      const bool takes_part = !shrinks || r != 2;
      const bool gets_one = takes_part && !(by == By::kSplitWithoutColour && r == 0);
      if (takes_part) {
        if (r != 0) {
          ASSERT_EQ(context.Await(0), 1u);
        }
        ncclComm_t child = nullptr;
        ASSERT_EQ(shrinks ? ncclCommShrink(clique.comm(), out, 1, &child, nullptr,
                                           by == By::kShrink ? NCCL_SHRINK_DEFAULT : NCCL_SHRINK_ABORT)
                          : ncclCommSplit(clique.comm(), gets_one ? 0 : NCCL_SPLIT_NOCOLOR, r, &child, nullptr),
                  ncclInProgress);
        // The others have not called yet.
        if (r == 0) {
          EXPECT_EQ(StateOf(clique.comm()), ncclInProgress);
          context.Set(0, 1);
        }
        ASSERT_OK(AwaitComm(context, clique.comm()));
        if (gets_one) {
          const bool without_first = by == By::kSplitWithoutColour;
          ExpectShape(child, shrinks || without_first ? 2 : 3, without_first ? r - 1 : r);
          EXPECT_OK(ncclCommDestroy(child));
        } else {
          EXPECT_EQ(child, nullptr);
        }
      }
      ASSERT_TRUE(context.Barrier());
    });
  }
}

TEST(ChildState, TheParentHasTheErrorUntilTheChildEnds) {
  RunNonBlockingCliques(
      Processes(2),
      [](RankContext& context, Clique& clique) {
        ncclComm_t child = nullptr;
        if (context.rank() == 0) {
          ASSERT_EQ(ncclCommSplit(clique.comm(), 0, 0, &child, nullptr), ncclInProgress);
          EXPECT_EQ(AwaitComm(context, clique.comm()), ncclTimeout);
          ExpectLastErrorHas({"ncclCommSplit", "rank 1 of 2"});
          EXPECT_EQ(StateOf(child), ncclTimeout);
          EXPECT_OK(ncclCommAbort(child));
          EXPECT_OK(StateOf(clique.comm()));
        }
        ASSERT_TRUE(context.Barrier());
      },
      WithInitTimeout("2"));
}

// Without a colour there is no other communicator whose state could be asked.
TEST(ChildState, TheParentHasTheErrorOfASplitWithoutColourUntilTheNext) {
  RunNonBlockingCliques(
      Processes(2),
      [](RankContext& context, Clique& clique) {
        ncclComm_t child = nullptr;
        for (const bool together : {false, true}) {
          ASSERT_TRUE(context.Step(together ? "together" : "one after the other"));
          if (!together && context.rank() == 1) {
            ASSERT_TRUE(context.Barrier());
          }
          const int color = context.rank() == 0 ? NCCL_SPLIT_NOCOLOR : 0;
          ASSERT_EQ(ncclCommSplit(clique.comm(), color, 0, &child, nullptr), ncclInProgress);
          const ncclResult_t end = AwaitComm(context, clique.comm());
          if (together) {
            EXPECT_OK(end);
          } else if (context.rank() == 0) {
            EXPECT_EQ(end, ncclTimeout);
            EXPECT_EQ(StateOf(clique.comm()), ncclTimeout);
          } else {
            EXPECT_NE(end, ncclInProgress);  // a late rank may find what rank 0 has published
          }
          if (!together && context.rank() == 0) {
            ASSERT_TRUE(context.Barrier());
          }
          if (child != nullptr) {
            EXPECT_OK(ncclCommAbort(child));
          }
          ASSERT_TRUE(context.Barrier());
        }
      },
      WithInitTimeout("2"));
}

TEST(ChildState, AChildThatItsRankGivesUpIsNoErrorOfTheParent) {
  RunNonBlockingCliques(Processes(2), [](RankContext& context, Clique& clique) {
    if (context.rank() == 0) {
      for (const bool aborts : {false, true}) {
        ncclComm_t child = nullptr;
        ASSERT_EQ(ncclCommSplit(clique.comm(), 0, 0, &child, nullptr), ncclInProgress);
        EXPECT_OK(aborts ? ncclCommAbort(child) : ncclCommDestroy(child));
        EXPECT_OK(StateOf(clique.comm()));
      }
    }
    ASSERT_TRUE(context.Barrier());
  });
}

// ---- blocking, and the other settings ----

// NCCL: a split or shrink is a call of the parent (ncclAsyncLaunch). The child's setting is about its own calls.
TEST(ChildConfig, TheParentDecidesWhetherTheCallBlocks) {
  RunCliques(Processes(2), [](RankContext& context, Clique& clique) {
    ncclConfig_t config = NonBlocking();
    ncclComm_t split = nullptr, shrunk = nullptr;
    ASSERT_OK(ncclCommSplit(clique.comm(), 0, context.rank(), &split, &config));
    ExpectShape(split, 2, context.rank());
    ASSERT_OK(ncclCommShrink(clique.comm(), nullptr, 0, &shrunk, &config, NCCL_SHRINK_DEFAULT));
    ExpectShape(shrunk, 2, context.rank());
    for (const ncclComm_t child : {split, shrunk}) {
      EXPECT_EQ(ncclCommFinalize(child), ncclInProgress);
      EXPECT_OK(AwaitComm(context, child));
      EXPECT_OK(ncclCommDestroy(child));
    }
    // Both are calls of communicators that block, so they may be in one group.
    ncclComm_t other = nullptr;
    ASSERT_OK(ncclGroupStart());
    EXPECT_OK(ncclCommSplit(clique.comm(), 0, 0, &split, &config));
    EXPECT_OK(ncclCommSplit(clique.comm(), 0, 0, &other, nullptr));
    ASSERT_OK(ncclGroupEnd());
    for (const ncclComm_t child : {split, other}) EXPECT_OK(ncclCommDestroy(child));
  });
}

// NCCL copies the parent's settings if it is given none; else those that are not set are the defaults.
TEST(ChildConfig, SettingsThatAreNotSetAreTheDefaults) {
  RunNonBlockingCliques(Processes(2), [](RankContext& context, Clique& clique) {
    for (const bool given : {false, true}) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.maxCTAs = 4;
      ncclConfig_t* const argument = given ? &config : nullptr;
      ncclComm_t split = nullptr, shrunk = nullptr;
      ASSERT_EQ(ncclCommSplit(clique.comm(), 0, 0, &split, argument), ncclInProgress);
      ASSERT_EQ(ncclCommShrink(clique.comm(), nullptr, 0, &shrunk, argument, NCCL_SHRINK_DEFAULT), ncclInProgress);
      ASSERT_OK(AwaitComm(context, clique.comm()));
      for (const ncclComm_t child : {split, shrunk}) {
        EXPECT_EQ(ncclCommFinalize(child), given ? ncclSuccess : ncclInProgress);
        EXPECT_OK(AwaitComm(context, child));
        EXPECT_OK(ncclCommDestroy(child));
      }
    }
  });
}

// ---- the id of a grow ----

constexpr int kPresent = 3;

// Runs ranks 0..2, which have a communicator, and rank 3, which has none.
void RunGrowing(const std::function<void(RankContext&, ncclComm_t parent)>& body) {
  RunRanks(Processes(kPresent + 1), [&](RankContext& context) {
    ncclUniqueId id;
    ASSERT_TRUE(harness::ShareUniqueId(context, &id));
    ncclComm_t parent = nullptr;
    if (context.rank() < kPresent) {
      ASSERT_OK(ncclCommInitRank(&parent, kPresent, id, context.rank()));
    }
    body(context, parent);
    EXPECT_OK(ncclCommDestroy(parent));
    ASSERT_TRUE(context.Barrier());
  });
}

// Rank 1 makes an id, and the new rank gets it.
void MakeId(RankContext& context, ncclComm_t parent, ncclUniqueId* id) {
  if (context.rank() == 1) {
    ASSERT_OK(ncclCommGetUniqueId(parent, id));
    std::memcpy(context.board(), id, sizeof(*id));
  }
  ASSERT_TRUE(context.Barrier());
  std::memcpy(id, context.board(), sizeof(*id));
  ASSERT_TRUE(context.Barrier());
}

void ExpectGrown(RankContext& context, ncclComm_t grown) {
  ExpectShape(grown, kPresent + 1, context.rank());
  axcclStream_t stream = nullptr;
  ASSERT_OK(axcclStreamCreate(&stream, axcclStreamNonBlocking));
  int one = 1, sum = -1;
  ASSERT_OK(ncclAllReduce(&one, &sum, 1, ncclInt32, ncclSum, grown, Cuda(stream)));
  ASSERT_OK(axcclStreamSynchronize(stream));
  EXPECT_EQ(sum, kPresent + 1);
  EXPECT_OK(axcclStreamDestroy(stream));
  EXPECT_OK(ncclCommDestroy(grown));
}

// The example of NCCL's user guide ("Growing a communicator"): all present ranks pass NULL.
TEST(Grow, PresentRanksNeedNotPassTheId) {
  RunGrowing([](RankContext& context, ncclComm_t parent) {
    for (int round = 0; round < 2; ++round) {
      ASSERT_TRUE(context.Step("round %d", round));
      ncclUniqueId id;
      ASSERT_NO_FATAL_FAILURE(MakeId(context, parent, &id));
      ncclComm_t grown = nullptr;
      ASSERT_OK(parent != nullptr ? ncclCommGrow(parent, kPresent + 1, nullptr, -1, &grown, nullptr)
                                  : ncclCommGrow(nullptr, kPresent + 1, &id, kPresent, &grown, nullptr));
      ASSERT_NO_FATAL_FAILURE(ExpectGrown(context, grown));
    }
    // An id serves one grow.
    ncclComm_t grown = nullptr;
    if (parent != nullptr) {
      EXPECT_EQ(ncclCommGrow(parent, kPresent + 1, nullptr, -1, &grown, nullptr), ncclInvalidArgument);
      ExpectLastErrorHas({"ncclCommGrow", "ncclCommGetUniqueId"});
    }
  });
}

TEST(Grow, AnIdThatIsPassedGoesFirst) {
  RunGrowing([](RankContext& context, ncclComm_t parent) {
    ncclUniqueId id, unused;
    if (parent != nullptr) {
      ASSERT_OK(ncclCommGetUniqueId(parent, &unused));
    }
    ASSERT_NO_FATAL_FAILURE(MakeId(context, parent, &id));
    if (context.rank() == 1) {
      ASSERT_OK(ncclCommGetUniqueId(parent, &unused));
    }
    ncclComm_t grown = nullptr;
    ASSERT_OK(parent != nullptr
                  ? ncclCommGrow(parent, kPresent + 1, context.rank() == 2 ? &id : nullptr, -1, &grown, nullptr)
                  : ncclCommGrow(nullptr, kPresent + 1, &id, kPresent, &grown, nullptr));
    ASSERT_NO_FATAL_FAILURE(ExpectGrown(context, grown));
  });
}

// The new rank waits meanwhile.
TEST(Grow, TheIdStaysWhenPresentRanksDisagree) {
  RunGrowing([](RankContext& context, ncclComm_t parent) {
    ncclUniqueId id;
    ASSERT_NO_FATAL_FAILURE(MakeId(context, parent, &id));
    ncclComm_t grown = nullptr;
    if (parent != nullptr) {
      const int ranks = kPresent + 1 + (context.rank() == 0);
      EXPECT_EQ(ncclCommGrow(parent, ranks, nullptr, -1, &grown, nullptr), ncclInvalidUsage);
      ExpectLastErrorHas({"ncclCommGrow", "pass the same nRanks"});
    }
    ASSERT_OK(parent != nullptr ? ncclCommGrow(parent, kPresent + 1, nullptr, -1, &grown, nullptr)
                                : ncclCommGrow(nullptr, kPresent + 1, &id, kPresent, &grown, nullptr));
    ASSERT_NO_FATAL_FAILURE(ExpectGrown(context, grown));
  });
}

TEST(Grow, TheIdStaysWhenItsGroupIsCancelled) {
  RunGrowing([](RankContext& context, ncclComm_t parent) {
    ncclUniqueId id;
    ASSERT_NO_FATAL_FAILURE(MakeId(context, parent, &id));
    ncclComm_t grown = nullptr;
    if (parent != nullptr) {
      ASSERT_OK(ncclGroupStart());
      EXPECT_OK(ncclCommGrow(parent, kPresent + 1, nullptr, -1, &grown, nullptr));
      EXPECT_EQ(ncclCommCount(parent, nullptr), ncclInvalidArgument);
      EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
      EXPECT_EQ(grown, nullptr);
    }
    ASSERT_OK(parent != nullptr ? ncclCommGrow(parent, kPresent + 1, nullptr, -1, &grown, nullptr)
                                : ncclCommGrow(nullptr, kPresent + 1, &id, kPresent, &grown, nullptr));
    ASSERT_NO_FATAL_FAILURE(ExpectGrown(context, grown));
  });
}

}  // namespace
}  // namespace axccl::tests
