// How functions are exported, and how errors and exceptions leave them.
//
//   AXCCL_API ncclResult_t pncclSend(const void* sendbuff, ...) {
//     return Entry("ncclSend", [&](const char* call) -> Status { ... });
//   }
//   AXCCL_TWIN(Send)
//
// Entry is the only way in: it runs the body, and only it reports what the body returns or throws. Functions that a
// body calls return a Status or a Result. An exception becomes the call's error, because C programs cannot catch it.
// (Cancelling a thread, or pthread_exit in a callback, also unwinds as an exception; it passes through.)
//
// Besides the strong symbol pncclSend, the twin defines the weak symbol ncclSend at the same address. A preloaded
// profiler can therefore define its own ncclSend and call pncclSend. Code of the library calls only pnccl names,
// because nccl names may be the profiler's. A third name, axccl_pncclSend, is the function to which libnccl.so.2
// forwards its ncclSend (dropin.c, whose list of functions is nccl_functions.h). Unmarked functions are not exported,
// because of -fvisibility=hidden and of the version script axccl.map.
#pragma once

#include <cxxabi.h>

#include <utility>

#include "nccl.h"
#include "src/base/service_fd.h"
#include "src/base/status.h"

namespace axccl::api {

// Turns an error into a result: keeps the text for ncclGetLastError, logs it, and cancels an open group. kInProgress is
// not an error. Only for Entry.
ncclResult_t Report(const Status& status) noexcept;
// Report of the exception that is being handled.
ncclResult_t ReportException(const char* call) noexcept;

// Runs `body`, from (const char* call) to Status, as the body of the function `call`, in any process. For functions
// that use nothing that a fork breaks: versions, texts, parameters and memory as that of malloc.
template <class Body>
[[gnu::always_inline]] inline ncclResult_t EntryInAnyProcess(const char* call, const Body& body) {
  try {
    const Status status = body(call);
    return status.ok() ? ncclSuccess : Report(status);
  } catch (abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return ReportException(call);
  }
}

// The result of every other function in a forked child that cannot use the library.
ncclResult_t RefuseForked(const char* call) noexcept;

// As EntryInAnyProcess, but does not run `body` in such a child.
template <class Body>
[[gnu::always_inline]] inline ncclResult_t Entry(const char* call, const Body& body) {
  return service::Forked() ? RefuseForked(call) : EntryInAnyProcess(call, body);
}

// As EntryInAnyProcess, for a function that returns a T instead of a result; it returns `failed` if there is an error.
// `body` returns a Result<T>.
template <class T, class Body>
T EntryOr(const char* call, T failed, const Body& body) {
  T value = std::move(failed);
  (void)EntryInAnyProcess(call, [&](const char* name) -> Status {
    AXCCL_ASSIGN_OR_RETURN(value, body(name));
    return Status();
  });
  return value;
}

}  // namespace axccl::api

#define AXCCL_API extern "C" __attribute__((visibility("default")))

// Follows pnccl<name>.
#define AXCCL_TWIN(name)                                                                                          \
  extern "C" __attribute__((visibility("default"), weak, alias("pnccl" #name))) decltype(pnccl##name) nccl##name; \
  extern "C" __attribute__((visibility("default"), alias("pnccl" #name))) decltype(pnccl##name) axccl_pnccl##name;
