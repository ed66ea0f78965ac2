#include "src/base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "src/base/param.h"
#include "src/base/service_fd.h"

namespace axccl {
namespace {

// Returns false with errno set.
bool ReadAll(int fd, size_t most_bytes, std::string* text) {
  char buffer[4096];
  while (text->size() <= most_bytes) {
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got == 0) return true;
    if (got < 0 && errno != EINTR) return false;
    if (got > 0) text->append(buffer, static_cast<size_t>(got));
  }
  return true;
}

Status WriteAndClose(int fd, std::string_view text, const std::string& path) {
  int error = 0;
  while (!text.empty() && error == 0) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written >= 0)
      text.remove_prefix(static_cast<size_t>(written));
    else if (errno != EINTR)
      error = errno;
  }
  if (close(fd) != 0 && error == 0) error = errno;
  return error == 0 ? Status() : SystemError(error, "write(%s)", path.c_str());
}

std::string Environment(const char* name) {
  const char* value = secure_getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

Status MakeFolders(const std::string& folder, mode_t mode) {
  Status status;
  for (size_t at = folder.find('/', 1); !folder.empty(); at = folder.find('/', at + 1)) {
    const std::string part = folder.substr(0, at);
    if (mkdir(part.c_str(), mode) != 0 && errno != EEXIST && status.ok())
      status = SystemError(errno, "mkdir(%s)", part.c_str());
    if (at == std::string::npos) break;
  }
  return status;
}

std::string CacheFolder() {
  const std::string folder = param::Get("AXCCL_CACHE_DIR");
  if (!folder.empty()) return folder;
  const std::string cache = Environment("XDG_CACHE_HOME"), home = Environment("HOME");
  if (!cache.empty()) return cache + "/axccl";
  return home.empty() ? "" : home + "/.cache/axccl";
}

std::string FirstLine(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

Result<std::string> ReadWholeFile(const std::string& path, size_t most_bytes) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return service::OpenError(errno, "open(" + path + ")");
  std::string text;
  const bool good = ReadAll(fd, most_bytes, &text);
  const int error = errno;
  close(fd);
  if (!good) return SystemError(error, "read(%s)", path.c_str());
  if (text.size() > most_bytes)
    return MakeStatus(Code::kInvalidArgument, "%s: larger than %zu bytes, so not a file of the expected kind",
                      path.c_str(), most_bytes);
  return text;
}

Status WriteWholeFile(const std::string& path, std::string_view text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return service::OpenError(errno, "open(" + path + ") to write");
  return WriteAndClose(fd, text, path);
}

Status ReplaceFile(const std::string& path, std::string_view text) {
  const Status made = MakeFolders(path.substr(0, path.rfind('/') + 1), 0755);
  std::string fresh = path + ".XXXXXX";
  const int fd = mkostemp(fresh.data(), O_CLOEXEC);
  if (fd < 0 && errno == ENOENT && !made.ok()) return made;
  if (fd < 0) return SystemError(errno, "mkostemp(%s)", fresh.c_str());
  Status status = WriteAndClose(fd, text, fresh);
  if (status.ok() && rename(fresh.c_str(), path.c_str()) != 0)
    status = SystemError(errno, "rename(%s, %s)", fresh.c_str(), path.c_str());
  if (!status.ok()) unlink(fresh.c_str());
  return status;
}

Status InFile(const std::string& path, const Status& status) {
  return Status(status.code(), path + ": " + std::string(status.message()));
}

}  // namespace axccl
