// How functions leave the library, and how exceptions do not.
//
//   AXCCL_API ncclResult_t pncclSend(...) try { ... }     AXCCL_API ncclResult_t axcclScan(...) try { ... }
//   AXCCL_TWIN(Send)                                      AXCCL_CATCH(axcclScan)
//
// Every body is a function-try-block, which costs nothing where nothing is thrown. Out of memory, out of threads and
// whatever else is thrown below becomes the call's error: C programs cannot catch. (The end of a thread that was
// cancelled, or that calls pthread_exit in a callback, is an exception too, and goes on its way.)
//
// The twin defines besides the strong symbol pncclSend the weak symbol ncclSend at the same address. A preloaded
// profiler can therefore define its own ncclSend and call pncclSend. Code of the library calls pnccl names only: nccl
// names may belong to somebody else. A third name, axccl_pncclSend, is where libnccl.so.2 passes its ncclSend on to
// (dropin.c, whose list of functions is nccl_functions.h). What is not marked stays inside, by -fvisibility=hidden and
// once more by the version script axccl.map.
#pragma once

#include <cxxabi.h>

#include "nccl.h"

namespace axccl::api {

// Reports the exception that is being handled as the error of `call`, an open group's included.
ncclResult_t Caught(const char* call) noexcept;

}  // namespace axccl::api

#define AXCCL_API extern "C" __attribute__((visibility("default")))

// After the body of `function`, which returns `failed` when an exception ends it.
#define AXCCL_CATCH_ELSE(function, failed)                   \
  catch (abi::__forced_unwind&) {                            \
    throw;                                                   \
  }                                                          \
  catch (...) {                                              \
    const ncclResult_t error = axccl::api::Caught(function); \
    (void)error;                                             \
    return failed;                                           \
  }
#define AXCCL_CATCH(function) AXCCL_CATCH_ELSE(#function, error)

// After the body of pnccl<name>.
#define AXCCL_TWIN_ELSE(name, failed)                                                                             \
  AXCCL_CATCH_ELSE("nccl" #name, failed)                                                                          \
  extern "C" __attribute__((visibility("default"), weak, alias("pnccl" #name))) decltype(pnccl##name) nccl##name; \
  extern "C" __attribute__((visibility("default"), alias("pnccl" #name))) decltype(pnccl##name) axccl_pnccl##name;
#define AXCCL_TWIN(name) AXCCL_TWIN_ELSE(name, error)
