// The floating-point mode of a thread: how it rounds, whether it keeps subnormal numbers, and which exceptions trap.
//
// While a DefaultFloatMode exists, its thread has the default mode of IEEE 754: to nearest even, subnormals kept,
// nothing traps. Then the thread has the mode that it had before; flags that arithmetic raised meanwhile may stay. The
// application owns the mode of its threads, and libraries that it loads may change it (code that was linked with
// -ffast-math flushes subnormals to zero); a new thread inherits that of its creator. Costs a few instructions if the
// mode is the default.
//
// Compilers know nothing of modes. Memory is read and written in the scope where the source says so, but arithmetic on
// what is in registers may move out of it: HoldHere() keeps operands from being used earlier, results from being
// computed later.
#pragma once

#include <cstdint>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <cfenv>
#endif

namespace axccl {

class DefaultFloatMode {
 public:
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

#if defined(__x86_64__) || defined(__aarch64__)
  DefaultFloatMode() : before_(Get()) {
    if ((before_ & kControls) != kDefault) [[unlikely]]
      Set(kDefault);
  }
  ~DefaultFloatMode() {
    if ((before_ & kControls) != kDefault) [[unlikely]]
      Set(before_);
  }

 private:
#if defined(__x86_64__)
  using Register = uint32_t;                                        // MXCSR
  static constexpr Register kControls = 0xffc0, kDefault = 0x1f80;  // all but the flags; every exception is masked
  static Register Get() {
    Register mode;
    asm volatile("stmxcsr %0" : "=m"(mode));
    return mode;
  }
  static void Set(Register mode) { asm volatile("ldmxcsr %0" : : "m"(mode) : "memory"); }
#else
  using Register = uint64_t;  // FPCR; the flags are in another register
  static constexpr Register kControls = ~Register{0}, kDefault = 0;
  static Register Get() {
    Register mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void Set(Register mode) { asm volatile("msr fpcr, %0" : : "r"(mode) : "memory"); }
#endif

  const Register before_;
#else
  DefaultFloatMode() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatMode() { std::fesetenv(&before_); }

 private:
  std::fenv_t before_;
#endif
};

template <class T>
void HoldHere(T* value) {
  asm volatile("" : "+m"(*value));
}

}  // namespace axccl
