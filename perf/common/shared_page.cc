#include "perf/common/shared_page.h"

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>

#include "perf/common/fail.h"
#include "src/base/sizes.h"

namespace axccl::perf {
namespace {

constexpr uint32_t kReady = 0x41784350;  // "AxCP"
constexpr int kSpins = 200;
constexpr int kYields = 200;
constexpr long kSleepNanoseconds = 50'000'000;  // how often a sleeper looks for dead peers

void CpuPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

void FutexWait(std::atomic<uint32_t>* word, uint32_t value) {
  timespec timeout{0, kSleepNanoseconds};
  syscall(SYS_futex, word, FUTEX_WAIT, value, &timeout, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>* word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

}  // namespace

// Arrivals and the epoch live on lines of their own: the spinning readers must not slow the arriving writers.
struct SharedPage::Meeting {
  alignas(kCacheLine) std::atomic<uint32_t> arrived;
  alignas(kCacheLine) std::atomic<uint32_t> epoch;
  std::atomic<uint32_t> sleepers;
  uint32_t participants;
};

struct SharedPage::Header {
  std::atomic<uint32_t> ready;
  std::atomic<uint32_t> aborted;  // 0 no, 1 text being written, 2 yes
  char abort_text[1024];
  int32_t processes;
  std::atomic<pid_t> pids[kMaxProcesses];
  Meeting meetings[2];
};

SharedPage::Header* SharedPage::header() const { return static_cast<Header*>(base_); }

size_t SharedPage::BytesNeeded(int processes, int threads) {
  return sizeof(Header) + 2 * kRecordBytes * (static_cast<size_t>(processes) + static_cast<size_t>(threads));
}

// Records alternate between two sets: a fast participant can be one meeting ahead of a slow one that still reads.
char* SharedPage::Record(Room room, uint32_t parity, int participant) const {
  const Header* h = header();
  size_t before = room == Room::kThreads ? 2 * static_cast<size_t>(h->meetings[0].participants) : 0;
  size_t index = before + parity * h->meetings[static_cast<int>(room)].participants + static_cast<size_t>(participant);
  return static_cast<char*>(base_) + sizeof(Header) + index * kRecordBytes;
}

Result<std::unique_ptr<SharedPage>> SharedPage::Map(int flags, int fd, int processes, int threads) {
  if (processes > kMaxProcesses || threads > kMaxParticipants) {
    return MakeStatus(Code::kInvalidArgument, "%d processes with %d threads in all: at most %d and %d are supported",
                      processes, threads, kMaxProcesses, kMaxParticipants);
  }
  size_t bytes = BytesNeeded(processes, threads);
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (base == MAP_FAILED) return SystemError(errno, "mmap of %zu shared bytes", bytes);
  return std::unique_ptr<SharedPage>(new SharedPage(base, bytes));
}

void SharedPage::Initialise(int processes, int threads) {
  Header* h = header();
  h->processes = processes;
  h->meetings[0].participants = static_cast<uint32_t>(processes);
  h->meetings[1].participants = static_cast<uint32_t>(threads);
  h->ready.store(kReady, std::memory_order_release);
}

Result<std::unique_ptr<SharedPage>> SharedPage::CreateAnonymous(int processes, int threads) {
  auto page = Map(MAP_SHARED | MAP_ANONYMOUS, -1, processes, threads);
  if (page.ok()) page.value()->Initialise(processes, threads);
  return page;
}

Result<std::unique_ptr<SharedPage>> SharedPage::MapFile(int fd, int processes, int threads, bool create) {
  auto page = Map(MAP_SHARED, fd, processes, threads);
  if (!page.ok()) return page;
  Header* h = page.value()->header();
  if (create) {
    page.value()->Initialise(processes, threads);
  } else if (h->ready.load(std::memory_order_acquire) != kReady) {
    return MakeStatus(Code::kInProgress, "the shared page is not initialised yet");
  } else if (h->processes != processes || h->meetings[1].participants != static_cast<uint32_t>(threads)) {
    return MakeStatus(Code::kInvalidUsage,
                      "the run has %d processes with %u threads in all, this process got %d "
                      "and %d; start all with the same options",
                      h->processes, h->meetings[1].participants, processes, threads);
  }
  return page;
}

SharedPage::~SharedPage() { munmap(base_, bytes_); }

void SharedPage::Register(int process, pid_t pid) { header()->pids[process].store(pid, std::memory_order_release); }

void SharedPage::Meet(Room room, int participant, const void* mine, size_t bytes, void* all) {
  Meeting* meeting = &header()->meetings[static_cast<int>(room)];
  uint32_t epoch = meeting->epoch.load(std::memory_order_relaxed);  // stable: this participant has not arrived yet
  uint32_t parity = epoch & 1;
  if (bytes > 0) std::memcpy(Record(room, parity, participant), mine, bytes);
  if (meeting->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == meeting->participants) {
    meeting->arrived.store(0, std::memory_order_relaxed);
    // Sequentially consistent with the sleeper's announcement: either it sees the new epoch, or this thread sees the
    // sleeper.
    meeting->epoch.store(epoch + 1, std::memory_order_seq_cst);
    if (meeting->sleepers.load(std::memory_order_seq_cst) != 0) FutexWakeAll(&meeting->epoch);
  } else {
    WaitForEpoch(meeting, epoch);
  }
  if (all == nullptr) return;
  for (uint32_t i = 0; i < meeting->participants; ++i) {
    std::memcpy(static_cast<char*>(all) + i * bytes, Record(room, parity, static_cast<int>(i)), bytes);
  }
}

void SharedPage::WaitForEpoch(Meeting* meeting, uint32_t old_epoch) {
  auto over = [&] { return meeting->epoch.load(std::memory_order_acquire) != old_epoch; };
  for (int i = 0; i < kSpins; ++i) {
    if (over()) return;
    CpuPause();
  }
  for (int i = 0; i < kYields; ++i) {
    if (over()) return;
    sched_yield();
  }
  while (!over()) {
    Status peers = CheckPeers();
    // A process may leave as soon as the meeting is over: its death matters only if it has not ended this wait.
    if (over()) return;
    if (!peers.ok()) Fail(kExitPeerFailed, "stopped: %s", std::string(peers.message()).c_str());
    meeting->sleepers.fetch_add(1, std::memory_order_seq_cst);
    if (meeting->epoch.load(std::memory_order_seq_cst) == old_epoch) FutexWait(&meeting->epoch, old_epoch);
    meeting->sleepers.fetch_sub(1, std::memory_order_relaxed);
  }
}

Status SharedPage::CheckPeers() const {
  Header* h = header();
  if (h->aborted.load(std::memory_order_acquire) == 2) return MakeStatus(Code::kRemoteError, "%s", h->abort_text);
  for (int i = 0; i < h->processes; ++i) {
    pid_t pid = h->pids[i].load(std::memory_order_acquire);
    if (pid == 0 || pid == getpid()) continue;
    // A descriptor of the process distinguishes a zombie from a living process, which kill(pid, 0) does not.
    int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (fd < 0 && errno != ESRCH) continue;
    pollfd poll_fd{fd, POLLIN, 0};
    bool dead = fd < 0 || poll(&poll_fd, 1, 0) > 0;
    if (fd >= 0) close(fd);
    if (dead) {
      return MakeStatus(Code::kRemoteError, "process %d (pid %d) of the run has died", i, static_cast<int>(pid));
    }
  }
  return Status();
}

bool SharedPage::aborted() const { return header()->aborted.load(std::memory_order_acquire) != 0; }

void SharedPage::Abort(const std::string& text) {
  Header* h = header();
  uint32_t expected = 0;
  if (!h->aborted.compare_exchange_strong(expected, 1)) return;
  std::strncpy(h->abort_text, text.c_str(), sizeof(h->abort_text) - 1);
  h->aborted.store(2, std::memory_order_release);
  for (Meeting& meeting : h->meetings) FutexWakeAll(&meeting.epoch);
}

}  // namespace axccl::perf
