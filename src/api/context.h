// What every API function shares: handles and checked arguments.
//
// Rule of the folder: a function checks its arguments, builds a request and passes it on. Texts name the call, the
// argument, its value and the remedy. Functions here return errors as a Status or a Result; only the entry point
// reports them (export.h).
#pragma once

#include <memory>
#include <utility>

#include "nccl.h"
#include "src/base/handle_table.h"
#include "src/base/status.h"
#include "src/comm/comm_handle.h"
#include "src/device/host/stream.h"
#include "src/exec/platform/stream_call.h"

namespace axccl::api {

using CommPin = HandleTable<comm::CommHandle>::Pin;

HandleTable<comm::CommHandle>& Comms();

// Makes a kInvalidArgument with that text.
[[gnu::format(printf, 1, 2)]] Status InvalidArgument(const char* format, ...);

// Keeps the text of an error that belongs to no call for ncclGetLastError.
void RememberError(const Status& status) noexcept;
// The text for ncclGetLastError; valid until the calling thread's next call of it.
const char* LastError(ncclComm_t comm);

// Pins the communicator behind a handle for the duration of a call. Returns an error if there is none, or in a forked
// child: a function that EntryOr runs may be called there.
Result<CommPin> PinComm(ncclComm_t comm, const char* call);

// Puts an object behind a handle, *out. kInvalidUsage, and *out null, if the table of `kind` is full.
template <class T, class Handle>
Status Insert(HandleTable<T>* table, const char* call, const char* kind, std::shared_ptr<T> object, Handle* out) {
  *out = static_cast<Handle>(table->Insert(std::move(object)));
  if (*out != nullptr) return Status();
  return MakeStatus(Code::kInvalidUsage, "%s: the process has %u %s, as many as it may; destroy some", call,
                    HandleTable<T>::kMost, kind);
}

}  // namespace axccl::api
