// Other pages in place of memory that is in use: the content stays, and no thread sees the difference.
//
// userfaultfd's write protection holds back each thread that writes while the pages are copied; it continues as soon as
// the others are in place. Without the privilege for more (CAP_SYS_PTRACE, or vm.unprivileged_userfaultfd=1) the kernel
// holds back what a program writes itself, and fails a system call that writes there at this very time with EFAULT.
//
// What the kernel keeps for pages and not for addresses stays with the old pages: locks (mlock), pins for devices, and
// futexes that are not private. Thread-safe.
#pragma once

#include <cstddef>

#include "src/base/status.h"

namespace axccl::shm {

// Moves the mapping of `bytes` at `replacement` to `at`, with the content of what is mapped there, and unmaps that. All
// of it is writable memory, anonymous and private or of a memfd, in whole pages; the caller's stack is not in it. If it
// fails, both are what they were: kSystemError when the kernel cannot (5.19 and later can), or may not.
Status Exchange(std::byte* at, size_t bytes, std::byte* replacement);

}  // namespace axccl::shm
