// An operator new that throws when a test wants it to. For tests of the library's parts, in which it has precedence
// over the C++ library's: list failing_new.cc among their sources. (tests/api/failing_calls.h does the same to a whole
// process, through malloc.)
#pragma once

#include <new>

namespace axccl::harness {

// While it exists, the k-th operator new of this thread fails, counted from 1: it throws std::bad_alloc, or returns
// null if it must not throw. One at a time in a thread.
class FailingNew {
 public:
  explicit FailingNew(long k);
  ~FailingNew();
  FailingNew(const FailingNew&) = delete;
  FailingNew& operator=(const FailingNew&) = delete;
  static bool Failed();  // whether one has failed
};

// Calls fn() repeatedly; the first operator new fails in the first call, the second in the next, and so on until none
// fails. Calls after_failure() whenever fn threw. Returns how often that happened.
template <class Fn, class After>
int FailEachNew(const Fn& fn, const After& after_failure) {
  int thrown = 0;
  for (long k = 1;; ++k) {
    bool failed = false, threw = false;
    {
      const FailingNew failing(k);
      try {
        fn();
      } catch (const std::bad_alloc&) {
        threw = true;
      }
      failed = FailingNew::Failed();
    }
    if (threw) after_failure();
    thrown += threw;
    if (!failed) return thrown;
  }
}

}  // namespace axccl::harness
