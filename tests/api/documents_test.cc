// The documents as their readers see them: links lead somewhere, and the first page stays short and has the figures of
// the results.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/harness/folder.h"

namespace axccl::test {
namespace {

namespace fs = std::filesystem;
using harness::Contents;

const fs::path kRoot = AXCCL_TEST_SOURCE_DIR;

std::vector<fs::path> Documents() {
  std::vector<fs::path> pages;
  for (const char* folder : {"", "docs", "perf", "perf/results", "tools/softgpu"}) {
    for (const fs::directory_entry& entry : fs::directory_iterator(kRoot / folder)) {
      if (entry.path().extension() == ".md") pages.push_back(entry.path());
    }
  }
  return pages;
}

// The text after "](" up to ")", for every link.
std::vector<std::string> Links(const std::string& text) {
  std::vector<std::string> links;
  for (size_t at = text.find("]("); at != text.npos; at = text.find("](", at + 1))
    links.push_back(text.substr(at + 2, text.find(')', at) - at - 2));
  return links;
}

// A heading's anchor, by GitHub's rules: lower case, words joined by hyphens, other characters left out.
std::string AnchorOf(const std::string& heading) {
  std::string anchor;
  for (const char c : heading) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_')
      anchor += static_cast<char>(std::tolower(c));
    else if (c == ' ')
      anchor += '-';
  }
  return anchor;
}

bool HasAnchor(const std::string& text, const std::string& anchor) {
  for (size_t at = text.find("\n#"); at != text.npos; at = text.find("\n#", at + 1)) {
    const size_t begin = text.find(' ', at) + 1;
    if (AnchorOf(text.substr(begin, text.find('\n', begin) - begin)) == anchor) return true;
  }
  return false;
}

TEST(Documents, LinksLeadSomewhere) {
  size_t checked = 0;
  for (const fs::path& page : Documents()) {
    const std::string text = Contents(page);
    for (const std::string& link : Links(text)) {
      if (link.starts_with("http")) continue;
      const size_t hash = std::min(link.find('#'), link.size());
      const fs::path target = hash == 0 ? page : page.parent_path() / link.substr(0, hash);
      EXPECT_TRUE(fs::exists(target)) << page << " links to " << link;
      if (hash < link.size()) {
        EXPECT_TRUE(HasAnchor(Contents(target), link.substr(hash + 1))) << page << " links to " << link;
      }
      ++checked;
    }
  }
  EXPECT_GT(checked, 40u) << "the test finds no links any more";
}

// A path of a preload that is wrong goes unnoticed: the loader prints a line, and the program runs on another library.
TEST(Documents, PathsOfTheDropInAreThoseOfABuildAndOfAnInstallation) {
  size_t checked = 0;
  for (const fs::path& page : Documents()) {
    const std::string text = Contents(page);
    for (size_t at = text.find("/dropin"); at != text.npos; at = text.find("/dropin", at + 1)) {
      const std::string folder = text.substr(0, at);
      EXPECT_TRUE(folder.ends_with("axccl") || folder.ends_with("build"))
          << page << ": " << text.substr(text.rfind('\n', at) + 1, text.find('\n', at) - text.rfind('\n', at) - 1);
      ++checked;
    }
  }
  EXPECT_GT(checked, 8u) << "the test finds no paths any more";
}

// `folder/program: Suite.Test, ...`: the program's source has these tests.
TEST(Documents, TestsThatBackTheTableOfAttackersExist) {
  const std::string page = Contents(kRoot / "docs/security.md");
  size_t checked = 0;
  for (size_t at = page.find("_test: "); at != page.npos; at = page.find("_test: ", at + 1)) {
    const size_t begin = page.rfind('`', at) + 1, end = page.find('`', at);
    const size_t tests = page.find(": ", at) + 2;
    const std::string source = Contents(kRoot / "tests" / (page.substr(begin, tests - 2 - begin) + ".cc"));
    for (size_t from = tests; from < end;) {
      const size_t to = std::min(page.find(", ", from), end);
      std::string test = page.substr(from, to - from);
      test.replace(test.find('.'), 1, ", ");
      EXPECT_NE(source.find("(" + test + ")"), source.npos) << page.substr(begin, end - begin);
      from = to + 2;
      ++checked;
    }
  }
  EXPECT_GT(checked, 30u) << "the test finds no tests any more";
}

TEST(Documents, TheFirstPageIsShort) {
  const std::string readme = Contents(kRoot / "README.md");
  EXPECT_LE(std::count(readme.begin(), readme.end(), '\n'), 210);
}

using Cells = std::vector<std::string>;

Cells CellsOf(const std::string& line) {
  Cells cells;
  for (size_t at = line.find('|'); at + 1 < line.size();) {
    const size_t end = std::min(line.find('|', at + 1), line.size());
    const size_t first = line.find_first_not_of(' ', at + 1), last = line.find_last_not_of(' ', end - 1);
    cells.push_back(first < end ? line.substr(first, last + 1 - first) : "");
    at = end;
  }
  return cells;
}

// The rows of the tables below the line `heading`, up to the next one of its kind.
std::vector<Cells> RowsBelow(const std::string& document, const std::string& heading) {
  std::vector<Cells> rows;
  std::istringstream text(Contents(kRoot / document));
  bool below = false;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("#") || line.starts_with("**")) below = line == heading;
    if (below && line.starts_with("|")) rows.push_back(CellsOf(line));
  }
  EXPECT_FALSE(rows.empty()) << document << ": " << heading;
  return rows;
}

// In the rows, whose first one names the columns, the number of a column in the row that has all of `keys`.
double Figure(const std::vector<Cells>& rows, const Cells& keys, const std::string& column) {
  const auto at = std::find(rows[0].begin(), rows[0].end(), column) - rows[0].begin();
  for (const Cells& row : rows) {
    const auto has = [&](const std::string& key) { return std::find(row.begin(), row.end(), key) != row.end(); };
    if (std::all_of(keys.begin(), keys.end(), has)) return std::stod(row.at(static_cast<size_t>(at)));
  }
  ADD_FAILURE() << "no row " << keys[0];
  return 0;
}

std::vector<double> OfSizes(const std::string& collective, const Cells& sizes, const std::string& column) {
  std::vector<double> figures;
  const auto rows = RowsBelow("perf/results/compare.md", "**" + collective + "**");
  for (const std::string& size : sizes) figures.push_back(Figure(rows, {size}, column));
  return figures;
}

// The time of the fastest peer by ours, of all_reduce between hosts.
double BetweenHosts(const std::string& size, const std::string& hosts) {
  double fastest = 1e300, ratio = 0;
  for (const Cells& row : RowsBelow("perf/results/hosts.md", "## TCP")) {
    if (!row[0].starts_with("all_reduce " + size + ", " + hosts + ": us / ")) continue;
    const double ours = std::stod(row[1]), peers = std::stod(row[2]);
    if (peers < fastest) fastest = peers, ratio = peers / ours;
  }
  return ratio;
}

// The row of README.md whose case this is has these figures, rounded.
void ExpectRow(const std::string& title, const std::vector<double>& figures) {
  SCOPED_TRACE(title);
  for (const Cells& row : RowsBelow("README.md", "## Performance")) {
    if (row[0] != title) continue;
    std::string shown = row[2];
    std::replace(shown.begin(), shown.end(), ';', ',');
    std::istringstream numbers(shown);
    size_t i = 0;
    for (std::string number; std::getline(numbers, number, ','); ++i) {
      ASSERT_LT(i, figures.size());
      const size_t point = number.find('.');
      const auto decimals = static_cast<double>(point == number.npos ? 0 : number.size() - point - 1);
      EXPECT_NEAR(std::stod(number), figures[i], 0.5001 * std::pow(10, -decimals)) << "figure " << i + 1;
    }
    EXPECT_EQ(i, figures.size());
    return;
  }
  ADD_FAILURE() << "no such row";
}

TEST(Documents, TheFirstPageHasTheFiguresOfTheResults) {
  const Cells sizes = {"64 B", "4 KiB", "256 KiB", "16 MiB"};
  ExpectRow("all_reduce of 64 B, 4 KiB, 256 KiB, 16 MiB", OfSizes("all_reduce", sizes, "MPI / AxCCL"));
  ExpectRow("all_reduce of 64 B, 4 KiB, 256 KiB, 16 MiB in memory from `malloc`",
            OfSizes("all_reduce", sizes, "MPI / malloc"));
  ExpectRow("all_reduce of 256 KiB, 16 MiB", OfSizes("all_reduce", {sizes[2], sizes[3]}, "floor / AxCCL"));
  std::vector<double> others;
  for (const char* collective : {"all_gather", "reduce_scatter", "alltoall"}) {
    const std::vector<double> of = OfSizes(collective, sizes, "MPI / AxCCL");
    others.insert(others.end(), of.begin(), of.end());
  }
  ExpectRow("all_gather of the same sizes; reduce_scatter; alltoall", others);
  const auto crowded = RowsBelow("perf/results/compare.md", "## More ranks than cores");
  std::vector<double> of_four;
  for (const char* size : {"8 B", "4 KiB", "512 KiB"})
    of_four.push_back(Figure(crowded, {"all_reduce", "4", size}, "MPI / AxCCL"));
  ExpectRow("all_reduce of 8 B, 4 KiB, 512 KiB by 4 ranks on the two cores", of_four);
  const auto strided = RowsBelow("perf/results/strided.md", "# Other dimensions, lists and channels");
  ExpectRow("all_gather of [4096, 4096] along dim 1; of a list of 200 views",
            {Figure(strided, {"dim 0, then the fastest copy"}, "ratio"),
             Figure(strided, {"all_gather of a list of 200 views", "a call each"}, "ratio")});
  std::vector<double> hosts;
  for (const char* layout : {"2 x 1", "2 x 2"}) {
    for (const char* size : {"8 B", "64 KiB", "16 MiB"}) hosts.push_back(BetweenHosts(size, layout));
  }
  ExpectRow("all_reduce of 8 B, 64 KiB, 16 MiB on two machines (network namespaces), of 1 rank; of 2 ranks each",
            hosts);
}

}  // namespace
}  // namespace axccl::test
