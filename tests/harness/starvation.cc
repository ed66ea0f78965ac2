#include "tests/harness/starvation.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace axccl::harness {

std::chrono::nanoseconds WaitedForCores(pid_t process) {
  uint64_t sum = 0;
  std::error_code gone;
  std::filesystem::directory_iterator threads("/proc/" + std::to_string(process) + "/task", gone);
  for (; !gone && threads != std::filesystem::directory_iterator(); threads.increment(gone)) {
    std::ifstream file(threads->path() / "schedstat");
    uint64_t ran = 0, waited = 0;
    if (file >> ran >> waited) sum += waited;
  }
  return std::chrono::nanoseconds(sum);
}

}  // namespace axccl::harness
