// A program compiled against NVIDIA's nccl.h and the same program compiled against ours see the same numbers, and both
// run.
#include <gtest/gtest.h>
#include <stdio.h>

#include <map>
#include <string>

namespace {

// The program's output: name -> value. Reads until the program ends.
std::map<std::string, std::string> RunProgram(const std::string& program) {
  std::map<std::string, std::string> facts;
  FILE* const pipe = popen(("'" + program + "'").c_str(), "r");
  if (pipe == nullptr) return facts;
  char buffer[512];
  while (fgets(buffer, sizeof(buffer), pipe) != nullptr) {
    std::string line = buffer;
    line.pop_back();
    // The value is the last word; the sums are one fact per line.
    const size_t split = line.starts_with("sum") ? 3 : line.rfind(' ');
    std::string name = line.substr(0, split);
    while (facts.contains(name)) name += "'";
    facts[name] = line.substr(split + 1);
  }
  EXPECT_EQ(pclose(pipe), 0) << program;
  return facts;
}

void ExpectRan(const std::map<std::string, std::string>& facts) {
  EXPECT_EQ(facts.at("library"), "22809");
  EXPECT_EQ(facts.at("ranks"), "2");
  EXPECT_EQ(facts.at("sum"), "11 22 33 44");
  EXPECT_EQ(facts.at("sum'"), "11 22 33 44");
}

TEST(HeaderFacts, OurHeader) { ExpectRan(RunProgram(AXCCL_TEST_OURS)); }

#ifdef AXCCL_TEST_NVIDIAS
TEST(HeaderFacts, NvidiasHeaderSeesTheSame) {
  const std::map<std::string, std::string> ours = RunProgram(AXCCL_TEST_OURS), theirs = RunProgram(AXCCL_TEST_NVIDIAS);
  ExpectRan(theirs);
  EXPECT_GE(theirs.size(), 60u);
  for (const auto& [name, value] : theirs) {
    ASSERT_TRUE(ours.contains(name)) << name;
    EXPECT_EQ(ours.at(name), value) << name;
  }
}
#endif

}  // namespace
