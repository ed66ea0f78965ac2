// operator new that throws when a test wants it to. For tests of the library's parts, which find it before the C++
// library's: name failing_new.cc among their sources. (tests/api/failing_calls.h does the same to a whole process,
// through malloc.)
#pragma once

#include <new>

namespace axccl::harness {

// While it lives, the k-th operator new of this thread fails, counted from 1: it throws std::bad_alloc, or returns null
// where it may not. One at a time on a thread.
class FailingNew {
 public:
  explicit FailingNew(long k);
  ~FailingNew();
  FailingNew(const FailingNew&) = delete;
  FailingNew& operator=(const FailingNew&) = delete;
  static bool Failed();  // whether one has
};

// Calls fn() again and again, in which the first operator new fails, then the second, and so on until none does;
// after_failure() whenever one has made fn throw. Returns how often that was so.
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
