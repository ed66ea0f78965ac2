#include "src/cost/usable_cache.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <limits>

#if defined(__SSE2__) && defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define AXCCL_MEASURES_CACHE 1
#include <emmintrin.h>
#endif

#include "src/base/processors.h"
#include "src/base/sizes.h"

namespace axccl::cost {

uint64_t KeptBytes(const std::vector<CopyTimes>& times) {
  const auto excess = [](const CopyTimes& t) { return std::log(t.plain / t.around); };
  const auto found = std::find_if(times.begin(), times.end(), AroundIsFaster);
  if (times.empty()) return 0;
  if (found == times.end()) return times.back().bytes;
  if (found == times.begin()) return found->bytes / 2;
  const CopyTimes& before = found[-1];
  const double below = -excess(before), way = below / (below + excess(*found));
  const double ratio = static_cast<double>(found->bytes) / static_cast<double>(before.bytes);
  return static_cast<uint64_t>(static_cast<double>(before.bytes) * std::pow(ratio, way));
}

#ifdef AXCCL_MEASURES_CACHE

namespace {

constexpr uint64_t kLeastSet = 1u << 20;        // of a thread: no processor of today has a smaller cache of its own
constexpr uint64_t kMostSet = 64u << 20;        // of a thread
constexpr uint64_t kMostTogether = 256u << 20;  // of all threads
constexpr int kMostThreads = 8;
constexpr int kLeastRuns = 3, kMostRuns = 64;
constexpr int kCopiesPerUse = 4;
constexpr double kAgree = 1.04;
constexpr double kRunsSeconds = 4e-4;  // for which copies of one kind and size repeat
constexpr double kMostSeconds = 0.5;   // on a quiet machine, a third of it is enough

double ClockSeconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// As a reduction writes: memcpy may stream by itself.
template <bool kAround>
void CopyAll(std::byte* to, const std::byte* from, size_t bytes) {
  const __m128i other = _mm_set1_epi8(2);  // keeps the compiler from making this a memcpy
  for (size_t at = 0; at < bytes; at += sizeof(__m128i)) {
    auto* const place = reinterpret_cast<__m128i*>(to + at);
    const __m128i word = _mm_xor_si128(_mm_load_si128(reinterpret_cast<const __m128i*>(from + at)), other);
    kAround ? _mm_stream_si128(place, word) : _mm_store_si128(place, word);
  }
  if (kAround) _mm_sfence();
}

void ReadAll(const std::byte* from, size_t bytes) {
  __m128i all = _mm_setzero_si128();
  for (size_t at = 0; at < bytes; at += sizeof(__m128i))
    all = _mm_or_si128(all, _mm_load_si128(reinterpret_cast<const __m128i*>(from + at)));
  asm volatile("" : : "x"(all));
}

// The owners of some outputs use them at once, others later.
template <bool kAround>
void CopyAndUse(std::byte* to, const std::byte* from, size_t bytes) {
  for (int copy = 0; copy < kCopiesPerUse; ++copy) CopyAll<kAround>(to, from, bytes);
  ReadAll(to, bytes);
}

// The bytes that a limit of a control group leaves this process at most, which is the one limit that kills.
uint64_t GroupLimit() {
  uint64_t least = ~uint64_t{0};
  for (const char* file : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    uint64_t bytes = 0;
    if (std::ifstream(file) >> bytes) least = std::min(least, bytes);
  }
  return least;
}

// A share of the free memory, so that measuring disturbs no one.
uint64_t MostTogether() {
  const auto free = static_cast<uint64_t>(std::max(sysconf(_SC_AVPHYS_PAGES), 0L)) * kPage;
  return std::min({kMostTogether, free / 4, GroupLimit() / 16});
}

// The threads meet after each step, and the last one decides from the times of all what the next step is. They do not
// sleep meanwhile: it takes as long as a step to wake up, and steps would not be at the same time.
class Measurement {
 public:
  explicit Measurement(const std::vector<int>& processors)
      : most_(std::min(kMostSet, MostTogether() / processors.size())), seconds_(processors.size()) {
    times_.reserve(16);  // so that a thread need not allocate
    for (size_t i = 0; i < processors.size(); ++i) threads_.push_back({this, i, processors[i], nullptr, {}});
  }
  ~Measurement() {
    for (const Thread& thread : threads_) {
      if (thread.memory != nullptr) munmap(thread.memory, kMostSet);
    }
  }

  std::optional<UsableCache> Run() {
    if (most_ < kLeastSet) return std::nullopt;
    for (Thread& thread : threads_) {
      // Memory as that of the heap: the kernel may give other pages to other mappings.
      void* const mapped =
          mmap(nullptr, kMostSet, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (mapped == MAP_FAILED) return std::nullopt;
      thread.memory = static_cast<std::byte*>(mapped);
    }
    size_t started = 0;
    while (started < threads_.size() && Start(&threads_[started])) ++started;
    const bool all = started == threads_.size();
    if (!all) abandoned_.store(true, std::memory_order_relaxed);
    for (size_t i = 0; i < started; ++i) pthread_join(threads_[i].thread, nullptr);
    if (!all || !complete_) return std::nullopt;
    return UsableCache{KeptBytes(times_) * threads_.size(), static_cast<int>(threads_.size())};
  }

 private:
  struct Thread {
    Measurement* all;
    size_t index;
    int processor;
    std::byte* memory;
    pthread_t thread;
  };
  enum class Step : uint8_t { kTouch, kPlain, kAround };

  static bool Start(Thread* thread) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<size_t>(thread->processor), &set);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setaffinity_np(&attributes, sizeof(set), &set);
    const int error = pthread_create(
        &thread->thread, &attributes,
        [](void* self) -> void* {
          auto* const t = static_cast<Thread*>(self);
          t->all->Work(*t);
          return nullptr;
        },
        thread);
    pthread_attr_destroy(&attributes);
    return error == 0;
  }

  void Work(const Thread& thread) {
    std::byte* const from = thread.memory;
    std::byte* const to = thread.memory + kMostSet / 2;
    while (Meet() && !stop_) {
      const size_t half = set_ / 2, touched = touched_ / 2;
      const double start = ClockSeconds();
      if (step_ == Step::kTouch) {
        std::memset(from + touched, 1, half - touched);
        std::memset(to + touched, 1, half - touched);
      } else {
        (step_ == Step::kPlain ? CopyAndUse<false> : CopyAndUse<true>)(to, from, half);
      }
      seconds_[thread.index] = ClockSeconds() - start;
    }
  }

  // False if it was abandoned.
  bool Meet() {
    const uint32_t step = steps_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_.size()) {
      arrived_.store(0, std::memory_order_relaxed);
      if (step > 0) EndStep();
      steps_.store(step + 1, std::memory_order_release);
      return true;
    }
    for (uint32_t looks = 1; steps_.load(std::memory_order_acquire) == step; ++looks) {
      if (abandoned_.load(std::memory_order_relaxed)) return false;
      if (looks % 64 == 0) sched_yield();
    }
    return true;
  }

  void EndStep() {
    if (step_ == Step::kTouch) {
      touched_ = set_;
      return Begin(Step::kPlain);
    }
    const double slowest = *std::max_element(seconds_.begin(), seconds_.end());
    // The first run brings the working set to where it will be. Disturbances only make a run slower.
    if (runs_++ > 0) {
      second_ = std::min(second_, std::max(best_, slowest));
      best_ = std::min(best_, slowest);
    }
    const bool late = ClockSeconds() - begin_ > kMostSeconds;
    if (!Settled() && !late) return;
    if (step_ == Step::kPlain) {
      plain_ = best_;
      return Begin(Step::kAround);
    }
    const CopyTimes times{set_, plain_, best_};
    const bool again = !times_.empty() && times_.back().bytes == set_;
    if (again) times_.back() = times;
    if (!again) times_.push_back(times);
    const bool faster = AroundIsFaster(times);
    complete_ = (faster && again) || (!faster && 2 * set_ > most_);
    if (complete_ || late) {
      stop_ = true;
    } else if (faster) {
      Begin(Step::kPlain);  // measured again, as other work may have disturbed it
    } else {
      set_ *= 2;
      Begin(Step::kTouch);
    }
  }

  // Two of the runs agree: other work has not disturbed them.
  bool Settled() const {
    if (runs_ > kMostRuns) return true;
    return runs_ > kLeastRuns && ClockSeconds() - step_begin_ > kRunsSeconds && second_ <= kAgree * best_;
  }

  void Begin(Step step) {
    step_ = step;
    step_begin_ = ClockSeconds();
    runs_ = 0;
    best_ = second_ = std::numeric_limits<double>::infinity();
  }

  const double begin_ = ClockSeconds();
  const uint64_t most_;          // working set of a thread
  std::vector<double> seconds_;  // [thread]: of the last run
  std::vector<CopyTimes> times_;
  uint64_t set_ = kLeastSet, touched_ = 0;
  Step step_ = Step::kTouch;
  double step_begin_ = 0, best_ = 0, second_ = 0, plain_ = 0;
  int runs_ = 0;
  bool stop_ = false, complete_ = false;
  std::atomic<uint32_t> arrived_{0}, steps_{0};
  std::atomic<bool> abandoned_{false};
  std::vector<Thread> threads_;
};

}  // namespace

bool CanMeasureCache() { return true; }

std::optional<UsableCache> MeasureUsableCache() {
  std::vector<int> processors = AllowedProcessors();
  if (processors.size() > kMostThreads) processors.resize(kMostThreads);
  std::erase_if(processors, [](int p) { return p >= CPU_SETSIZE; });
  if (processors.empty()) return std::nullopt;
  return Measurement(processors).Run();
}

#else

bool CanMeasureCache() { return false; }

std::optional<UsableCache> MeasureUsableCache() { return std::nullopt; }

#endif

}  // namespace axccl::cost
