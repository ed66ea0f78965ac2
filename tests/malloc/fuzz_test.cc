// Random calls of the malloc family from several threads, with forks in between. Every block has its content checked at
// each turn, by whichever thread comes, and by the children.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/harness/random.h"
#include "tests/malloc/family.h"

namespace axccl::test {
namespace {

using harness::Random;

struct Slot {
  std::mutex mutex;
  void* memory = nullptr;
  size_t bytes = 0;
  uint64_t seed = 0;
};

class Fuzz {
 public:
  explicit Fuzz(const Family& family) : f_(family) {}
  ~Fuzz() {
    for (Slot& slot : slots_) f_.release(slot.memory);
  }

  // Returns false if any content is wrong.
  bool Step(Random* random) {
    Slot& slot = slots_[random->Below(slots_.size())];
    std::lock_guard lock(slot.mutex);
    return Change(&slot, random);
  }

  bool ForkAndCheck(uint64_t seed) {
    for (Slot& slot : slots_) slot.mutex.lock();
    const int result = InChild(
        [&] {
          Random random(seed);
          for (Slot& slot : slots_) {
            if (!Change(&slot, &random) || !Change(&slot, &random)) return 1;
          }
          return 0;
        },
        // The parent's blocks are free for all while the child looks at its own.
        [&] {
          for (Slot& slot : slots_) slot.mutex.unlock();
        });
    return result == 0;
  }

 private:
  static size_t DrawSize(Random* random) {
    const size_t most = size_t{1} << random->Below(22);
    return 1 + random->Below(most);
  }

  bool Change(Slot* slot, Random* random) {
    bool good = CountWrong(slot->memory, slot->bytes, slot->seed) == 0;
    const size_t bytes = DrawSize(random);
    const uint64_t action = random->Below(6);
    if (action == 0) {
      const size_t kept = std::min(slot->bytes, bytes) / 8 * 8;
      slot->memory = f_.resize(slot->memory, bytes);
      good = good && CountWrong(slot->memory, kept, slot->seed) == 0;
    } else {
      f_.release(slot->memory);
      const size_t alignment = size_t{8} << random->Below(20);
      slot->memory = action == 1   ? nullptr
                     : action == 2 ? f_.zeroed(bytes, 1)
                     : action == 3 ? f_.aligned(alignment, (bytes + alignment - 1) / alignment * alignment)
                                   : f_.allocate(bytes);
      if (action == 2) good = good && AllZero(slot->memory, bytes);
      if (action == 3) good = good && reinterpret_cast<uintptr_t>(slot->memory) % alignment == 0;
    }
    slot->bytes = slot->memory == nullptr ? 0 : bytes;
    slot->seed = random->Next();
    Fill(slot->memory, slot->bytes, slot->seed);
    return good && f_.usable(slot->memory) >= slot->bytes;
  }

  static bool AllZero(const void* memory, size_t bytes) {
    const auto* const from = static_cast<const char*>(memory);
    size_t wrong = 0;
    for (size_t i = 0; i < bytes; ++i) wrong += from[i] != 0;
    return wrong == 0;
  }

  const Family& f_;
  std::array<Slot, 60> slots_;
};

TEST_P(FamilyTest, KeepsContentsThroughRandomCalls) {
  WithHeap([&](ncclComm_t) {
    const int steps = harness::FullTests() ? 100000 : 2000 / harness::TimeScale();
    Fuzz fuzz(GetParam());
    std::atomic<bool> good{true};
    std::atomic<int> running{3};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        Random random(harness::Scramble(harness::Seed(), static_cast<uint64_t>(t)));
        for (int i = 0; i < steps && good; ++i) {
          if (!fuzz.Step(&random)) good = false;
        }
        --running;
      });
    }
    int forks = 0;
    for (; running > 0 && good; ++forks) {
      if (!fuzz.ForkAndCheck(harness::Scramble(harness::Seed(), static_cast<uint64_t>(1000 + forks)))) good = false;
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(good) << "AXCCL_TEST_SEED=" << harness::Seed();
    EXPECT_GT(forks, 0);
  });
}

AXCCL_TEST_BOTH_FAMILIES;

}  // namespace
}  // namespace axccl::test
