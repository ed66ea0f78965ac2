#include "src/base/handle_table.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "tests/harness/failing_new.h"

namespace axccl {
namespace {

// Slots of a table live as long as the process, so the tests' tables do too.
HandleTable<int>& NewTable(uint8_t tag) {
  static auto* const tables = new std::vector<std::unique_ptr<HandleTable<int>>>;
  return *tables->emplace_back(std::make_unique<HandleTable<int>>(tag));
}

TEST(HandleTable, FindsWhatWasInserted) {
  HandleTable<int>& table = NewTable(7);
  void* const a = table.Insert(std::make_shared<int>(1));
  void* const b = table.Insert(std::make_shared<int>(2));
  ASSERT_NE(a, b);
  EXPECT_EQ(*table.Get(a).get(), 1);
  EXPECT_EQ(*table.Get(b).get(), 2);
}

TEST(HandleTable, StaleForeignAndGarbageHandlesAreNotLive) {
  HandleTable<int>& table = NewTable(7);
  HandleTable<int>& other = NewTable(8);
  void* const handle = table.Insert(std::make_shared<int>(1));
  (void)other.Insert(std::make_shared<int>(2));
  int local = 0;
  EXPECT_FALSE(table.Get(nullptr));
  EXPECT_FALSE(table.Get(&local));
  EXPECT_FALSE(table.Get(reinterpret_cast<void*>(~uint64_t{0})));
  EXPECT_FALSE(table.Get(static_cast<char*>(handle) + 1));
  EXPECT_FALSE(other.Get(handle));
  EXPECT_NE(table.Remove(handle), nullptr);
  EXPECT_FALSE(table.Get(handle));
  EXPECT_EQ(table.Remove(handle), nullptr);
}

TEST(HandleTable, ReusedSlotHasANewHandle) {
  HandleTable<int>& table = NewTable(7);
  void* const first = table.Insert(std::make_shared<int>(1));
  (void)table.Remove(first);
  void* const second = table.Insert(std::make_shared<int>(2));
  EXPECT_NE(first, second);
  EXPECT_FALSE(table.Get(first));
  EXPECT_EQ(*table.Get(second).get(), 2);
}

TEST(HandleTable, KnownHandlesAreFoundAgainUntilTheyEnd) {
  HandleTable<int>& table = NewTable(7);
  void* const handle = table.Insert(std::make_shared<int>(1));
  const HandleTable<int>::Known known = table.Know(handle);
  EXPECT_TRUE(known.Live());
  EXPECT_EQ(*HandleTable<int>::Get(known).get(), 1);
  (void)table.Remove(handle);
  EXPECT_FALSE(known.Live());
  EXPECT_FALSE(HandleTable<int>::Get(known));
  void* const next = table.Insert(std::make_shared<int>(2));  // in the same slot
  EXPECT_FALSE(known.Live());
  EXPECT_FALSE(HandleTable<int>::Get(known));
  EXPECT_TRUE(table.Know(next).Live());
}

TEST(HandleTable, WhatIsNoHandleIsNotKnown) {
  HandleTable<int>& table = NewTable(7);
  EXPECT_FALSE(table.Know(nullptr).Live());
  EXPECT_FALSE(HandleTable<int>::Get(table.Know(&table)));
  EXPECT_FALSE(HandleTable<int>::Known().Live());
}

TEST(HandleTable, RemoveWaitsForPinsOfOthers) {
  HandleTable<int>& table = NewTable(7);
  for (int round = 0; round < 200; ++round) {
    auto object = std::make_shared<int>(round);
    std::weak_ptr<int> watch = object;
    void* const handle = table.Insert(std::move(object));
    std::atomic<bool> pinned{false};
    std::thread user([&] {
      auto pin = table.Get(handle);
      pinned = true;
      ASSERT_TRUE(pin);
      for (int i = 0; i < 100; ++i) ASSERT_EQ(*pin.get(), round);
    });
    while (!pinned) std::this_thread::yield();
    std::shared_ptr<int> removed = table.Remove(handle);
    ASSERT_NE(removed, nullptr);
    *removed = -1;  // a race with the pin's reads, if they still went on
    user.join();
    removed.reset();
    EXPECT_TRUE(watch.expired());
  }
}

TEST(HandleTable, OwnPinDoesNotBlockRemoval) {
  HandleTable<int>& table = NewTable(7);
  void* const handle = table.Insert(std::make_shared<int>(3));
  const auto pin = table.Get(handle);
  EXPECT_NE(table.Remove(handle, 1), nullptr);
}

TEST(HandleTable, RemovesWithoutMemory) {
  HandleTable<int>& table = NewTable(7);
  std::vector<void*> handles;
  for (int i = 0; i < 1000; ++i) handles.push_back(table.Insert(std::make_shared<int>(i)));
  const harness::FailingNew failing(1);
  for (void* handle : handles) {
    if (table.Remove(handle) == nullptr) std::abort();
  }
  EXPECT_FALSE(harness::FailingNew::Failed());
}

TEST(HandleTable, OnlyOneOfManyRemovesWins) {
  HandleTable<int>& table = NewTable(7);
  for (int round = 0; round < 100; ++round) {
    void* const handle = table.Insert(std::make_shared<int>(round));
    std::atomic<int> winners{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) threads.emplace_back([&] { winners += table.Remove(handle) != nullptr; });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(winners, 1);
  }
}

}  // namespace
}  // namespace axccl
