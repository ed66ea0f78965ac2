#include "src/api/context.h"

#include <cstdarg>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "src/api/export.h"
#include "src/base/format.h"
#include "src/base/log.h"
#include "src/base/per_thread.h"
#include "src/base/service_fd.h"
#include "src/comm/call_group.h"

namespace axccl::api {
namespace {

// The last error of the process. Never destroyed: threads of the program may fail while the process ends.
struct LastOfAll {
  std::mutex mutex;
  Status error;
};
constinit union Undestroyed {
  LastOfAll last{};
  ~Undestroyed() {}  // NOLINT: nothing is destroyed
} g_errors;

struct OfThread {
  Status error;
  Status answer;  // the text that LastError returned
};

}  // namespace

HandleTable<comm::CommHandle>& Comms() {
  static auto* table = new HandleTable<comm::CommHandle>(0xac);
  return *table;
}

void RememberError(const Status& status) noexcept {
  try {
    PerThread<OfThread>::Get().error = status;
  } catch (const std::bad_alloc&) {
    // The process's text serves as well.
  }
  std::lock_guard lock(g_errors.last.mutex);
  g_errors.last.error = status;
}

ncclResult_t Report(const Status& status) noexcept {
  if (status.code() != Code::kInProgress) {
    RememberError(status);
    AXCCL_WARN("%s", status.message().data());
    comm::CallGroup::Keep(status);
  }
  return static_cast<ncclResult_t>(status.code());
}

ncclResult_t ReportException(const char* call) noexcept { return Report(StatusOfException(call)); }

ncclResult_t RefuseForked(const char* call) noexcept { return EntryInAnyProcess(call, service::CheckNotForked); }

Status InvalidArgument(const char* format, ...) {
  va_list args;
  va_start(args, format);
  std::string text = FormatV(format, args);
  va_end(args);
  return Status(Code::kInvalidArgument, std::move(text));
}

const char* LastError(ncclComm_t comm) {
  Status answer;
  // In a forked child, a lock of the communicator may be held by a thread that is not there.
  if (const auto pin = comm != nullptr && !service::Forked() ? Comms().Get(comm) : CommPin(); pin) {
    answer = pin->AsyncError();
    if (answer.code() == Code::kInProgress) answer = Status();
  }
  OfThread& own = PerThread<OfThread>::Get();
  if (answer.ok()) answer = own.error;
  if (answer.ok()) {
    std::lock_guard lock(g_errors.last.mutex);
    answer = g_errors.last.error;
  }
  own.answer = std::move(answer);
  return own.answer.ok() ? "" : own.answer.message().data();
}

Result<CommPin> PinComm(ncclComm_t comm, const char* call) {
  if (service::Forked()) return service::CheckNotForked(call);
  CommPin pin = Comms().Get(comm);
  if (pin) return pin;
  return InvalidArgument("%s: argument comm is %s (%p); pass a communicator that has been created and not destroyed",
                         call, comm == nullptr ? "NULL" : "not a live communicator", static_cast<void*>(comm));
}

}  // namespace axccl::api
