// Shared by the tests of windows on GPU ranks: memory that windows are made of, kernels that use windows, and the bytes
// that are expected where.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/chunked_memory.h"
#include "tests/cuda/embedded_kernels.h"
#include "tests/cuda/words.h"

namespace axccl::tests {

inline constexpr uint8_t kSentinel = 0xa5;

// Ranks use the two devices in turn, or those of a thread one.
inline void RunOnBothGpus(const harness::Layout& layout,
                          const std::function<void(harness::RankContext&, harness::Clique&)>& body) {
  harness::RunRanks(layout, [&body](harness::RankContext& context) {
    ASSERT_NE(harness::EnterGpu(context.first_rank() / context.local_ranks() % 2), nullptr);
    harness::Clique clique;
    ASSERT_TRUE(clique.Init(context));
    body(context, clique);
    ASSERT_TRUE(context.Barrier());  // no rank frees what others use
    ASSERT_TRUE(clique.Destroy());
  });
}

// Memory of the device, of ncclMemAlloc, all sentinels at first.
class WindowMemory {
 public:
  explicit WindowMemory(size_t bytes) : bytes_(bytes) {
    EXPECT_OK(ncclMemAlloc(&memory_, bytes));
    Fill();
  }
  ~WindowMemory() { Free(); }
  WindowMemory(const WindowMemory&) = delete;
  WindowMemory& operator=(const WindowMemory&) = delete;

  char* at(size_t offset = 0) const { return static_cast<char*>(memory_) + offset; }
  size_t bytes() const { return bytes_; }
  void Fill() {
    const uint32_t word = kSentinel * 0x01010101u;
    EXPECT_EQ(harness::EnterGpu()->fill(reinterpret_cast<uint64_t>(memory_), word, bytes_ / sizeof(word), nullptr), 0);
    EXPECT_EQ(harness::EnterGpu()->synchronize(nullptr), 0);
  }
  std::vector<uint8_t> Read() const {
    std::vector<uint8_t> bytes(bytes_ / 4 * 4);
    EXPECT_EQ(harness::EnterGpu()->copy_to_host(bytes.data(), reinterpret_cast<uint64_t>(memory_), bytes.size()), 0);
    return bytes;
  }
  void Free() { EXPECT_OK(ncclMemFree(std::exchange(memory_, nullptr))); }

 private:
  void* memory_ = nullptr;
  const size_t bytes_;
};

// The byte that a rank writes at a place of another's share.
inline uint8_t ByteOf(int writer, int owner, size_t place) {
  return static_cast<uint8_t>((static_cast<size_t>(writer) * 37 + static_cast<size_t>(owner) * 11 + place * 7) % 163);
}

// How a kernel finds the share of a window.
enum class By { kSelf, kTeamRank, kRank };

// Copies by a kernel, on a stream of the rank's.
class WindowKernel {
 public:
  explicit WindowKernel(axcclStream_t stream) : stream_(stream) {
    void* module = nullptr;
    EXPECT_EQ(driver_->load_module(&module, axccl_test_kernels), 0);
    EXPECT_EQ(driver_->get_function(&copy_, module, "copy_window"), 0);
  }

  void Write(ncclWindow_t window, By by, int peer, size_t offset, const std::vector<uint8_t>& bytes) const {
    Words staged(bytes.size() / 4 + 1);
    auto* const from = reinterpret_cast<uint8_t*>(staged.get());
    std::copy(bytes.begin(), bytes.end(), from);
    Copy(window, by, peer, offset, from, bytes.size(), 1);
  }
  std::vector<uint8_t> Read(ncclWindow_t window, By by, int peer, size_t offset, size_t bytes) const {
    Words staged(bytes / 4 + 1, -1);
    auto* const to = reinterpret_cast<uint8_t*>(staged.get());
    Copy(window, by, peer, offset, to, bytes, 0);
    return {to, to + bytes};
  }

 private:
  void Copy(ncclWindow_t window, By by, int peer, uint64_t offset, uint8_t* outside, uint64_t bytes, int stores) const {
    int how = static_cast<int>(by);
    void* parameters[] = {&window, &how, &peer, &offset, &outside, &bytes, &stores};
    ASSERT_EQ(driver_->launch(copy_, 1, 1, 1, 128, 1, 1, 0, stream_, parameters, nullptr), 0);
    ASSERT_EQ(driver_->synchronize(stream_), 0);
  }

  const harness::GpuDriver* const driver_ = harness::EnterGpu();
  const axcclStream_t stream_;
  void* copy_ = nullptr;
};

}  // namespace axccl::tests
