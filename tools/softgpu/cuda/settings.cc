#include "tools/softgpu/cuda/settings.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

namespace softgpu::cuda {
namespace {

uint64_t Number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  uint64_t value = std::strtoull(text, &end, 10);
  switch (*end) {
    case 'G':
      value <<= 10;
      [[fallthrough]];
    case 'M':
      value <<= 10;
      [[fallthrough]];
    case 'K':
      value <<= 10;
      ++end;
      break;
    default:
      break;
  }
  if (end == text || *end != '\0') {
    Report("%s=%s is not a number (K, M and G may follow one); using %llu", name, text,
           static_cast<unsigned long long>(otherwise));
    return otherwise;
  }
  return value;
}

bool Flag(const char* name, bool otherwise) { return Number(name, otherwise ? 1 : 0) != 0; }

unsigned Implicit(const char* name) {
  constexpr std::pair<std::string_view, unsigned> kWords[] = {{"alloc", kSyncAlloc},
                                                              {"host", kSyncHost},
                                                              {"free", kSyncFree},
                                                              {"module", kSyncModule},
                                                              {"first-launch", kSyncFirstLaunch},
                                                              {"query", kSyncQuery},
                                                              {"host-copy", kSyncHostCopy},
                                                              {"pageable", kSyncPageable},
                                                              {"import", kSyncImport}};
  const char* text = std::getenv(name);
  unsigned bits = 0;
  for (std::string_view rest = text == nullptr ? "" : text; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    const auto* const found =
        std::find_if(std::begin(kWords), std::end(kWords), [word](const auto& known) { return known.first == word; });
    if (found == std::end(kWords))
      Report("%s: %s is none of alloc, host, free, module, first-launch, query, host-copy, pageable and import", name,
             std::string(word).c_str());
    else
      bits |= found->second;
  }
  return bits;
}

Settings Read() {
  Settings s;
  s.devices = static_cast<int>(Number("SOFTGPU_DEVICES", 4));
  // The masks of devices that may access a range have one bit per device.
  if (s.devices > 64) {
    Report("SOFTGPU_DEVICES=%d: at most 64 are possible; using 64", s.devices);
    s.devices = 64;
  }
  s.memory = Number("SOFTGPU_MEMORY", s.memory);
  s.arch = static_cast<int>(Number("SOFTGPU_ARCH", 90));
  s.multiprocessors = static_cast<int>(Number("SOFTGPU_MULTIPROCESSORS", 8));
  s.driver_version = static_cast<int>(Number("SOFTGPU_DRIVER_VERSION", 13000));
  s.workers = static_cast<int>(Number("SOFTGPU_WORKERS", 0));
  s.peer_access = Flag("SOFTGPU_PEER_ACCESS", true);
  s.native_atomics = Flag("SOFTGPU_NATIVE_ATOMICS", true);
  s.hides = Flag("SOFTGPU_HIDES", false);
  s.corrupt_peer = Flag("SOFTGPU_CORRUPT_PEER", false);
  s.ipc = static_cast<int>(Number("SOFTGPU_IPC", 1));
  s.vmm = Flag("SOFTGPU_VMM", true);
  s.gpudirect = static_cast<int>(Number("SOFTGPU_GPUDIRECT", 1));
  s.fabric = static_cast<int>(Number("SOFTGPU_FABRIC", 0));
  s.multicast = Flag("SOFTGPU_MULTICAST", true);
  s.bind = Flag("SOFTGPU_BIND", true);
  s.corrupt_multicast = Flag("SOFTGPU_CORRUPT_MULTICAST", false);
  s.host_register = Flag("SOFTGPU_HOST_REGISTER", true);
  s.implicit_sync = Implicit("SOFTGPU_IMPLICIT_SYNC");
  s.range_ids = Flag("SOFTGPU_RANGE_IDS", false);
  s.pitches = Flag("SOFTGPU_PITCHES", false);
  s.aliases = Flag("SOFTGPU_ALIASES", false);
  s.queues = static_cast<uint32_t>(Number("SOFTGPU_QUEUES", 0));
  s.reuse = Flag("SOFTGPU_REUSE", false);
  s.count_calls = Flag("SOFTGPU_COUNT_CALLS", false);
  s.shutdown = Flag("SOFTGPU_SHUTDOWN", false);
  s.verbose = Flag("SOFTGPU_VERBOSE", false);
  s.engine.seed = Number("SOFTGPU_SEED", s.engine.seed);
  s.engine.burst = static_cast<uint32_t>(Number("SOFTGPU_BURST", s.engine.burst));
  s.engine.resident_blocks = static_cast<uint32_t>(Number("SOFTGPU_RESIDENT_BLOCKS", s.engine.resident_blocks));
  s.engine.detect_races = Flag("SOFTGPU_RACES", false);
  s.engine.trace = Flag("SOFTGPU_TRACE", false);
  return s;
}

void Print(const char* format, va_list arguments) {
  char text[2048];
  std::vsnprintf(text, sizeof text, format, arguments);
  std::fprintf(stderr, "softgpu: %s\n", text);
}

}  // namespace

const Settings& Knobs() {
  static const Settings settings = Read();
  return settings;
}

void Report(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  Print(format, arguments);
  va_end(arguments);
}

void Explain(const char* format, ...) {
  if (!Knobs().verbose) return;
  va_list arguments;
  va_start(arguments, format);
  Print(format, arguments);
  va_end(arguments);
}

}  // namespace softgpu::cuda
