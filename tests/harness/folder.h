// A folder for one test: empty at first, removed at the end.
//
// Processes that are forked meanwhile may use it, too, if they end without destroying it (RunRanks).
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace axccl::harness {

// The content of a file; "" if it cannot be read.
inline std::string Contents(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

class Folder {
 public:
  Folder() { EXPECT_NE(mkdtemp(path_.data()), nullptr) << path_; }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }
  // The path of a file in it.
  std::string Path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_ = (std::filesystem::temp_directory_path() / "axccl-test-XXXXXX").string();
};

}  // namespace axccl::harness
