// The cached measurement: its text form and its file.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "src/base/log.h"
#include "src/base/param.h"
#include "src/cost/machine.h"

namespace axccl::cost {

namespace {

constexpr std::string_view kTitle = "axccl-machine 1";
constexpr size_t kMaxFileBytes = 4096;

struct Field {
  std::string_view name;
  double Machine::* value;
  double least;
  double most;
};

// Bounds wide enough for any machine and narrow enough that a damaged file does not mislead the choice of algorithms.
constexpr Field kFields[] = {
    {"signal_seconds", &Machine::signal_seconds, 1e-9, 1e-3},
    {"op_seconds", &Machine::op_seconds, 1e-10, 1e-3},
    {"switch_seconds", &Machine::switch_seconds, 1e-8, 1e-1},
    {"cached_bytes_per_second", &Machine::cached_bytes_per_second, 1e7, 1e13},
    {"memory_bytes_per_second", &Machine::memory_bytes_per_second, 1e7, 1e13},
    {"call_seconds", &Machine::call_seconds, 1e-9, 1e-1},
    {"call_bytes_per_second", &Machine::call_bytes_per_second, 1e6, 1e13},
};
constexpr std::string_view kCacheField = "cache_bytes";
constexpr double kLeastCache = 1 << 14, kMostCache = 1e12;

// Splits the next line off `text`; false at the end.
bool NextLine(std::string_view* text, std::string_view* line) {
  if (text->empty()) return false;
  const size_t end = text->find('\n');
  *line = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  return true;
}

Status BadLine(int number, std::string_view line, std::string_view expected) {
  return MakeStatus(Code::kInvalidArgument, "machine file, line %d: found '%.*s', expected %.*s", number,
                    static_cast<int>(line.size()), line.data(), static_cast<int>(expected.size()), expected.data());
}

Result<double> ParseField(int number, std::string_view line, std::string_view name, double least, double most) {
  double value = 0;
  const bool named = line.size() > name.size() && line.substr(0, name.size()) == name && line[name.size()] == ' ';
  if (!named) return BadLine(number, line, name);
  const std::string_view digits = line.substr(name.size() + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || !(value >= least && value <= most)) {
    return BadLine(number, line, "a number in the range of the field");
  }
  return value;
}

// The first "model name" of /proc/cpuinfo; what else tells CPUs apart where there is none.
std::string CpuModel() {
  std::ifstream info("/proc/cpuinfo");
  std::string all;
  for (std::string line; std::getline(info, line);) {
    const bool tells = line.starts_with("model name") || line.starts_with("CPU implementer") ||
                       line.starts_with("CPU part") || line.starts_with("cpu\t");
    if (tells) all += line + ";";
    if (line.empty() && !all.empty()) break;
  }
  return all;
}

// FNV-1a.
uint64_t HashOf(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3u;
  return hash;
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool ReadSmallFile(const std::string& file, std::string* text) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return false;
  text->resize(kMaxFileBytes);
  in.read(text->data(), static_cast<std::streamsize>(text->size()));
  text->resize(static_cast<size_t>(in.gcount()));
  return true;
}

void MakeParents(const std::string& file) {
  for (size_t at = file.find('/', 1); at != std::string::npos; at = file.find('/', at + 1)) {
    // Fails where the folder is there already or cannot be; opening the file tells which.
    (void)mkdir(file.substr(0, at).c_str(), 0755);
  }
}

// Whole or not at all: written beside the file under a name of its own, then renamed.
Status WriteFileAtomically(const std::string& file, std::string_view text) {
  MakeParents(file);
  std::string fresh = file + ".XXXXXX";
  const int fd = mkostemp(fresh.data(), O_CLOEXEC);
  if (fd < 0) return SystemError(errno, "mkostemp(%s)", fresh.c_str());
  const ssize_t written = write(fd, text.data(), text.size());
  const int error = errno;
  close(fd);
  if (written != static_cast<ssize_t>(text.size())) {
    unlink(fresh.c_str());
    return SystemError(written < 0 ? error : ENOSPC, "write(%s)", fresh.c_str());
  }
  if (rename(fresh.c_str(), file.c_str()) != 0) {
    const int why = errno;
    unlink(fresh.c_str());
    return SystemError(why, "rename(%s, %s)", fresh.c_str(), file.c_str());
  }
  return Status();
}

}  // namespace

std::string ToText(const Machine& machine) {
  std::string text(kTitle);
  // Not printf: the decimal point of the file must not depend on the application's locale.
  char digits[64];
  for (const Field& f : kFields) {
    const auto end = std::to_chars(digits, digits + sizeof(digits), machine.*f.value).ptr;
    text.append("\n").append(f.name).append(" ").append(digits, end);
  }
  return text.append("\n").append(kCacheField).append(" ").append(std::to_string(machine.cache_bytes)).append("\n");
}

Result<Machine> FromText(std::string_view text) {
  Machine machine;
  std::string_view line;
  int number = 1;
  if (!NextLine(&text, &line) || line != kTitle) return BadLine(number, line, kTitle);
  for (const Field& f : kFields) {
    line = {};
    NextLine(&text, &line);
    AXCCL_ASSIGN_OR_RETURN(machine.*f.value, ParseField(++number, line, f.name, f.least, f.most));
  }
  line = {};
  NextLine(&text, &line);
  AXCCL_ASSIGN_OR_RETURN(const double cache, ParseField(++number, line, kCacheField, kLeastCache, kMostCache));
  machine.cache_bytes = static_cast<uint64_t>(cache);
  if (NextLine(&text, &line)) return BadLine(++number, line, "the end");
  return machine;
}

std::string CacheFile() {
  std::string folder = param::Get("AXCCL_CACHE_DIR");
  if (folder.empty()) {
    const std::string cache = Environment("XDG_CACHE_HOME"), home = Environment("HOME");
    if (!cache.empty()) {
      folder = cache + "/axccl";
    } else if (!home.empty()) {
      folder = home + "/.cache/axccl";
    } else {
      return "";
    }
  }
  const std::string key = CpuModel() + std::to_string(sysconf(_SC_NPROCESSORS_ONLN)) + ";" + std::string(kTitle);
  char name[40];
  std::snprintf(name, sizeof(name), "/machine-%016" PRIx64, HashOf(key));
  return folder + name;
}

Machine MeasureOnce(const std::string& file) {
  std::string text;
  if (!file.empty() && ReadSmallFile(file, &text)) {
    Result<Machine> cached = FromText(text);
    if (cached.ok()) return *cached;
    AXCCL_INFO(kTuning, "%s: %s; measuring again", file.c_str(), std::string(cached.status().message()).c_str());
  }
  const Machine machine = Measure();
  if (file.empty()) return machine;
  if (const Status status = WriteFileAtomically(file, ToText(machine)); !status.ok()) {
    AXCCL_INFO(kTuning, "the measurement of this machine is not kept: %s", std::string(status.message()).c_str());
  }
  return machine;
}

Machine MeasureOnce() {
  static const Machine kMachine = MeasureOnce(CacheFile());
  return kMachine;
}

}  // namespace axccl::cost
