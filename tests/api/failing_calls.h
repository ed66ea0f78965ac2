// The k-th call of a kind fails: malloc, mmap and others of the C library, replaced in the test's own program, which
// affects the library under test, the C++ library and the C library's callers.
//
// Counts calls of all threads of the process from Arm on. Thread-safe. Not for programs built with a sanitizer, which
// replaces the same functions.
#pragma once

namespace axccl::test {

enum class Failing { kNone, kMalloc, kMmap, kMemfd, kSocket, kEpollCreate, kEpollCtl, kThread };

const char* NameOf(Failing kind);
// From now on the k-th call of `kind` fails, counted from 1 (0: none).
void Arm(Failing kind, long k);
// From now on no call fails. Returns the number of calls of the kind since Arm.
long Disarm();
// Whether a call has failed since Arm.
bool HasFailed();

}  // namespace axccl::test
