#include "src/base/status.h"

#include <cstdarg>
#include <cstring>

#include "src/base/format.h"

namespace axccl {

Status::Status(Code code, std::string message) {
  if (code != Code::kOk) rep_ = std::make_unique<Rep>(Rep{code, std::move(message)});
}

Status::Status(const Status& other) : rep_(other.rep_ ? std::make_unique<Rep>(*other.rep_) : nullptr) {}

Status& Status::operator=(const Status& other) {
  if (this != &other) rep_ = other.rep_ ? std::make_unique<Rep>(*other.rep_) : nullptr;
  return *this;
}

Status MakeStatus(Code code, const char* format, ...) {
  va_list args;
  va_start(args, format);
  std::string text = FormatV(format, args);
  va_end(args);
  return Status(code, std::move(text));
}

Status SystemError(int error, const char* format, ...) {
  va_list args;
  va_start(args, format);
  std::string text = FormatV(format, args);
  va_end(args);
  char buffer[128];
  const char* reason = strerror_r(error, buffer, sizeof(buffer));
  return Status(Code::kSystemError, text + ": " + reason + " (errno " + std::to_string(error) + ")");
}

}  // namespace axccl
