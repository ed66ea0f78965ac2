// The shape of the source tree: which folders may include which, and how long files and functions may get.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "src/base/param.h"
#include "tests/api/source_tree.h"

namespace axccl::test {
namespace {

// Folder or file -> what it may include besides itself: the table of docs/architecture.md. A path belongs to the
// longest entry that it starts with.
std::map<std::string, std::set<std::string>> ReadTable() {
  std::ifstream document(AXCCL_TEST_SOURCE_DIR "/docs/architecture.md");
  std::map<std::string, std::set<std::string>> table;
  bool inside = false;
  for (std::string line; std::getline(document, line);) {
    if (line == "| folder | may include |") {
      inside = true;
    } else if (inside && !line.starts_with("|")) {
      break;
    } else if (inside && !line.starts_with("|--")) {
      std::replace(line.begin(), line.end(), '|', ' ');
      std::istringstream words(line);
      std::string folder;
      words >> folder;
      table[folder] = {std::istream_iterator<std::string>(words), {}};
    }
  }
  return table;
}

const std::map<std::string, std::set<std::string>>& AllowedIncludes() {
  static const std::map<std::string, std::set<std::string>> table = ReadTable();
  return table;
}

bool IsUnder(const std::string& path, const std::string& place) {
  return path == place || path.starts_with(place + "/");
}

// The entry of the table that `path` belongs to, "" if none.
std::string PlaceOf(const std::string& path) {
  std::string best;
  for (const auto& [place, allowed] : AllowedIncludes()) {
    if (IsUnder(path, place) && place.size() > best.size()) best = place;
  }
  return best;
}

// The public headers are included without their folder; so are their neighbours by sources that are compiled where they
// have been installed.
std::string Resolve(const std::string& from, const std::string& include) {
  if (include == "nccl.h" || include.starts_with("axccl/")) return "include/" + include;
  const std::string beside =
      std::filesystem::path(from.substr(0, from.rfind('/') + 1) + include).lexically_normal().string();
  const bool installed = from.starts_with("tools/python/axccl/") || from.starts_with("tools/softgpu/torch/");
  return installed && std::filesystem::exists(std::string(AXCCL_TEST_SOURCE_DIR "/") + beside) ? beside : include;
}

const std::vector<std::string> kLibrary = {"include", "src", "kernels", "transports", "tools", "perf"};

// A folder that no longer exists would mislead readers.
TEST(Structure, TheTableNamesExistingFolders) {
  EXPECT_GT(AllowedIncludes().size(), 20u);
  for (const auto& [place, allowed] : AllowedIncludes()) {
    EXPECT_TRUE(std::filesystem::exists(std::string(AXCCL_TEST_SOURCE_DIR "/") + place)) << place;
    for (const std::string& other : allowed)
      EXPECT_TRUE(std::filesystem::exists(std::string(AXCCL_TEST_SOURCE_DIR "/") + other)) << place << ": " << other;
  }
}

TEST(Structure, IncludesFollowTheTable) {
  size_t checked = 0;
  for (const SourceFile& file : ReadSources(kLibrary)) {
    const std::string place = PlaceOf(file.path);
    EXPECT_FALSE(place.empty()) << file.path << " is in no folder of the table of docs/architecture.md";
    if (place.empty()) continue;
    for (const std::string& raw : QuotedIncludes(file)) {
      const std::string include = Resolve(file.path, raw);
      bool allowed = PlaceOf(include) == place;
      for (const std::string& other : AllowedIncludes().at(place)) allowed = allowed || IsUnder(include, other);
      EXPECT_TRUE(allowed) << file.path << " includes " << raw << ": " << place << " must not include it";
      ++checked;
    }
  }
  EXPECT_GT(checked, 100u) << "the test finds no includes any more";
}

TEST(Structure, LibraryNeverIncludesTestsOrTools) {
  for (const SourceFile& file : ReadSources({"include", "src", "kernels", "transports"})) {
    for (const std::string& include : QuotedIncludes(file)) {
      for (const char* outside : {"tests", "tools", "perf"})
        EXPECT_FALSE(IsUnder(include, outside)) << file.path << ": " << include;
    }
  }
}

TEST(Structure, FilesStayReadable) {
  std::vector<std::string> folders = kLibrary;
  folders.push_back("tests");
  for (const SourceFile& file : ReadSources(folders)) EXPECT_LE(file.lines.size(), 600u) << file.path;
}

TEST(Structure, FunctionsStayReadable) {
  std::vector<std::string> folders = kLibrary;
  folders.push_back("tests");
  size_t found = 0;
  for (const SourceFile& file : ReadSources(folders)) {
    for (const Function& function : FindFunctions(file)) {
      EXPECT_LE(function.lines, 100) << file.path << ":" << function.first_line;
      EXPECT_GT(function.lines, 0) << file.path << ":" << function.first_line << ": braces do not match";
      ++found;
    }
  }
  EXPECT_GT(found, 500u) << "the test finds no functions any more";
}

// The name that an entry point must give as its own: `"ncclSend"` for pncclSend, `"nccl" #name` for pnccl##name.
std::string OwnName(const std::string& function) {
  const std::string name = function.starts_with("pnccl") ? function.substr(1) : function;
  const size_t pasted = name.find("##");
  if (pasted == std::string::npos) return '"' + name + '"';
  return '"' + name.substr(0, pasted) + "\" #" + name.substr(pasted + 2);
}

// Entry of src/api/export.h catches exceptions and reports errors, so an entry point does nothing outside of it.
TEST(Structure, EntryPointsGoThroughTheBarrier) {
  const std::regex head(R"(^ *AXCCL_API .*?\b(pnccl[\w#]+|axccl[A-Z]\w+)[ (])");
  const std::regex body(R"(^(return|\(void\)) *(axccl::api::)?Entry(Or|InAnyProcess)?\(("\w+"( #\w+)?),)");
  int entries = 0;
  for (const SourceFile& file : ReadSources({"src/api"})) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      std::smatch function, entry;
      if (!std::regex_search(file.lines[i], function, head)) continue;
      std::string text;
      for (size_t line = i; line < std::min(i + 12, file.lines.size()); ++line) text += file.lines[line] + ' ';
      text = text.substr(std::min(text.size(), text.find('{') + 1));
      text = text.substr(std::min(text.size(), text.find_first_not_of(" \\")));
      const bool enters = std::regex_search(text, entry, body);
      EXPECT_TRUE(enters) << file.path << ":" << i + 1
                          << ": write `return Entry(\"<name>\", [&](const char* call) ...`";
      EXPECT_EQ(enters ? entry[4].str() : "", OwnName(function[1].str())) << file.path << ":" << i + 1;
      ++entries;
    }
  }
  EXPECT_GT(entries, 100) << "the test finds no entry points any more";
}

// A check inside a call must not log, set the thread's error or cancel an open group by itself.
TEST(Structure, OnlyTheBarrierReports) {
  const std::regex reports(R"(\bReport(Exception)?\(|ncclResult_t\* result)");
  for (const SourceFile& file : ReadSources({"src/api"})) {
    if (file.path == "src/api/export.h" || file.path == "src/api/context.cc") continue;
    for (size_t i = 0; i < file.lines.size(); ++i)
      EXPECT_FALSE(std::regex_search(file.lines[i], reports)) << file.path << ":" << i + 1 << ": return a Status";
  }
}

TEST(Structure, HeadersOpenWithTheirContract) {
  for (const SourceFile& file : ReadSources(kLibrary)) {
    if (!file.IsHeader() || file.lines.empty()) continue;
    EXPECT_TRUE(file.lines[0].starts_with("// ") || file.lines[0].starts_with("/* ")) << file.path;
  }
}

TEST(Structure, HeadersAreGuarded) {
  std::vector<std::string> folders = kLibrary;
  folders.push_back("tests");
  for (const SourceFile& file : ReadSources(folders)) {
    if (!file.IsHeader()) continue;
    const bool guarded = file.path.starts_with("include/") ||
                         std::find(file.lines.begin(), file.lines.end(), "#pragma once") != file.lines.end();
    EXPECT_TRUE(guarded) << file.path << " has no #pragma once";
  }
}

// PTX in a raw string may be wider.
TEST(Structure, LinesAreShort) {
  constexpr size_t kColumns = 120;
  std::vector<std::string> folders = kLibrary;
  for (const char* folder : {"include", "tests", "perf", "tools"}) folders.push_back(folder);
  for (const SourceFile& file : ReadSources(folders)) {
    if (file.path.starts_with("tools/softgpu/tests/")) continue;
    for (size_t i = 0; i < file.lines.size(); ++i)
      EXPECT_LE(file.lines[i].size(), kColumns) << file.path << ":" << i + 1;
  }
}

// Compiling x.cc then shows that x.h compiles by itself, so the build compiles only other headers alone.
TEST(Structure, SourcesBeginWithTheirHeader) {
  std::vector<std::string> folders = kLibrary;
  folders.push_back("tests");
  const std::vector<SourceFile> files = ReadSources(folders);
  std::set<std::string> headers;
  for (const SourceFile& file : files) {
    if (file.IsHeader()) headers.insert(file.path);
  }
  size_t checked = 0;
  for (const SourceFile& file : files) {
    if (!file.path.ends_with(".cc")) continue;
    const std::string own = file.path.substr(0, file.path.size() - 2) + "h";
    if (!headers.contains(own)) continue;
    const std::string first = FirstLine(file), quoted = first.substr(first.find('"') + 1);
    EXPECT_EQ(Resolve(file.path, quoted.substr(0, quoted.find('"'))), own) << file.path << ": " << first;
    ++checked;
  }
  EXPECT_GT(checked, 100u) << "the test finds no headers any more";
}

// The table of parameters and the code agree: the code reads only parameters of the table, and reads all of them except
// those whose meaning contains "(no effect".
TEST(Structure, ParametersOfTheTableAreTheOnesRead) {
  std::set<std::string> read;
  for (const SourceFile& file : ReadSources({"src", "kernels", "transports"})) {
    if (file.path == "src/base/param_table.cc") continue;
    for (const std::string& line : file.lines) {
      for (const param::Info& info : param::Table()) {
        if (line.find('"' + std::string(info.name) + '"') != line.npos) read.insert(info.name);
      }
      for (const char* call : {"param::Get(\"", "param::GetInt(\"", "param::GetSeconds(\""}) {
        const size_t at = line.find(call);
        if (at == line.npos) continue;
        const size_t begin = at + std::string(call).size();
        const std::string name = line.substr(begin, line.find('"', begin) - begin);
        EXPECT_NE(param::Find(name), nullptr) << file.path << " reads " << name << ", which is not in the table";
      }
    }
  }
  for (const param::Info& info : param::Table()) {
    const bool idle = std::string(info.meaning).find("(no effect") != std::string::npos;
    EXPECT_EQ(read.contains(info.name), !idle) << info.name << ": " << info.meaning;
  }
}

// ---- tests of the checks themselves ----

SourceFile Parse(const std::vector<std::string>& lines) {
  SourceFile file;
  file.lines = file.code = lines;
  return file;
}

TEST(FirstLine, IsWhatTheCompilerSeesFirst) {
  EXPECT_EQ(FirstLine(Parse({"// a", "", "#include \"x.h\"", "#include \"y.h\""})), "#include \"x.h\"");
  EXPECT_EQ(FirstLine(Parse({"#define A", "#include \"x.h\""})), "#define A");
  EXPECT_EQ(FirstLine(Parse({"using A = int;", "#include \"x.h\""})), "using A = int;");
  EXPECT_EQ(FirstLine(Parse({"/*", "#include \"x.h\"", "*/"})), "/*");
  EXPECT_EQ(FirstLine(Parse({})), "");
}

TEST(FindFunctions, DistinguishesFunctionsFromOtherBraces) {
  const std::vector<Function> found = FindFunctions(Parse({
      "namespace a {",                          // 1
      "struct S : T {",                         // 2
      "  int x{3};",                            // 3
      "  S(int y) : x(y) {}",                   // 4: a function of 1 line
      "  bool operator==(const S& o) const {",  // 5: 3 lines
      "    return x == o.x;",                   // 6
      "  }",                                    // 7
      "};",                                     // 8
      "enum class E { kA, kB };",               // 9
      "const int kTable[] = {F(1), F(2)};",     // 10
      "void G(int a = 1,",                      // 11: 7 lines
      "       int b = 2) {",                    // 12
      "  if (a) {",                             // 13
      "    H([&] { return b; });",              // 14
      "  }",                                    // 15
      "",                                       // 16
      "}",                                      // 17
      "TEST(A, B) { C(); }",                    // 18: 1 line
      "}",                                      // 19
  }));
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].first_line, 4);
  EXPECT_EQ(found[0].lines, 1);
  EXPECT_EQ(found[1].first_line, 5);
  EXPECT_EQ(found[1].lines, 3);
  EXPECT_EQ(found[2].first_line, 11);
  EXPECT_EQ(found[2].lines, 7);
  EXPECT_EQ(found[3].first_line, 18);
  EXPECT_EQ(found[3].lines, 1);
}

}  // namespace
}  // namespace axccl::test
