// Peers that leave a communicator at rest, and waits that last: which errors the remaining ranks get, and when.
//
// NCCL has ncclCommGetAsyncError report what went wrong with work of the communicator, and applications shut down when
// it reports an error (PyTorch's watchdog does). So a peer that ends, aborts or destroys after all work is done causes
// no error by itself; it is an error of the operations that need it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <vector>

#include "tests/harness/case_runner.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::AllowedNs;
using harness::Clique;
using harness::Cuda;
using harness::LastErrorHas;
using harness::Layout;
using harness::NowNs;
using harness::Processes;
using harness::RankContext;
using harness::RunCliques;
using harness::RunOptions;
using harness::RunRanks;
using harness::Threads;

constexpr int kLeftCell = 20, kPidCell = 21;

ncclResult_t AllReduce(Clique& clique, ncclComm_t comm = nullptr) {
  int data = 1;
  const ncclResult_t result =
      ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, comm != nullptr ? comm : clique.comm(), Cuda(clique.stream()));
  return result == ncclSuccess ? axcclStreamSynchronize(clique.stream()) : result;
}

ncclResult_t AsyncError(ncclComm_t comm) {
  ncclResult_t state = ncclInternalError;
  EXPECT_OK(ncclCommGetAsyncError(comm, &state));
  return state;
}

// Waits until the process has ended: it is a zombie, or gone.
void AwaitEnd(RankContext& context, uint64_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  for (std::string line; !context.AnyFailed(); harness::LookLater()) {
    std::ifstream file(path);
    if (!std::getline(file, line)) return;
    const size_t name = line.rfind(')');
    if (name != std::string::npos && line.compare(name + 2, 1, "Z") == 0) return;
  }
}

enum class Way { kDies, kExits, kAborts, kDestroys };

struct Leaving {
  const char* name;
  Layout layout;
  Way way;
};

class LeavingTest : public testing::TestWithParam<Leaving> {
 protected:
  static constexpr int kVictim = 1;

  static void Leave(RankContext& context, Clique* clique) {
    switch (GetParam().way) {
      case Way::kDies:
        context.Set(kPidCell, static_cast<uint64_t>(getpid()));
        context.Die();
      case Way::kExits:
        context.Set(kPidCell, static_cast<uint64_t>(getpid()));
        _exit(0);
      case Way::kAborts:
        EXPECT_OK(ncclCommAbort(clique->comm()));
        break;
      case Way::kDestroys:
        EXPECT_OK(ncclCommDestroy(clique->comm()));
        break;
    }
    clique->ForgetComms();
    context.Set(kLeftCell, 1);
  }

  static void AwaitLeft(RankContext& context) {
    const bool ends = GetParam().way == Way::kDies || GetParam().way == Way::kExits;
    ends ? AwaitEnd(context, context.Await(kPidCell)) : static_cast<void>(context.Await(kLeftCell));
  }
};

TEST_P(LeavingTest, IsNoErrorUntilSomethingNeedsThePeer) {
  RunCliques(GetParam().layout, [](RankContext& context, Clique& clique) {
    ASSERT_OK(AllReduce(clique));
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == kVictim) return Leave(context, &clique);
    AwaitLeft(context);
    EXPECT_EQ(AsyncError(clique.comm()), ncclSuccess) << ncclGetLastError(nullptr);

    // Calls that do not need it still work.
    const int peer = 2 - context.rank();
    int sent = context.rank(), received = -1;
    ASSERT_TRUE(context.Step("messages among the remaining ranks"));
    ASSERT_OK(ncclGroupStart());
    ASSERT_OK(ncclSend(&sent, 1, ncclInt32, peer, clique.comm(), Cuda(clique.stream())));
    ASSERT_OK(ncclRecv(&received, 1, ncclInt32, peer, clique.comm(), Cuda(clique.stream())));
    ASSERT_OK(ncclGroupEnd());
    ASSERT_OK(axcclStreamSynchronize(clique.stream()));
    EXPECT_EQ(received, peer);
    EXPECT_EQ(AsyncError(clique.comm()), ncclSuccess) << ncclGetLastError(nullptr);
    ASSERT_TRUE(context.Barrier(1, 2));

    ASSERT_TRUE(context.Step("a call that needs it"));
    const uint64_t start = NowNs();
    EXPECT_EQ(AllReduce(clique), ncclRemoteError);
    EXPECT_LT(NowNs() - start, AllowedNs(100));
    EXPECT_TRUE(LastErrorHas("rank 1")) << ncclGetLastError(nullptr);
    EXPECT_EQ(AsyncError(clique.comm()), ncclRemoteError);
    // A rank that left now could be mistaken for the first one.
    ASSERT_TRUE(context.Barrier(2, 2));
    EXPECT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
  });
}

// A single call that starts at once returns the error itself; the program need not wait for its stream.
TEST_P(LeavingTest, FailsTheNextCallAtOnce) {
  RunCliques(GetParam().layout, [](RankContext& context, Clique& clique) {
    ASSERT_OK(AllReduce(clique));
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == kVictim) return Leave(context, &clique);
    if (context.rank() == 2) return;
    AwaitLeft(context);
    int data = 1;
    ASSERT_TRUE(context.Step("send"));
    ncclResult_t result = ncclSend(&data, 1, ncclInt32, kVictim, clique.comm(), Cuda(clique.stream()));
    if (result == ncclSuccess) result = axcclStreamSynchronize(clique.stream());  // if another thread drove it
    EXPECT_EQ(result, ncclRemoteError);
    EXPECT_TRUE(LastErrorHas("rank 1")) << ncclGetLastError(nullptr);
    EXPECT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, LeavingTest,
                         testing::Values(Leaving{"Dies", Processes(3), Way::kDies},
                                         Leaving{"Exits", Processes(3), Way::kExits},
                                         Leaving{"Aborts", Processes(3), Way::kAborts},
                                         Leaving{"Destroys", Processes(3), Way::kDestroys},
                                         Leaving{"ThreadAborts", Threads(3), Way::kAborts},
                                         Leaving{"ThreadDestroys", Threads(3), Way::kDestroys}),
                         [](const auto& info) { return info.param.name; });

// ---- deadlines ----

// Each rank's own setting applies, not rank 0's.
TEST(Deadline, IsEachRanksOwn) {
  RunRanks(Processes(3), [](RankContext& context) {
    setenv("AXCCL_TIMEOUT", context.rank() == 2 ? "0.2" : "0", 1);
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    ASSERT_OK(AllReduce(clique));
    if (context.rank() == 0) {  // makes no more calls
      EXPECT_TRUE(context.Barrier(1));
      return;
    }
    EXPECT_EQ(AllReduce(clique), ncclTimeout);
    EXPECT_TRUE(LastErrorHas("rank 2 waited 0.2 s for rank 0 in ncclAllReduce count 1 int32 sum (operation 1)"))
        << ncclGetLastError(nullptr);
    EXPECT_TRUE(LastErrorHas("rank 0 last called ncclAllReduce count 1 int32 sum (operation 0)"))
        << ncclGetLastError(nullptr);
    EXPECT_TRUE(context.Barrier(1));
    EXPECT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
  });
}

TEST(Deadline, IsTenMinutesUnlessSet) {
  RunRanks(Processes(1), [](RankContext&) {
    ncclParamHandle_t handle = nullptr;
    ASSERT_OK(ncclParamBind(&handle, "AXCCL_TIMEOUT"));
    double seconds = 0;
    int length = 0;
    ASSERT_OK(ncclParamGet(handle, &seconds, sizeof(seconds), &length));
    EXPECT_EQ(seconds, 600);
  });
}

enum class Ending { kDestroy, kFinalize };
class EndingTest : public testing::TestWithParam<Ending> {};

// Work is outstanding that a peer never joins.
TEST_P(EndingTest, EndsByTheDeadline) {
  RunOptions options;
  options.environment = {{"AXCCL_TIMEOUT", "0.3"}};
  RunCliques(
      Processes(2),
      [](RankContext& context, Clique& clique) {
        if (context.rank() == 0) {
          std::vector<int> data(1000, 1);
          ASSERT_OK(ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, clique.comm(),
                                  Cuda(clique.stream())));
          ASSERT_TRUE(context.Step("ending"));
          const uint64_t start = NowNs();
          const bool destroys = GetParam() == Ending::kDestroy;
          const ncclResult_t result = destroys ? ncclCommDestroy(clique.comm()) : ncclCommFinalize(clique.comm());
          EXPECT_LT(NowNs() - start, AllowedNs(1300));
          if (!destroys) {
            EXPECT_EQ(result, ncclTimeout) << ncclGetLastError(nullptr);
            EXPECT_OK(ncclCommDestroy(clique.comm()));
          }
          clique.ForgetComms();
        }
        ASSERT_TRUE(context.Barrier());
      },
      options);
}

INSTANTIATE_TEST_SUITE_P(Ways, EndingTest, testing::Values(Ending::kDestroy, Ending::kFinalize),
                         [](const auto& info) { return info.param == Ending::kDestroy ? "Destroy" : "Finalize"; });

// ---- the line about a long wait ----

// Collects what is written to stderr from now on.
class Stderr {
 public:
  Stderr() {
    EXPECT_EQ(pipe2(pipe_, O_CLOEXEC), 0);
    saved_ = dup(STDERR_FILENO);
    dup2(pipe_[1], STDERR_FILENO);
    close(pipe_[1]);
  }
  ~Stderr() {
    dup2(saved_, STDERR_FILENO);
    close(saved_);
    close(pipe_[0]);
  }
  // The next line that has `word`. Blocks; the run has a deadline.
  std::string LineWith(const std::string& word) {
    std::string line;
    for (char c; read(pipe_[0], &c, 1) == 1;) {
      if (c != '\n') {
        line += c;
      } else if (line.find(word) != std::string::npos) {
        return line;
      } else {
        line.clear();
      }
    }
    return "";
  }
  // Whether a line has `word` among those that are left. Collects no more.
  bool HasAnother(const std::string& word) {
    dup2(saved_, STDERR_FILENO);
    return !LineWith(word).empty();
  }

 private:
  int pipe_[2] = {-1, -1};
  int saved_ = -1;
};

TEST(LongWait, IsReportedOnStderrWithoutAnyLogging) {
  RunOptions options;
  options.environment = {{"AXCCL_WAIT_NOTICE", "0.1"}, {"NCCL_DEBUG", ""}};
  RunCliques(
      Processes(2),
      [](RankContext& context, Clique& clique) {
        ASSERT_OK(AllReduce(clique));
        if (context.rank() == 1) context.Await(kLeftCell);  // is late
        if (context.rank() == 0) {
          Stderr errors;
          int data = 1;
          ASSERT_OK(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
          ASSERT_TRUE(context.Step("the line"));
          const std::string line = errors.LineWith("has waited");
          EXPECT_NE(line.find("rank 0 has waited 0.1 s for rank 1 in ncclAllReduce count 1 int32 sum (operation 1); "
                              "rank 1 last called "
                              "ncclAllReduce count 1 int32 sum (operation 0)"),
                    std::string::npos)
              << line;
          EXPECT_EQ(axcclStreamSynchronizeFor(clique.stream(), 0.5), ncclInProgress);
          EXPECT_FALSE(errors.HasAnother("has waited")) << "a wait is reported once";
          context.Set(kLeftCell, 1);
          EXPECT_OK(axcclStreamSynchronize(clique.stream()));
          EXPECT_EQ(data, 2);
        } else {
          EXPECT_OK(AllReduce(clique));
        }
      },
      options);
}

TEST(LongWait, ForAnySourceIsReportedToo) {
  RunOptions options;
  options.environment = {{"AXCCL_WAIT_NOTICE", "0.1"}, {"NCCL_DEBUG", ""}};
  RunCliques(
      Processes(2),
      [](RankContext& context, Clique& clique) {
        int data = context.rank();
        axcclView_t view = AXCCL_VIEW_INITIALIZER;
        view.data = &data;
        view.datatype = ncclInt32;
        const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
        if (context.rank() == 1) {
          context.Await(kLeftCell);  // is late
          ASSERT_OK(axcclSend(1, &view, 0, channel, nullptr, Cuda(clique.stream())));
        } else {
          Stderr errors;
          ASSERT_OK(axcclRecv(1, &view, AXCCL_ANY_SOURCE, channel, nullptr, Cuda(clique.stream())));
          ASSERT_TRUE(context.Step("the line"));
          EXPECT_NE(errors.LineWith("has waited").find("rank 0 has waited 0.1 s for "), std::string::npos);
          EXPECT_EQ(axcclStreamSynchronizeFor(clique.stream(), 0.5), ncclInProgress);
          EXPECT_FALSE(errors.HasAnother("has waited")) << "a wait is reported once";
          context.Set(kLeftCell, 1);
        }
        ASSERT_TRUE(clique.Synchronize());
        EXPECT_EQ(data, 1);
      },
      options);
}

}  // namespace
}  // namespace axccl::tests
