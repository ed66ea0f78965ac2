// MeetThroughFile of launch.h.
//
// The file is in a directory that only the user may access (0700, checked) and is created exclusively with mode 0600.
// Process 0 holds a lock on it until all have come; a file without that lock is left over from a run that died, and is
// ignored. Then the name is removed; the mapping and the empty directory stay. Other processes only query the lock: a
// process that took it, for however short a time, would look like another run's process 0.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <ctime>

#include "perf/common/launch.h"

namespace axccl::perf {
namespace {

constexpr int kPatienceSeconds = 60;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int Release() {
    int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_;
};

std::string DirectoryName() {
  const char* base = std::getenv("TMPDIR");
  return std::string(base && *base ? base : "/tmp") + "/axccl-perf-" + std::to_string(geteuid());
}

Result<int> OpenPrivateDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return SystemError(errno, "mkdir(%s)", path.c_str());
  int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return SystemError(errno, "open of the directory %s", path.c_str());
  struct stat info;
  if (fstat(fd, &info) != 0 || info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    close(fd);
    return MakeStatus(Code::kInvalidUsage,
                      "%s is not a directory of this user alone (mode 0700); remove it or point "
                      "TMPDIR elsewhere",
                      path.c_str());
  }
  return fd;
}

// A job's key as a file name of bounded length; FNV-1a distinguishes long keys.
std::string FileName(const std::string& key) {
  uint64_t hash = 0xcbf29ce484222325u;
  std::string name;
  for (unsigned char c : key) {
    hash = (hash ^ c) * 0x100000001b3u;
    if (name.size() < 100) name += std::isalnum(c) ? static_cast<char>(c) : '_';
  }
  return name + "-" + std::to_string(hash);
}

// The lock belongs to the open file, not to the process: closing its last descriptor releases it.
struct flock WholeFile() {
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  return range;
}

bool TryLock(int fd) {
  struct flock range = WholeFile();
  return fcntl(fd, F_OFD_SETLK, &range) == 0;
}

bool IsLocked(int fd) {
  struct flock range = WholeFile();
  return fcntl(fd, F_OFD_GETLK, &range) == 0 && range.l_type != F_UNLCK;
}

// Creates the file with its lock, or returns why that is impossible.
Result<int> Create(int directory, const std::string& name, size_t bytes) {
  for (;;) {
    int fd = openat(directory, name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) {
      Descriptor created(fd);
      if (!TryLock(fd)) return SystemError(errno, "locking the rendezvous file %s", name.c_str());
      if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) return SystemError(errno, "ftruncate of %s", name.c_str());
      return created.Release();
    }
    if (errno != EEXIST) return SystemError(errno, "creating the rendezvous file %s", name.c_str());
    Descriptor old(openat(directory, name.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
    if (old.get() >= 0 && IsLocked(old.get())) {
      return MakeStatus(Code::kInvalidUsage,
                        "another run of this job is meeting under the rendezvous file %s; start "
                        "one at a time",
                        name.c_str());
    }
    unlinkat(directory, name.c_str(), 0);
  }
}

// Looks once for a file whose creator is alive: returns a page, kInProgress, or an error.
Result<std::unique_ptr<SharedPage>> TryJoin(int directory, const std::string& name, int processes, int threads) {
  Status not_yet = MakeStatus(Code::kInProgress, "process 0 has not come yet");
  Descriptor file(openat(directory, name.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (file.get() < 0) {
    if (errno == ENOENT) return not_yet;
    return SystemError(errno, "open of the rendezvous file %s", name.c_str());
  }
  if (!IsLocked(file.get())) return not_yet;  // no lock: left over, or just being created
  struct stat info;
  if (fstat(file.get(), &info) != 0) return SystemError(errno, "fstat of the rendezvous file %s", name.c_str());
  if (info.st_size == 0) return not_yet;
  if (static_cast<size_t>(info.st_size) != SharedPage::BytesNeeded(processes, threads)) {
    return MakeStatus(Code::kInvalidUsage,
                      "process 0 of the run was started for other numbers than %d processes with "
                      "%d threads in all; start all with the same options",
                      processes, threads);
  }
  return SharedPage::MapFile(file.get(), processes, threads, false);
}

Result<std::unique_ptr<SharedPage>> Join(int directory, const std::string& name, int processes, int threads) {
  timespec pause{0, 1'000'000};
  for (int waited = 0; waited < kPatienceSeconds * 1000; ++waited) {
    auto page = TryJoin(directory, name, processes, threads);
    if (page.ok() || page.status().code() != Code::kInProgress) return page;
    nanosleep(&pause, nullptr);
  }
  return MakeStatus(Code::kTimeout,
                    "process 0 of the run did not come to %s/%s within %d s; do all processes run on "
                    "this machine with the same TMPDIR?",
                    DirectoryName().c_str(), name.c_str(), kPatienceSeconds);
}

}  // namespace

Result<std::unique_ptr<SharedPage>> MeetThroughFile(const std::string& key, int process, int processes, int threads) {
  std::string path = DirectoryName();
  AXCCL_ASSIGN_OR_RETURN(int directory_fd, OpenPrivateDirectory(path));
  Descriptor directory(directory_fd);
  std::string name = FileName(key);
  std::unique_ptr<SharedPage> page;
  std::optional<Descriptor> locked;  // until all have come
  if (process == 0) {
    AXCCL_ASSIGN_OR_RETURN(int fd, Create(directory.get(), name, SharedPage::BytesNeeded(processes, threads)));
    locked.emplace(fd);
    AXCCL_ASSIGN_OR_RETURN(page, SharedPage::MapFile(fd, processes, threads, true));
  } else {
    AXCCL_ASSIGN_OR_RETURN(page, Join(directory.get(), name, processes, threads));
  }
  page->Register(process, getpid());
  page->Meet(Room::kProcesses, process, nullptr, 0, nullptr);
  if (process == 0) unlinkat(directory.get(), name.c_str(), 0);
  return page;
}

}  // namespace axccl::perf
