// The program axccl-plan as its user meets it: output, errors and exit status. AXCCL_PLAN_PROGRAM is its path.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "src/algo/algo.h"
#include "src/plan/text.h"

namespace axccl {
namespace {

struct Outcome {
  int exit = -1;
  std::string text;  // standard output and error
};

Outcome RunProgram(const std::string& arguments) {
  const std::string command = std::string(AXCCL_PLAN_PROGRAM) + " " + arguments + " 2>&1";
  Outcome outcome;
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  size_t n = 0;
  while ((n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0) outcome.text.append(buffer, n);
  const int status = pclose(pipe);
  outcome.exit = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

// A file with `text`, removed at the end.
class TempFile {
 public:
  explicit TempFile(const std::string& text) {
    const int fd = mkstemp(path_);
    EXPECT_GE(fd, 0);
    EXPECT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    close(fd);
  }
  ~TempFile() { unlink(path_); }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  const char* path() const { return path_; }

 private:
  char path_[32] = "/tmp/axccl-plan-test-XXXXXX";
};

const char kRing[] = "--op all_reduce --algo ring --ranks 4";

std::string RingText() { return plan::Print(algo::Generate({plan::Kind::kAllReduce, 4, 0}, "ring", 1).value()); }

TEST(CommandTest, ShowsVerifiesAndHashes) {
  const std::string text = RingText();
  const std::string hash = plan::ToString(plan::HashOf(text));
  Outcome o = RunProgram(std::string("show ") + kRing);
  EXPECT_EQ(o.exit, 0);
  EXPECT_EQ(o.text, text);
  o = RunProgram(std::string("hash ") + kRing);
  EXPECT_EQ(o.exit, 0);
  EXPECT_EQ(o.text, hash + "\n");
  o = RunProgram(std::string("verify ") + kRing);
  EXPECT_EQ(o.exit, 0);
  EXPECT_EQ(o.text,
            "right: ring all_reduce, 4 ranks, root 0, 1 lanes, 76 operations, staged, complete, hash " + hash + "\n");
  EXPECT_NE(RunProgram("verify --op all_reduce --algo direct --ranks 4").text.find(", in group order, hash "), std::string::npos);
  const TempFile file(text);
  EXPECT_EQ(RunProgram(std::string("verify ") + file.path()).text, o.text);
  EXPECT_EQ(RunProgram(std::string("verify - < ") + file.path()).text, o.text);
  EXPECT_EQ(RunProgram(std::string("hash ") + file.path()).text, hash + "\n");
}

TEST(CommandTest, TakesThePlacementOfRanks) {
  const std::string plan = "--op all_reduce --algo hierarchical --ranks 5 --machines ";
  Outcome o = RunProgram("show " + plan + "2,3");
  EXPECT_EQ(o.exit, 0);
  EXPECT_NE(o.text.find("\nranks 5\nroot 0\nmachines 0 0 1 1 1\n"), std::string::npos) << o.text;
  o = RunProgram("verify " + plan + "2,3");
  EXPECT_EQ(o.exit, 0) << o.text;
  for (const char* bad : {"2,2", "5", "1,1,1,1,1", "2,,3", "2,x", ""}) {
    o = RunProgram("verify " + plan + "'" + bad + "'");
    EXPECT_EQ(o.exit, 2) << bad << ": " << o.text;
  }
}

TEST(CommandTest, BadPlansExitWithOne) {
  std::string text = RingText();
  const size_t wait = text.find("#2 wait 3 e0 v1\n");
  ASSERT_NE(wait, std::string::npos);
  const TempFile dropped(std::string(text).erase(wait, 16));
  Outcome o = RunProgram(std::string("verify ") + dropped.path());
  EXPECT_EQ(o.exit, 1);
  EXPECT_EQ(o.text.substr(0, 61), "axccl-plan: plan ring all_reduce of 4 ranks rejected: race: r") << o.text;
  const TempFile malformed(text.replace(wait, 2, "##"));
  o = RunProgram(std::string("hash ") + malformed.path());
  EXPECT_EQ(o.exit, 1);
  EXPECT_EQ(o.text.substr(0, 45), "axccl-plan: plan text, line 15 column 2: expe") << o.text;
}

TEST(CommandTest, WrongUseExitsWithTwoAndSaysWhatThereIs) {
  const auto says = [](const std::string& arguments, const std::string& what) {
    const Outcome o = RunProgram(arguments);
    EXPECT_EQ(o.exit, 2) << arguments;
    EXPECT_NE(o.text.find(what), std::string::npos) << arguments << ": " << o.text;
  };
  says("", "no command");
  says("dance", "unknown command 'dance'; there is list, show, verify and hash");
  says("show", "--op is missing");
  says("show --op sum", "--op 'sum' is unknown; there is all_reduce, broadcast,");
  says("show --op all_reduce", "--algo is missing; for all_reduce there is direct,");
  says("show --op all_reduce --algo ring", "--ranks is missing");
  says("show --op all_reduce --algo bruck --ranks 4", "no algorithm 'bruck' for this kind");
  says("show --op all_reduce --algo ring --ranks", "--ranks needs a value");
  says("show --op all_reduce --algo ring --ranks 4x", "--ranks '4x' is not a number");
  says("show --op all_reduce --algo ring --ranks 0", "--ranks '0' is not a number");
  says("show --op broadcast --algo ring --ranks 4 --root 4", "root 4");
  says("show --colour red", "unknown option '--colour'");
  says("verify one two", "'two' is one FILE too many");
  says("verify one --op barrier", "not both");
  says("verify /nonexistent/plan", "cannot open '/nonexistent/plan': No such file or directory");
  says("list all", "list takes no argument but --op");
}

TEST(CommandTest, HelpAndList) {
  Outcome o = RunProgram("--help");
  EXPECT_EQ(o.exit, 0);
  EXPECT_NE(o.text.find("axccl-plan verify PLAN"), std::string::npos);
  o = RunProgram("list --op barrier");
  EXPECT_EQ(o.exit, 0);
  EXPECT_EQ(o.text, "barrier         oneshot\n");
  EXPECT_EQ(RunProgram("list --op barrier --machines 2,2").text, "barrier         oneshot hierarchical\n");
  o = RunProgram("list");
  for (int k = 0; k < plan::kNumKinds; ++k) {
    EXPECT_NE(o.text.find(plan::KindName(static_cast<plan::Kind>(k))), std::string::npos) << o.text;
  }
}

}  // namespace
}  // namespace axccl
