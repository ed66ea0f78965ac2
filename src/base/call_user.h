// Calls of the application's functions from inside the library, where locks are held and others wait for the outcome:
// what such a function throws becomes the error of the work it belongs to. (That a thread is ended in it, by
// pthread_exit, goes on.)
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
    return MakeStatus(Code::kInvalidUsage, "%s threw something that is no std::exception; catch it there", what);
  }
  return Status();
}

}  // namespace axccl
