#include "src/base/status.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <system_error>

#include "src/base/format.h"

namespace axccl {

namespace {

Status FormatStatus(Code code, const char* format, va_list args, const char* end) noexcept {
  try {
    return Status(code, FormatV(format, args) + end);
  } catch (const std::bad_alloc&) {
    return Status::WithoutText(code);
  }
}

}  // namespace

Status::Status(Code code, std::string message) noexcept {
  if (code == Code::kOk) return;
  rep_ = new (std::nothrow) Rep{1, code, std::move(message), {}};
  if (rep_ != nullptr) {
    rep_->message = rep_->text;
  } else {
    *this = WithoutText(code);
  }
}

Status Status::WithoutText(Code code) noexcept {
  static constexpr char kText[] =
      "out of memory, so there is no specific text; free some, or raise the limit of the process (ulimit -v) or of "
      "its "
      "container";
  // Each holds a reference to itself and is never destroyed, because statuses are made until the process has ended.
  struct Forever {
    union {
      Rep of[9];
    };
    Forever() noexcept
        : of{{1, Code::kOk, {}, kText},
             {1, Code::kUnhandledCudaError, {}, kText},
             {1, Code::kSystemError, {}, kText},
             {1, Code::kInternalError, {}, kText},
             {1, Code::kInvalidArgument, {}, kText},
             {1, Code::kInvalidUsage, {}, kText},
             {1, Code::kRemoteError, {}, kText},
             {1, Code::kInProgress, {}, "in progress"},
             {1, Code::kTimeout, {}, kText}} {}
    ~Forever() {}
  };
  static Forever none;
  Status status;
  status.rep_ = &none.of[static_cast<size_t>(code)];
  status.rep_->holders.fetch_add(1, std::memory_order_relaxed);
  return status;
}

void Status::LetGo(Rep* rep) noexcept {
  if (rep->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) delete rep;
}

Status MakeStatus(Code code, const char* format, ...) noexcept {
  va_list args;
  va_start(args, format);
  Status status = FormatStatus(code, format, args, "");
  va_end(args);
  return status;
}

Status SystemError(int error, const char* format, ...) noexcept {
  char buffer[128], end[192];
  std::snprintf(end, sizeof(end), ": %s (errno %d)", strerror_r(error, buffer, sizeof(buffer)), error);
  va_list args;
  va_start(args, format);
  Status status = FormatStatus(Code::kSystemError, format, args, end);
  va_end(args);
  return status;
}

Status Prefixed(const char* before, const Status& status) noexcept {
  if (status.ok()) return status;
  return MakeStatus(status.code(), "%s: %s", before, status.message().data());
}

Status StatusOfException(const char* call) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return MakeStatus(Code::kSystemError,
                      "%s: out of memory; free some, or raise the limit of the process (ulimit -v) or of its "
                      "container",
                      call);
  } catch (const std::system_error& error) {
    return SystemError(error.code().value(),
                       "%s: the system refused a thread or another resource; raise the limit "
                       "(ulimit -u, the container's on processes) or end some",
                       call);
  } catch (const std::exception& error) {
    return MakeStatus(Code::kInternalError, "%s: an unexpected exception: %s; please report it", call, error.what());
  } catch (...) {
    return MakeStatus(Code::kInternalError, "%s: an unexpected exception; please report it", call);
  }
}

}  // namespace axccl
