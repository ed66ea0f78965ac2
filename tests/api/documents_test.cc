// The documents as their readers see them: links lead somewhere, and the first page stays short.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
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

}  // namespace
}  // namespace axccl::test
