// Loads PTX and launches kernels of it, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tools/softgpu/engine/engine.h"

namespace softgpu::engine::test {

// A kernel "k" around `body`, whose parameters are p0, p1, ... of 64 bits each.
std::string KernelText(const std::string& body, int parameters, const std::string& module_scope = "");

std::unique_ptr<Module> LoadOrFail(const std::string& ptx);

template <class... P>
std::vector<std::byte> Parameters(P... values) {
  std::vector<std::byte> bytes;
  const auto add = [&](auto value) {
    const size_t align = sizeof value, at = (bytes.size() + align - 1) / align * align;
    bytes.resize(at + sizeof value);
    std::memcpy(bytes.data() + at, &value, sizeof value);
  };
  (add(values), ...);
  return bytes;
}

struct Launch {
  Dim3 grid, block;
  std::vector<std::byte> parameters;
  uint32_t dynamic_shared = 0;
  Options options;
  const AddressMap* map = nullptr;
  const char* kernel = "k";
};

// Runs to the end; returns the error, "" if there was none. Gives up after many instructions.
std::string RunKernel(const Module& module, const Launch& launch);

// Allocated ranges, set by hand.
class Ranges : public AddressMap {
 public:
  void Add(const void* begin, size_t bytes) {
    const uint64_t at = reinterpret_cast<uintptr_t>(begin);
    ranges_[at] = at + bytes;
  }
  bool Find(uint64_t address, uint64_t* begin, uint64_t* end) const override;
  uint64_t generation() const override { return 1; }

 private:
  std::map<uint64_t, uint64_t> ranges_;
};

// Printed when a test fails; random but settable by SOFTGPU_SEED.
uint64_t Seed();

}  // namespace softgpu::engine::test
