#include "tests/harness/gpus_here.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace axccl::harness {
namespace {

// Tests mean the same without these, and with fewer devices.
constexpr std::string_view kMeaningless[] = {"SOFTGPU_SEED", "SOFTGPU_RACES", "SOFTGPU_COUNT_CALLS",
                                             "SOFTGPU_MULTIPROCESSORS"};

// By a process of its own, because a process that has started the driver cannot fork ranks that use it.
int CountGpus(void* driver) {
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  const pid_t child = fork();
  if (child == 0) {
    int found = 0;
    _exit(init != nullptr && count != nullptr && init(0) == 0 && count(&found) == 0 ? std::min(found, 255) : 0);
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

GpusHere Find() {
  GpusHere here;
  const char* const device = std::getenv("AXCCL_TEST_DEVICE");
  if (device == nullptr || std::strcmp(device, "cuda") != 0) return here;
  if (const char* const given = std::getenv("AXCCL_TEST_REAL_GPUS")) return {false, std::atoi(given)};
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  here.software = driver == nullptr || dlsym(driver, "softgpu_last_blocks") != nullptr;
  if (!here.software) here.count = CountGpus(driver);
  return here;
}

}  // namespace

const GpusHere& GpusHere::Get() {
  static const GpusHere here = Find();
  return here;
}

std::string GpusHere::Lack(const std::vector<std::pair<std::string, std::string>>& environment) const {
  if (software) return "";
  for (const auto& [name, value] : environment) {
    if (name == kNeedsGpus && std::atoi(value.c_str()) > count) return "needs " + value + " GPUs";
    const bool meaningless =
        std::find(std::begin(kMeaningless), std::end(kMeaningless), name) != std::end(kMeaningless) ||
        (name == "SOFTGPU_DEVICES" && value != "0");
    if (name.starts_with("SOFTGPU_") && !meaningless) return "needs the software GPU: it sets " + name;
  }
  return "";
}

}  // namespace axccl::harness
