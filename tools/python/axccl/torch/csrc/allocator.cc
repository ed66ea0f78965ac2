#include "allocator.h"

#include <axccl/malloc.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/alignment.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cstring>
#include <limits>

namespace axccl::torch {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

class PeerAllocator final : public c10::Allocator {
 public:
  explicit PeerAllocator(c10::Allocator* other) : other_(other) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (static_cast<int64_t>(bytes) < least_bytes.load(std::memory_order_relaxed)) return other_->allocate(bytes);
    void* const memory =
        axcclAlignedAlloc(c10::gAlignment, (bytes + c10::gAlignment - 1) / c10::gAlignment * c10::gAlignment);
    TORCH_CHECK_WITH(OutOfMemoryError, memory != nullptr, "axccl: no memory for a tensor of ", bytes, " bytes");
    return {memory, memory, &axcclFree, at::Device(at::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }  // there are two kinds of memory
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }

  std::atomic<int64_t> least_bytes{kNever};

 private:
  c10::Allocator* const other_;
};

PeerAllocator* Installed() {
  static PeerAllocator* const allocator = [] {
    auto* const made = new PeerAllocator(c10::GetAllocator(c10::kCPU));  // live as long as tensors do
    c10::SetAllocator(c10::kCPU, made, /*priority=*/1);
    return made;
  }();
  return allocator;
}

}  // namespace

void UseAllocator(int64_t least_bytes) {
  TORCH_CHECK_VALUE(least_bytes >= 0, "axccl: use_allocator: argument least_bytes is ", least_bytes,
                    "; pass 0 or a positive number");
  Installed()->least_bytes = least_bytes;
}

void StopUsingAllocator() { Installed()->least_bytes = kNever; }

}  // namespace axccl::torch
