// How processes meet: the shared page, the rendezvous file, and what the supervising parent does when one dies.

#include "perf/common/launch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "perf/common/exchange.h"
#include "perf/common/fail.h"
#include "perf/common/shared_page.h"
#include "tests/harness/folder.h"

namespace axccl::perf {
namespace {

// A failed fork must end the test, because kill with process -1 kills every process on the machine.
pid_t Fork() {
  pid_t pid = fork();
  if (pid < 0) std::abort();
  return pid;
}

// Runs `body` in a new process and returns its wait status. `body` returns the exit status.
int StatusOf(const std::function<int()>& body) {
  pid_t pid = Fork();
  if (pid == 0) _exit(body());
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

int ExitOf(const std::function<int()>& body) {
  int status = StatusOf(body);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(SharedPage, ThreadsExchangeRecordsRoundAfterRound) {
  constexpr int kThreads = 5;
  constexpr int kRounds = 2000;
  auto page = SharedPage::CreateAnonymous(1, kThreads);
  ASSERT_TRUE(page.ok());
  std::vector<int> wrong(kThreads, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < kRounds; ++round) {
        int mine = round * 100 + t;
        int all[kThreads];
        page.value()->Meet(Room::kThreads, t, &mine, sizeof(mine), all);
        for (int k = 0; k < kThreads; ++k) wrong[static_cast<size_t>(t)] += all[k] != round * 100 + k;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int w : wrong) EXPECT_EQ(w, 0);
}

TEST(SharedPage, ExchangeCombinesAndGathersRows) {
  constexpr int kThreads = 3;
  auto page = SharedPage::CreateAnonymous(1, kThreads);
  ASSERT_TRUE(page.ok());
  std::vector<std::vector<double>> found(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      PageExchange exchange(page.value().get(), t, kThreads);
      double mine = 1.0 + t;
      for (Average how : {Average::kRank0, Average::kMean, Average::kMin, Average::kMax}) {
        found[static_cast<size_t>(t)].push_back(exchange.Combine(mine, how));
      }
      found[static_cast<size_t>(t)].push_back(static_cast<double>(exchange.Sum(static_cast<uint64_t>(t))));
      std::vector<std::vector<double>> rows = exchange.AllGatherRows(std::vector<double>(1000, mine));
      for (const auto& row : rows) found[static_cast<size_t>(t)].push_back(row.size() == 1000 ? row[999] : -1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& one : found) EXPECT_EQ(one, (std::vector<double>{1, 2, 1, 3, 3, 1, 2, 3}));
}

TEST(SharedPage, ADeadProcessEndsTheWaitOfTheOthers) {
  int status = ExitOf([] {
    auto page = SharedPage::CreateAnonymous(2, 2);
    pid_t other = Fork();
    if (other == 0) _exit(0);  // never arrives
    page.value()->Register(0, getpid());
    page.value()->Register(1, other);
    page.value()->Meet(Room::kProcesses, 0, nullptr, 0, nullptr);
    return 0;
  });
  EXPECT_EQ(status, kExitPeerFailed);
}

TEST(SharedPage, AProcessThatLeavesAfterTheMeetingIsNotDead) {
  // Many rounds, because a waiter must look for dead peers just when the last one has come and the first ones leave.
  constexpr int kProcesses = 8;
  for (int round = 0; round < 150; ++round) {
    auto page = SharedPage::CreateAnonymous(kProcesses, kProcesses);
    ASSERT_TRUE(page.ok());
    std::vector<pid_t> pids;
    for (int p = 0; p < kProcesses; ++p) {
      pid_t pid = Fork();
      if (pid == 0) {
        page.value()->Register(p, getpid());
        page.value()->Meet(Room::kProcesses, p, nullptr, 0, nullptr);
        _exit(0);
      }
      pids.push_back(pid);
    }
    for (pid_t pid : pids) {
      int status = 0;
      waitpid(pid, &status, 0);
      ASSERT_EQ(status, 0) << "round " << round;
    }
  }
}

TEST(SharedPage, AbortEndsTheWaitOfTheOthers) {
  int status = ExitOf([] {
    auto page = SharedPage::CreateAnonymous(2, 2);
    pid_t other = Fork();
    if (other == 0) {
      page.value()->Abort("rank 1: out of luck");
      _exit(0);
    }
    page.value()->Meet(Room::kProcesses, 0, nullptr, 0, nullptr);
    return 0;
  });
  EXPECT_EQ(status, kExitPeerFailed);
}

// ---- forked processes ----

// Runs `body` in each of `count` processes; returns their parent's exit status.
int ForkAndRun(int count, const std::function<int(int, SharedPage*)>& body) {
  return ExitOf([&] {
    auto page = SharedPage::CreateAnonymous(count, count);
    Result<int> process = ForkProcesses(count, 1, page.value().get());
    return body(process.value(), page.value().get());
  });
}

TEST(Fork, AllFineIsZero) {
  EXPECT_EQ(ForkAndRun(4,
                       [](int process, SharedPage* page) {
                         page->Meet(Room::kProcesses, process, nullptr, 0, nullptr);
                         return 0;
                       }),
            0);
}

TEST(Fork, TheCauseDecidesTheStatus) {
  // Processes 0 and 2 only react to what happened to process 1.
  EXPECT_EQ(ForkAndRun(3, [](int process, SharedPage*) { return process == 1 ? 7 : kExitPeerFailed; }), 7);
}

TEST(Fork, AKilledProcessEndsTheOthers) {
  testing::internal::CaptureStderr();
  int status = ForkAndRun(3, [](int process, SharedPage*) {
    if (process == 1) raise(SIGKILL);
    for (;;) pause();
    return 0;
  });
  std::string message = testing::internal::GetCapturedStderr();
  EXPECT_EQ(status, 128 + SIGKILL);
  EXPECT_NE(message.find("rank 1 (pid "), std::string::npos) << message;
  EXPECT_NE(message.find("was killed by signal 9 (Killed)"), std::string::npos) << message;
  EXPECT_NE(message.find("2 processes still running were stopped"), std::string::npos) << message;
}

// ---- the rendezvous file ----

class RendezvousFile : public testing::Test {
 protected:
  void SetUp() override { setenv("TMPDIR", folder_.path().c_str(), 1); }
  void TearDown() override { unsetenv("TMPDIR"); }
  std::string private_directory() const { return folder_.Path("axccl-perf-" + std::to_string(geteuid())); }

  // Returns the exit statuses of `count` processes that meet; 0 = met and exchanged their numbers.
  std::vector<int> Meet(int count) {
    std::vector<pid_t> pids;
    for (int p = 0; p < count; ++p) {
      pid_t pid = Fork();
      if (pid == 0) _exit(MeetOnce(p, count));
      pids.push_back(pid);
    }
    std::vector<int> statuses;
    for (pid_t pid : pids) {
      int status = 0;
      waitpid(pid, &status, 0);
      statuses.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
    return statuses;
  }

  static int MeetOnce(int process, int count) {
    auto page = MeetThroughFile("job-7/\x01weird key", process, count, count);
    if (!page.ok()) return 1;
    std::vector<int> all(static_cast<size_t>(count));
    page.value()->Meet(Room::kProcesses, process, &process, sizeof(process), all.data());
    for (int k = 0; k < count; ++k) {
      if (all[static_cast<size_t>(k)] != k) return 2;
    }
    return 0;
  }

  int FilesLeft() const {
    std::string command = "test -z \"$(ls -A '" + private_directory() + "')\"";
    return std::system(command.c_str());
  }

  const harness::Folder folder_;
};

TEST_F(RendezvousFile, ProcessesMeetAndLeaveNothing) {
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(Meet(4), std::vector<int>(4, 0));
    EXPECT_EQ(FilesLeft(), 0);
  }
  struct stat info;
  ASSERT_EQ(stat(private_directory().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(RendezvousFile, TheLeftoverOfADeadRunIsIgnored) {
  // Many rounds, because the others may look at the leftover at the moment when process 0 judges it.
  for (int round = 0; round < 20; ++round) {
    // A creator that dies before any process came leaves its file.
    pid_t creator = Fork();
    if (creator == 0) _exit(MeetOnce(0, 2));
    while (FilesLeft() == 0 && waitpid(creator, nullptr, WNOHANG) == 0) sched_yield();
    kill(creator, SIGKILL);
    waitpid(creator, nullptr, 0);
    ASSERT_NE(FilesLeft(), 0);
    ASSERT_EQ(Meet(6), std::vector<int>(6, 0)) << "round " << round;
    ASSERT_EQ(FilesLeft(), 0);
  }
}

TEST_F(RendezvousFile, ADirectoryThatOthersCanEnterIsRefused) {
  ASSERT_EQ(mkdir(private_directory().c_str(), 0755), 0);
  ASSERT_EQ(chmod(private_directory().c_str(), 0755), 0);
  auto page = MeetThroughFile("job", 0, 1, 1);
  ASSERT_FALSE(page.ok());
  EXPECT_NE(page.status().message().find("mode 0700"), std::string::npos) << page.status().message();
}

TEST_F(RendezvousFile, ALinkInPlaceOfTheDirectoryIsRefused) {
  ASSERT_EQ(mkdir(folder_.Path("elsewhere").c_str(), 0700), 0);
  ASSERT_EQ(symlink(folder_.Path("elsewhere").c_str(), private_directory().c_str()), 0);
  EXPECT_FALSE(MeetThroughFile("job", 0, 1, 1).ok());
}

TEST_F(RendezvousFile, OtherNumbersAreAnError) {
  pid_t creator = Fork();
  if (creator == 0) _exit(MeetOnce(0, 2));
  auto page = MeetThroughFile("job-7/\x01weird key", 1, 3, 3);
  kill(creator, SIGKILL);
  waitpid(creator, nullptr, 0);
  ASSERT_FALSE(page.ok());
  EXPECT_NE(page.status().message().find("same options"), std::string::npos) << page.status().message();
}

}  // namespace
}  // namespace axccl::perf
