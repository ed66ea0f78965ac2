// An mbarrier object, in its 64 bits: the arrivals of a phase, the missing arrivals, the missing bytes, the phase.
#pragma once

#include <cstdint>

namespace softgpu::engine {

struct Mbarrier {
  static constexpr uint64_t kCountMask = (1 << 20) - 1;
  static constexpr int64_t kBytesBias = 1 << 21;

  uint64_t expected = 0, pending = 0, phase = 0;
  int64_t bytes = 0;

  static Mbarrier Unpack(uint64_t word) {
    return {word & kCountMask, word >> 20 & kCountMask, word >> 63,
            static_cast<int64_t>(word >> 40 & ((1 << 22) - 1)) - kBytesBias};
  }
  uint64_t Pack() const {
    return expected | pending << 20 | static_cast<uint64_t>(bytes + kBytesBias) << 40 | phase << 63;
  }
  void EndPhaseIfComplete() {
    if (pending != 0 || bytes != 0) return;
    phase ^= 1;
    pending = expected;
  }
  void Complete(uint32_t written) {
    bytes -= written;
    EndPhaseIfComplete();
  }
};

}  // namespace softgpu::engine
