// Our source files as the structure tests see them.
#pragma once

#include <string>
#include <vector>

namespace axccl::test {

struct SourceFile {
  std::string path;  // from the repository root, "src/base/log.cc"
  std::vector<std::string> lines;
  // The lines with comments, literals and preprocessor directives blanked out, so that only code is left.
  std::vector<std::string> code;

  bool IsHeader() const { return path.ends_with(".h"); }
};

// All .h, .c and .cc files below `folders`, in path order.
std::vector<SourceFile> ReadSources(const std::vector<std::string>& folders);

// Paths in `#include "..."` lines, in order.
std::vector<std::string> QuotedIncludes(const SourceFile& file);

// The first line that is neither empty nor a `//` comment.
std::string FirstLine(const SourceFile& file);

struct Function {
  int first_line;  // of the head, counted from 1
  int lines;       // from the head to the closing brace
};
// The functions defined in a file. Recognises them by braces only, which suffices for our formatting.
std::vector<Function> FindFunctions(const SourceFile& file);

}  // namespace axccl::test
