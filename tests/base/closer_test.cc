#include "src/base/closer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace axccl {
namespace {

constexpr std::chrono::milliseconds kShort(1);
constexpr std::chrono::minutes kLong(1);

TEST(Closer, ClosesInOrderOnAnotherThread) {
  std::promise<void> gate;
  std::vector<int> closed;
  std::thread::id by;
  Closer::Process().Add([opened = gate.get_future().share()] { opened.wait(); });
  for (int i = 0; i < 3; ++i) {
    Closer::Process().Add([&, i] {
      closed.push_back(i);
      by = std::this_thread::get_id();
    });
  }
  EXPECT_FALSE(Closer::Process().Await(kShort)) << "the first one is not closed yet";
  gate.set_value();
  ASSERT_TRUE(Closer::Process().Await(kLong));
  EXPECT_EQ(closed, (std::vector<int>{0, 1, 2}));
  EXPECT_NE(by, std::this_thread::get_id());
  EXPECT_TRUE(Closer::Process().Await(kShort)) << "all are closed";
}

// Closing an object may add more to close, which Await waits for too; what the object holds has ended by then.
TEST(Closer, WaitsForWhatIsAddedMeanwhile) {
  std::atomic<bool> inner{false};
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = held;
  Closer::Process().Add([&inner, held = std::move(held)] { Closer::Process().Add([&inner] { inner = true; }); });
  ASSERT_TRUE(Closer::Process().Await(kLong));
  EXPECT_TRUE(inner);
  EXPECT_TRUE(seen.expired());
}

TEST(Closer, HasAThreadWheneverThereIsWork) {
  for (int round = 0; round < 100; ++round) {
    std::atomic<bool> closed{false};
    Closer::Process().Add([&] { closed = true; });
    ASSERT_TRUE(Closer::Process().Await(kLong));
    ASSERT_TRUE(closed);
  }
}

}  // namespace
}  // namespace axccl
