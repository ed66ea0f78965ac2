// A destination with sentinels around it: an output that must be written completely, but not one byte more.
//
// Place() chooses the output's position in the memory and fills output and margins with the sentinel; Intact() checks
// that both margins still contain it. Not thread-safe. Memory is reused between placements, because tests place
// millions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/kernels/oracle.h"

namespace axccl::kernels {

class Guarded {
 public:
  explicit Guarded(size_t max_bytes) : memory_(max_bytes + 2 * kMargin + 2 * kLine) {}

  // Places an output of `bytes` bytes at a random multiple of `element` bytes from a cache line.
  void Place(size_t bytes, size_t element, Generator& random) {
    PlaceAt(random() % (kLine / element) * element, bytes);
  }
  // Places an output at the beginning of a cache line.
  void PlaceOnLine(size_t bytes) { PlaceAt(0, bytes); }

  uint8_t* data() { return begin_; }

  bool Intact() const { return IsMargin(begin_ - kMargin) && IsMargin(begin_ + bytes_); }

 private:
  void PlaceAt(size_t in_line, size_t bytes) {
    const size_t aligned = -reinterpret_cast<uintptr_t>(memory_.data()) % kLine;
    begin_ = memory_.data() + aligned + kMargin + in_line;
    bytes_ = bytes;
    std::memset(begin_ - kMargin, kSentinel, bytes + 2 * kMargin);
  }

  static bool IsMargin(const uint8_t* at) {
    static const std::vector<uint8_t> margin(kMargin, kSentinel);
    return std::memcmp(at, margin.data(), kMargin) == 0;
  }

  static constexpr uint8_t kSentinel = 0xa5;
  static constexpr size_t kLine = 64;
  static constexpr size_t kMargin = 64;  // the widest vector store

  std::vector<uint8_t> memory_;
  uint8_t* begin_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace axccl::kernels
