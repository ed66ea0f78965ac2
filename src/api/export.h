// How functions leave the library, and how their errors and exceptions do.
//
//   AXCCL_API ncclResult_t pncclSend(const void* sendbuff, ...) {
//     return Entry("ncclSend", [&](const char* call) -> Status { ... });
//   }
//   AXCCL_TWIN(Send)
//
// Entry is the one way in: it runs the body, and it alone reports what the body returns or throws. Whatever is called
// from a body returns a Status or a Result. An exception becomes the call's error, as C programs cannot catch one. (The
// end of a thread that is cancelled, or that calls pthread_exit in a callback, is an exception too, and goes on its
// way.)
//
// The twin defines besides the strong symbol pncclSend the weak symbol ncclSend at the same address. A preloaded
// profiler can therefore define its own ncclSend and call pncclSend. Code of the library calls pnccl names only: nccl
// names may belong to somebody else. A third name, axccl_pncclSend, is where libnccl.so.2 passes its ncclSend on to
// (dropin.c, whose list of functions is nccl_functions.h). What is not marked stays inside, by -fvisibility=hidden and
// once more by the version script axccl.map.
#pragma once

#include <cxxabi.h>

#include <utility>

#include "nccl.h"
#include "src/base/status.h"

namespace axccl::api {

// Turns an error into a result: keeps the text for ncclGetLastError, logs it, and cancels an open group. kInProgress is
// no error. For Entry alone.
ncclResult_t Report(const Status& status) noexcept;
// Report of the exception that is being handled.
ncclResult_t ReportException(const char* call) noexcept;

// Runs `body`, from (const char* call) to Status, as the body of the function `call`.
template <class Body>
[[gnu::always_inline]] inline ncclResult_t Entry(const char* call, const Body& body) {
  try {
    const Status status = body(call);
    return status.ok() ? ncclSuccess : Report(status);
  } catch (abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return ReportException(call);
  }
}

// Likewise for a function that returns no result but a T, for which `failed` stands in when there is an error. `body`
// returns a Result<T>.
template <class T, class Body>
T EntryOr(const char* call, T failed, const Body& body) {
  T value = std::move(failed);
  (void)Entry(call, [&](const char* name) -> Status {
    AXCCL_ASSIGN_OR_RETURN(value, body(name));
    return Status();
  });
  return value;
}

}  // namespace axccl::api

#define AXCCL_API extern "C" __attribute__((visibility("default")))

// After pnccl<name>.
#define AXCCL_TWIN(name)                                                                                          \
  extern "C" __attribute__((visibility("default"), weak, alias("pnccl" #name))) decltype(pnccl##name) nccl##name; \
  extern "C" __attribute__((visibility("default"), alias("pnccl" #name))) decltype(pnccl##name) axccl_pnccl##name;
