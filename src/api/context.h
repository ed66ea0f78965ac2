// What every API function shares: handles and checked arguments.
//
// Rule of the folder: a function checks its arguments, builds a request and passes it on. Texts name the call, the
// argument, its value and the remedy. Nothing here reports an error: it is returned, as a Status or a Result, and the
// entry point reports it (export.h).
#pragma once

#include <memory>
#include <utility>

#include "nccl.h"
#include "src/base/handle_table.h"
#include "src/base/status.h"
#include "src/comm/comm.h"
#include "src/device/host/stream.h"
#include "src/exec/launch.h"

namespace axccl::api {

using CommPin = HandleTable<comm::Comm>::Pin;

HandleTable<comm::Comm>& Comms();

// kInvalidArgument with that text.
[[gnu::format(printf, 1, 2)]] Status InvalidArgument(const char* format, ...);

// Keeps the text of an error that is no call's for ncclGetLastError.
void RememberError(const Status& status) noexcept;
// The text for ncclGetLastError; valid until the calling thread's next call of it.
const char* LastError(ncclComm_t comm);

// The communicator behind a handle, pinned for the time of a call. An error when it is none or CheckProcess fails.
Result<CommPin> PinComm(ncclComm_t comm, const char* call);
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

// The stream behind a stream argument of a call on a communicator that is ready. Not pinned: a stream may not be
// destroyed while another thread's call is using it, as in CUDA.
Status FindStream(const comm::Comm& comm, void* handle, const char* call, exec::StreamRef* stream);

}  // namespace axccl::api
