// What ranks log at NCCL_DEBUG=INFO, where each is a process of its own.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/folder.h"

namespace axccl::harness {

class RankLogs {
 public:
  // For RunOptions::environment.
  std::vector<std::pair<std::string, std::string>> environment() const {
    return {{"NCCL_DEBUG", "INFO"}, {"NCCL_DEBUG_FILE", folder_.Path("log.%p")}};
  }
  // The log of the calling process, so far.
  std::string Own() const { return Contents(folder_.Path("log." + std::to_string(getpid()))); }
  // How often it has that text.
  size_t Count(const std::string& text) const {
    const std::string log = Own();
    size_t count = 0;
    for (size_t at = log.find(text); at != std::string::npos; at = log.find(text, at + 1)) ++count;
    return count;
  }

 private:
  const Folder folder_;
};

}  // namespace axccl::harness
