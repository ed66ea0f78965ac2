#include "tests/api/source_tree.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>

namespace axccl::test {
namespace {

namespace fs = std::filesystem;

// Walks over C++ text and blanks out everything that is not code. One object per file.
class Stripper {
 public:
  std::string Line(const std::string& line) {
    if (state_ == State::kDirective || (state_ == State::kCode && IsDirective(line))) {
      state_ = line.ends_with('\\') ? State::kDirective : State::kCode;
      return "";
    }
    std::string code;
    for (size_t i = 0; i < line.size();) i += Take(line, i, &code);
    if (state_ == State::kString || state_ == State::kChar) state_ = State::kCode;
    return code;
  }

 private:
  enum class State { kCode, kComment, kString, kChar, kRaw, kDirective };

  static bool IsDirective(const std::string& line) {
    const size_t first = line.find_first_not_of(" \t");
    return first != line.npos && line[first] == '#';
  }

  // Handles the text that starts at `i`; returns how many characters it has consumed.
  size_t Take(const std::string& line, size_t i, std::string* code) {
    switch (state_) {
      case State::kComment:
        if (line.compare(i, 2, "*/") != 0) return 1;
        state_ = State::kCode;
        return 2;
      case State::kRaw:
        if (line.compare(i, raw_end_.size(), raw_end_) != 0) return 1;
        state_ = State::kCode;
        return raw_end_.size();
      case State::kString:
      case State::kChar:
        if (line[i] == '\\') return 2;
        if (line[i] == (state_ == State::kString ? '"' : '\'')) state_ = State::kCode;
        return 1;
      default:
        return TakeCode(line, i, code);
    }
  }

  size_t TakeCode(const std::string& line, size_t i, std::string* code) {
    if (line.compare(i, 2, "//") == 0) return line.size() - i;
    if (line.compare(i, 2, "/*") == 0) {
      state_ = State::kComment;
      return 2;
    }
    if (line.compare(i, 2, "R\"") == 0) {
      const size_t open = line.find('(', i);
      raw_end_ = ")" + line.substr(i + 2, open - i - 2) + "\"";
      state_ = State::kRaw;
      return open - i + 1;
    }
    // A quote between digits separates thousands.
    const bool separator = i > 0 && isalnum(static_cast<unsigned char>(line[i - 1])) != 0;
    if (line[i] == '"') state_ = State::kString;
    if (line[i] == '\'' && !separator) state_ = State::kChar;
    code->push_back(line[i] == '"' || line[i] == '\'' ? ' ' : line[i]);
    return 1;
  }

  State state_ = State::kCode;
  std::string raw_end_;
};

SourceFile ReadFile(const fs::path& root, const fs::path& path) {
  SourceFile file;
  file.path = fs::relative(path, root).generic_string();
  std::ifstream in(path);
  Stripper stripper;
  for (std::string line; std::getline(in, line);) {
    file.code.push_back(stripper.Line(line));
    file.lines.push_back(line);
  }
  return file;
}

enum class Brace { kNamespace, kType, kFunction, kOther };

// What an opening brace begins, from the text before it since the last `;`, `{` or `}`.
Brace Classify(const std::string& head) {
  static const std::regex space("\\bnamespace\\b|\\bextern\\s*$");
  static const std::regex type("\\b(class|struct|union|enum)\\b[^()=]*$");
  if (std::regex_search(head, space)) return Brace::kNamespace;
  const size_t parenthesis = head.find('(');
  if (parenthesis == head.npos) return std::regex_search(head, type) ? Brace::kType : Brace::kOther;
  const size_t equals = head.find('=');
  const bool is_operator = head.find("operator") != head.npos;
  // `x = f(...) {` is an initialiser; `T f(int a = 1) {` and `bool operator==(...) {` are functions.
  if (equals != head.npos && equals < parenthesis && !is_operator) return Brace::kOther;
  return Brace::kFunction;
}

}  // namespace

std::vector<SourceFile> ReadSources(const std::vector<std::string>& folders) {
  const fs::path root = AXCCL_TEST_SOURCE_DIR;
  std::vector<fs::path> paths;
  for (const std::string& folder : folders) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension().string();
      if (extension == ".h" || extension == ".cc" || extension == ".c") paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<SourceFile> files;
  for (const fs::path& path : paths) files.push_back(ReadFile(root, path));
  return files;
}

std::vector<std::string> QuotedIncludes(const SourceFile& file) {
  static const std::regex include("^\\s*#\\s*include\\s+\"([^\"]+)\".*");
  std::vector<std::string> found;
  std::smatch match;
  for (const std::string& line : file.lines) {
    if (std::regex_match(line, match, include)) found.push_back(match[1]);
  }
  return found;
}

std::string FirstLine(const SourceFile& file) {
  for (const std::string& line : file.lines) {
    if (!line.empty() && !line.starts_with("//")) return line;
  }
  return "";
}

std::vector<Function> FindFunctions(const SourceFile& file) {
  std::vector<Function> functions;
  std::vector<Brace> open;
  std::string head;
  int head_line = 0, function_depth = 0;
  for (size_t i = 0; i < file.code.size(); ++i) {
    for (const char c : file.code[i]) {
      if (c == '{') {
        open.push_back(function_depth > 0 ? Brace::kOther : Classify(head));
        if (open.back() == Brace::kFunction) {
          function_depth = static_cast<int>(open.size());
          functions.push_back({head_line, 0});
        }
      } else if (c == '}' && !open.empty()) {
        if (static_cast<int>(open.size()) == function_depth) {
          functions.back().lines = static_cast<int>(i) + 2 - functions.back().first_line;
          function_depth = 0;
        }
        open.pop_back();
      }
      if (c == '{' || c == '}' || c == ';') {
        head.clear();
      } else if (!head.empty() || !isspace(static_cast<unsigned char>(c))) {
        if (head.empty()) head_line = static_cast<int>(i) + 1;
        head.push_back(c);
      }
    }
    if (!head.empty()) head.push_back(' ');
  }
  return functions;
}

}  // namespace axccl::test
