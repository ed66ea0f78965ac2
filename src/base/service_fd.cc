#include "src/base/service_fd.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

namespace axccl::service {
namespace {

// Covers every descriptor number below Linux's default limit of open files. Zero pages until used.
constexpr int kMaxTracked = 1 << 20;
constexpr int kWordBits = 64;

std::atomic<uint64_t> g_open[kMaxTracked / kWordBits];
std::atomic<int> g_words{0};  // words of g_open ever used
std::atomic<bool> g_forked{false};

// Async-signal-safe: the child of a threaded process may do nothing else.
void InForkedChild() {
  g_forked.store(true, std::memory_order_relaxed);
  const int words = g_words.load(std::memory_order_acquire);
  for (int w = 0; w < words; ++w) {
    for (uint64_t bits = g_open[w].exchange(0, std::memory_order_relaxed); bits != 0; bits &= bits - 1) {
      close(w * kWordBits + std::countr_zero(bits));
    }
  }
}

void Track(int fd) {
  static const int registered = pthread_atfork(nullptr, nullptr, InForkedChild);
  (void)registered;  // fails only without memory; then children keep descriptors until they exec
  if (fd >= kMaxTracked) return;
  const int word = fd / kWordBits;
  int words = g_words.load(std::memory_order_relaxed);
  while (words <= word && !g_words.compare_exchange_weak(words, word + 1, std::memory_order_release)) {
  }
  g_open[word].fetch_or(uint64_t{1} << (fd % kWordBits), std::memory_order_release);
}

// Whether the descriptor is still ours to close.
bool Untrack(int fd) {
  if (fd >= kMaxTracked) return !Forked();
  const uint64_t bit = uint64_t{1} << (fd % kWordBits);
  return (g_open[fd / kWordBits].fetch_and(~bit, std::memory_order_acq_rel) & bit) != 0;
}

}  // namespace

Fd::Fd(int fd) : fd_(fd) {
  if (fd_ >= 0) Track(fd_);
}

Fd::Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void Fd::Close() {
  const int fd = std::exchange(fd_, -1);
  if (fd >= 0 && Untrack(fd)) close(fd);
}

bool Forked() { return g_forked.load(std::memory_order_relaxed); }

Status CheckNotForked(const char* call) {
  if (!Forked()) return Status();
  return MakeStatus(
      Code::kInvalidUsage,
      "%s: process %d was forked after its parent had used the library, whose threads and connections do not "
      "survive a fork; call exec in the child, or fork before the first use",
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
    open = static_cast<int64_t>(limit.rlim_cur);  // not even one for the folder
  }
  const int64_t all = static_cast<int64_t>(limit.rlim_cur);
  if (open + needed <= all) return Status();
  return MakeStatus(Code::kSystemError,
                    "%s needs %lld file descriptors, but process %d has %lld of its %lld open already; raise the limit on open "
                    "files to %lld or more (ulimit -n; hard limit %lld)",
                    what.c_str(), static_cast<long long>(needed), static_cast<int>(getpid()), static_cast<long long>(open),
                    static_cast<long long>(all), static_cast<long long>(open + needed),
                    static_cast<long long>(limit.rlim_max));
}

Status OpenError(int error, const std::string& what) {
  if (error != EMFILE) return SystemError(error, "%s", what.c_str());
  // One is needed, and none is left.
  const Status full = CheckRoom(1, what);
  return full.ok() ? SystemError(error, "%s", what.c_str()) : full;
}

Wait PollUntil(int fd, short events, Clock::time_point deadline, const std::atomic<bool>* abort) {
  constexpr std::chrono::nanoseconds kSlice = std::chrono::milliseconds(10);
  for (;;) {
    if (abort != nullptr && abort->load(std::memory_order_relaxed)) return Wait::kAborted;
    const auto left = std::max<std::chrono::nanoseconds>(deadline - Clock::now(), std::chrono::nanoseconds(0));
    const auto slice =
        abort != nullptr ? std::min(left, kSlice) : std::min<std::chrono::nanoseconds>(left, std::chrono::hours(1));
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
