// axccl-program run when ranks fail or die: it ends soon, says which rank it was, and leaves nothing behind.
// AXCCL_PROGRAM is its path.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/harness/command.h"
#include "tests/harness/folder.h"
#include "tests/harness/run_ranks.h"

namespace axccl::program {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

milliseconds Soon() { return milliseconds(10000) * harness::TimeScale(); }

// Whether it comes true soon.
template <class Condition>
bool Await(const Condition& condition) {
  for (const auto end = Clock::now() + Soon(); !condition(); std::this_thread::sleep_for(milliseconds(5))) {
    if (Clock::now() > end) return false;
  }
  return true;
}

// "R" and so on from /proc; 0 if there is no such process.
struct ProcessState {
  char state = 0;
  pid_t parent = 0;
};
ProcessState StateOf(pid_t pid) {
  const std::string text = harness::Contents("/proc/" + std::to_string(pid) + "/stat");
  const size_t name_end = text.rfind(')');
  ProcessState state;
  if (name_end != std::string::npos) (void)std::sscanf(text.c_str() + name_end, ") %c %d", &state.state, &state.parent);
  return state;
}
bool Runs(pid_t pid) {
  const char state = StateOf(pid).state;
  return state != 0 && state != 'Z' && state != 'X';
}

// Oldest first.
std::vector<pid_t> ChildrenOf(pid_t parent) {
  std::vector<pid_t> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid > 0 && StateOf(pid).parent == parent) children.push_back(pid);
  }
  std::sort(children.begin(), children.end());
  return children;
}

// The program in the background.
class Running {
 public:
  Running(const std::vector<std::string>& arguments, const std::string& output) : output_(output) {
    std::vector<char*> words = {const_cast<char*>(AXCCL_PROGRAM)};
    for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
    words.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    const int file = open(output.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    dup2(file, STDOUT_FILENO);
    dup2(file, STDERR_FILENO);
    execv(words[0], words.data());
    _exit(127);
  }
  ~Running() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    (void)waitpid(pid_, nullptr, 0);
  }
  Running(const Running&) = delete;

  pid_t pid() const { return pid_; }
  // Exit status and output, or -1 if it does not end soon.
  harness::Outcome Wait() {
    harness::Outcome outcome;
    int status = 0;
    const bool ended = Await([&] { return waitpid(pid_, &status, WNOHANG) == pid_; });
    outcome.text = harness::Contents(output_);
    if (!ended) return outcome;
    pid_ = -1;
    outcome.exit = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return outcome;
  }

 private:
  const std::string output_;
  pid_t pid_ = -1;
};

class RunFailureTest : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.Path(name)) << text;
    return folder_.Path(name);
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  const harness::Folder folder_;
};

// Four ranks that meet again and again for longer than any test.
constexpr char kEndless[] =
    "axccl-program 1\nranks 4\npart main on [0,1,2,3]\n  argument %0 f32[64]\n  %1 i32[] = constant value=0\n"
    "  %2 i32[], %3 f32[64] = while %1 %0\n  cond\n    argument %4 i32[]\n    argument %5 f32[64]\n"
    "    %6 i32[] = constant value=2000000000\n    %7 i1[] = compare %4 %6 direction=LT\n    return %7\n"
    "  body\n    argument %8 i32[]\n    argument %9 f32[64]\n    %10 i32[] = constant value=1\n"
    "    %11 i32[] = add %8 %10\n    %12 f32[64] = all_reduce %9 fold=max groups=[[0,1,2,3]] channel=1\n"
    "    return %11 %12\n  return %3\n";

// Rank 1 needs more memory than there is, and the others wait for it.
constexpr char kHuge[] =
    "axccl-program 1\nranks 3\npart main on [0,1,2]\n  argument %0 f32[4]\n  %1 u32[] = partition_id\n"
    "  %2 u32[] = constant value=1\n  %3 i1[] = compare %1 %2 direction=EQ\n  %4 f32[4] = if %3\n  then\n"
    "    %5 f32[4,1152921504606846] = broadcast_in_dim %0 dims=[0]\n"
    "    %6 f32[4,1] = slice %5 starts=[0,0] limits=[4,1] strides=[1,1]\n    %7 f32[4] = reshape %6\n    return %7\n"
    "  else\n    return %0\n  %8 f32[4] = all_reduce %4 fold=add groups=[[0,1,2]] channel=1\n  return %8\n";

// At any time: while ranks are started, while they meet, and while they run.
TEST_F(RunFailureTest, SaysWhichProcessWasKilled) {
  const std::string file = Write("endless.axp", kEndless);
  for (const int after : {0, 20, 300}) {
    for (const size_t victim : {size_t{0}, size_t{2}}) {
      SCOPED_TRACE("rank " + std::to_string(victim) + " after " + std::to_string(after) + " ms");
      Running run({"run", file, "--processes", "--outputs", folder_.Path("outputs.json")}, folder_.Path("said"));
      std::vector<pid_t> ranks;
      ASSERT_TRUE(Await([&] { return (ranks = ChildrenOf(run.pid())).size() > victim; }));
      std::this_thread::sleep_for(milliseconds(after));
      ASSERT_EQ(kill(ranks[victim], SIGKILL), 0);
      if (ranks.size() < 4) ranks = ChildrenOf(run.pid());
      const harness::Outcome o = run.Wait();
      EXPECT_EQ(o.exit, 1);
      EXPECT_EQ(o.text,
                "axccl-program: rank " + std::to_string(victim) + ": its process was killed by signal 9 (Killed)\n");
      for (const pid_t rank : ranks) EXPECT_FALSE(Runs(rank)) << rank;
      EXPECT_EQ(Files(), (std::vector<std::string>{"endless.axp", "said"}));
    }
  }
}

TEST_F(RunFailureTest, RanksDieWithTheirParent) {
  const std::string file = Write("endless.axp", kEndless);
  for (const int signal : {SIGTERM, SIGKILL}) {
    Running run({"run", file, "--processes"}, folder_.Path("said"));
    std::vector<pid_t> ranks;
    ASSERT_TRUE(Await([&] { return (ranks = ChildrenOf(run.pid())).size() == 4; }));
    ASSERT_EQ(kill(run.pid(), signal), 0);
    EXPECT_EQ(run.Wait().exit, -1);
    for (const pid_t rank : ranks) EXPECT_TRUE(Await([&] { return !Runs(rank); })) << rank;
  }
}

TEST_F(RunFailureTest, SaysWhichRankHadTheFirstError) {
  if (harness::TimeScale() > 1) GTEST_SKIP() << "a sanitizer ends processes that have no memory";
  const std::string file = Write("huge.axp", kHuge);
  for (const char* how : {"", "--processes"}) {
    for (int time = 0; time < 5; ++time) {
      SCOPED_TRACE(how);
      std::vector<std::string> arguments = {"run", file};
      if (how[0] != '\0') arguments.push_back(how);
      Running run(arguments, folder_.Path("said"));
      const harness::Outcome o = run.Wait();
      EXPECT_EQ(o.exit, 1);
      EXPECT_EQ(o.text.find("axccl-program: rank 1 in %5 broadcast_in_dim: out of memory"), 0u) << o.text;
    }
  }
}

TEST_F(RunFailureTest, ReferenceWithoutMemoryIsAnError) {
  if (harness::TimeScale() > 1) GTEST_SKIP() << "a sanitizer ends processes that have no memory";
  const std::string file = Write("huge.axp", kHuge);
  Running run({"reference", file}, folder_.Path("said"));
  const harness::Outcome o = run.Wait();
  EXPECT_EQ(o.exit, 1);
  EXPECT_EQ(o.text.find("axccl-program: reference: out of memory"), 0u) << o.text;
}

TEST_F(RunFailureTest, SaysWhichRankCouldNotStart) {
  const std::string file = Write("wide.axp", "axccl-program 1\nranks 300\npart main on [0]\n  return\n");
  const std::string many = Write("many.axp", "axccl-program 1\nranks 1025\npart main on [0]\n  return\n");
  const std::string program = AXCCL_PROGRAM;
  harness::Outcome o = harness::RunCommand("ulimit -n 60; timeout 100 " + program + " run " + file + " --processes");
  EXPECT_EQ(o.exit, 1);
  EXPECT_EQ(o.text.find("axccl-program: pipe of rank "), 0u) << o.text;
  EXPECT_NE(o.text.find("Too many open files"), std::string::npos) << o.text;
  for (const char* how : {"", " --processes"}) {
    o = harness::RunCommand("timeout 100 " + program + " run " + many + how);
    EXPECT_EQ(o.exit, 1);
    EXPECT_NE(o.text.find("the program has 1025 ranks; at most 1024 can run"), std::string::npos) << o.text;
  }
}

}  // namespace
}  // namespace axccl::program
