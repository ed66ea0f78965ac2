// fork with large memory: parent and child have memory of their own with the content as of the fork, as POSIX promises
// for all memory that was not mapped shared, and the parent's stays memory that peers map.
#include <gtest/gtest.h>
#include <pthread.h>
#include <semaphore.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/malloc/family.h"

extern char** environ;
extern "C" void AxcclTestLock();  // handlers.c
extern "C" void AxcclTestUnlock();

namespace axccl::test {
namespace {

constexpr size_t kKilo = 1024, kMega = kKilo * kKilo;

struct Piece {
  void* memory;
  size_t bytes;
};

std::vector<Piece> MakePieces(const Family& f, uint64_t seed) {
  std::vector<Piece> pieces;
  for (const size_t bytes : {size_t{100}, 33 * kKilo, 100 * kKilo, 5 * kMega}) {
    pieces.push_back({f.allocate(bytes), bytes});
    Fill(pieces.back().memory, bytes, seed);
  }
  return pieces;
}

bool Have(const std::vector<Piece>& pieces, uint64_t seed) {
  for (const Piece& piece : pieces) {
    if (CountWrong(piece.memory, piece.bytes, seed) != 0) return false;
  }
  return true;
}

void FillAll(const std::vector<Piece>& pieces, uint64_t seed) {
  for (const Piece& piece : pieces) Fill(piece.memory, piece.bytes, seed);
}

void FreeAll(const Family& f, const std::vector<Piece>& pieces) {
  for (const Piece& piece : pieces) f.release(piece.memory);
}

// Steps that parent and child take in turn: each is waited for once, after it or before.
class Steps {
 public:
  Steps()
      : all_(static_cast<sem_t*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    for (int i = 0; i < kMost; ++i) sem_init(&all_[i], 1, 0);
  }
  ~Steps() { munmap(all_, kBytes); }
  void Take(int step) { sem_post(&all_[step]); }
  void Await(int step) {
    while (sem_wait(&all_[step]) != 0) {
    }
  }

 private:
  static constexpr int kMost = 8;
  static constexpr size_t kBytes = kMost * sizeof(sem_t);
  sem_t* const all_;
};

TEST_P(FamilyTest, ForkGivesBothMemoryOfTheirOwn) {
  WithHeap([&](ncclComm_t comm) {
    const Family& f = GetParam();
    for (int round = 0; round < 3; ++round) {
      const std::vector<Piece> pieces = MakePieces(f, 1);
      Steps steps;
      const auto child = [&] {
        steps.Await(1);  // the parent has written
        if (!Have(pieces, 1)) return 1;
        FillAll(pieces, 3);
        steps.Take(2);
        steps.Await(3);
        if (!Have(pieces, 3)) return 2;
        FreeAll(f, pieces);
        steps.Take(4);
        const std::vector<Piece> more = MakePieces(f, 4);  // the child can go on
        return Have(more, 4) ? 0 : 3;
      };
      const auto parent = [&] {
        FillAll(pieces, 2);
        steps.Take(1);
        steps.Await(2);  // the child has written
        EXPECT_TRUE(Have(pieces, 2));
        FillAll(pieces, 5);
        steps.Take(3);
        steps.Await(4);  // the child has freed
        EXPECT_TRUE(Have(pieces, 5));
      };
      EXPECT_EQ(InChild(child, parent), 0);
      for (const Piece& piece : pieces) {
        EXPECT_EQ(CanBeMapped(comm, piece.memory, piece.bytes), f.mapped && piece.bytes >= 32 * kKilo);
      }
      FreeAll(f, pieces);
    }
  });
}

// The parent writes and frees at once after each fork, and children live while the next ones are made.
TEST_P(FamilyTest, ChildrenKeepWhatTheParentOverwrites) {
  WithHeap([&](ncclComm_t) {
    const Family& f = GetParam();
    std::vector<pid_t> children;
    void* memory = f.allocate(kMega);
    for (uint64_t round = 0; round < 20; ++round) {
      Fill(memory, kMega, round);
      const pid_t pid = fork();
      if (pid == 0) {
        alarm(40);
        for (int i = 0; i < 3; ++i) {
          if (CountWrong(memory, kMega, round) != 0) _exit(1);
        }
        _exit(0);
      }
      children.push_back(pid);
      if (round % 3 == 0) {
        f.release(memory);
        memory = f.allocate(kMega);
      }
    }
    for (const pid_t child : children) {
      int status = -1;
      waitpid(child, &status, 0);
      EXPECT_EQ(status, 0);
    }
    f.release(memory);
  });
}

TEST_P(FamilyTest, GrandchildrenHaveTheirOwnToo) {
  WithHeap([&](ncclComm_t) {
    const Family& f = GetParam();
    const std::vector<Piece> pieces = MakePieces(f, 1);
    const auto grandchild = [&] {
      if (!Have(pieces, 2)) return 1;
      FillAll(pieces, 3);
      FreeAll(f, pieces);
      return 0;
    };
    const auto child = [&] {
      FillAll(pieces, 2);
      if (InChild(grandchild) != 0) return 1;
      return Have(pieces, 2) ? 0 : 2;
    };
    EXPECT_EQ(InChild(child), 0);
    EXPECT_TRUE(Have(pieces, 1));
    FreeAll(f, pieces);
  });
}

TEST_P(FamilyTest, ChildrenResize) {
  WithHeap([&](ncclComm_t) {
    const Family& f = GetParam();
    for (const size_t from : {33 * kKilo, 3 * kMega}) {
      void* const memory = f.allocate(from);
      Fill(memory, from, 1);
      for (const size_t to : {size_t{10}, 33 * kKilo, kMega, 10 * kMega}) {
        const auto child = [&] {
          void* const moved = f.resize(memory, to);
          if (moved == nullptr || f.usable(moved) < to) return 1;
          if (CountWrong(moved, std::min(from, to) / 8 * 8, 1) != 0) return 2;
          Fill(moved, to, 2);
          f.release(moved);
          return f.resize(f.zeroed(100, kKilo), 0) == nullptr ? 0 : 3;
        };
        EXPECT_EQ(InChild(child), 0) << from << " to " << to;
      }
      EXPECT_EQ(CountWrong(memory, from, 1), 0u);
      f.release(memory);
    }
  });
}

// Only touched pages are copied: a child of a process with a terabyte of untouched memory starts.
TEST_P(FamilyTest, UntouchedMemoryCostsNothing) {
  WithHeap([&](ncclComm_t) {
    const Family& f = GetParam();
    if (!f.mapped) return;  // the system may refuse so much
    auto* const memory = static_cast<char*>(f.allocate(size_t{16} << 30));
    ASSERT_NE(memory, nullptr);
    memory[0] = memory[size_t{5} << 30] = 1;
    const auto child = [&] {
      return memory[0] == 1 && memory[size_t{5} << 30] == 1 && memory[size_t{9} << 30] == 0 ? 0 : 1;
    };
    EXPECT_EQ(InChild(child, [&] { memory[size_t{9} << 30] = 1; }), 0);
    f.release(memory);
  });
}

// A child that finds no copy must not reach its parent's memory. The address space is limited so that there is none.
TEST_P(FamilyTest, WithoutMemoryForACopyTheChildHasNone) {
  WithHeap([&](ncclComm_t) {
    const Family& f = GetParam();
    if (!f.mapped) return;
    void* const memory = f.allocate(20 * kMega);
    Fill(memory, 20 * kMega, 1);
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
    const rlimit none = {100 * kMega, before.rlim_max};  // what is mapped stays
    ASSERT_EQ(setrlimit(RLIMIT_AS, &none), 0);
    const auto child = [&] {
      int ends[2];
      if (pipe(ends) != 0) return 1;
      return write(ends[1], memory, 1) == -1 && errno == EFAULT ? 0 : 2;
    };
    EXPECT_EQ(InChild(child), 0);
    ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
    EXPECT_EQ(CountWrong(memory, 20 * kMega, 1), 0u);
    f.release(memory);
  });
}

// What the handlers of a program protect: the block and the number, which lies in small memory, belong together.
std::mutex g_protects;

void RegisterHandlers() {
  static const int registered =
      pthread_atfork([] { g_protects.lock(); }, [] { g_protects.unlock(); }, [] { g_protects.unlock(); });
  ASSERT_EQ(registered, 0);
}

TEST_P(FamilyTest, HandlersOfTheProgramHoldTheirLocks) {
  RegisterHandlers();  // the library has registered its own when it was loaded
  WithHeap([&](ncclComm_t) {
    const Family& f = GetParam();
    struct {
      uint64_t number = 0;
      void* memory = nullptr;
    } both;
    both.memory = f.allocate(kMega);
    Fill(both.memory, kMega, 0);
    std::atomic<bool> stop{false};
    std::thread writer([&] {
      while (!stop) {
        std::lock_guard lock(g_protects);
        Fill(both.memory, kMega, ++both.number);
      }
    });
    std::vector<std::thread> others;
    for (int t = 0; t < 2; ++t) {
      others.emplace_back([&] {
        for (size_t size = 1; !stop; size = size * 7 % 1000003) f.release(f.resize(f.allocate(size), 2 * size));
      });
    }
    for (int round = 0; round < 15; ++round) {
      const auto child = [&] { return CountWrong(both.memory, kMega, both.number) == 0 ? 0 : 1; };
      EXPECT_EQ(InChild(child), 0);
    }
    stop = true;
    writer.join();
    for (std::thread& other : others) other.join();
    f.release(both.memory);
  });
}

// A fork waits for a program's lock before it takes one that a thread with that lock needs to go on.
void AllocateUnder(const Family& f, void (*lock)(), void (*unlock)()) {
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) {
      lock();
      f.release(f.allocate(kMega));
      unlock();
    }
  });
  for (int round = 0; round < 200; ++round) EXPECT_EQ(InChild([] { return 0; }), 0);
  stop = true;
  other.join();
}

TEST_P(FamilyTest, ThreadsWithLocksOfHandlersMayAllocate) {
  RegisterHandlers();
  WithHeap([&](ncclComm_t) {
    AllocateUnder(
        GetParam(), [] { g_protects.lock(); }, [] { g_protects.unlock(); });
  });
}

// Preloaded, the library's handlers are older than those that other libraries register when they are loaded.
TEST_P(FamilyTest, ThreadsWithLocksOfLibrariesMayAllocate) {
  if (!IsPreloaded()) GTEST_SKIP() << "nothing is promised without libaxccl-malloc.so";
  WithHeap([&](ncclComm_t) { AllocateUnder(GetParam(), AxcclTestLock, AxcclTestUnlock); });
}

// The program closes all descriptors, as daemons do, and other files may get the numbers.
TEST_P(FamilyTest, ForkNeedsNoDescriptor) {
  for (const bool taken : {false, true}) {
    WithHeap([&](ncclComm_t) {
      const Family& f = GetParam();
      const std::vector<Piece> pieces = MakePieces(f, 1);
      closefrom(3);
      for (int file = 3; taken && file < 30; ++file) ASSERT_EQ(memfd_create("program", MFD_CLOEXEC), file);
      EXPECT_EQ(InChild([&] { return Have(pieces, 1) ? 0 : 1; }, [&] { FillAll(pieces, 2); }), 0);
      EXPECT_TRUE(Have(pieces, 2));
      FreeAll(f, pieces);
      for (int file = 3; taken && file < 30; ++file) EXPECT_EQ(lseek(file, 0, SEEK_END), 0);
    });
  }
}

// Handlers may allocate and free, on the thread that has just copied everything.
const Family* g_family = nullptr;
void* g_of_handler = nullptr;
void* g_of_parent = nullptr;

TEST_P(FamilyTest, HandlersOfTheProgramMayAllocate) {
  WithHeap([&](ncclComm_t) {
    const Family& f = GetParam();
    g_family = &f;
    const auto handler = [] {
      g_family->release(g_of_handler);
      g_of_handler = g_family->allocate(kMega);
      Fill(g_of_handler, kMega, 1);
      g_family->release(g_of_parent);
      g_of_parent = nullptr;
    };
    pthread_atfork(handler, handler, handler);
    for (int round = 0; round < 10; ++round) {
      g_of_parent = f.allocate(kMega);
      EXPECT_EQ(InChild([&] { return CountWrong(g_of_handler, kMega, 1) == 0 ? 0 : 1; }), 0);
      EXPECT_EQ(CountWrong(g_of_handler, kMega, 1), 0u);
    }
  });
}

TEST_P(FamilyTest, SpawnedProgramsRun) {
  WithHeap([&](ncclComm_t) {
    const Family& f = GetParam();
    const std::vector<Piece> pieces = MakePieces(f, 1);
    EXPECT_EQ(WEXITSTATUS(std::system("exit 7")), 7);
    char name[] = "/bin/true";
    char* arguments[] = {name, nullptr};
    pid_t pid = 0;
    ASSERT_EQ(posix_spawn(&pid, name, nullptr, nullptr, arguments, environ), 0);
    int status = -1;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
    const pid_t by_vfork = vfork();
    if (by_vfork == 0) {
      execve(name, arguments, environ);
      _exit(1);
    }
    waitpid(by_vfork, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(Have(pieces, 1));
    FreeAll(f, pieces);
  });
}

AXCCL_TEST_BOTH_FAMILIES;

}  // namespace
}  // namespace axccl::test
