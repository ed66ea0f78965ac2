// Calls of the application's functions from inside the library, where the caller may hold locks and other ranks wait
// for the outcome. An exception that such a function throws becomes the error of the work that called it. Thread
// cancellation and pthread_exit still unwind.
#pragma once

#include <cxxabi.h>

#include <exception>

#include "src/base/status.h"

namespace axccl {

template <class Fn>
Status CallUser(const char* what, Fn fn) {
  try {
    fn();
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (const std::exception& error) {
    return MakeStatus(Code::kInvalidUsage, "%s threw an exception: %s; catch it there", what, error.what());
  } catch (...) {
    return MakeStatus(Code::kInvalidUsage, "%s threw an object that is not a std::exception; catch it there", what);
  }
  return Status();
}

}  // namespace axccl
