// Random numbers: CUDA's generators decide, and one of the CPU, seeded by the state of CUDA's, draws. The state of
// CUDA's is a seed and an offset, which each operator advances, so that torch.cuda's functions that read, set and fork
// it work, and so do captures. With a new seed, the first operator draws what it draws on the CPU with that seed.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <optional>

namespace softgpu::aten {

// A place in the sequence of a generator of CUDA; in a capture, one that is looked up at each replay.
class Draw {
 public:
  // Advances `generator`, that of the device if there is none.
  Draw(const std::optional<at::Generator>& generator, c10::Device device);
  at::Generator Host() const;

 private:
  bool captured_ = false;
  uint64_t seed_ = 0, offset_ = 0;
  const int64_t* seed_at_ = nullptr;
  const int64_t* offset_at_ = nullptr;
};

// For operators without an argument for it: the generator of the operator that runs on this thread.
const std::optional<at::Generator>& RunningGenerator();

class RunningGeneratorGuard {
 public:
  explicit RunningGeneratorGuard(std::optional<at::Generator> generator);
  ~RunningGeneratorGuard();
};

}  // namespace softgpu::aten
