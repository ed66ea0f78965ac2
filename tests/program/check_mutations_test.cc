// Changes of one operation of a right program, all of which the checks refuse.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/program/check.h"
#include "src/program/text.h"

namespace axccl::program {
namespace {

// Both parts communicate with each other in each call but two, so that a change of one of them is an error.
const std::string kRight =
    "part a on [0,1]\n"
    "  argument %0 f32[4,4] donated\n"
    "  argument %1 f32[4,4]\n"
    "  %2 f32[4,4] = dot %0 %1\n"
    "  %3 f32[4,4] = all_reduce %2 fold=add groups=[[0,2],[1,3]] channel=1\n"
    "  %4 f32[8,4] = all_gather %2 dim=0 groups=[[0,2],[1,3]] channel=1\n"
    "  %5 f32[2,4] = reduce_scatter %2 fold=max dim=0 groups=[[0,2],[1,3]] channel=2\n"
    "  %6 f32[2,8] = all_to_all %2 split_dim=0 concat_dim=1 groups=[[0,2],[1,3]] channel=2\n"
    "  %7 f32[4,4] = collective_broadcast %2 groups=[[0,2],[1,3]] channel=3\n"
    "  %16 f32[4,4] = collective_reduce %2 fold=add groups=[[0,2],[1,3]] channel=3\n"
    "  %8 f32[4,4] = collective_permute %2 pairs=[[0,2],[2,0],[1,3],[3,1]] channel=3\n"
    "  %9 f32[4,4] = all_reduce %2 fold=min groups=[[0,1,2,3]] channel=4\n"
    "  %10 f32[4,4] = add %3 %9\n"
    "  %11 = send %10 pairs=[[0,2],[1,3]] channel=5\n"
    "  %12 f32[4,4] = multiply %8 %7\n"
    "  %13 f32[8,4] = recv pairs=[[2,0],[3,1]] channel=6\n"
    "  %14 f32[16,4] = concatenate %4 %13 dim=0\n"
    "  %15 = free %2 %3 %9\n"
    "  return %14 %12 %5 %6\n"
    "part b on [2,3]\n"
    "  argument %0 f32[4,4] donated\n"
    "  %3 f32[4,4] = all_reduce %0 fold=add groups=[[0,2],[1,3]] channel=1\n"
    "  %4 f32[8,4] = all_gather %0 dim=0 groups=[[0,2],[1,3]] channel=1\n"
    "  %5 f32[2,4] = reduce_scatter %0 fold=max dim=0 groups=[[0,2],[1,3]] channel=2\n"
    "  %6 f32[2,8] = all_to_all %0 split_dim=0 concat_dim=1 groups=[[0,2],[1,3]] channel=2\n"
    "  %7 f32[4,4] = collective_broadcast %0 groups=[[0,2],[1,3]] channel=3\n"
    "  %16 f32[4,4] = collective_reduce %0 fold=add groups=[[0,2],[1,3]] channel=3\n"
    "  %8 f32[4,4] = collective_permute %0 pairs=[[0,2],[2,0],[1,3],[3,1]] channel=3\n"
    "  %9 f32[4,4] = all_reduce %0 fold=min groups=[[0,1,2,3]] channel=4\n"
    "  %10 f32[4,4] = recv pairs=[[0,2],[1,3]] channel=5\n"
    "  %11 f32[4,4] = add %9 %10\n"
    "  %12 = send %4 pairs=[[2,0],[3,1]] channel=6\n"
    "  return %11 %3 %8 %7\n";

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at) + 1;
    lines.push_back(text.substr(at, end - at));
    at = end;
  }
  return lines;
}

std::string Join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

bool IsCollective(const std::string& line) {
  return line.find(" channel=") != line.npos && line.find("%11 = send") == line.npos &&
         line.find("%12 = send") == line.npos && line.find(" recv ") == line.npos;
}

// The texts that differ from the right one by one change of an operation.
std::vector<std::string> Mutations() {
  const std::vector<std::string> lines = Lines(kRight);
  std::vector<std::string> mutations;
  const auto add = [&](size_t i, const std::string& line) {
    std::vector<std::string> changed = lines;
    changed[i] = line;
    mutations.push_back(Join(changed));
  };
  const std::vector<std::pair<std::string, std::string>> replacements = {
      {"[0,2],[1,3]]", "[2,0],[1,3]]"},
      {"[0,2],[1,3]]", "[0,3],[1,2]]"},
      {"[0,2],[1,3]]", "[0,2]]"},
      {"[2,0],[3,1]]", "[3,0],[2,1]]"},
      {"[[0,1,2,3]]", "[[0,1,3,2]]"},
      {"[[0,1,2,3]]", "[[0,1],[2,3]]"},
      {"fold=add", "fold=max"},
      {"fold=max", "fold=min"},
      {"fold=min", "fold=or"},
      {" dim=0", " dim=1"},
      {"split_dim=0", "split_dim=1"},
      {"concat_dim=1", "concat_dim=0"},
      {"f32[", "f64["},
      {"f32[", "bf16["},
      {"f32[4", "f32[5"},
      {"channel=", "channel=1"},
      {"[0,2],[2,0]", "[0,2],[2,1]"},
  };
  for (size_t i = 0; i < lines.size(); ++i) {
    for (const auto& [old, replacement] : replacements) {
      const size_t at = lines[i].find(old);
      if (at == lines[i].npos) continue;
      std::string line = lines[i];
      add(i, line.replace(at, old.size(), replacement));
    }
    if (IsCollective(lines[i]) && i + 1 < lines.size() && IsCollective(lines[i + 1])) {
      std::vector<std::string> changed = lines;
      std::swap(changed[i], changed[i + 1]);
      mutations.push_back(Join(changed));
    }
  }
  // Frees too early, twice, and of what is not to be freed.
  for (const auto& [before, freed] :
       std::vector<std::pair<std::string, const char*>>{{"  %4 f32[8,4] = all_gather %2", "%2"},
                                                        {"  %10 f32[4,4] = add", "%3"},
                                                        {"  %11 = send", "%10"},
                                                        {"  %12 f32[4,4] = multiply", "%8"},
                                                        {"  %15 = free", "%9"},
                                                        {"  %15 = free", "%1"},
                                                        {"  %15 = free", "%14"},
                                                        {"  %4 f32[8,4] = all_gather %0", "%0"}}) {
    std::string text = kRight;
    mutations.push_back(text.insert(text.find(before), std::string("  %50 = free ") + freed + "\n"));
  }
  // Sends and receives that are missing or come twice.
  for (const char* begin : {"  %11 = send", "  %12 = send"}) {
    std::string text = kRight;
    const size_t at = text.find(begin), size = text.find('\n', at) + 1 - at;
    const std::string line = text.substr(at, size);
    mutations.push_back(std::string(text).erase(at, size));
    mutations.push_back(text.insert(at, "  %51" + line.substr(line.find(" ="))));
  }
  for (const char* type : {"f32[8,4]", "f32[4,4]"}) {
    std::string text = kRight;
    const size_t at = text.find(std::string(type) + " = recv"), size = text.find('\n', at) - at;
    mutations.push_back(text.replace(at, size, std::string(type) + " = constant value=0"));
  }
  return mutations;
}

TEST(CheckMutationsTest, AreRefused) {
  const auto check = [](const std::string& parts) {
    const Result<Program> program = Parse("axccl-program 1\nranks 4\n" + parts);
    EXPECT_TRUE(program.ok()) << program.status().message() << "\n" << parts;
    return program.ok() ? Check(program.value()) : program.status();
  };
  ASSERT_TRUE(check(kRight).ok()) << check(kRight).message();
  const std::vector<std::string> mutations = Mutations();
  const std::set<std::string> distinct(mutations.begin(), mutations.end());
  EXPECT_GE(distinct.size(), 150u);
  for (const std::string& text : distinct) EXPECT_FALSE(check(text).ok()) << text;
}

}  // namespace
}  // namespace axccl::program
