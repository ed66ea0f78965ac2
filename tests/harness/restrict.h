// Takes from the calling process what containers and administrators take: system calls, room in /dev/shm, limits.
//
// For a rank's process, before it uses the library. There is no way back.
#pragma once

#include <sys/resource.h>

#include <vector>

namespace axccl::harness {

struct Refused {
  int call;  // SYS_...
  int error;
};

// These calls fail from now on, in all threads. False with a GoogleTest failure where the kernel takes no filter.
bool Refuse(const std::vector<Refused>& calls);

// What Docker's default profile (moby/profiles/seccomp/default.json) keeps from a process without capabilities, of all
// that a library could want; process_vm_readv and process_vm_writev only on kernels before 4.8.
std::vector<Refused> RefusedInContainers();

// An empty /dev/shm for this process, mounted with such options ("size=64m"). False where the test may not mount.
bool ReplaceDevShm(const char* options);

// Lowers the soft limit. False with a GoogleTest failure.
bool Limit(decltype(RLIMIT_AS) resource, rlim_t value);

// Whether this process is root and may give files to other users, and become them: a container may keep that from root.
bool MayActForOthers();

// Whether this process may lock any amount of memory (CAP_IPC_LOCK). Root of a container mostly may not.
bool LocksWithoutLimit();

// Whether it may lock so much.
bool MayLock(rlim_t bytes);

// Locks no more than that. False with a GoogleTest failure.
bool LimitLocking(rlim_t bytes);

}  // namespace axccl::harness
