// The measurements. Each takes the best of several short runs, because disturbances only make a run slower.
#include "src/cost/machine.h"

#include <pthread.h>
#include <sched.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>

#include "src/base/sizes.h"
#include "src/cost/usable_cache.h"
#include "src/plan/region.h"

namespace axccl::cost {

namespace {

constexpr double kBudget = 3e-4;  // most seconds that one measurement may take

constexpr double kHandOverDeadline = 2e-3;  // if other processes use the cores for longer, the default is used

double Now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Shortest time of f(), over at least 3 runs and until the budget is spent.
template <class F>
double BestOf(F f) {
  double best = 1e9;
  const double begin = Now();
  double now = begin;
  for (int run = 0; run < 3 || (run < 1000 && now - begin < kBudget); ++run) {
    const double start = Now();
    f();
    now = Now();
    best = std::min(best, now - start);
  }
  return std::max(best, 1e-9);
}

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Bytes = std::unique_ptr<std::byte[], Free>;

Bytes Allocate(size_t bytes) {
  auto* p = static_cast<std::byte*>(std::aligned_alloc(kPage, bytes));
  if (p != nullptr) std::memset(p, 1, bytes);  // touch every page
  return Bytes(p);
}

// Keeps the compiler from removing the writes to `p`.
void Keep(const void* p) { asm volatile("" : : "g"(p) : "memory"); }

// Evicts the bytes from all caches; returns false if the instruction set cannot do that.
bool Evict(const std::byte* p, size_t bytes) {
#if defined(__x86_64__)
  for (size_t i = 0; i < bytes; i += 64) __builtin_ia32_clflush(p + i);
  __builtin_ia32_mfence();
  return true;
#else
  (void)p, (void)bytes;
  return false;
#endif
}

void MeasureCopies(Machine* machine) {
  constexpr size_t kCached = 256u << 10, kMemory = 1u << 20;
  const Bytes from = Allocate(kMemory), to = Allocate(kMemory);
  if (from == nullptr || to == nullptr) return;
  const auto copy = [&](size_t bytes) {
    std::memcpy(to.get(), from.get(), bytes);
    Keep(to.get());
  };
  machine->cached_bytes_per_second = kCached / BestOf([&] { copy(kCached); });
  double best = 1e9;
  for (int run = 0; run < 2; ++run) {
    if (!Evict(from.get(), kMemory) || !Evict(to.get(), kMemory)) return;
    const double start = Now();
    copy(kMemory);
    best = std::min(best, Now() - start);
  }
  machine->memory_bytes_per_second = std::min(kMemory / best, machine->cached_bytes_per_second);
}

// What is read is as large as in use, and as far away as what another process has written. Pages that are in this
// core's cache are read several times as fast.
void MeasureCalls(Machine* machine) {
  constexpr size_t kBytes = 512u << 10;
  const Bytes from = Allocate(kBytes), to = Allocate(kBytes);
  if (from == nullptr || to == nullptr) return;
  const pid_t self = getpid();
  bool works = true;
  const auto read = [&](size_t bytes) {
    const iovec local{to.get(), bytes}, remote{from.get(), bytes};
    works &= process_vm_readv(self, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
  };
  const double few = BestOf([&] { read(8); });
  double many = 1e9;
  for (int run = 0; run < 3; ++run) {
    (void)(Evict(from.get(), kBytes) && Evict(to.get(), kBytes));
    const double start = Now();
    read(kBytes);
    many = std::min(many, Now() - start);
  }
  if (!works || many <= few) return;
  machine->call_seconds = few;
  machine->call_bytes_per_second = kBytes / (many - few);
}

// Does what the executor does for an operation of any size: resolves the ranges of its operands and calls a mover. An
// operation has several operands and the loop over operations costs as much again, hence the factor.
void MeasureOperation(Machine* machine) {
  constexpr int kOps = 256, kResolutionsPerOp = 5;
  std::byte from[64] = {}, to[64];
  void* (*volatile mover)(void*, const void*, size_t) = std::memcpy;
  volatile uint64_t count = 8;
  const double seconds = BestOf([&] {
    for (int i = 0; i < kOps; ++i) {
      const plan::Partition partition{.count = count, .tile = 4096, .parts = 2};
      const plan::Range range = plan::Resolve(partition, 0, 0, static_cast<uint32_t>(i & 1));
      mover(to + range.begin, from + range.begin, range.count);
      Keep(to);
    }
  });
  machine->op_seconds = std::clamp(seconds / kOps * kResolutionsPerOp, 1e-9, 1e-6);
}

// Two threads that pass a number back and forth, each writing a line of its own.
struct PingPong {
  // Batches are short, so that some of them are not interrupted by other processes.
  static constexpr uint64_t kBatch = 4;
  static constexpr uint64_t kBatches = 128;
  bool yields = false;  // give up the core while waiting, for two threads on one core
  double deadline = 0;
  alignas(kCacheLine) std::atomic<uint64_t> ping{0};
  alignas(kCacheLine) std::atomic<uint64_t> pong{0};
  alignas(kCacheLine) std::atomic<bool> stop{false};

  bool Await(const std::atomic<uint64_t>& line, uint64_t value) {
    for (uint32_t spins = 1; line.load(std::memory_order_acquire) < value; ++spins) {
      if (stop.load(std::memory_order_relaxed)) return false;
      // Other threads on these cores must be able to run; checking the clock alone does not let them.
      if (yields || spins % 4096 == 0) sched_yield();
      if (spins % 64 == 0 && Now() > deadline) {
        stop.store(true, std::memory_order_relaxed);
        return false;
      }
    }
    return true;
  }

  static void* Answer(void* self) {
    auto* p = static_cast<PingPong*>(self);
    for (uint64_t v = 1; v <= kBatch * kBatches && p->Await(p->ping, v); ++v) {
      p->pong.store(v, std::memory_order_release);
    }
    return nullptr;
  }

  // Returns the seconds for one way in the best batch; 0 when none finished by the deadline.
  double Ask() {
    double best = 0;
    uint64_t v = 0;
    for (uint64_t batch = 0; batch < kBatches; ++batch) {
      const double start = Now();
      for (uint64_t i = 0; i < kBatch; ++i) {
        ping.store(++v, std::memory_order_release);
        if (!Await(pong, v)) return best;
      }
      const double way = (Now() - start) / (2 * kBatch);
      best = best == 0 ? way : std::min(best, way);
    }
    return best;
  }
  static void* AskInThread(void* self);
};

struct PingPongRun {
  PingPong game;
  double seconds = 0;
};

void* PingPong::AskInThread(void* run) {
  auto* r = static_cast<PingPongRun*>(run);
  r->seconds = r->game.Ask();
  r->game.stop.store(true, std::memory_order_relaxed);
  return nullptr;
}

// Plays on cores `a` and `b`, which may be the same. Uses threads of its own, so the caller's affinity stays as it is.
double PlayOn(int a, int b) {
  PingPongRun run;
  run.game.yields = a == b;
  run.game.deadline = Now() + kHandOverDeadline;
  pthread_t threads[2];
  int started = 0;
  void* (*const body[2])(void*) = {PingPong::AskInThread, PingPong::Answer};
  void* const argument[2] = {&run, &run.game};
  const int core[2] = {a, b};
  for (; started < 2; ++started) {
    pthread_attr_t attributes;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<size_t>(core[started]), &set);
    pthread_attr_init(&attributes);
    pthread_attr_setaffinity_np(&attributes, sizeof(set), &set);
    const int error = pthread_create(&threads[started], &attributes, body[started], argument[started]);
    pthread_attr_destroy(&attributes);
    if (error != 0) break;
  }
  if (started < 2) run.game.stop.store(true, std::memory_order_relaxed);
  for (int i = 0; i < started; ++i) pthread_join(threads[i], nullptr);
  return started < 2 ? 0 : run.seconds;
}

// A longer result was interrupted all the time, and shows nothing about the machine.
constexpr double kLongestSignal = 5e-6, kLongestHandOver = 2e-5;

void MeasureHandOvers(Machine* machine) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  int cores[2] = {-1, -1};
  for (int c = 0; c < CPU_SETSIZE && cores[1] < 0; ++c) {
    if (CPU_ISSET(static_cast<size_t>(c), &allowed)) cores[cores[0] < 0 ? 0 : 1] = c;
  }
  if (cores[1] >= 0) {
    const double signal = PlayOn(cores[0], cores[1]);
    if (signal > 0 && signal < kLongestSignal) machine->signal_seconds = std::max(signal, 1e-8);
  }
  if (cores[0] >= 0) {
    const double handover = PlayOn(cores[0], cores[0]);
    if (handover > 0 && handover < kLongestHandOver) machine->switch_seconds = std::max(handover, 1e-7);
  }
}

// Parses a sysfs size ("32768K") into bytes; 0 if it is not one.
uint64_t SysfsBytes(const std::string& file) {
  std::ifstream in(file);
  uint64_t value = 0;
  char unit = 0;
  if (!(in >> value)) return 0;
  in >> unit;
  return value << (unit == 'G' ? 30 : unit == 'M' ? 20 : unit == 'K' ? 10 : 0);
}

// Counts the CPUs of a sysfs list ("0-3,8-11").
uint64_t SysfsCpus(const std::string& file) {
  std::ifstream in(file);
  uint64_t cpus = 0, first = 0, last = 0;
  while (in >> first) {
    last = first;
    if (in.peek() == '-') in.ignore(1) >> last;
    cpus += last >= first ? last - first + 1 : 0;
    if (in.peek() == ',') in.ignore(1);
  }
  return cpus;
}

// Virtual machines report the cache of a whole socket for a few cores of it.
constexpr uint64_t kMostOfCore = 32u << 20;

// Finds the cache of which one CPU has the largest share. Looks at all levels, because virtual machines misreport
// single ones.
void ReadCache(Machine* machine) {
  uint64_t share = 0;
  for (int index = 0; index < 8; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    const uint64_t cpus = SysfsCpus(folder + "shared_cpu_list"), bytes = SysfsBytes(folder + "size");
    if (cpus == 0 || bytes / cpus <= share) continue;
    share = bytes / cpus;
    machine->cache_bytes = std::clamp<uint64_t>(bytes, cpus * (256u << 10), cpus * kMostOfCore);
    machine->cache_cores = cpus;
  }
}

// The system says which cores share a cache, but not how much of it is theirs.
void MeasureCache(Machine* machine) {
  ReadCache(machine);
  const std::optional<UsableCache> usable = MeasureUsableCache();
  if (!usable.has_value()) return;
  machine->cache_bytes = usable->bytes;
  machine->cache_cores = std::max(machine->cache_cores, static_cast<uint64_t>(usable->threads));
}

}  // namespace

Machine Measure() {
  Machine machine;
  MeasureCache(&machine);
  MeasureCopies(&machine);
  MeasureCalls(&machine);
  MeasureOperation(&machine);
  MeasureHandOvers(&machine);
  return machine;
}

Machine GpuMachine(int multiprocessors, int ranks) {
  Machine machine;
  machine.signal_seconds = 1.5e-6;
  machine.op_seconds = 4e-7;
  machine.switch_seconds = 5e-6;
  machine.cached_bytes_per_second = Gpu::kBytesInFlight / Gpu::kCacheSeconds;
  machine.memory_bytes_per_second = Gpu::kBytesInFlight / Gpu::kMemorySeconds;
  machine.peer_bytes_per_second = Gpu::kBytesInFlight / Gpu::kLinkSeconds;
  machine.gpu_memory_bytes_per_second = Gpu::kMemoryBytesPerSecond;
  machine.gpu_link_bytes_per_second = Gpu::kLinkBytesPerSecond;
  machine.gpu_multicast_bytes_per_second = Gpu::kMulticastBytesPerSecond;
  // Until all have been signalled, and have loaded and stored what is there (docs/gpus.md).
  machine.packed_seconds = 3 * Gpu::kLinkSeconds;
  machine.packed_block_bytes = Gpu::kWordsBytes;
  machine.packed_bytes = Gpu::kKeptBytes;
  machine.rowed_bytes_per_second = 1 / (1 / machine.peer_bytes_per_second + Gpu::kLinkSeconds / Gpu::kRowBytesInFlight);
  machine.cache_bytes = 32u << 20;
  machine.cache_cores = static_cast<uint64_t>(multiprocessors);
  machine.cores = multiprocessors;
  machine.ranks = ranks;
  return machine;
}

}  // namespace axccl::cost
