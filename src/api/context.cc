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
#include "src/comm/group.h"
#include "src/device/host/current.h"

namespace axccl::api {
namespace {

// Of the process. Never destroyed: threads of the program may fail while it ends.
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
  Status answer;  // what LastError returned
};

// What stands behind cudaStreamPerThread.
struct OwnStream {
  std::shared_ptr<device::host::Stream> stream;
};

// What CUDA's runtime passes for its two implicit streams.
const void* const kLegacyStream = reinterpret_cast<const void*>(1);
const void* const kPerThreadStream = reinterpret_cast<const void*>(2);

}  // namespace

HandleTable<comm::Comm>& Comms() {
  static auto* table = new HandleTable<comm::Comm>(0xac);
  return *table;
}

void RememberError(const Status& status) noexcept {
  try {
    PerThread<OfThread>::Get().error = status;
  } catch (const std::bad_alloc&) {
    // The process's text will do.
  }
  std::lock_guard lock(g_errors.last.mutex);
  g_errors.last.error = status;
}

ncclResult_t Report(const Status& status) noexcept {
  if (status.code() != Code::kInProgress) {
    RememberError(status);
    AXCCL_WARN("%s", status.message().data());
    comm::Group::Keep(status);
  }
  return static_cast<ncclResult_t>(status.code());
}

ncclResult_t ReportException(const char* call) noexcept { return Report(StatusOfException(call)); }

Status InvalidArgument(const char* format, ...) {
  va_list args;
  va_start(args, format);
  std::string text = FormatV(format, args);
  va_end(args);
  return Status(Code::kInvalidArgument, std::move(text));
}

const char* LastError(ncclComm_t comm) {
  Status answer;
  if (const auto pin = comm != nullptr ? Comms().Get(comm) : CommPin(); pin) {
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

Status CheckProcess(const char* call) { return service::CheckNotForked(call); }

Result<CommPin> PinComm(ncclComm_t comm, const char* call) {
  if (service::Forked()) return CheckProcess(call);
  CommPin pin = Comms().Get(comm);
  if (pin) return pin;
  return InvalidArgument("%s: argument comm is %s (%p); pass a communicator that has been created and not destroyed",
                         call, comm == nullptr ? "NULL" : "not a live communicator", static_cast<void*>(comm));
}

namespace {

// A blocking stream, as CUDA's: it synchronises with the NULL stream.
Result<device::host::Stream*> PerThreadStream() {
  std::shared_ptr<device::host::Stream>& own = PerThread<OwnStream>::Get().stream;
  if (own == nullptr) {
    AXCCL_ASSIGN_OR_RETURN(const int device, device::host::ClaimDevice());
    own = std::make_shared<device::host::Stream>(device, true);
    device::host::Device::Get(device)->AddStream(own);
  }
  return own.get();
}

}  // namespace

Status FindHostStream(const void* handle, const char* call, device::host::Stream** stream) {
  *stream = nullptr;
  if (handle == nullptr || handle == kLegacyStream) return Status();
  *stream = device::host::Streams().Peek(handle);
  if (*stream != nullptr) return Status();
  if (handle != kPerThreadStream)
    return InvalidArgument(
        "%s: argument stream (%p) is not a live host stream; create one with axcclStreamCreate, or pass NULL", call,
        handle);
  const Result<device::host::Stream*> own = PerThreadStream();
  if (!own.ok()) return Prefixed(call, Prefixed("the thread's own stream", own.status()));
  *stream = own.value();
  return Status();
}

Status FindStream(const comm::Comm& comm, void* handle, const char* call, comm::StreamRef* stream) {
  if (comm.core()->gpu() == nullptr) return FindHostStream(handle, call, &stream->host);
  if (device::host::Streams().Peek(handle) != nullptr)
    return InvalidArgument(
        "%s: argument stream (%p) is a host stream, and the communicator's rank is on CUDA device %d; pass a "
        "stream of CUDA, or make the communicator with AXCCL_DEVICE=host",
        call, handle, comm.core()->identity().device.ordinal);
  stream->cuda = handle;  // whether it is one of CUDA's, the driver says
  return Status();
}

}  // namespace axccl::api
