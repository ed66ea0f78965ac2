#include "perf/common/json_file.h"

#include <cerrno>
#include <cstring>

#include "perf/common/fail.h"

namespace axccl::perf {

JsonFile::~JsonFile() {
  if (file_ == nullptr) return;
  const Status closed = Close();
  if (!closed.ok()) Fail(kExitFailed, "%s", std::string(closed.message()).c_str());
}

Status JsonFile::Close() {
  errno = 0;
  json_.CloseTo(0);
  const bool lost = std::ferror(file_) != 0;
  const bool closed = std::fclose(file_) == 0;
  file_ = nullptr;
  if (!lost && closed) return Status();
  return SystemError(errno == 0 ? EIO : errno, "write(%s)", path_.c_str());
}

std::unique_ptr<JsonFile> CreateJsonFile(const std::string& path) {
  FILE* const file = std::fopen(path.c_str(), "wx");
  if (file == nullptr) Fail(kExitUsage, "option -J: cannot create %s: %s", path.c_str(), std::strerror(errno));
  return std::make_unique<JsonFile>(file, path);
}

}  // namespace axccl::perf
