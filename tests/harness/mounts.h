// File systems that only this process and its children see.
#pragma once

namespace axccl::harness {

// Mounts a file system of `type` over `place` ("proc" over "/proc") in the mount namespace of the calling process,
// which must be its own (unshare(CLONE_NEWNS)). Returns false with errno set.
//
// A mount in one namespace appears in others unless the mount below it is private. That is "/", but in a chroot "/" is
// often not a mount point, and the kernel changes that only for mount points (EINVAL). Then `place` must be one, as
// /proc and /sys of a chroot usually are.
bool MountOver(const char* type, const char* place);

}  // namespace axccl::harness
