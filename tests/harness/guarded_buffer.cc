#include "tests/harness/guarded_buffer.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "nccl.h"
#include "tests/harness/gpu.h"

namespace axccl::harness {
namespace {

constexpr size_t kAlignment = 64;
// A cache line and a half: more than any vector store that overruns.
constexpr size_t kSentinel = 96;

unsigned char Pattern(size_t position) { return static_cast<unsigned char>(0xa5 ^ (position * 37) ^ (position >> 8)); }

void WritePattern(unsigned char* base, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) base[i] = Pattern(i);
}

// The first byte of [begin, end) that differs from the pattern, or `end`.
size_t FirstChange(const unsigned char* base, size_t begin, size_t end) {
  while (begin < end && base[begin] == Pattern(begin)) ++begin;
  return begin;
}

}  // namespace

const char* MemoryName(Memory memory) { return memory == Memory::kMemAlloc ? "MemAlloc" : "malloc"; }

std::unique_ptr<GuardedArena> GuardedArena::Create(Memory memory, size_t bytes) {
  void* base = nullptr;
  if (OnGpu()) {
    base = GpuAllocate(bytes);
  } else if (memory == Memory::kMemAlloc) {
    const ncclResult_t result = ncclMemAlloc(&base, bytes);
    EXPECT_EQ(result, ncclSuccess) << "ncclMemAlloc of " << bytes << " bytes: " << ncclGetLastError(nullptr);
  } else {
    base = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  }
  EXPECT_NE(base, nullptr) << MemoryName(memory) << " of " << bytes << " bytes";
  if (base == nullptr) return nullptr;
  return std::unique_ptr<GuardedArena>(new GuardedArena(memory, static_cast<unsigned char*>(base), bytes));
}

GuardedArena::~GuardedArena() {
  if (OnGpu()) {
    GpuFree(base_);
  } else if (memory_ == Memory::kMemAlloc) {
    EXPECT_EQ(ncclMemFree(base_), ncclSuccess) << ncclGetLastError(nullptr);
  } else {
    std::free(base_);
  }
}

size_t GuardedArena::Need(size_t bytes) { return bytes + 2 * kSentinel + 3 * kAlignment; }

void* GuardedArena::Take(size_t bytes, size_t misalignment) {
  const size_t address = reinterpret_cast<size_t>(base_);
  const size_t lowest = address + used_ + kSentinel;
  const size_t begin = (lowest + kAlignment - 1) / kAlignment * kAlignment + misalignment % kAlignment - address;
  const size_t end = begin + bytes;
  EXPECT_LE(end + kSentinel, bytes_) << "the arena of the test is too small";
  WritePattern(base_, used_, end + kSentinel);
  taken_.push_back({begin, end});
  used_ = end + kSentinel;
  return base_ + begin;
}

std::string GuardedArena::CheckSentinels() const {
  size_t from = 0;
  for (size_t i = 0; i <= taken_.size(); ++i) {
    const size_t to = i < taken_.size() ? taken_[i].begin : used_;
    const size_t changed = FirstChange(base_, from, to);
    if (changed != to) {
      const bool after = i > 0 && changed - from < kSentinel;
      const long distance = static_cast<long>(after ? changed - from : to - changed);
      return "a sentinel of " + std::string(MemoryName(memory_)) + " memory was overwritten, " +
             std::to_string(distance) + (after ? " bytes past the end of buffer " : " bytes before buffer ") +
             std::to_string(after ? i - 1 : i);
    }
    if (i < taken_.size()) from = taken_[i].end;
  }
  return "";
}

bool GuardedArena::Untouched(const void* buffer, size_t bytes) const {
  const size_t begin = static_cast<size_t>(static_cast<const unsigned char*>(buffer) - base_);
  return FirstChange(base_, begin, begin + bytes) == begin + bytes;
}

void GuardedArena::Reset() {
  taken_.clear();
  used_ = 0;
}

}  // namespace axccl::harness
