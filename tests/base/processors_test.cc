// Where the library's own threads may run, and that other threads keep their processors.
#include "src/base/processors.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <future>
#include <mutex>
#include <new>
#include <set>
#include <thread>

#include "src/base/detached_thread.h"

namespace {

thread_local long t_allocations = 0;  // of the C++ library and of this code

void* Allocate(size_t bytes) {
  ++t_allocations;
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes); }
void* operator new[](size_t bytes) { return Allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace axccl::test {
namespace {

// A thread that lasts as long as the process, and runs tasks.
class Lasting {
 public:
  explicit Lasting(std::function<void()> begin) {
    const Status started = StartDetached("a test", [this, begin = std::move(begin)] {
      begin();
      for (;;) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return task_ != nullptr; });
        task_();
        task_ = nullptr;
        changed_.notify_all();
      }
    });
    EXPECT_TRUE(started.ok()) << started.message();
  }

  std::vector<int> Allowed() {
    std::vector<int> allowed;
    std::unique_lock lock(mutex_);
    task_ = [&] { allowed = AllowedProcessors(); };
    changed_.notify_all();
    changed_.wait(lock, [this] { return task_ == nullptr; });
    return allowed;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> task_;
};

// A thread that waits for a chunk or a call may ask at any time.
TEST(AllProcessorsTaken, AllocatesNothing) {
  const long before = t_allocations;
  (void)AllProcessorsTaken();
  EXPECT_EQ(t_allocations, before);
  ::operator delete(::operator new(1));
  EXPECT_GT(t_allocations, before) << "nothing is counted";
}

TEST(AllProcessorsTaken, WhenMoreThreadsRunThanThereAreProcessors) {
  EXPECT_TRUE(AllProcessorsTaken("0.31 0.82 1.60 3/345 12345", 2));
  EXPECT_FALSE(AllProcessorsTaken("0.31 0.82 1.60 2/345 12345", 2));
  EXPECT_FALSE(AllProcessorsTaken("9.31 9.82 9.60 1/345 12345", 2));
  for (const char* line : {"", "0.31", "0.31 0.82 1.60", "0.31 0.82 1.60 many/345"})
    EXPECT_FALSE(AllProcessorsTaken(line, 2)) << line;
  // The same for this machine.
  std::atomic<bool> stop{false};
  std::vector<std::thread> busy;
  for (size_t i = 0; i < AllowedProcessors().size() + 64; ++i)
    busy.emplace_back([&] {
      while (!stop) std::this_thread::yield();
    });
  if (AllowedProcessors().size() == std::thread::hardware_concurrency()) {
    while (!AllProcessorsTaken()) std::this_thread::yield();
  }
  stop = true;
  for (std::thread& thread : busy) thread.join();
}

TEST(MoveToAnotherProcessor, LeavesTheAllowedProcessorsUnchanged) {
  std::thread([] {
    const std::vector<int> before = AllowedProcessors();
    for (int i = 0; i < 10; ++i) MoveToAnotherProcessor();
    EXPECT_EQ(AllowedProcessors(), before);
    BindThisThread({before[0]});
    MoveToAnotherProcessor();  // there is no other
    EXPECT_EQ(AllowedProcessors(), std::vector<int>{before[0]});
  }).join();
}

TEST(MoveToLeastLoaded, MovesOnlyWhereThereIsLess) {
  std::thread([] {
    const std::vector<int> before = AllowedProcessors();
    std::set<int> asked;
    MoveToLeastLoaded([&](int processor) { return asked.insert(processor), 1; });
    EXPECT_EQ(asked, std::set<int>(before.begin(), before.end()));
    EXPECT_EQ(AllowedProcessors(), before);
    if (before.size() < 2) return;
    // The kernel may move the thread before it is asked where it is, but not always.
    bool moved = false;
    for (int i = 0; i < 1000 && !moved; ++i) {
      const int to = before[i % 2 == 0 ? 1 : 0];
      MoveToLeastLoaded([&](int processor) { return processor == to ? 0 : 1; });
      moved = sched_getcpu() == to;
    }
    EXPECT_TRUE(moved);
    EXPECT_EQ(AllowedProcessors(), before);
  }).join();
}

// Threads keep the processors that they were given, so this is one test.
TEST(OwnThreads, MayUseTheProcessorsOfAllCalls) {
  const std::vector<int> all = AllowedProcessors();
  if (all.size() < 2) GTEST_SKIP() << "needs two processors";
  const std::vector<int> first = {all[0]}, second = {all[1]}, both = {all[0], all[1]};
  // Never destroyed, because the threads are not either.
  auto& early = *new Lasting([] { BecomeOwnThread("own-early"); });
  auto& other = *new Lasting([] {});
  EXPECT_EQ(early.Allowed(), all);
  EXPECT_TRUE(ProcessorsAtStart().empty());

  EXPECT_TRUE(AllowOwnThreads({}));
  EXPECT_EQ(early.Allowed(), all) << "an empty set changes nothing";
  // A thread that moves meanwhile gets the processors, too.
  std::atomic<int> moves{0};
  std::atomic<bool> placed{false};
  auto& mover = *new Lasting([&] {
    BecomeOwnThread("own-mover");
    for (; !placed; ++moves, moves.notify_all()) MoveToAnotherProcessor();
  });
  moves.wait(0);
  EXPECT_TRUE(AllowOwnThreads(first));
  placed = true;
  EXPECT_EQ(early.Allowed(), first);
  EXPECT_EQ(mover.Allowed(), first);
  auto& late = *new Lasting([] { BecomeOwnThread("own-late"); });
  EXPECT_EQ(late.Allowed(), first);
  EXPECT_EQ(other.Allowed(), all);
  EXPECT_EQ(AllowedProcessors(), all);

  // A thread that an own thread starts for others does not inherit its processors.
  std::promise<std::vector<int>> child;
  auto& parent = *new Lasting([&child] {
    BecomeOwnThread("own-parent");
    EXPECT_TRUE(StartDetached("a test", [&child] { child.set_value(AllowedProcessors()); }).ok());
  });
  EXPECT_EQ(child.get_future().get(), all);
  EXPECT_EQ(parent.Allowed(), first);

  EXPECT_TRUE(AllowOwnThreads(second));
  for (Lasting* const own : {&early, &late, &parent}) EXPECT_EQ(own->Allowed(), both);
  EXPECT_EQ(other.Allowed(), all);
}

}  // namespace
}  // namespace axccl::test
