// Floating-point modes that an application's thread may have, besides the default one.
//
// A thread has a mode while a ThreadFloatMode exists, and then the one that it had before. Thread-safe.
#pragma once

#include <cfenv>
#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace axccl::harness {

enum class FloatMode : uint8_t { kDefault, kFlushes, kUpward, kDownward, kTowardZero, kTraps };
inline constexpr FloatMode kFloatModes[] = {FloatMode::kFlushes,  // subnormal operands and results are zero
                                            FloatMode::kUpward, FloatMode::kDownward, FloatMode::kTowardZero,
                                            FloatMode::kTraps};  // invalid operations, division by zero and overflow

inline const char* FloatModeName(FloatMode mode) {
  constexpr const char* kNames[] = {"default", "flushes", "upward", "downward", "toward zero", "traps"};
  return kNames[static_cast<int>(mode)];
}

// The thread's control register, without the flags of exceptions.
inline uint64_t FloatControls() {
#if defined(__x86_64__)
  return _mm_getcsr() & ~uint32_t{0x3f};
#elif defined(__aarch64__)
  uint64_t controls;
  asm volatile("mrs %0, fpcr" : "=r"(controls));
  return controls;
#else
  return static_cast<uint64_t>(std::fegetround());
#endif
}

class ThreadFloatMode {
 public:
  explicit ThreadFloatMode(FloatMode mode) {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
    switch (mode) {
      case FloatMode::kDefault:
        break;
      case FloatMode::kFlushes:
#if defined(__x86_64__)
        _mm_setcsr(_mm_getcsr() | 0x8040);  // FTZ and DAZ
#elif defined(__aarch64__)
        asm volatile("msr fpcr, %0" : : "r"(FloatControls() | 1u << 24));  // FZ
#endif
        break;
      case FloatMode::kUpward:
        std::fesetround(FE_UPWARD);
        break;
      case FloatMode::kDownward:
        std::fesetround(FE_DOWNWARD);
        break;
      case FloatMode::kTowardZero:
        std::fesetround(FE_TOWARDZERO);
        break;
      case FloatMode::kTraps:
        ::feenableexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW);  // without effect on processors without traps
    }
  }
  ~ThreadFloatMode() { std::fesetenv(&before_); }
  ThreadFloatMode(const ThreadFloatMode&) = delete;
  ThreadFloatMode& operator=(const ThreadFloatMode&) = delete;

 private:
  std::fenv_t before_;
};

}  // namespace axccl::harness
