#include "tests/base/environment.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "src/base/log.h"
#include "src/base/param.h"

extern char** environ;

namespace axccl::test {

Environment::Environment(std::initializer_list<Variable> variables) {
  std::vector<std::string> names = {"HOME"};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (text.starts_with("NCCL_") || (text.starts_with("AXCCL_") && !text.starts_with("AXCCL_TEST_")))
      names.push_back(text.substr(0, text.find('=')));
  }
  for (const std::string& name : names) {
    if (const char* value = getenv(name.c_str())) saved_[name] = value;
    unsetenv(name.c_str());
  }
  std::string pattern = (std::filesystem::temp_directory_path() / "axccl_test_XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "no temporary folder at " << pattern;
  folder_ = pattern;
  Set("HOME", folder_);
  Set("NCCL_DEBUG_FILE", folder_ + "/log");
  for (const auto& [name, value] : variables) Set(name, value);
  Forget();
}

Environment::~Environment() {
  for (const std::string& name : set_) unsetenv(name.c_str());
  for (const auto& [name, value] : saved_) setenv(name.c_str(), value.c_str(), 1);
  Forget();
  std::filesystem::remove_all(folder_);
}

void Environment::Set(const std::string& name, const std::string& value) {
  set_.push_back(name);
  setenv(name.c_str(), value.c_str(), 1);
}

void Environment::Forget() {
  param::Reset();
  log::Reset();
}

std::string Environment::WriteFile(const std::string& name, const std::string& text) {
  const std::string path = folder_ + "/" + name;
  std::ofstream(path) << text;
  return path;
}

std::vector<std::string> Environment::Log() const {
  std::vector<std::string> lines;
  std::ifstream in(folder_ + "/log");
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

int Environment::CountLog(const std::vector<std::string>& words) const {
  const std::vector<std::string> lines = Log();
  return static_cast<int>(std::count_if(lines.begin(), lines.end(), [&words](const std::string& line) {
    return std::all_of(words.begin(), words.end(),
                       [&line](const std::string& word) { return line.find(word) != line.npos; });
  }));
}

}  // namespace axccl::test
