// Log lines in NCCL's format: `host:pid:tid [device] NCCL INFO text`.
//
// Level from NCCL_DEBUG (VERSION, WARN, INFO, TRACE; default none), subsystems from NCCL_DEBUG_SUBSYS (list, ^
// excludes; default INIT,BOOTSTRAP,ENV), target from NCCL_DEBUG_FILE (%h host, %p pid; default stdout). Read once, at
// first use. Thread-safe; one write per line. Below the level a call costs one relaxed load.
#pragma once

#include <atomic>
#include <cstdint>

namespace axccl::log {

enum class Level : int { kNone = 0, kVersion = 1, kWarn = 2, kInfo = 3, kTrace = 4 };

enum Subsystem : uint32_t {
  kInit = 1u << 0,
  kColl = 1u << 1,
  kP2p = 1u << 2,
  kShm = 1u << 3,
  kNet = 1u << 4,
  kGraph = 1u << 5,
  kTuning = 1u << 6,
  kEnv = 1u << 7,
  kAlloc = 1u << 8,
  kCall = 1u << 9,
  kProxy = 1u << 10,
  kNvls = 1u << 11,
  kBootstrap = 1u << 12,
  kReg = 1u << 13,
  kProfile = 1u << 14,
  kRas = 1u << 15,
  kDestroy = 1u << 16,
  kAllocHost = 1u << 17,
};

namespace internal {
// The level is in the upper half, the subsystems are in the lower half. It is one word, so that one load answers
// Enabled.
inline constexpr uint64_t kUnread = ~uint64_t{0};
inline constinit std::atomic<uint64_t> g_settings{kUnread};
// Reads the parameters; nothing is enabled if there is no memory for that.
uint64_t Load();
}  // namespace internal

inline bool Enabled(Level level, uint32_t subsystems) {
  uint64_t settings = internal::g_settings.load(std::memory_order_relaxed);
  if (settings == internal::kUnread) settings = internal::Load();
  if (static_cast<uint64_t>(level) > settings >> 32 || level == Level::kNone) return false;
  return level <= Level::kWarn || (static_cast<uint32_t>(settings) & subsystems) != 0;
}
// `device`: the rank's device ordinal, -1 = none.
[[gnu::format(printf, 4, 5)]] void Write(Level level, uint32_t subsystems, int device, const char* format, ...);
// Writes an INFO line whatever the level is: for output that the application asked for by a call.
[[gnu::format(printf, 1, 2)]] void WriteAlways(const char* format, ...);
// Writes a line to stderr whatever NCCL_DEBUG and NCCL_DEBUG_FILE are: for warnings that users need without asking for
// a log.
[[gnu::format(printf, 1, 2)]] void WriteNotice(const char* format, ...);
// Makes the next line read the parameters again (ncclResetDebugInit, tests). Lines that are being written still go to
// the old file.
void Reset();

}  // namespace axccl::log

#define AXCCL_INFO(subsystem, ...)                                                               \
  do {                                                                                           \
    if (::axccl::log::Enabled(::axccl::log::Level::kInfo, ::axccl::log::subsystem))              \
      ::axccl::log::Write(::axccl::log::Level::kInfo, ::axccl::log::subsystem, -1, __VA_ARGS__); \
  } while (0)
#define AXCCL_WARN(...) ::axccl::log::Write(::axccl::log::Level::kWarn, ~0u, -1, __VA_ARGS__)
