#include "src/base/recycled.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace axccl {
namespace {

struct Few final : Recycled<Few, 2> {
  explicit Few(int number) : value(number) {}
  int value;
  void* room[4] = {};
};

TEST(Recycled, TheNextObjectTakesTheMemoryOfTheLast) {
  auto first = std::make_unique<Few>(1);
  const void* const where = first.get();
  first.reset();
  const auto second = std::make_unique<Few>(2);
  EXPECT_EQ(second.get(), where);
  EXPECT_EQ(second->value, 2);
}

TEST(Recycled, LiveObjectsHaveMemoryOfTheirOwn) {
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<Few>> all;
    std::set<const void*> places;
    for (int i = 0; i < 10; ++i) places.insert(all.emplace_back(std::make_unique<Few>(i)).get());
    EXPECT_EQ(places.size(), 10u);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(all[static_cast<size_t>(i)]->value, i);
  }
}

struct Base {
  virtual ~Base() = default;
};
struct Derived final : Base, Recycled<Derived> {
  int value = 0;
};

TEST(Recycled, AnObjectMayEndAsItsBase) {
  std::unique_ptr<Base> one = std::make_unique<Derived>();
  const auto* const where = dynamic_cast<const Derived*>(one.get());
  one.reset();
  EXPECT_EQ(std::make_unique<Derived>().get(), where);
}

TEST(Recycled, ThreadsShareWhatIsKept) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 20000; ++i) {
        const Few a(t), *const b = new Few(t);
        EXPECT_EQ(a.value, b->value);
        delete b;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace axccl
