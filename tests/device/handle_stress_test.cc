// The handle table of streams and events under threads that insert, use and remove at the same time.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "src/base/handle_table.h"
#include "tests/harness/random.h"

namespace axccl {
namespace {

struct Object {
  explicit Object(uint64_t v) : value(v) {}
  ~Object() { value = 0; }
  uint64_t value;
};

TEST(HandleStress, AHandleIsItsObjectOrNothing) {
  static HandleTable<Object> table(0x5e);
  constexpr size_t kShared = 8;
  // Published handles, each with the value of its object beside it.
  struct Published {
    std::atomic<void*> handle{nullptr};
  };
  static Published published[kShared];
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      harness::Random random(harness::Scramble(harness::Seed(), t));
      for (int i = 0; i < 20000; ++i) {
        Published& place = published[random.Below(kShared)];
        if (random.OneIn(4)) {
          void* const handle = table.Insert(std::make_shared<Object>(1));
          void* const old = place.handle.exchange(handle);
          if (old != nullptr) {
            const auto removed = table.Remove(old);
            ASSERT_NE(removed, nullptr);
            ASSERT_EQ(removed->value, 1u);
            ASSERT_EQ(removed.use_count(), 1) << "another thread still holds a removed object";
            ASSERT_FALSE(table.Get(old));
          }
        } else if (void* const handle = place.handle.load(); handle != nullptr) {
          const auto pin = table.Get(handle);
          if (pin) {
            ASSERT_EQ(pin->value, 1u) << "pinned an object that is gone";
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace axccl
