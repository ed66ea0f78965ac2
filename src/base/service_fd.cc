#include "src/base/service_fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace axccl::service {
namespace {

// Covers every descriptor number below Linux's default limit of open files. Zero pages until used.
constexpr int kMaxTracked = 1 << 20;

std::atomic<uint64_t> g_files[kMaxTracked];  // the FileId of each descriptor that is open, by its number
std::atomic<int> g_end{0};                   // above all numbers that were ever used
std::atomic<bool> g_bound{false};
constinit std::mutex g_serving;
constinit thread_local bool t_forking = false;  // this thread forks and holds g_serving

void BeforeFork() {
  if (g_bound.load(std::memory_order_relaxed)) return;  // such a child has no use for locks
  g_serving.lock();
  t_forking = true;
}

void AfterFork() {
  if (std::exchange(t_forking, false)) g_serving.unlock();
}

// Async-signal-safe, because the child of a threaded process may call nothing else.
void InForkedChild() {
  AfterFork();
  internal::g_forked.store(g_bound.load(std::memory_order_relaxed), std::memory_order_relaxed);
  internal::g_generation.fetch_add(1, std::memory_order_relaxed);
  const int end = g_end.load(std::memory_order_acquire);
  for (int fd = 0; fd < end; ++fd) {
    const uint64_t file = g_files[fd].load(std::memory_order_relaxed);
    if (file == 0) continue;
    g_files[fd].store(0, std::memory_order_relaxed);
    if (FileId(fd) == file) close(fd);
  }
}

// When the library is loaded: the handlers that the program registers later then take its locks before these take the
// library's. It fails only when memory runs out; then children keep the descriptors until they exec.
[[gnu::constructor]] void WatchForks() { (void)pthread_atfork(BeforeFork, AfterFork, InForkedChild); }

void Track(int fd, uint64_t file) {
  if (fd >= kMaxTracked) return;
  int end = g_end.load(std::memory_order_relaxed);
  while (end <= fd && !g_end.compare_exchange_weak(end, fd + 1, std::memory_order_release)) {
  }
  g_files[fd].store(file, std::memory_order_release);
}

// Unless the number is that of a later descriptor of the library.
void Untrack(int fd, uint64_t file) {
  if (fd < kMaxTracked) g_files[fd].compare_exchange_strong(file, 0, std::memory_order_acq_rel);
}

Status NoRoom(int64_t needed, int64_t open, const rlimit& limit, const std::string& what) {
  return MakeStatus(
      Code::kSystemError,
      "%s needs %lld file descriptor%s, but process %d has %lld of its %lld open already; raise the limit on "
      "open files to %lld or more (ulimit -n; hard limit %lld)",
      what.c_str(), static_cast<long long>(needed), needed == 1 ? "" : "s", static_cast<int>(getpid()),
      static_cast<long long>(open), static_cast<long long>(limit.rlim_cur), static_cast<long long>(open + needed),
      static_cast<long long>(limit.rlim_max));
}

}  // namespace

uint64_t FileId(uint64_t device, uint64_t inode) {
  // Of one device, all differ; of several, those that are alike are as rare as in a hash of 64 bits.
  return std::max<uint64_t>((device + 1) * 0x9E3779B97F4A7C15u ^ inode, 1);
}

uint64_t FileId(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 ? FileId(info.st_dev, info.st_ino) : 0;
}

int AboveStandardStreams(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  close(fd);
  errno = error;
  return moved;
}

Fd::Fd(int fd) : fd_(AboveStandardStreams(fd)), generation_(Generation()) {
  if (fd_ < 0) return;
  file_ = FileId(fd_);
  Track(fd_, file_);
}

Fd::Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), generation_(other.generation_), file_(other.file_) {}

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = std::exchange(other.fd_, -1);
    generation_ = other.generation_;
    file_ = other.file_;
  }
  return *this;
}

// In a forked child, the number of a parent's descriptor may belong to another one.
bool Fd::IsOurs() const { return fd_ >= 0 && generation_ == Generation() && FileId(fd_) == file_; }

Status Fd::Lost(const char* what) const {
  return MakeStatus(Code::kInvalidUsage,
                    "%s: the program closed descriptor %d, which belongs to the library (closefrom, or a daemon's "
                    "start?); close only what the program has opened, or close all before it uses the library",
                    what, fd_);
}

void Fd::ShutDown() const {
  if (IsOurs()) shutdown(fd_, SHUT_RDWR);
}

void Fd::Close() {
  const bool ours = IsOurs();
  const int fd = std::exchange(fd_, -1);
  if (fd < 0 || generation_ != Generation()) return;
  Untrack(fd, file_);
  if (ours) close(fd);
}

void BindToProcess() { g_bound.store(true, std::memory_order_relaxed); }

std::mutex& Serving() { return g_serving; }

Status CheckNotForked(const char* call) {
  if (!Forked()) return Status();
  return MakeStatus(Code::kInvalidUsage,
                    "%s: process %d was forked after its parent had used the library for more than ncclGetUniqueId; "
                    "threads, memory and "
                    "connections do not survive a fork: call exec in the child, or fork before the parent makes a "
                    "communicator, a stream or "
                    "memory",
                    call, static_cast<int>(getpid()));
}

Status CheckRoom(int64_t needed, const std::string& what) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return Status();
  int64_t open = -3;  // ".", ".." and the folder's own
  if (DIR* const folder = opendir("/proc/self/fd")) {
    while (readdir(folder) != nullptr) ++open;
    closedir(folder);
  } else {
    if (errno != EMFILE) return Status();
    open = static_cast<int64_t>(limit.rlim_cur);  // none is left, not even for reading the folder
  }
  if (open + needed <= static_cast<int64_t>(limit.rlim_cur)) return Status();
  return NoRoom(needed, open, limit, what);
}

Status OpenError(int error, const std::string& what) {
  rlimit limit{};
  if (error != EMFILE || getrlimit(RLIMIT_NOFILE, &limit) != 0) return SystemError(error, "%s", what.c_str());
  // All were in use when the call failed. Another thread may have closed some since, so counting would mislead.
  return NoRoom(1, static_cast<int64_t>(limit.rlim_cur), limit, what);
}

Stop StopOn(const std::atomic<bool>* flag) {
  if (flag == nullptr) return {};
  return [flag] { return flag->load(std::memory_order_relaxed); };
}

Wait PollUntil(int fd, short events, Clock::time_point deadline, const Stop& stop) {
  constexpr std::chrono::nanoseconds kSlice = std::chrono::milliseconds(10);
  for (;;) {
    if (stop && stop()) return Wait::kStopped;
    const auto left = std::max<std::chrono::nanoseconds>(deadline - Clock::now(), std::chrono::nanoseconds(0));
    const auto slice = stop ? std::min(left, kSlice) : std::min<std::chrono::nanoseconds>(left, std::chrono::hours(1));
    const timespec timeout{static_cast<time_t>(slice.count() / 1000000000),
                           static_cast<long>(slice.count() % 1000000000)};
    pollfd entry{fd, events, 0};
    const int n = ppoll(&entry, 1, &timeout, nullptr);
    if (n > 0) return Wait::kReady;
    if (n < 0 && errno != EINTR) return Wait::kError;
    if (n == 0 && slice == left) return Wait::kTimeout;
  }
}

}  // namespace axccl::service
