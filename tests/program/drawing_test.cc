// The picture of a simulation: well-formed, with everything at its place.
#include "tools/axccl-program/drawing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/program/text.h"

namespace axccl::program {
namespace {

// Whether every element is closed in its order, and every attribute has a value in quotes.
bool IsWellFormed(const std::string& text) {
  std::vector<std::string> open;
  size_t roots = 0;
  for (size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at + 1)) {
    const size_t end = text.find('>', at);
    if (end == std::string::npos || text.find('<', at + 1) < end) return false;
    std::string tag = text.substr(at + 1, end - at - 1);
    if (tag[0] == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return false;
      open.pop_back();
      continue;
    }
    if (std::count(tag.begin(), tag.end(), '"') != 2 * std::count(tag.begin(), tag.end(), '=')) return false;
    roots += open.empty() ? 1 : 0;
    if (tag.back() != '/') open.push_back(tag.substr(0, tag.find(' ')));
  }
  return roots == 1 && open.empty() && text.find('&') == std::string::npos;
}

size_t CountOf(const std::string& words, const std::string& text) {
  size_t count = 0;
  for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++count;
  return count;
}

void ExpectHas(const std::string& text, const std::string& words) {
  EXPECT_EQ(CountOf(words, text), 1u) << words << "\n" << text;
}

Program ParsedProgram(const std::string& body) {
  Result<Program> program = Parse("axccl-program 1\n" + body);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return program.ok() ? program.value() : Program();
}

constexpr char kTwoParts[] =
    "ranks 4\npart first on [0,1,2]\n  argument %0 f32[4,4]\n  %1 f32[4,4] = dot %0 %0\n"
    "  %2 f32[4,4] = all_reduce %1 fold=add groups=[[0,1,2]] channel=1\n  %3 f32[4,4] = add %0 %1\n  return %2\n"
    "part last on [3]\n  argument %0 f32[4,4]\n  %1 f32[4,4] = transpose %0 dims=[1,0]\n  return %1\n";

// 10 seconds: a second is 100 pixels. Ranks 0 and 2 do the same.
TEST(Drawing, PutsOperationsAtTheirPlaces) {
  const Program program = ParsedProgram(kTwoParts);
  const std::vector<Operation>&first = program.parts[0].function.operations,
        &last = program.parts[1].function.operations;
  Simulation simulation;
  simulation.seconds = 10;
  simulation.ranks.resize(4);
  simulation.parts = {{64, 200, &first[2]}, {64, 100, nullptr}};
  for (const int rank : {0, 1, 2}) {
    const double late = rank == 1 ? 1 : 0;
    simulation.events.push_back({&first[0], rank, false, late, 2, 128});
    simulation.events.push_back({&first[1], rank, true, 2.5, 8.5, 200});
    simulation.events.push_back({&first[2], rank, false, 2, 3, 150});
  }
  simulation.events.push_back({&last[0], 3, false, 4, 10, 100});
  const std::string svg = tools::DrawingOf(program, simulation);
  EXPECT_TRUE(IsWellFormed(svg)) << svg;
  // Rows at 52, 86 and 120, with lanes of 12 pixels.
  for (const char* words :
       {"<text x=\"4.0\" y=\"62.0\" text-anchor=\"start\">ranks 0, 2</text>",
        "<text x=\"4.0\" y=\"96.0\" text-anchor=\"start\">rank 1</text>",
        "<text x=\"4.0\" y=\"130.0\" text-anchor=\"start\">rank 3</text>",
        "<rect class=\"c0 wide\" x=\"170.00\" y=\"52.0\" width=\"200.00\" height=\"12\"><title>%1 dot: 2 s from 0 "
        "ns</title>",
        "<rect class=\"c0 wide\" x=\"270.00\" y=\"86.0\" width=\"100.00\" height=\"12\"><title>%1 dot: 1 s from 1 "
        "s</title>",
        "<rect class=\"c3 wide\" x=\"420.00\" y=\"65.0\" width=\"600.00\" height=\"12\"><title>%2 all_reduce: 6 s",
        "<rect class=\"c1 wide\" x=\"370.00\" y=\"52.0\" width=\"100.00\" height=\"12\"><title>%3 add: 1 s from 2 "
        "s</title>",
        "<rect class=\"c2 wide\" x=\"570.00\" y=\"120.0\" width=\"600.00\" height=\"12\"><title>%1 transpose: 6 s from "
        "4 s",
        ">10 s</text>", ">5 s</text>", ">peak 200 bytes at %3 add, drawn for rank 0</text>",
        ">peak 100 bytes of arguments, drawn for rank 3</text>",
        // 200 bytes are 44 pixels high, above 262 and 324: 64, 128, then 200 and 150 at 2.5 s.
        "M170.00 262.00V247.92V247.92H170.00V233.84H420.00V229.00V218.00V229.00H1170.00V262.00Z",
        "M170.00 324.00V309.92V309.92H570.00V302.00H1170.00V324.00Z"})
    ExpectHas(svg, words);
  EXPECT_EQ(CountOf("<title>", svg), 7u) << svg;
}

// 1,000 rounds of 8 operations, on half of the time: two operations and the pauses behind them are half a pixel.
TEST(Drawing, JoinsWhatIsNarrow) {
  const Program program = ParsedProgram(kTwoParts);
  const std::vector<Operation>& operations = program.parts[0].function.operations;
  Simulation simulation;
  simulation.seconds = 8;
  simulation.ranks.resize(4);
  simulation.parts.resize(2);
  const auto add = [&](int i, double seconds, size_t operation) {
    const double begin = i * 1e-3;
    simulation.events.push_back({&operations[operation], 0, false, begin, begin + seconds, 64});
  };
  for (int i = 0; i < 8000; ++i) add(i, 0.5e-3, i % 8 == 0 ? 0 : 2);
  const std::string svg = tools::DrawingOf(program, simulation);
  EXPECT_TRUE(IsWellFormed(svg));
  const size_t blocks = CountOf("<title>", svg);
  EXPECT_GT(blocks, 1000u);
  EXPECT_LE(blocks, 2000u);
  EXPECT_GT(CountOf(" fill-opacity=\"0.5", svg), blocks - 10);
  EXPECT_GT(CountOf("<rect class=\"c1\"", svg), blocks - 10);  // most of the time
  EXPECT_LT(svg.size(), 400000u);
}

// More rows than are drawn, and ranks that do nothing.
TEST(Drawing, SaysWhatIsNotDrawn) {
  std::string ranks;
  for (int rank = 0; rank < 100; ++rank) ranks += (rank == 0 ? "" : ",") + std::to_string(rank);
  const Program program = ParsedProgram("ranks 200\npart all on [" + ranks +
                                        "]\n  argument %0 f32[4]\n  %1 f32[4] = abs %0\n  return %1\n");
  Simulation simulation;
  simulation.seconds = 1e-3;
  simulation.ranks.resize(200);
  simulation.parts.resize(1);
  for (int rank = 0; rank < 100; ++rank)
    simulation.events.push_back({&program.parts[0].function.operations[0], rank, false, 0, 1e-6 * rank, 16});
  const std::string svg = tools::DrawingOf(program, simulation);
  EXPECT_TRUE(IsWellFormed(svg));
  ExpectHas(svg, ">and 37 rows more</text>");
  ExpectHas(svg, ">0.5 ms</text>");
  simulation.events.clear();
  simulation.seconds = 0;
  const std::string empty = tools::DrawingOf(program, simulation);
  EXPECT_TRUE(IsWellFormed(empty));
  ExpectHas(empty, ">ranks 0-99</text>");
  ExpectHas(empty, ">ranks 100-199</text>");
}

}  // namespace
}  // namespace axccl::program
