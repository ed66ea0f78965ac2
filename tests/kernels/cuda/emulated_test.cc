// The software GPU decodes a function of the kernel when it is called first, and tests do not call all of them. So this
// one decodes all, of each processor that the library's PTX (FOLDER/kernels.*.ptx) is for.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tools/softgpu/engine/engine.h"

namespace axccl::kernels {
namespace {

TEST(Emulated, EveryFunctionIsUnderstood) {
  int files = 0, kernels = 0;
  for (const auto& entry : std::filesystem::directory_iterator(FOLDER)) {
    if (entry.path().extension() != ".ptx") continue;
    std::ifstream file(entry.path());
    std::string error;
    const auto module = softgpu::engine::Module::Load(std::string(std::istreambuf_iterator<char>(file), {}), &error);
    ASSERT_NE(module, nullptr) << entry.path() << ": " << error;
    for (const std::string& name : module->KernelNames()) {
      EXPECT_EQ(DecodeAll(*module->FindKernel(name)), "") << entry.path() << ", " << name;
      ++kernels;
    }
    ++files;
  }
  EXPECT_GE(files, 2);
  EXPECT_GE(kernels, 2 * files);
}

}  // namespace
}  // namespace axccl::kernels
