// The pictures of machines.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "src/base/files.h"
#include "src/topo/draw.h"
#include "tests/topo/machines.h"

namespace axccl::test {
namespace {

std::vector<topo::Seat> Seats(const topo::Machine& machine, int ranks) {
  topo::PlaceOptions options;
  options.ranks = ranks;
  return topo::Place(machine, options);
}

TEST(DrawText, ShowsEqualNeighboursOnce) {
  EXPECT_EQ(topo::DrawText(ReadMachine("laptop"), {}),
            "Example U7: 1 package, 1 node, 4 cores, 6 processors, 2 NICs, 1 GPU\n"
            "├─ package 0                                             0-5\n"
            "│  └─ node 0, 16 GiB                                     0-5\n"
            "│     ├─ L3 12 MiB                                       0-5\n"
            "│     │  ├─ 2 x core (2 threads), L2 1.2 MiB, L1 48 KiB  0-3\n"
            "│     │  └─ 2 x core, L2 2 MiB, L1 32 KiB                4-5\n"
            "│     ├─ NIC wlan0 (ethernet)\n"
            "│     └─ GPU 0000:00:02.0\n"
            "└─ NIC docker0 (virtual, 10 Gbit/s)\n");
}

TEST(DrawText, ShowsNodesInSeveralPackagesAndNodesWithoutCores) {
  EXPECT_EQ(topo::DrawText(ReadMachine("odd"), Seats(ReadMachine("odd"), 2)),
            "machine: 2 packages, 2 nodes, 4 cores, 4 processors, 2 NICs, 0 GPUs\n"
            "├─ package 0                         0,2\n"
            "│  └─ node 0, 8 GiB                  0,2\n"
            "│     └─ 2 x core                    0,2\n"
            "├─ package 1                         1,3\n"
            "│  └─ node 0, 8 GiB                  1,3\n"
            "│     └─ 2 x core                    1,3\n"
            "├─ node 3, 512 GiB (memory only)\n"
            "├─ NIC ib0 (infiniband, 400 Gbit/s)\n"
            "└─ NIC tun0 (other)\n"
            "\n"
            "rank  processors  nodes  NIC\n"
            "   0  0,2         0      ib0\n"
            "   1  1,3         0      ib0\n");
}

// The pictures in the documentation are what users get.
TEST(DrawText, TheDocumentationIsRight) {
  const Result<std::string> page = ReadWholeFile(std::string(AXCCL_TEST_SOURCE_DIR) + "/docs/topology.md", 1 << 20);
  ASSERT_TRUE(page.ok());
  EXPECT_NE(page.value().find("```\n" + MachineText("laptop") + "```"), std::string::npos);
  EXPECT_NE(page.value().find("```\n" + topo::DrawText(ReadMachine("laptop"), {}) + "```"), std::string::npos);
}

// 256 cores whose processors are numbered in alternation, as some firmware does.
topo::Machine Large() {
  topo::Machine machine;
  machine.nodes = {{0, uint64_t{1} << 40}, {1, uint64_t{1} << 40}};
  machine.packages.resize(2);
  for (int core = 0; core < 256; ++core) {
    std::vector<topo::Group>& groups = machine.packages[static_cast<size_t>(core % 2)].groups;
    if (groups.empty() || groups.back().cores.size() == 8) groups.push_back({core % 2, 32 << 20, {}});
    groups.back().cores.push_back({32 << 10, 1 << 20, {core, core + 256}});
  }
  return machine;
}

TEST(DrawText, LargeMachinesStaySmall) {
  EXPECT_EQ(topo::DrawText(Large(), {}),
            "machine: 2 packages, 2 nodes, 256 cores, 512 processors, 0 NICs, 0 GPUs\n"
            "├─ package 0                                           0,2,4,6,8,10,12,14,..,510 (256)\n"
            "│  └─ node 0, 1 TiB                                    0,2,4,6,8,10,12,14,..,510 (256)\n"
            "│     └─ 16 x L3 32 MiB                                0,2,4,6,8,10,12,14,..,510 (256)\n"
            "│        └─ 8 x core (2 threads), L2 1 MiB, L1 32 KiB  0,2,4,6,8,10,12,14,..,510 (256)\n"
            "└─ package 1                                           1,3,5,7,9,11,13,15,..,511 (256)\n"
            "   └─ node 1, 1 TiB                                    1,3,5,7,9,11,13,15,..,511 (256)\n"
            "      └─ 16 x L3 32 MiB                                1,3,5,7,9,11,13,15,..,511 (256)\n"
            "         └─ 8 x core (2 threads), L2 1 MiB, L1 32 KiB  1,3,5,7,9,11,13,15,..,511 (256)\n");
}

TEST(DrawText, UnitsAreTheLargestThatFit) {
  EXPECT_EQ(topo::BytesText(0), "0 B");
  EXPECT_EQ(topo::BytesText(1023), "1023 B");
  EXPECT_EQ(topo::BytesText(1536), "1.5 KiB");
  EXPECT_EQ(topo::BytesText(uint64_t{3} << 50), "3 PiB");
  EXPECT_EQ(topo::SpeedText(100), "100 Mbit/s");
  EXPECT_EQ(topo::SpeedText(2500), "2.5 Gbit/s");
  EXPECT_EQ(topo::SpeedText(800000), "800 Gbit/s");
}

// ---- SVG ----

// Returns the elements as "name attributes", if every one that is opened is also closed in order; empty if the text is
// no XML of this kind.
std::vector<std::string> Elements(const std::string& xml) {
  std::vector<std::string> elements, open;
  for (size_t at = xml.find('<'); at != std::string::npos; at = xml.find('<', at + 1)) {
    const size_t end = xml.find('>', at);
    if (end == std::string::npos) return {};
    std::string tag = xml.substr(at + 1, end - at - 1);
    if (tag.starts_with('?')) continue;
    if (tag.starts_with('/')) {
      if (open.empty() || open.back() != tag.substr(1)) return {};
      open.pop_back();
      continue;
    }
    if (std::count(tag.begin(), tag.end(), '"') % 2 != 0) return {};
    elements.push_back(tag);
    if (!tag.ends_with('/')) open.push_back(tag.substr(0, tag.find(' ')));
  }
  return open.empty() ? elements : std::vector<std::string>();
}

int Count(const std::vector<std::string>& elements, const std::string& word) {
  const auto has = [&](const std::string& e) { return e.find(word) != e.npos; };
  return static_cast<int>(std::count_if(elements.begin(), elements.end(), has));
}

int Value(const std::string& element, const std::string& name) {
  const size_t at = element.find(" " + name + "=\"");
  return at == std::string::npos ? -1 : std::stoi(element.substr(at + name.size() + 3));
}

TEST(DrawSvg, HasABoxForEveryPart) {
  const topo::Machine machine = ReadMachine("two_packages");
  const std::vector<std::string> elements = Elements(topo::DrawSvg(machine, Seats(machine, 8)));
  ASSERT_FALSE(elements.empty());
  const std::vector<std::pair<std::string, int>> expected = {{"machine", 1}, {"package", 2}, {"node", 4}, {"group", 8},
                                                             {"core", 32},   {"nic", 2},     {"gpu", 8}};
  for (const auto& [style, count] : expected) EXPECT_EQ(Count(elements, "class=\"" + style + "\""), count) << style;
  std::set<std::string> colours;
  for (const std::string& element : elements) {
    const size_t at = element.find("fill:");
    if (at != std::string::npos && element.starts_with("rect")) colours.insert(element.substr(at, 12));
  }
  EXPECT_EQ(colours.size(), 8u) << "a colour per rank";
}

// The boxes of one style do not overlap, and all are within the picture.
TEST(DrawSvg, BoxesLieSideBySide) {
  for (const topo::Machine& machine :
       {ReadMachine("two_packages"), ReadMachine("laptop"), ReadMachine("odd"), Large()}) {
    const std::vector<std::string> elements = Elements(topo::DrawSvg(machine, {}));
    ASSERT_FALSE(elements.empty());
    EXPECT_EQ(Value(elements[0], "width"), 1200);
    const int height = Value(elements[0], "height");
    std::vector<std::string> cores;
    for (const std::string& element : elements) {
      if (!element.starts_with("rect")) continue;
      EXPECT_GE(Value(element, "x"), 0);
      EXPECT_GT(Value(element, "width"), 20) << element;
      EXPECT_LE(Value(element, "x") + Value(element, "width"), 1200);
      EXPECT_LE(Value(element, "y") + Value(element, "height"), height);
      if (element.find("class=\"core\"") != std::string::npos) cores.push_back(element);
    }
    for (size_t a = 0; a < cores.size(); ++a) {
      for (size_t b = a + 1; b < cores.size(); ++b) {
        const bool beside = Value(cores[a], "x") + Value(cores[a], "width") <= Value(cores[b], "x") ||
                            Value(cores[b], "x") + Value(cores[b], "width") <= Value(cores[a], "x");
        const bool below = Value(cores[a], "y") + Value(cores[a], "height") <= Value(cores[b], "y") ||
                           Value(cores[b], "y") + Value(cores[b], "height") <= Value(cores[a], "y");
        ASSERT_TRUE(beside || below) << cores[a] << "\n" << cores[b];
      }
    }
  }
}

TEST(DrawSvg, IsTheSameEveryTimeAndSelfContained) {
  const topo::Machine machine = ReadMachine("two_packages");
  const std::string svg = topo::DrawSvg(machine, Seats(machine, 3));
  EXPECT_EQ(svg, topo::DrawSvg(machine, Seats(machine, 3)));
  for (const char* outside : {"href", "url(", "@import", "<script", "<image"})
    EXPECT_EQ(svg.find(outside), std::string::npos) << outside;
}

TEST(DrawSvg, NamesAreEscaped) {
  topo::Machine machine = ReadMachine("laptop");
  machine.processor = "<b>&\"";
  const std::string svg = topo::DrawSvg(machine, {});
  EXPECT_FALSE(Elements(svg).empty());
  EXPECT_NE(svg.find("&lt;b&gt;&amp;&quot;: 1 package"), std::string::npos);
}

}  // namespace
}  // namespace axccl::test
