#include "src/base/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace axccl {
namespace {

// False with errno.
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

}  // namespace

Result<std::string> ReadWholeFile(const std::string& path, size_t most_bytes) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return SystemError(errno, "open(%s)", path.c_str());
  std::string text;
  const bool good = ReadAll(fd, most_bytes, &text);
  const int error = errno;
  close(fd);
  if (!good) return SystemError(error, "read(%s)", path.c_str());
  if (text.size() > most_bytes)
    return MakeStatus(Code::kInvalidArgument, "%s: more than %zu bytes, which is no file of this kind", path.c_str(), most_bytes);
  return text;
}

Status WriteWholeFile(const std::string& path, std::string_view text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return SystemError(errno, "open(%s) to write", path.c_str());
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

}  // namespace axccl
