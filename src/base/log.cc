#include "src/base/log.h"

#include <fcntl.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/format.h"
#include "src/base/param.h"
#include "src/base/service_fd.h"

namespace axccl::log {
namespace {

using internal::g_settings;
using internal::kUnread;

constexpr struct {
  const char* name;
  uint32_t bits;
} kSubsystems[] = {
    {"INIT", kInit},     {"COLL", kColl},
    {"P2P", kP2p},       {"SHM", kShm},
    {"NET", kNet},       {"GRAPH", kGraph},
    {"TUNING", kTuning}, {"ENV", kEnv},
    {"ALLOC", kAlloc},   {"ALLOC_HOST", kAllocHost},
    {"CALL", kCall},     {"PROXY", kProxy},
    {"NVLS", kNvls},     {"BOOTSTRAP", kBootstrap},
    {"REG", kReg},       {"PROFILE", kProfile},
    {"RAS", kRas},       {"DESTROY", kDestroy},
    {"ALL", ~0u},
};

// The file that lines go to. Shared, so that a thread that is writing a line keeps its file open while Reset replaces
// it. No service::Fd, because forked children write there, too.
struct Sink {
  int fd = STDOUT_FILENO;
  uint64_t file = 0;  // the FileId of a descriptor that the library has opened
  // Whether the program has closed that descriptor; the number may be that of a file of its own.
  bool Lost() const { return file != 0 && service::FileId(fd) != file; }
  ~Sink() {
    if (file != 0 && !Lost()) close(fd);
  }
};

struct SinkHolder {
  std::mutex mutex;
  std::shared_ptr<Sink> sink;
};

// Never destroyed: threads of the library may log while the process exits.
SinkHolder& TheSink() {
  static auto* const holder = new SinkHolder;
  return *holder;
}

// Logging must not change what the caller is about to report.
struct KeepErrno {
  const int saved = errno;
  ~KeepErrno() { errno = saved; }
};

const std::string& HostName() {
  static const auto* const name = [] {
    char buffer[256] = "localhost";
    gethostname(buffer, sizeof(buffer) - 1);
    return new std::string(buffer, strcspn(buffer, "."));
  }();
  return *name;
}

uint64_t LevelFrom(const std::string& text) {
  constexpr const char* kNames[] = {"NONE", "VERSION", "WARN", "INFO", "TRACE"};
  uint64_t level = 0;
  for (uint64_t i = 0; i < std::size(kNames); ++i) {
    if (text == kNames[i]) level = i;
  }
  return level;
}

uint32_t SubsystemsFrom(std::string_view list, std::vector<std::string>* unknown) {
  const bool exclude = list.starts_with('^');
  if (exclude) list.remove_prefix(1);
  uint32_t bits = 0;
  while (!list.empty()) {
    const std::string_view word = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), word.size() + 1));
    uint32_t found = 0;
    for (const auto& subsystem : kSubsystems) {
      if (word.size() == strlen(subsystem.name) && strncasecmp(word.data(), subsystem.name, word.size()) == 0)
        found = subsystem.bits;
    }
    if (found == 0 && !word.empty()) unknown->emplace_back(word);
    bits |= found;
  }
  return exclude ? ~bits : bits;
}

std::string Expand(const std::string& pattern) {
  std::string path;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == 'h') {
      path += HostName();
    } else if (next == 'p') {
      path += std::to_string(getpid());
    } else if (next == '%') {
      path += '%';
    } else {
      path += pattern[i];
      continue;
    }
    ++i;
  }
  return path;
}

// Opens the file that NCCL_DEBUG_FILE names. Sets *error to the reason when it falls back to stdout.
std::shared_ptr<Sink> Open(const std::string& pattern, std::string* error) {
  auto sink = std::make_shared<Sink>();
  if (pattern == "stderr") sink->fd = STDERR_FILENO;
  if (pattern == "stdout" || pattern == "stderr") return sink;
  const std::string path = Expand(pattern);
  const int fd = service::AboveStandardStreams(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (fd < 0) {
    *error = "NCCL_DEBUG_FILE=" + pattern + ": cannot open " + path + " (errno " + std::to_string(errno) +
             "), logging to stdout";
    return sink;
  }
  sink->fd = fd;
  sink->file = service::FileId(fd);
  return sink;
}

// Opens the file when the first line is written: most processes never log, and should not leave an empty file. Opens it
// again if the program has closed it.
std::shared_ptr<Sink> GetSink() {
  SinkHolder& holder = TheSink();
  std::string error;
  const std::string pattern = param::Get("NCCL_DEBUG_FILE");
  std::shared_ptr<Sink> sink;
  {
    std::lock_guard lock(holder.mutex);
    if (holder.sink == nullptr || holder.sink->Lost()) holder.sink = Open(pattern, &error);
    sink = holder.sink;
  }
  if (!error.empty()) AXCCL_WARN("%s", error.c_str());
  return sink;
}

void WriteAll(int fd, const char* text, size_t size) {
  while (size > 0) {
    const ssize_t written = write(fd, text, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // a log that cannot be written must not harm the program
    text += written;
    size -= static_cast<size_t>(written);
  }
}

std::string Prefix(Level level, int device) {
  if (level == Level::kVersion) return "";
  const char* const name = level == Level::kWarn ? "WARN" : level == Level::kInfo ? "INFO" : "TRACE";
  char buffer[96];
  snprintf(buffer, sizeof(buffer), ":%d:%d [%d] NCCL %s ", static_cast<int>(getpid()), static_cast<int>(gettid()),
           device, name);
  return HostName() + buffer;
}

// Writes the line in one write, or drops it when there is no memory for it.
void WriteLine(Level level, int device, const char* format, va_list args) try {
  const KeepErrno keep_errno;
  const std::string text = FormatV(format, args);
  if (text.empty()) return;
  const std::string line = Prefix(level, device) + text + "\n";
  WriteAll(GetSink()->fd, line.data(), line.size());
} catch (const std::bad_alloc&) {
}

}  // namespace

// Reads the parameters. Two threads may do so at once and find the same values. Reading a parameter may itself log;
// this recursion ends, because only the call that reads a parameter first reports it.
uint64_t internal::Load() try {
  const KeepErrno keep_errno;
  std::vector<std::string> unknown;
  const uint64_t level = LevelFrom(param::Get("NCCL_DEBUG"));
  const uint32_t subsystems = SubsystemsFrom(param::Get("NCCL_DEBUG_SUBSYS"), &unknown);
  const uint64_t fresh = level << 32 | subsystems;
  uint64_t expected = kUnread;
  if (!g_settings.compare_exchange_strong(expected, fresh, std::memory_order_relaxed)) return expected;
  for (const std::string& word : unknown)
    AXCCL_WARN(
        "NCCL_DEBUG_SUBSYS: %s is not a subsystem; accepted are INIT, COLL, P2P, SHM, NET, GRAPH, TUNING, ENV, ALLOC, "
        "ALLOC_HOST, CALL, PROXY, NVLS, BOOTSTRAP, REG, PROFILE, RAS, DESTROY and ALL",
        word.c_str());
  return fresh;
} catch (const std::bad_alloc&) {
  return 0;  // no line for now; the next one tries again
}

void Write(Level level, uint32_t subsystems, int device, const char* format, ...) {
  if (!Enabled(level, subsystems)) return;
  va_list args;
  va_start(args, format);
  WriteLine(level, device, format, args);
  va_end(args);
}

void WriteAlways(const char* format, ...) {
  va_list args;
  va_start(args, format);
  WriteLine(Level::kInfo, -1, format, args);
  va_end(args);
}

void WriteNotice(const char* format, ...) {
  const KeepErrno keep_errno;
  va_list args;
  va_start(args, format);
  const std::string text = FormatV(format, args);
  va_end(args);
  const std::string line =
      HostName() + ":" + std::to_string(getpid()) + ":" + std::to_string(gettid()) + " AxCCL: " + text + "\n";
  WriteAll(STDERR_FILENO, line.data(), line.size());
}

void Reset() {
  for (const char* name : {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"}) param::Reset(name);
  SinkHolder& holder = TheSink();
  {
    std::lock_guard lock(holder.mutex);
    holder.sink.reset();
  }
  g_settings.store(kUnread, std::memory_order_relaxed);
}

}  // namespace axccl::log
