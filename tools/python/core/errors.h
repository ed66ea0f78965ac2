// Errors of the library and of arguments as Python exceptions (axccl/_errors.py). Every function needs the GIL.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>  // in every source: a cast to std::string is another function without it

#include <string>

#include "nccl.h"

namespace axccl::python {

namespace nb = nanobind;

// What a call of the library came to. The text is the calling thread's last error, so it is taken at once.
struct Outcome {
  ncclResult_t code = ncclSuccess;
  std::string text;
};
// Keeps the text of an error. Needs no GIL.
Outcome Take(ncclResult_t code);

// Raises axccl.Error with the library's text; axccl.ArgumentError, which is a ValueError, too, for ncclInvalidArgument.
[[noreturn]] void Raise(ncclResult_t code, const std::string& text);
// Raises axccl.ArgumentError: "CALL: argument NAME ...".
[[noreturn]] [[gnu::format(printf, 1, 2)]] void RaiseArgument(const char* format, ...);
// Raises TypeError, for what can never be an argument.
[[noreturn]] [[gnu::format(printf, 1, 2)]] void RaiseType(const char* format, ...);
// Raises what outcome is, unless it is ncclSuccess.
void RaiseIfFailed(const Outcome& outcome);

}  // namespace axccl::python
