// ncclCommRegister of plain memory: peers map it while it is registered, and nothing else is different for the program.
//
// NCCL says of a registered buffer that it stays valid until it is deregistered, and of ncclCommRegister that it is
// local and may be called while other threads work. So addresses and content stay, whatever other threads write
// meanwhile there and beside it, and afterwards the memory is what it was. /proc/self/maps tells which it is.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/harness/client.h"
#include "tests/harness/random.h"
#include "tests/harness/restrict.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::Processes;
using harness::Random;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::Scramble;
using harness::Seed;

constexpr size_t kPage = 4096;
constexpr size_t kMega = size_t{1} << 20;

// The number of pages of [p, p + bytes) that peers can map; -1 if some of it is not mapped at all.
long SharedPages(const void* p, size_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(p) / kPage * kPage;
  const auto last = (reinterpret_cast<uintptr_t>(p) + bytes + kPage - 1) / kPage * kPage;
  std::ifstream maps("/proc/self/maps");
  size_t mapped = 0, shared = 0;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    char access[5] = "";
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, access) != 3 || end <= first || begin >= last) continue;
    const size_t pages = (std::min<size_t>(end, last) - std::max<size_t>(begin, first)) / kPage;
    mapped += pages;
    if (access[3] == 's') shared += pages;
  }
  return mapped == (last - first) / kPage ? static_cast<long>(shared) : -1;
}

bool IsMapped(const void* p, size_t bytes) {
  const long shared = SharedPages(p, bytes);
  return shared > 0 && static_cast<size_t>(shared) * kPage >= bytes;
}
bool IsPrivate(const void* p, size_t bytes) { return SharedPages(p, bytes) == 0; }

// Whether the kernel has and allows what exchanging pages needs.
bool CanExchange() {
  constexpr int kUserModeOnly = 1;
  long fd = syscall(SYS_userfaultfd, O_CLOEXEC);
  if (fd < 0) fd = syscall(SYS_userfaultfd, O_CLOEXEC | kUserModeOnly);
  if (fd >= 0) close(static_cast<int>(fd));
  return fd >= 0;
}

int StatusOf(pid_t child) {
  int status = -1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

class Registered : public testing::Test {
 protected:
  void SetUp() override {
    if (!CanExchange()) GTEST_SKIP() << "userfaultfd is not allowed here";
  }
};

// Of two ranks.
void Reduce(const Clique& clique, const float* in, float* out, size_t count) {
  ASSERT_OK(ncclAllReduce(in, out, count, ncclFloat32, ncclSum, clique.comm(), Cuda(clique.stream())));
  ASSERT_OK(axcclStreamSynchronize(clique.stream()));
  size_t wrong = 0;
  for (size_t i = 0; i < count; ++i) wrong += out[i] != 3 + 2 * static_cast<float>(i % 7);
  EXPECT_EQ(wrong, 0u);
}

void Fill(int rank, float* in, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    in[i] = static_cast<float>(rank + 1) + static_cast<float>(i % 7);
    out[i] = -1;
  }
}

// Memory as programs have it: 0: from malloc, 1: from mmap, 2: static.
float* Take(int kind, size_t bytes) {
  alignas(kPage) static float fixed[3][kMega / sizeof(float)];
  static int taken = 0;
  if (kind == 0) return static_cast<float*>(std::malloc(bytes));
  if (kind == 1)
    return static_cast<float*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  return fixed[taken++];
}

void GiveBack(int kind, float* memory, size_t bytes) {
  if (kind == 0) std::free(memory);
  if (kind == 1) munmap(memory, bytes);
}

TEST_F(Registered, MemoryIsMappedAsLongAsItIsRegistered) {
  RunRanks(Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const int rank = context.rank();
    for (int kind = 0; kind < 3; ++kind) {
      ASSERT_TRUE(context.Step("kind %d", kind));
      const size_t bytes = kMega, count = bytes / sizeof(float);
      float* const in = Take(kind, bytes);
      float* const out = Take(kind == 2 ? 0 : kind, bytes);
      Fill(rank, in, out, count);
      const std::vector<float> before(in, in + count);
      EXPECT_TRUE(IsPrivate(in, bytes));
      void *first = nullptr, *second = nullptr;
      EXPECT_OK(ncclCommRegister(clique.comm(), in, bytes, &first));
      EXPECT_OK(ncclCommRegister(clique.comm(), out, bytes, &second));
      EXPECT_TRUE(IsMapped(in, bytes)) << "kind " << kind;
      EXPECT_TRUE(IsMapped(out, bytes)) << "kind " << kind;
      EXPECT_TRUE(std::equal(before.begin(), before.end(), in));
      for (const size_t part : {size_t{1}, size_t{1000}, size_t{20000}, count}) Reduce(clique, in, out, part);
      Reduce(clique, in, out, count);
      const std::vector<float> result(out, out + count);
      EXPECT_OK(ncclCommDeregister(clique.comm(), first));
      EXPECT_OK(ncclCommDeregister(clique.comm(), second));
      EXPECT_TRUE(IsPrivate(in, bytes));
      EXPECT_TRUE(IsPrivate(out, bytes));
      EXPECT_TRUE(std::equal(before.begin(), before.end(), in));
      EXPECT_TRUE(std::equal(result.begin(), result.end(), out));
      EXPECT_EQ(ncclCommDeregister(clique.comm(), first), ncclInvalidArgument);
      Reduce(clique, in, out, count);
      ASSERT_TRUE(context.Barrier(1));
      GiveBack(kind, in, bytes);
      GiveBack(kind == 2 ? 0 : kind, out, bytes);
    }
  });
}

// The handles end with the communicator, and what they stand for does too.
TEST_F(Registered, MemoryIsPrivateAfterAnAbort) {
  RunRanks(Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const size_t bytes = kMega, count = bytes / sizeof(float);
    float* const in = Take(0, bytes);
    float* const out = Take(1, bytes);
    Fill(context.rank(), in, out, count);
    void* handles[3] = {};
    EXPECT_OK(ncclCommRegister(clique.comm(), in, bytes, &handles[0]));
    EXPECT_OK(ncclCommRegister(clique.comm(), out, bytes, &handles[1]));
    EXPECT_OK(ncclCommRegister(clique.comm(), in, bytes / 2, &handles[2]));
    EXPECT_TRUE(IsMapped(in, bytes));
    Reduce(clique, in, out, count);
    ASSERT_TRUE(context.Barrier(1));
    const std::vector<float> before(in, in + count), result(out, out + count);
    EXPECT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
    EXPECT_TRUE(IsPrivate(in, bytes));
    EXPECT_TRUE(IsPrivate(out, bytes));
    EXPECT_TRUE(std::equal(before.begin(), before.end(), in));
    EXPECT_TRUE(std::equal(result.begin(), result.end(), out));
    GiveBack(0, in, bytes);
    GiveBack(1, out, bytes);
  });
}

// Other threads write into the buffer, and beside it in its first and last page, all the time: nothing gets lost.
TEST_F(Registered, NoWriteIsLostMeanwhile) {
  RunRanks(Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    constexpr size_t kBytes = 16 * kPage, kWords = kBytes / sizeof(uint64_t), kMargin = 100;
    auto* const memory = static_cast<std::atomic<uint64_t>*>(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::atomic<bool> stop{false};
    constexpr size_t kThreads = 2;
    std::vector<uint64_t> counts(kThreads * kWords);
    std::vector<std::thread> writers;
    for (size_t t = 0; t < kThreads; ++t) {
      writers.emplace_back([&, t] {
        Random random(Scramble(Seed(), t));
        while (!stop) {
          const size_t i = random.Below(kWords);
          memory[i].fetch_add(1, std::memory_order_relaxed);
          ++counts[t * kWords + i];
        }
      });
    }
    for (int round = 0; round < 200; ++round) {
      void* handle = nullptr;
      EXPECT_OK(ncclCommRegister(clique.comm(), memory + kMargin, kBytes - 2 * kMargin * sizeof(uint64_t), &handle));
      EXPECT_TRUE(IsMapped(memory, kBytes));
      EXPECT_OK(ncclCommDeregister(clique.comm(), handle));
      EXPECT_TRUE(IsPrivate(memory, kBytes));
    }
    stop = true;
    for (std::thread& writer : writers) writer.join();
    size_t lost = 0;
    for (size_t i = 0; i < kWords; ++i) lost += memory[i] != counts[i] + counts[kWords + i];
    EXPECT_EQ(lost, 0u);
    munmap(memory, kBytes);
  });
}

// Overlapping registrations, also of several communicators: the memory stays mapped until the last of them ends.
TEST_F(Registered, TheLastRegistrationCounts) {
  RunRanks(Processes(2), [](RankContext& context) {
    Clique one, two;
    ASSERT_TRUE(one.Init(context));
    ASSERT_TRUE(two.Init(context));
    std::vector<float> data(kMega), out(kMega);
    Fill(context.rank(), data.data(), out.data(), kMega);
    void *whole = nullptr, *part = nullptr, *other = nullptr, *beyond = nullptr;
    EXPECT_OK(ncclCommRegister(one.comm(), data.data(), 2 * kMega, &whole));
    EXPECT_OK(ncclCommRegister(one.comm(), data.data() + 1000, kMega, &part));
    EXPECT_OK(ncclCommRegister(two.comm(), data.data(), 2 * kMega, &other));
    EXPECT_OK(ncclCommRegister(one.comm(), data.data() + 100000, 2 * kMega, &beyond));  // stays as it is
    EXPECT_OK(ncclCommDeregister(one.comm(), whole));
    EXPECT_OK(ncclCommDeregister(one.comm(), part));
    EXPECT_TRUE(IsMapped(data.data(), 2 * kMega));
    Reduce(two, data.data(), out.data(), kMega);
    EXPECT_OK(ncclCommDeregister(one.comm(), beyond));
    EXPECT_TRUE(IsMapped(data.data(), 2 * kMega));
    EXPECT_TRUE(two.Destroy());  // ends what its application has left registered
    EXPECT_TRUE(IsPrivate(data.data(), 4 * kMega));
    Reduce(one, data.data(), out.data(), kMega);
  });
}

// NCCL wants buffers to be deregistered first; a program that does not must not lose memory that it has mapped since.
TEST_F(Registered, MemoryThatWasUnmappedIsLeftAlone) {
  RunRanks(Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    auto* const memory =
        static_cast<float*>(mmap(nullptr, 2 * kMega, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    void *first = nullptr, *second = nullptr;
    EXPECT_OK(ncclCommRegister(clique.comm(), memory, kMega, &first));
    const auto map_anew = [&](size_t bytes) {
      void* const again = mmap(memory, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
      EXPECT_EQ(again, memory);
    };
    map_anew(kMega / 2);
    memory[0] = 5;
    // A child gets a copy of what is registered and still there.
    const pid_t child = fork();
    if (child == 0) _exit(memory[0] == 5 && IsPrivate(memory, 2 * kMega) ? 0 : 1);
    EXPECT_EQ(StatusOf(child), 0);
    EXPECT_OK(ncclCommDeregister(clique.comm(), first));
    EXPECT_EQ(memory[0], 5);
    EXPECT_TRUE(IsPrivate(memory, 2 * kMega));
    EXPECT_OK(ncclCommRegister(clique.comm(), memory, kMega, &first));
    map_anew(kMega);
    Fill(context.rank(), memory, memory + kMega / sizeof(float), kMega / sizeof(float));
    EXPECT_OK(ncclCommRegister(clique.comm(), memory, 2 * kMega, &second));
    EXPECT_OK(ncclCommDeregister(clique.comm(), first));
    EXPECT_TRUE(IsMapped(memory, 2 * kMega));
    Reduce(clique, memory, memory + kMega / sizeof(float), kMega / sizeof(float));
    EXPECT_OK(ncclCommDeregister(clique.comm(), second));
    EXPECT_TRUE(IsPrivate(memory, 2 * kMega));
    munmap(memory, 2 * kMega);
  });
}

// Such memory can be registered, and stays what it is.
TEST_F(Registered, OtherMemoryStaysAsItIs) {
  RunRanks(Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const auto stays = [&](const char* what, void* memory, size_t bytes) {
      ASSERT_NE(memory, MAP_FAILED) << what;
      const long before = SharedPages(memory, bytes);
      void* handle = nullptr;
      EXPECT_OK(ncclCommRegister(clique.comm(), memory, bytes, &handle));
      EXPECT_EQ(SharedPages(memory, bytes), before) << what;
      EXPECT_OK(ncclCommDeregister(clique.comm(), handle));
      EXPECT_EQ(SharedPages(memory, bytes), before) << what;
    };
    char on_stack[10 * kPage] = "text";
    stays("the caller's stack", on_stack, sizeof on_stack);
    std::thread([&] {
      char there[64 * kPage] = "text";
      stays("a thread's stack", there, sizeof there);
    }).join();
    const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    const auto map = [](int access, int flags, int fd) { return mmap(nullptr, 16 * kPage, access, flags, fd, 0); };
    stays("a file", map(PROT_READ | PROT_WRITE, MAP_PRIVATE, file), 16 * kPage);
    stays("read-only memory", map(PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1), 16 * kPage);
    stays("shared memory", map(PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1), 16 * kPage);
    close(file);
    auto* const holed = static_cast<char*>(map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1));
    munmap(holed + 8 * kPage, kPage);
    stays("memory with a hole", holed, 16 * kPage);
    stays("little memory", holed, 4 * kPage);
    void* mapped = nullptr;
    ASSERT_OK(ncclMemAlloc(&mapped, kMega));
    stays("memory of ncclMemAlloc", mapped, kMega);
    EXPECT_OK(ncclMemFree(mapped));
  });
}

TEST_F(Registered, AChildHasMemoryOfItsOwn) {
  RunRanks(Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    std::vector<uint64_t> data(kMega, 7);
    void* handle = nullptr;
    EXPECT_OK(ncclCommRegister(clique.comm(), data.data(), data.size() * sizeof(uint64_t), &handle));
    int pipes[2];
    ASSERT_EQ(pipe2(pipes, O_CLOEXEC), 0);
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      char byte = 0;
      const bool changed = read(pipes[0], &byte, 1) == 1;  // the parent has written
      const bool own = changed && std::all_of(data.begin(), data.end(), [](uint64_t v) { return v == 7; });
      std::fill(data.begin(), data.end(), uint64_t{9});
      _exit(own && IsPrivate(data.data(), data.size() * sizeof(uint64_t)) ? 0 : 1);
    }
    ASSERT_GT(child, 0);
    std::fill(data.begin(), data.end(), uint64_t{8});
    ASSERT_EQ(write(pipes[1], "x", 1), 1);
    EXPECT_EQ(StatusOf(child), 0);
    EXPECT_TRUE(std::all_of(data.begin(), data.end(), [](uint64_t v) { return v == 8; }));
    EXPECT_TRUE(IsMapped(data.data(), data.size() * sizeof(uint64_t)));
    close(pipes[0]);
    close(pipes[1]);
    EXPECT_OK(ncclCommDeregister(clique.comm(), handle));
  });
}

// Large memory of malloc is a mapping, which realloc enlarges in another place if it can. NCCL wants the buffer to be
// deregistered first; a program that does not must lose nothing, and share nothing.
TEST_F(Registered, ReallocLeavesNothingShared) {
  RunRanks(Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    constexpr size_t kBytes = 4 * kMega;
    auto* memory = static_cast<char*>(std::malloc(kBytes));
    std::memset(memory, 1, kBytes);
    void *handle = nullptr, *allocated = nullptr;
    EXPECT_OK(ncclCommRegister(clique.comm(), memory, kBytes, &handle));
    EXPECT_TRUE(IsMapped(memory, kBytes));
    ASSERT_OK(ncclMemAlloc(&allocated, 16 * kBytes));  // behind the buffer's pages, if not before
    std::memset(allocated, 2, 16 * kBytes);
    memory = static_cast<char*>(std::realloc(memory, 16 * kBytes));
    ASSERT_NE(memory, nullptr);
    std::memset(memory + kBytes, 3, 15 * kBytes);
    const auto all = [](const void* p, size_t bytes, char value) {
      return std::all_of(static_cast<const char*>(p), static_cast<const char*>(p) + bytes,
                         [value](char byte) { return byte == value; });
    };
    EXPECT_TRUE(all(allocated, 16 * kBytes, 2));
    EXPECT_OK(ncclCommDeregister(clique.comm(), handle));
    EXPECT_TRUE(all(memory, kBytes, 1));
    EXPECT_TRUE(IsPrivate(memory, 16 * kBytes));
    EXPECT_OK(ncclMemFree(allocated));
    std::free(memory);
  });
}

// Wherever the program has moved its pages, they are its own when the registration ends, or is forgotten.
TEST_F(Registered, MemoryThatWasMovedBecomesPrivateThere) {
  for (const bool forgotten : {false, true}) {
    RunRanks(Processes(2), [forgotten](RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      const auto map = [] { return mmap(nullptr, kMega, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); };
      auto* const memory = static_cast<char*>(map());
      auto* const place = static_cast<char*>(map());
      std::memset(memory, 1, kMega);
      void *handle = nullptr, *again = nullptr, *allocated = nullptr;
      EXPECT_OK(ncclCommRegister(clique.comm(), memory, kMega, &handle));
      const size_t first = forgotten ? 0 : kMega / 2;
      for (size_t at = first; at < kMega; at += kPage) {
        ASSERT_EQ(mremap(memory + at, kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED, place + at), place + at);
      }
      const pid_t child = fork();
      if (child == 0) _exit(IsPrivate(place, kMega) && place[first] == 1 && place[kMega - 1] == 1 ? 0 : 1);
      EXPECT_EQ(StatusOf(child), 0);
      if (forgotten) {
        ASSERT_EQ(mmap(memory, kMega, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), memory);
        EXPECT_OK(ncclCommRegister(clique.comm(), memory, kMega, &again));
        EXPECT_TRUE(IsMapped(memory, kMega));
      } else {
        EXPECT_OK(ncclCommDeregister(clique.comm(), handle));
        EXPECT_TRUE(IsPrivate(memory, kMega / 2));
      }
      EXPECT_TRUE(IsPrivate(place, kMega));
      ASSERT_OK(ncclMemAlloc(&allocated, kMega));
      std::memset(allocated, 2, kMega);
      EXPECT_EQ(std::count(place + first, place + kMega, 1), static_cast<long>(kMega - first));
      EXPECT_OK(ncclMemFree(allocated));
    });
  }
}

// A program that has closed all descriptors, as a daemon does when it starts, has other files under the numbers.
TEST_F(Registered, NoDescriptorIsNeeded) {
  RunRanks(Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    std::vector<float> data(kMega), out(kMega);
    Fill(context.rank(), data.data(), out.data(), kMega);
    Reduce(clique, data.data(), out.data(), kMega);  // ranks attach before, which needs descriptors
    void *first = nullptr, *second = nullptr;
    EXPECT_OK(ncclCommRegister(clique.comm(), data.data(), 4 * kMega, &first));
    closefrom(3);
    const std::vector<char> content(8 * kMega, 'x');
    for (int file = 3; file < 20; ++file) {
      ASSERT_EQ(memfd_create("program", MFD_CLOEXEC), file);
      ASSERT_EQ(write(file, content.data(), content.size()), static_cast<ssize_t>(content.size()));
    }
    EXPECT_OK(ncclCommRegister(clique.comm(), out.data(), 4 * kMega, &second));
    EXPECT_TRUE(IsMapped(out.data(), 4 * kMega));
    Reduce(clique, data.data(), out.data(), kMega);
    const std::vector<float> result = out;
    const pid_t child = fork();
    if (child == 0) _exit(out == result && IsPrivate(out.data(), 4 * kMega) ? 0 : 1);
    EXPECT_EQ(StatusOf(child), 0);
    EXPECT_OK(ncclCommDeregister(clique.comm(), first));
    EXPECT_OK(ncclCommDeregister(clique.comm(), second));
    EXPECT_TRUE(IsPrivate(data.data(), 4 * kMega));
    EXPECT_EQ(out, result);
    for (int file = 3; file < 20; ++file) {
      std::vector<char> now(content.size() + 1);
      EXPECT_EQ(pread(file, now.data(), now.size(), 0), static_cast<ssize_t>(content.size())) << file;
      EXPECT_TRUE(std::equal(content.begin(), content.end(), now.begin())) << file;
    }
  });
}

// A thread registers memory under a lock that the program's fork handlers take.
TEST_F(Registered, HandlersOfTheProgramHoldTheirLocks) {
  RunRanks(Processes(2), [](RankContext& context) {
    static std::mutex lock;
    pthread_atfork([] { lock.lock(); }, [] { lock.unlock(); }, [] { lock.unlock(); });
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    std::vector<float> data(kMega, 1);
    std::atomic<bool> stop{false};
    std::thread other([&] {
      while (!stop) {
        const std::lock_guard locked(lock);
        void* handle = nullptr;
        EXPECT_OK(ncclCommRegister(clique.comm(), data.data(), 4 * kMega, &handle));
        EXPECT_OK(ncclCommDeregister(clique.comm(), handle));
      }
    });
    for (int round = 0; round < 50; ++round) {
      const pid_t child = fork();
      if (child == 0) _exit(data[0] == 1 && data[kMega - 1] == 1 ? 0 : 1);
      EXPECT_EQ(StatusOf(child), 0);
    }
    stop = true;
    other.join();
  });
}

// Where pages cannot be exchanged, or shall not be, calls on registered memory are what they are without.
TEST(RegisteredElsewhere, MemoryIsCopied) {
  for (const bool refused : {false, true}) {
    RunOptions options;
    options.environment = {{"NCCL_LOCAL_REGISTER", refused ? "1" : "0"}};
    const auto body = [&](RankContext& context) {
      if (refused) {
        ASSERT_TRUE(harness::Refuse({{SYS_userfaultfd, EPERM}}));
      }
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      std::vector<float> in(kMega), out(kMega);
      Fill(context.rank(), in.data(), out.data(), kMega);
      void* handle = nullptr;
      EXPECT_OK(ncclCommRegister(clique.comm(), in.data(), 4 * kMega, &handle));
      EXPECT_TRUE(IsPrivate(in.data(), 4 * kMega));
      Reduce(clique, in.data(), out.data(), kMega);
      EXPECT_OK(ncclCommDeregister(clique.comm(), handle));
    };
    RunRanks(Processes(2), body, options);
  }
}

// A buffer is registered again and again: neither memory nor mappings nor descriptors add up.
TEST_F(Registered, NothingIsLeft) {
  RunRanks(Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const auto lines = [](const char* path) {
      std::ifstream file(path);
      return std::count(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>(), '\n');
    };
    const auto shared_kib = [] {
      std::ifstream file("/proc/self/status");
      long kib = -1;
      for (std::string line; std::getline(file, line);) std::sscanf(line.c_str(), "RssShmem: %ld", &kib);
      return kib;
    };
    std::vector<float> data(4 * kMega);
    long maps = 0, kib = 0;
    for (int round = 0; round < 30; ++round) {
      void* handle = nullptr;
      EXPECT_OK(ncclCommRegister(clique.comm(), data.data() + round, 12 * kMega, &handle));
      EXPECT_OK(ncclCommDeregister(clique.comm(), handle));
      if (round == 4) maps = lines("/proc/self/maps"), kib = shared_kib();
    }
    EXPECT_LE(lines("/proc/self/maps"), maps + 2);
    EXPECT_LE(shared_kib(), kib + 1024);
  });
}

}  // namespace
}  // namespace axccl::tests
