// The words of a command line, by the options that a program has: `--name value`, `--name=value`, `-n value` and
// `-nvalue`. Names are never abbreviated, `--` ends the options, and "-" is an operand. Pure: what words mean is the
// program's affair.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace axccl::command_line {

// Every program has these besides its own: --help (-h), --version.
struct Option {
  std::string_view name;  // "--ranks"; empty: it has only a letter
  bool has_value = true;
  char letter = 0;  // of "-r"; 0: none
  int number = 0;   // the program's own
};

struct Word {
  Option option;     // of an operand: without name and letter
  std::string as;    // how the option is called in messages: "--ranks", "-r (--ranks)"
  std::string text;  // the value of the option, or the operand
  bool is_option() const { return !as.empty(); }
};

struct Words {
  bool help = false, version = false;  // --help or --version was given, and nothing behind it was read
  std::vector<Word> words;
};

// kInvalidArgument names the wrong option, and the one that it resembles.
Result<Words> Split(const std::vector<std::string>& arguments, std::span<const Option> options);

// What a program prints for --version: "axccl-info (AxCCL) 0.1.0", and a line feed.
std::string VersionText(std::string_view program);

// The name that `given` resembles most; empty: it resembles none.
std::string_view Nearest(std::string_view given, std::span<const std::string_view> names);

}  // namespace axccl::command_line
