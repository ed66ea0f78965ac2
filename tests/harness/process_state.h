// Waits until another process is in a state.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "tests/harness/run_ranks.h"

namespace axccl::harness {

// "T": stopped; "Z": ended. Returns, too, if the process is gone or a rank has failed.
inline void AwaitState(RankContext& context, uint64_t process, char state) {
  const auto there = [&] {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    std::string stat;
    std::getline(file, stat);  // fails if the process goes meanwhile
    return stat.empty() || stat.find(std::string(") ") + state) != std::string::npos;
  };
  while (!there() && !context.AnyFailed()) usleep(1000);
}

}  // namespace axccl::harness
