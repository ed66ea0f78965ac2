#include "tools/softgpu/tests/cuda/fake_engine.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <regex>
#include <string>

#include "tools/softgpu/engine/engine.h"

namespace softgpu::engine {

class Kernel {
 public:
  KernelInfo info;
};

namespace {

std::mutex g_mutex;
std::map<std::string, fake::Kernel>& Functions() {
  static auto* const functions = new std::map<std::string, fake::Kernel>;
  return *functions;
}

uint32_t SizeOfType(const std::string& type) { return static_cast<uint32_t>(std::stoi(type) / 8); }

// `.entry name(.param .u64 a, .param .b8 b[24])`, and `.global .b8 name[bytes];`
class FakeModule : public Module {
 public:
  static std::unique_ptr<FakeModule> Parse(const std::string& text, std::string* error) {
    auto module = std::make_unique<FakeModule>();
    static const std::regex entry("\\.entry\\s+(\\w+)\\s*\\(([^)]*)\\)");
    static const std::regex parameter("\\.param\\s+\\.[a-z]+(\\d+)\\s+\\w+(\\[(\\d+)\\])?");
    static const std::regex variable("\\.global\\s+\\.b8\\s+(\\w+)\\[(\\d+)\\]");
    if (text.find("bad ptx") != std::string::npos) {
      *error = "line 1: bad ptx";
      return nullptr;
    }
    for (std::sregex_iterator at(text.begin(), text.end(), entry), end; at != end; ++at) {
      KernelInfo& info = module->kernels_[(*at)[1]].info;
      info.name = (*at)[1];
      if (info.name == "shared") info.shared_bytes = 32 << 10;
      const std::string list = (*at)[2];
      for (std::sregex_iterator p(list.begin(), list.end(), parameter); p != end; ++p) {
        uint32_t bytes = SizeOfType((*p)[1]);
        const uint32_t alignment = bytes;
        if ((*p)[3].matched) bytes *= static_cast<uint32_t>(std::stoi((*p)[3]));
        info.parameter_bytes = (info.parameter_bytes + alignment - 1) / alignment * alignment;
        info.parameters.push_back({info.parameter_bytes, bytes});
        info.parameter_bytes += bytes;
      }
    }
    for (std::sregex_iterator at(text.begin(), text.end(), variable), end; at != end; ++at)
      module->variables_[(*at)[1]].resize(static_cast<size_t>(std::stoi((*at)[2])));
    return module;
  }

  const Kernel* FindKernel(std::string_view name) const override {
    const auto found = kernels_.find(std::string(name));
    return found == kernels_.end() ? nullptr : &found->second;
  }
  bool FindVariable(std::string_view name, void** address, size_t* bytes) const override {
    const auto found = variables_.find(std::string(name));
    if (found == variables_.end()) return false;
    *address = const_cast<char*>(found->second.data());
    *bytes = found->second.size();
    return true;
  }
  std::vector<std::string> KernelNames() const override {
    std::vector<std::string> names;
    for (const auto& [name, kernel] : kernels_) names.push_back(name);
    return names;
  }

 private:
  std::map<std::string, Kernel> kernels_;
  std::map<std::string, std::string> variables_;
};

class FakeExecution : public Execution {
 public:
  FakeExecution(LaunchConfig config, fake::Kernel function, const AddressMap* map)
      : config_(std::move(config)), function_(function) {
    const Dim3 &grid = config_.grid, &block = config_.block;
    launch_ = {{grid.x, grid.y, grid.z},
               {block.x, block.y, block.z},
               config_.dynamic_shared_bytes,
               config_.parameters.data(),
               0,
               Allowed,
               map,
               Behind};
  }
  State Run(uint64_t) override { return static_cast<State>(function_(&launch_)); }
  const std::string& error() const override { return error_; }

 private:
  static bool Allowed(const fake::Launch& launch, uint64_t address) {
    uint64_t begin = 0, end = 0;
    return static_cast<const AddressMap*>(launch.map)->Find(address, &begin, &end);
  }

  static int Behind(const fake::Launch& launch, uint64_t address, uint64_t* copies, int most) {
    MulticastWindow window;
    if (!static_cast<const AddressMap*>(launch.map)->FindMulticast(address, &window)) return 0;
    const int found = std::min(most, static_cast<int>(window.copies.size()));
    for (int i = 0; i < found; ++i) copies[i] = window.copies[static_cast<size_t>(i)] + (address - window.begin);
    return found;
  }

  LaunchConfig config_;
  fake::Kernel function_;
  fake::Launch launch_ = {};
  std::string error_ = "illegal address, as the test wants it";
};

}  // namespace

std::unique_ptr<Module> Module::Load(std::string_view ptx, std::string* error) {
  return FakeModule::Parse(std::string(ptx), error);
}

const KernelInfo& Info(const Kernel& kernel) { return kernel.info; }
uint64_t BulkBytes() { return 0; }
uint64_t MostBulkBytesInFlight() { return 0; }
Effort LeastEffort() { return {}; }
void ForgetEfforts() {}

std::unique_ptr<Execution> Execution::Start(LaunchConfig config, const Options&, const AddressMap* map,
                                            std::string* error) {
  std::lock_guard lock(g_mutex);
  const auto found = Functions().find(config.kernel->info.name);
  if (found == Functions().end()) {
    *error = "the test has registered no such kernel";
    return nullptr;
  }
  return std::make_unique<FakeExecution>(std::move(config), found->second, map);
}

}  // namespace softgpu::engine

void softgpu_fake_kernel(const char* name, softgpu::fake::Kernel kernel) {
  std::lock_guard lock(softgpu::engine::g_mutex);
  softgpu::engine::Functions()[name] = kernel;
}
