// File systems that only this process and its children see.
#pragma once

namespace axccl::harness {

// Mounts a file system of `type` over `place` ("proc" over "/proc") in the mount namespace of the calling process,
// which must be its own (unshare(CLONE_NEWNS)). False with errno.
//
// What is mounted in a namespace appears in others unless the mount below it is private. That is "/", but in a chroot
// "/" is mostly no mount point, of which alone the kernel changes that (EINVAL): then `place` has to be one, as /proc
// and /sys of a chroot mostly are.
bool MountOver(const char* type, const char* place);

}  // namespace axccl::harness
