#include "random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>

#include <mutex>
#include <utility>

namespace softgpu::aten {
namespace {

thread_local std::optional<at::Generator> running;

// A step of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

}  // namespace

Draw::Draw(const std::optional<at::Generator>& generator, c10::Device device) {
  const at::Generator& used =
      generator && generator->defined() ? *generator : at::cuda::detail::getDefaultCUDAGenerator(device.index());
  TORCH_CHECK(used.device().is_cuda(), "expected a generator of ", device, ", found one of ", used.device(),
              "; make it by torch.Generator(device=\"cuda\")");
  auto* const cuda = at::check_generator<at::CUDAGeneratorImpl>(used);
  const std::lock_guard lock(cuda->mutex_);
  const at::PhiloxCudaState state = cuda->philox_cuda_state(4);  // the smallest step
  captured_ = state.captured_;
  if (captured_) {
    seed_at_ = state.seed_.ptr;
    offset_at_ = state.offset_.ptr;
    offset_ = state.offset_intragraph_;
  } else {
    seed_ = state.seed_.val;
    offset_ = state.offset_.val;
  }
}

at::Generator Draw::Host() const {
  const uint64_t seed = captured_ ? static_cast<uint64_t>(*seed_at_) : seed_;
  const uint64_t offset = captured_ ? static_cast<uint64_t>(*offset_at_) + offset_ : offset_;
  return at::detail::createCPUGenerator(offset == 0 ? seed : Mix(seed + offset * 0x9e3779b97f4a7c15u));
}

const std::optional<at::Generator>& RunningGenerator() { return running; }

RunningGeneratorGuard::RunningGeneratorGuard(std::optional<at::Generator> generator) { running = std::move(generator); }
RunningGeneratorGuard::~RunningGeneratorGuard() { running.reset(); }

}  // namespace softgpu::aten
