#include "src/base/processors.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <utility>

#include "src/base/log.h"
#include "src/base/service_fd.h"
#include "src/base/status.h"

namespace axccl {
namespace {

constexpr size_t kSetBytes = CPU_ALLOC_SIZE(kMaxProcessor + 1);

// Holds more processors than cpu_set_t, which ends at 1024.
struct Set {
  std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> bits{CPU_ALLOC(kMaxProcessor + 1),
                                                        [](cpu_set_t* set) { CPU_FREE(set); }};

  Set() {
    if (bits == nullptr) throw std::bad_alloc();
    CPU_ZERO_S(kSetBytes, bits.get());
  }
};

template <class Numbers>
bool Bind(pid_t thread, const Numbers& processors) {
  const Set set;
  for (const int processor : processors) CPU_SET_S(static_cast<size_t>(processor), kSetBytes, set.bits.get());
  return sched_setaffinity(thread, kSetBytes, set.bits.get()) == 0;
}

struct OwnThreads {
  std::mutex mutex;
  uint32_t generation = 0;  // of the process that the threads belong to
  std::vector<pid_t> threads;
  std::set<int> processors;  // empty: the threads keep the processors that they started with

  // Called with the lock held. A forked child has none of its parent's threads.
  void Renew() {
    if (std::exchange(generation, service::Generation()) == service::Generation()) return;
    threads.clear();
    processors.clear();
  }
};

// Never destroyed: threads of the library may start while the process exits.
OwnThreads& Own() {
  alignas(OwnThreads) static std::byte memory[sizeof(OwnThreads)];
  static auto* const own = new (memory) OwnThreads;
  return *own;
}

thread_local const std::vector<int>* t_began =
    nullptr;  // a pointer without a destructor, because own threads do not end

}  // namespace

std::vector<int> AllowedProcessors() {
  const Set set;
  if (sched_getaffinity(0, kSetBytes, set.bits.get()) != 0) return {0};
  std::vector<int> allowed;
  const auto count = static_cast<size_t>(CPU_COUNT_S(kSetBytes, set.bits.get()));
  for (int processor = 0; allowed.size() < count; ++processor)
    if (CPU_ISSET_S(static_cast<size_t>(processor), kSetBytes, set.bits.get())) allowed.push_back(processor);
  return allowed;
}

bool AllProcessorsTaken() {
  const int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char line[128];
  const ssize_t bytes = read(fd, line, sizeof(line) - 1);
  close(fd);
  line[bytes > 0 ? bytes : 0] = 0;
  return AllProcessorsTaken(line, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
}

// A line of /proc/loadavg: three averages, then "running/all".
bool AllProcessorsTaken(const char* line, int processors) {
  long running = 0;
  return std::sscanf(line, "%*s %*s %*s %ld/", &running) == 1 && running > processors;
}

namespace {

// Lets choose(here, &set) reduce the set of processors of the calling thread for the moment in which it moves.
template <class Choose>
void Move(const Choose& choose) {
  // Keeps own threads from being placed meanwhile; this thread's new set would be lost otherwise.
  std::unique_lock lock(Own().mutex, std::defer_lock);
  if (t_began != nullptr) lock.lock();
  cpu_set_t allowed;
  const int here = sched_getcpu();
  if (here < 0 || here >= CPU_SETSIZE || sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  cpu_set_t chosen = allowed;
  choose(here, &chosen);
  if (CPU_COUNT(&chosen) != 0 && sched_setaffinity(0, sizeof(chosen), &chosen) == 0)
    (void)sched_setaffinity(0, sizeof(allowed), &allowed);
}

}  // namespace

void MoveToAnotherProcessor() {
  Move([](int here, cpu_set_t* set) { CPU_CLR(here, set); });
}

void MoveToLeastLoaded(const std::function<int(int processor)>& load) {
  Move([&](int here, cpu_set_t* set) {
    const cpu_set_t allowed = *set;
    CPU_ZERO(set);
    int least = load(here);
    for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
      if (!CPU_ISSET(processor, &allowed)) continue;
      const int found = load(processor);
      if (found >= least) continue;
      least = found;
      CPU_ZERO(set);
      CPU_SET(processor, set);
    }
  });
}

void BecomeOwnThread(const char* name) {
  pthread_setname_np(pthread_self(), name);
  const Status placed = CatchAll(name, [] {
    OwnThreads& own = Own();
    auto began = std::make_unique<std::vector<int>>(AllowedProcessors());
    std::lock_guard lock(own.mutex);
    own.Renew();
    own.threads.push_back(gettid());
    t_began = began.release();
    if (!own.processors.empty()) (void)Bind(0, own.processors);
    return Status();
  });
  if (!placed.ok()) AXCCL_WARN("thread %s stays where it started: %s", name, placed.message().data());
}

std::vector<int> ProcessorsAtStart() { return t_began == nullptr ? std::vector<int>() : *t_began; }

void BindThisThread(const std::vector<int>& processors) {
  if (processors.empty()) return;
  // If memory runs out, the thread stays where it started.
  (void)CatchAll("placing a thread", [&] { return (void)Bind(0, processors), Status(); }).ok();
}

bool AllowOwnThreads(const std::vector<int>& processors) {
  if (processors.empty() || service::Forked()) return true;
  OwnThreads& own = Own();
  std::lock_guard lock(own.mutex);
  own.Renew();
  own.processors.insert(processors.begin(), processors.end());
  bool good = true;
  for (const pid_t thread : own.threads) good &= Bind(thread, own.processors);
  return good;
}

}  // namespace axccl
