// Takes away from the calling process what containers and administrators take away: system calls, room in /dev/shm,
// limits.
//
// For a rank's process, before it uses the library. Cannot be undone.
#pragma once

#include <sys/resource.h>

#include <vector>

namespace axccl::harness {

struct Refused {
  int call;  // SYS_...
  int error;
};

// Makes these calls fail from now on, in all threads. Returns false, with a GoogleTest failure, if the kernel rejects
// the filter.
bool Refuse(const std::vector<Refused>& calls);

// The system calls that a library could use and that Docker's default profile (moby/profiles/seccomp/default.json)
// denies to a process without capabilities; process_vm_readv and process_vm_writev only on kernels before 4.8.
std::vector<Refused> RefusedInContainers();

// Gives this process an empty /dev/shm, mounted with these options ("size=64m"). Returns false if the test may not
// mount.
bool ReplaceDevShm(const char* options);

// Lowers the soft limit. Returns false, with a GoogleTest failure, if it cannot.
bool Limit(decltype(RLIMIT_AS) resource, rlim_t value);

// Whether this process is root and may give files to other users, and become them: a container may deny that to root.
bool MayActForOthers();

// Whether this process may lock any amount of memory (CAP_IPC_LOCK). Root of a container usually may not.
bool LocksWithoutLimit();

// Whether this process may lock that many bytes.
bool MayLock(rlim_t bytes);

// Limits locking to that many bytes. Returns false, with a GoogleTest failure, if it cannot.
bool LimitLocking(rlim_t bytes);

}  // namespace axccl::harness
