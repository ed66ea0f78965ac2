#include "tools/softgpu/tests/engine/launch.h"

#include <cstdlib>

namespace softgpu::engine::test {

std::string KernelText(const std::string& body, int parameters, const std::string& module_scope) {
  std::string text = ".version 8.0\n.target sm_90\n.address_size 64\n" + module_scope + "\n.visible .entry k(";
  for (int i = 0; i < parameters; ++i) text += (i == 0 ? "" : ", ") + std::string(".param .u64 p") + std::to_string(i);
  return text + ")\n{\n" + body + "\n}\n";
}

std::unique_ptr<Module> LoadOrFail(const std::string& ptx) {
  std::string error;
  auto module = Module::Load(ptx, &error);
  EXPECT_NE(module, nullptr) << error << "\n" << ptx;
  return module;
}

std::string RunKernel(const Module& module, const Launch& launch) {
  LaunchConfig config;
  config.kernel = module.FindKernel(launch.kernel);
  if (config.kernel == nullptr) return std::string("no kernel ") + launch.kernel;
  config.grid = launch.grid;
  config.block = launch.block;
  config.dynamic_shared_bytes = launch.dynamic_shared;
  config.parameters = launch.parameters;
  std::string error;
  const auto execution = Execution::Start(config, launch.options, launch.map, &error);
  if (execution == nullptr) return error;
  for (int turn = 0; turn < 100000; ++turn) {
    switch (execution->Run(100000)) {
      case State::kDone:
        return "";
      case State::kFailed:
        return execution->error();
      default:
        break;
    }
  }
  return "did not end";
}

bool Ranges::Find(uint64_t address, uint64_t* begin, uint64_t* end) const {
  auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return false;
  --after;
  if (address >= after->second) return false;
  *begin = after->first;
  *end = after->second;
  return true;
}

uint64_t Seed() {
  const char* const given = std::getenv("SOFTGPU_SEED");
  static const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  return seed;
}

}  // namespace softgpu::engine::test
