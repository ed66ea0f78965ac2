// Shared by the tests of calls that copy engines make: memory in a symmetric window, and calls whose every byte is
// checked.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/window_memory.h"
#include "tests/harness/case_runner.h"

namespace axccl::tests {

// CTAPolicy zero on all ranks, each of which has a device if there is more than one.
inline harness::RunOptions Zero(int devices, std::string seconds = "20", std::string least_bytes = "1") {
  harness::RunOptions options;
  options.environment = {
      {"NCCL_CTA_POLICY", "2"},     {"AXCCL_COPY_BYTES", std::move(least_bytes)}, {"AXCCL_TIMEOUT", std::move(seconds)},
      {"SOFTGPU_COUNT_CALLS", "1"}, {"SOFTGPU_DEVICES", std::to_string(devices)}, {"SOFTGPU_MULTIPROCESSORS", "8"}};
  if (devices > 1) options.environment.emplace_back("AXCCL_TEST_OWN_GPUS", "1");
  return options;
}

inline bool ByEngines(ncclComm_t comm) {
  const char* algorithm = "";
  EXPECT_OK(axcclCommGetLastAlgorithm(comm, &algorithm));
  return std::string(algorithm) == "copy_engines";
}

// Blocks of the last launch of this process; 0 if no software GPU counts them.
inline uint64_t LastBlocks() {
  const GpuCounter blocks = CounterOf("softgpu_last_blocks");
  return blocks == nullptr ? 0 : blocks();
}

// The memory of the ranks of a thread, in one window.
class Symmetric {
 public:
  Symmetric(const harness::Clique& clique, size_t bytes, int flags = NCCL_WIN_COLL_SYMMETRIC)
      : clique_(clique), windows_(static_cast<size_t>(clique.size())) {
    for (int i = 0; i < clique.size(); ++i) memory_.push_back(std::make_unique<WindowMemory>(bytes));
    EXPECT_OK(ncclGroupStart());
    for (int i = 0; i < clique.size(); ++i)
      EXPECT_OK(ncclCommWindowRegister(clique.comm(i), at(i), bytes, &windows_[static_cast<size_t>(i)], flags));
    EXPECT_OK(ncclGroupEnd());
  }
  void Deregister() {
    for (int i = 0; i < clique_.size(); ++i)
      EXPECT_OK(ncclCommWindowDeregister(clique_.comm(i), windows_[static_cast<size_t>(i)]));
  }

  char* at(int i, size_t offset = 0) const { return memory_[static_cast<size_t>(i)]->at(offset); }
  int32_t* words(int i, size_t offset = 0) const { return reinterpret_cast<int32_t*>(at(i, offset)); }
  std::vector<uint8_t> Read(int i) const { return memory_[static_cast<size_t>(i)]->Read(); }
  void Write(int i, const std::vector<uint8_t>& bytes) const {
    const auto to = reinterpret_cast<CUdeviceptr>(at(i));
    EXPECT_EQ(AXCCL_TEST_DRIVER(cuMemcpy)(to, reinterpret_cast<CUdeviceptr>(bytes.data()), bytes.size()), CUDA_SUCCESS);
  }
  void Fill(int i, size_t offset, size_t count, int32_t value) const {
    const auto to = reinterpret_cast<uint64_t>(at(i, offset));
    EXPECT_EQ(harness::EnterGpu()->fill(to, static_cast<unsigned>(value), count, nullptr), 0);
    EXPECT_EQ(harness::EnterGpu()->synchronize(nullptr), 0);
  }
  std::vector<int32_t> ReadWords(int i, size_t offset, size_t count) const {
    std::vector<int32_t> words(count);
    const auto from = reinterpret_cast<uint64_t>(at(i, offset));
    EXPECT_EQ(harness::EnterGpu()->copy_to_host(words.data(), from, count * sizeof(int32_t)), 0);
    return words;
  }

 private:
  const harness::Clique& clique_;
  std::vector<std::unique_ptr<WindowMemory>> memory_;
  std::vector<ncclWindow_t> windows_;
};

// Where a rank's buffers are in its memory.
struct Offsets {
  size_t send, recv;
};

// Enqueues the case on all ranks of the thread, on the first stream of each.
inline void Enqueue(const harness::Clique& clique, const Symmetric& memory, const harness::Case& c,
                    const std::vector<Offsets>& offsets) {
  ASSERT_OK(ncclGroupStart());
  for (int i = 0; i < clique.size(); ++i) {
    const Offsets& at = offsets[static_cast<size_t>(i)];
    ASSERT_OK(harness::Launch(c, memory.at(i, at.send), memory.at(i, at.recv), ncclSum, clique.comm(i),
                              harness::Cuda(clique.stream(i))));
  }
  ASSERT_OK(ncclGroupEnd());
}

// Makes the case with buffers in the window, and checks every byte of it.
inline void RunCase(const harness::Clique& clique, const Symmetric& memory, const harness::Case& c, size_t element,
                    bool in_place) {
  const int n = clique.nranks();
  std::vector<Offsets> offsets;
  std::vector<std::vector<uint8_t>> images;
  for (int i = 0; i < clique.size(); ++i) {
    std::vector<uint8_t> image(memory.Read(i).size(), kSentinel);
    const size_t recv = image.size() / 2 / 64 * 64 + element;
    offsets.push_back({in_place ? recv + harness::InPlaceOffset(c, n, clique.rank(i)) * element : 64 + element, recv});
    if (harness::SendElements(c, n, clique.rank(i)) != 0)
      harness::FillSend(c, n, clique.rank(i), image.data() + offsets.back().send);
    memory.Write(i, image);
    images.push_back(std::move(image));
  }
  ASSERT_NO_FATAL_FAILURE(Enqueue(clique, memory, c, offsets));
  for (int i = 0; i < clique.size(); ++i) {
    const auto at = static_cast<size_t>(i);
    ASSERT_OK(harness::SynchronizeStream(clique.stream(i)));
    const std::vector<uint8_t> found = memory.Read(i);
    ASSERT_EQ(harness::CheckRecv(c, n, clique.rank(i), found.data() + offsets[at].recv), "");
    const auto recv = static_cast<ptrdiff_t>(offsets[at].recv);
    const auto bytes = static_cast<ptrdiff_t>(harness::RecvElements(c, n, clique.rank(i)) * element);
    ASSERT_TRUE(std::equal(found.begin(), found.begin() + recv, images[at].begin())) << c.Text();
    ASSERT_TRUE(std::equal(found.begin() + recv + bytes, found.end(), images[at].begin() + recv + bytes)) << c.Text();
  }
}

// Work on a stream that does not end before the test says so.
class Gate {
 public:
  explicit Gate(axcclStream_t stream) {
    const auto wait = [](void* open) { static_cast<std::atomic<bool>*>(open)->wait(false); };
    EXPECT_EQ(harness::EnterGpu()->call_host(stream, wait, &open_), 0);
  }
  ~Gate() { Open(); }
  void Open() {
    open_.store(true);
    open_.notify_all();
  }

 private:
  std::atomic<bool> open_{false};
};

}  // namespace axccl::tests
