#include "transports/shm/heap_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "src/base/log.h"
#include "transports/shm/mapping.h"

namespace axccl::shm {
namespace {

using service::Fd;
using transport::HeapKind;

constexpr char kFolder[] = "/dev/shm";
constexpr uint64_t kLeastRoom = 8u << 20;  // least room: enough for a rank or two of a small communicator
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// The kernel does not refuse a longer file but kills the process by SIGXFSZ.
uint64_t LongestFile() {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return ~uint64_t{0};
  return limit.rlim_cur;
}

// Returns the errno, or 0 and *fd.
int MakeMemfd(size_t bytes, Fd* fd) {
  *fd = Fd(memfd_create("axccl-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!*fd) return errno;
  // A peer that maps the heap must be safe from SIGBUS whatever this process does later.
  if (ftruncate(fd->get(), static_cast<off_t>(bytes)) != 0 || fcntl(fd->get(), F_ADD_SEALS, kSeals) != 0) return errno;
  return 0;
}

// As MakeMemfd. Requires that the folder is in memory; other files would be written to a disk.
int MakeTmpfs(size_t bytes, Fd* fd) {
  *fd = Fd(open(kFolder, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600));
  if (!*fd) return errno;
  struct statfs system {};
  if (fstatfs(fd->get(), &system) != 0) return errno;
  if (system.f_type != TMPFS_MAGIC) return EMEDIUMTYPE;
  struct statvfs folder {};
  const bool limited = fstatvfs(fd->get(), &folder) == 0 && folder.f_blocks != 0;
  if (limited && folder.f_bavail * folder.f_frsize < kLeastRoom) return ENOSPC;
  return ftruncate(fd->get(), static_cast<off_t>(bytes)) == 0 ? 0 : errno;
}

bool OutOfDescriptors(int error) { return error == EMFILE || error == ENFILE; }

}  // namespace

Result<HeapFile> HeapFile::Create(size_t least, size_t wanted) {
  HeapFile file;
  file.bytes_ = wanted;
  const uint64_t longest = LongestFile();
  if (longest < wanted) file.bytes_ = std::max(least, longest / kHugeBytes * kHugeBytes);
  if (longest < least) {
    file.memfd_error_ = file.tmpfs_error_ = EFBIG;
  } else {
    file.memfd_error_ = MakeMemfd(file.bytes_, &file.fd_);
    if (file.memfd_error_ == 0) return file;
    if (OutOfDescriptors(file.memfd_error_)) return service::OpenError(file.memfd_error_, "shared heap: memfd_create");
    file.kind_ = HeapKind::kTmpfs;
    file.tmpfs_error_ = MakeTmpfs(file.bytes_, &file.fd_);
    if (file.tmpfs_error_ == 0) return file;
  }
  AXCCL_INFO(
      kAlloc,
      "shared heap: only threads of this process reach it: memfd_create failed (errno %d), and so did a file in %s "
      "(errno %d)",
      file.memfd_error_, kFolder, file.tmpfs_error_);
  file.kind_ = HeapKind::kPrivate;
  file.fd_ = Fd();
  file.bytes_ = wanted;
  return file;
}

Status HeapFile::Commit(uint64_t offset, uint64_t bytes) const {
  if (kind_ != HeapKind::kTmpfs) return Status();
  AXCCL_RETURN_IF_ERROR(Check());
  int error = 0;
  if (fallocate(fd(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0) error = errno;
  // fallocate is not supported here, but writing reserves memory, too. Free pages are zero and stay so.
  if (error != 0 && error != ENOSPC) {
    error = 0;
    for (uint64_t at = offset; at < offset + bytes && error == 0; at += kPageBytes) {
      if (pwrite(fd(), "", 1, static_cast<off_t>(at)) != 1) error = errno;
    }
  }
  if (error == 0) return Status();
  struct statvfs folder {};
  (void)fstatvfs(fd(), &folder);
  const unsigned long long free = folder.f_bavail * folder.f_frsize, all = folder.f_blocks * folder.f_frsize;
  return SystemError(error,
                     "shared memory: need %llu KiB, %s has %llu KiB of %llu KiB free; give it more room (docker run "
                     "--shm-size) or allow memfd_create, which needs none of it",
                     static_cast<unsigned long long>(bytes) >> 10, kFolder, free >> 10, all >> 10);
}

bool HeapFile::PunchHole(uint64_t offset, uint64_t bytes) const {
  return fd_.IsOurs() && fallocate(fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                                   static_cast<off_t>(bytes)) == 0;
}

HeapFile::Stretch HeapFile::Touched(uint64_t begin, uint64_t end) const {
  if (!fd_.IsOurs()) return {begin, end};
  const off_t data = lseek(fd(), static_cast<off_t>(begin), SEEK_DATA);
  if (data < 0) return {errno == ENXIO ? end : begin, end};  // ENXIO: there is no data up to the end of the file
  const off_t hole = lseek(fd(), data, SEEK_HOLE);
  return {std::min(static_cast<uint64_t>(data), end), hole < 0 ? end : std::min(static_cast<uint64_t>(hole), end)};
}

const char* WhyUnsafe(int fd, HeapKind kind) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return "is not a memfd, nor any regular file";
  if (kind == HeapKind::kMemfd) {
    const int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & kSeals) == kSeals ? nullptr : "is not a memfd of sealed size";
  }
  // These have no seals, but no other user has ever been able to open one.
  struct statfs system {};
  const bool in_memory = fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC;
  return in_memory && info.st_nlink == 0 && info.st_uid == geteuid() ? nullptr : "is not a file of its own in memory";
}

}  // namespace axccl::shm
