// What every API function shares: handles, checked arguments, and how errors are told.
//
// Rule of the folder: a function checks its arguments, builds a request and passes it on. Texts name the call, the
// argument, its value and the remedy.
#pragma once

#include <memory>
#include <utility>

#include "nccl.h"
#include "src/base/handle_table.h"
#include "src/base/status.h"
#include "src/comm/comm.h"
#include "src/comm/launch.h"
#include "src/device/host/stream.h"

namespace axccl::api {

using CommPin = HandleTable<comm::Comm>::Pin;

HandleTable<comm::Comm>& Comms();

// Turns a status into a result: keeps the text for ncclGetLastError, logs it, and tells an open group.
ncclResult_t Report(const Status& status) noexcept;
// Report of a wrong argument.
[[gnu::format(printf, 1, 2)]] ncclResult_t InvalidArgument(const char* format, ...);

// Keeps an error's text for ncclGetLastError, without the rest of Report.
void RememberError(const Status& status) noexcept;
// The text for ncclGetLastError; valid until the calling thread's next call of it.
const char* LastError(ncclComm_t comm);

// The communicator behind a handle, pinned for the time of a call. Empty, and the error reported in *result, when it is
// none or CheckProcess fails.
CommPin PinComm(ncclComm_t comm, const char* call, ncclResult_t* result);
// kInvalidUsage in a process forked from one that had done more than to make unique ids.
Status CheckProcess(const char* call);

// Puts an object behind a handle, *out. kInvalidUsage, and *out null, when there are as many of `kind` as there may be.
template <class T, class Handle>
Status Insert(HandleTable<T>* table, const char* call, const char* kind, std::shared_ptr<T> object, Handle* out) {
  *out = static_cast<Handle>(table->Insert(std::move(object)));
  if (*out != nullptr) return Status();
  return MakeStatus(Code::kInvalidUsage, "%s: the process has %u %s, as many as it may; destroy some", call,
                    HandleTable<T>::kMost, kind);
}

// The host stream behind a stream argument in *stream, null for the NULL stream. Not pinned: a stream may not be
// destroyed while another thread's call is using it, as in CUDA.
bool FindHostStream(const void* handle, const char* call, device::host::Stream** stream, ncclResult_t* result);
// Likewise for calls on a communicator that is ready, whose ranks may be on GPUs.
bool FindStream(const comm::Comm& comm, void* handle, const char* call, comm::StreamRef* stream, ncclResult_t* result);

}  // namespace axccl::api
