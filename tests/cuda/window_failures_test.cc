// Windows of GPU ranks that cannot be made: all ranks get the same error, nothing is left, and the next one works. And
// what is left of those that could.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "tests/cuda/window_memory.h"
#include "tests/harness/residue.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::EnterGpu;
using harness::ExpectLastErrorHas;
using harness::Layout;
using harness::Processes;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::Threads;

using Body = std::function<void(RankContext&, Clique&)>;

void RunOnGpus(const Layout& layout, const Body& body, const RunOptions& options = {}) {
  const auto run = [&body](RankContext& context) {
    ASSERT_NE(EnterGpu(context.rank() % 2), nullptr);
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    body(context, clique);
    clique.Destroy();
  };
  RunRanks(layout, run, options);
}

ncclResult_t Register(ncclComm_t comm, void* memory, size_t bytes, ncclWindow_t* window) {
  *window = reinterpret_cast<ncclWindow_t>(window);
  return ncclCommWindowRegister(comm, memory, bytes, window, NCCL_WIN_COLL_SYMMETRIC);
}

// What a process holds of the driver and of the system.
struct Holdings {
  size_t free_bytes = 0;
  int files = 0, mappings = 0;

  static Holdings Now() {
    static std::mutex mutex;  // looking at them opens a file
    const std::lock_guard lock(mutex);
    Holdings now;
    size_t total = 0;
    EXPECT_EQ(EnterGpu()->memory_info(&now.free_bytes, &total), 0);
    now.files = harness::Entries("/proc/self/fd");
    now.mappings = harness::SharedMappings();
    return now;
  }
  friend bool operator==(const Holdings&, const Holdings&) = default;
};
void PrintTo(const Holdings& holdings, std::ostream* out) {
  *out << holdings.free_bytes << " bytes free, " << holdings.files << " files, " << holdings.mappings << " mappings";
}

// Registers, on the rank `odd`, what `memory_of` gives it, and good memory elsewhere. Then all ranks register good
// memory, and it is as if the first call had not been.
void ExpectRefusal(RankContext& context, Clique& clique, int odd, void* wrong, size_t bytes, ncclResult_t expected,
                   std::initializer_list<const char*> words) {
  const WindowMemory memory(4 * kChunk);
  ncclWindow_t window = nullptr;
  ASSERT_OK(Register(clique.comm(), memory.at(), memory.bytes(), &window));  // what is allocated once is there then
  ASSERT_TRUE(context.Barrier());
  ASSERT_OK(ncclCommWindowDeregister(clique.comm(), window));
  ASSERT_TRUE(context.Barrier());
  const Holdings before = Holdings::Now();
  ASSERT_TRUE(context.Barrier());
  for (int i = 0; i < 3; ++i) {
    const bool is_odd = context.rank() == odd;
    EXPECT_EQ(Register(clique.comm(), is_odd ? wrong : memory.at(), is_odd ? bytes : memory.bytes(), &window),
              expected);
    EXPECT_EQ(window, nullptr);
    ExpectLastErrorHas({"ncclCommWindowRegister", ("rank " + std::to_string(odd)).c_str()});
    ExpectLastErrorHas(words);
  }
  ASSERT_TRUE(context.Barrier());
  EXPECT_EQ(Holdings::Now(), before);
  ASSERT_TRUE(context.Barrier());
  ASSERT_OK(Register(clique.comm(), memory.at(), memory.bytes(), &window));
  ncclResult_t state = ncclInProgress;
  ASSERT_OK(ncclCommGetAsyncError(clique.comm(), &state));
  EXPECT_EQ(state, ncclSuccess);
  ASSERT_TRUE(context.Barrier());
}

const Layout kLayouts[] = {Threads(3), Processes(3)};

TEST(WindowFailures, MemoryThatIsNotMadeByCuMemCreate) {
  for (const Layout& layout : kLayouts) {
    RunOnGpus(layout, [](RankContext& context, Clique& clique) {
      uint64_t plain = 0;
      ASSERT_EQ(EnterGpu()->allocate(&plain, kChunk), 0);
      ExpectRefusal(context, clique, 1, reinterpret_cast<void*>(plain), kChunk, ncclInvalidArgument,
                    {"argument buff", "cuMemCreate", "ncclMemAlloc"});
      Words managed(kChunk / 4);
      ExpectRefusal(context, clique, 2, managed.get(), kChunk, ncclInvalidArgument, {"cuMemCreate", "ncclMemAlloc"});
      std::vector<char> host(4096);
      ExpectRefusal(context, clique, 0, host.data(), host.size(), ncclInvalidArgument, {"argument buff"});
      EXPECT_EQ(EnterGpu()->free_memory(plain), 0);
    });
  }
}

// The memory ends before the window does.
TEST(WindowFailures, TooLittleMemory) {
  for (const Layout& layout : kLayouts) {
    RunOnGpus(layout, [](RankContext& context, Clique& clique) {
      const WindowMemory memory(2 * kChunk);
      for (const size_t bytes : {2 * kChunk + 1, SIZE_MAX, SIZE_MAX / 2})
        ExpectRefusal(context, clique, 2, memory.at(), bytes, ncclInvalidArgument, {"argument"});
    });
  }
}

TEST(WindowFailures, PlacesThatDoNotFit) {
  for (const Layout& layout : kLayouts) {
    RunOnGpus(layout, [](RankContext& context, Clique& clique) {
      const WindowMemory memory(2 * kChunk);
      ExpectRefusal(context, clique, 0, memory.at(100), 4096, ncclInvalidArgument,
                    {"begins 100 bytes", "NCCL_WIN_REQUIRED_ALIGNMENT"});
      const WindowMemory ahead(2 * kChunk);
      ncclWindow_t window = nullptr;
      char* const at = ahead.at(context.rank() == 1 ? 8192 : 4096);
      EXPECT_EQ(Register(clique.comm(), at, 4096, &window), ncclInvalidArgument);
      ExpectLastErrorHas({"argument buff of rank", "another place", "2097152"});
      ASSERT_TRUE(context.Barrier());
    });
  }
}

TEST(WindowFailures, MemoryThatNoOtherProcessCanHave) {
  RunOnGpus(Processes(2), [](RankContext& context, Clique& clique) {
    const ChunkedMemory memory(2, false);
    ExpectRefusal(context, clique, 1, memory.at(), kChunk, ncclUnhandledCudaError,
                  {"cannot be shared with other processes", "ncclMemAlloc"});
  });
}

// As with NCCL, that is no error, because programs register what they can; and nobody waits for the others.
void ExpectNoWindow(RankContext& context, Clique& clique, void* memory) {
  for (int r = 0; r < context.nranks(); ++r) {
    if (r == context.rank()) {
      ncclWindow_t window = nullptr;
      EXPECT_OK(Register(clique.comm(), memory, kChunk, &window));
      EXPECT_EQ(window, nullptr);
      EXPECT_OK(ncclCommWindowDeregister(clique.comm(), window));
      EXPECT_EQ(Register(clique.comm(), &window, kChunk, &window), ncclInvalidArgument) << "memory of the stack";
    }
    ASSERT_TRUE(context.Barrier());
  }
}

// Where kernels cannot reach memory of peers.
TEST(WindowFailures, NoPeerAccess) {
  for (const char* const name : {"SOFTGPU_PEER_ACCESS=0", "NCCL_P2P_DISABLE=1"}) {
    for (const Layout& layout : kLayouts) {
      RunOptions options;
      const std::string text = name;
      options.environment = {{text.substr(0, text.size() - 2), text.substr(text.size() - 1)}};
      const auto body = [](RankContext& context, Clique& clique) {
        const WindowMemory memory(kChunk);
        ExpectNoWindow(context, clique, memory.at());
      };
      RunOnGpus(layout, body, options);
    }
  }
}

// A rank that is alone on its machine reaches its own share.
TEST(WindowFailures, ARankAloneNeedsNoPeerAccess) {
  RunOptions options;
  options.environment = {{"NCCL_P2P_DISABLE", "1"}};
  const auto body = [](RankContext&, Clique& clique) {
    const WindowMemory memory(kChunk);
    ncclWindow_t window = nullptr;
    ASSERT_OK(Register(clique.comm(), memory.at(), kChunk, &window));
    ASSERT_NE(window, nullptr);
    EXPECT_OK(ncclCommWindowDeregister(clique.comm(), window));
  };
  RunOnGpus(Processes(1), body, options);
}

// Without virtual memory management, ncclMemAlloc has no such memory either.
TEST(WindowFailures, NoVirtualMemoryManagement) {
  RunOptions options;
  options.environment = {{"SOFTGPU_VMM", "0"}};
  const auto body = [](RankContext& context, Clique& clique) {
    void* memory = nullptr;
    ASSERT_OK(ncclMemAlloc(&memory, kChunk));
    ExpectNoWindow(context, clique, memory);
    EXPECT_OK(ncclMemFree(memory));
  };
  RunOnGpus(Processes(2), body, options);
}

// Rank 2 dies before it calls, in a group that it never ends, or in the exchange, which rank 1 joins only then.
enum class When { kBefore, kInAGroup, kInTheExchange };

[[noreturn]] void Die(RankContext& context, ncclComm_t comm, void* memory, When when) {
  static ncclWindow_t window = nullptr;
  if (when == When::kInAGroup) {
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(Register(comm, memory, kChunk, &window));
  }
  std::thread registering([=] {
    if (when != When::kInTheExchange) return;
    (void)EnterGpu(0);
    (void)Register(comm, memory, kChunk, &window);
  });
  context.Set(1, static_cast<uint64_t>(getpid()));
  (void)context.Await(2);
  context.Die();
}

void AwaitDeath(RankContext& context) {
  const int process = static_cast<int>(syscall(SYS_pidfd_open, context.Await(1), 0));
  ASSERT_GE(process, 0) << strerror(errno);
  context.Set(2, 1);
  pollfd gone{process, POLLIN, 0};
  ASSERT_EQ(poll(&gone, 1, -1), 1);
  close(process);
}

TEST(WindowFailures, ARankThatDies) {
  for (const When when : {When::kBefore, When::kInAGroup, When::kInTheExchange}) {
    RunOnGpus(Processes(3), [when](RankContext& context, Clique& clique) {
      const WindowMemory memory(kChunk);
      ncclWindow_t window = nullptr;
      ASSERT_TRUE(context.Barrier());
      if (context.rank() == 2) Die(context, clique.comm(), memory.at(), when);
      if (context.rank() == 1) AwaitDeath(context);
      EXPECT_EQ(Register(clique.comm(), memory.at(), kChunk, &window), ncclRemoteError);
      EXPECT_EQ(window, nullptr);
      ExpectLastErrorHas({"ncclCommWindowRegister", "rank 2", "a window was being made"});
      context.Set(3 + context.rank(), 1);
      EXPECT_EQ(context.Await(4 - context.rank()), 1u);
      ASSERT_NO_FATAL_FAILURE(Abort(&clique));
    });
  }
}

TEST(WindowFailures, AnAbortEndsTheWait) {
  for (const Layout& layout : {Threads(2), Processes(2)}) {
    RunOnGpus(layout, [](RankContext& context, Clique& clique) {
      const WindowMemory memory(kChunk);
      ncclWindow_t window = nullptr;
      if (context.rank() == 0) {
        std::thread aborting([&] {
          (void)EnterGpu(0);
          // The log shows the call, or it has not begun: the abort ends either.
          ncclResult_t state = ncclSuccess;
          EXPECT_OK(ncclCommGetAsyncError(clique.comm(), &state));
          EXPECT_OK(ncclCommAbort(clique.comm()));
        });
        const ncclResult_t result = Register(clique.comm(), memory.at(), kChunk, &window);
        EXPECT_TRUE(result == ncclInvalidUsage || result == ncclInvalidArgument) << result;
        aborting.join();
        context.Set(1, 1);
      } else {
        (void)context.Await(1);
        const ncclResult_t result = Register(clique.comm(), memory.at(), kChunk, &window);
        EXPECT_TRUE(result == ncclInvalidUsage || result == ncclRemoteError) << result;
        ExpectLastErrorHas({"ncclCommWindowRegister", "rank 0"});
        ASSERT_OK(ncclCommAbort(clique.comm()));
      }
      clique.ForgetComms();
      ASSERT_TRUE(context.Barrier());
    });
  }
}

TEST(WindowFailures, ADeadlineEndsTheWait) {
  RunOptions options;
  // Long enough for the communicator itself.
  options.environment = {{"AXCCL_INIT_TIMEOUT", std::to_string(4 * harness::TimeScale())}};
  const auto body = [](RankContext& context, Clique& clique) {
    const WindowMemory memory(kChunk);
    ncclWindow_t window = nullptr;
    if (context.rank() == 0) {
      EXPECT_EQ(Register(clique.comm(), memory.at(), kChunk, &window), ncclTimeout);
      ExpectLastErrorHas({"ncclCommWindowRegister", "1", "AXCCL_INIT_TIMEOUT"});
    }
    ASSERT_TRUE(context.Barrier());
  };
  RunOnGpus(Threads(2), body, options);
}

// Ranks that make different calls.
TEST(WindowFailures, ASplitInstead) {
  RunOnGpus(Threads(2), [](RankContext& context, Clique& clique) {
    const WindowMemory memory(kChunk);
    ncclWindow_t window = nullptr;
    ncclComm_t child = nullptr;
    const ncclResult_t result = context.rank() == 0 ? Register(clique.comm(), memory.at(), kChunk, &window)
                                                    : ncclCommSplit(clique.comm(), 0, 0, &child, nullptr);
    EXPECT_EQ(result, ncclInvalidUsage);
    ExpectLastErrorHas({"ncclCommSplit", "ncclCommWindowRegister"});
    ASSERT_TRUE(context.Barrier());
    ASSERT_OK(Register(clique.comm(), memory.at(), kChunk, &window));
    ASSERT_TRUE(context.Barrier());
  });
}

TEST(WindowFailures, ArgumentsThatAreWrong) {
  RunOnGpus(Threads(1), [](RankContext&, Clique& clique) {
    const WindowMemory memory(kChunk);
    ncclWindow_t window = nullptr;
    EXPECT_EQ(Register(clique.comm(), nullptr, kChunk, &window), ncclInvalidArgument);
    EXPECT_EQ(window, nullptr);
    EXPECT_EQ(ncclCommWindowRegister(clique.comm(), memory.at(), kChunk, nullptr, 0), ncclInvalidArgument);
    EXPECT_EQ(ncclCommWindowRegister(clique.comm(), memory.at(), kChunk, &window, 64), ncclInvalidArgument);
    EXPECT_EQ(ncclCommWindowRegister(nullptr, memory.at(), kChunk, &window, 0), ncclInvalidArgument);
    void* registration = nullptr;  // local, and of any memory
    Words managed(1024);
    for (void* const buffer : {static_cast<void*>(memory.at()), static_cast<void*>(managed.get())}) {
      ASSERT_OK(ncclCommRegister(clique.comm(), buffer, 4096, &registration));
      EXPECT_EQ(ncclCommWindowDeregister(clique.comm(), static_cast<ncclWindow_t>(registration)), ncclInvalidArgument);
      EXPECT_OK(ncclCommDeregister(clique.comm(), registration));
    }
    ASSERT_OK(Register(clique.comm(), memory.at(), kChunk, &window));
    EXPECT_EQ(ncclCommDeregister(clique.comm(), window), ncclInvalidArgument);
    ASSERT_OK(ncclCommRevoke(clique.comm(), NCCL_REVOKE_DEFAULT));
    ncclWindow_t second = nullptr;
    EXPECT_EQ(Register(clique.comm(), memory.at(), kChunk, &second), ncclInvalidUsage);
    EXPECT_OK(ncclCommWindowDeregister(clique.comm(), window));
  });
}

// Of windows that end before their communicator, with it, and after their memory.
void ComeAndGo(RankContext& context, Clique& clique) {
  ncclComm_t child = nullptr;
  Holdings before;
  for (int round = 0; round < 6; ++round) {
    ASSERT_TRUE(context.Step("round %d", round));
    if (round == 2) {  // what is allocated once is there now
      ASSERT_TRUE(context.Barrier());
      before = Holdings::Now();
      ASSERT_TRUE(context.Barrier());
    }
    ASSERT_OK(ncclCommSplit(clique.comm(), 0, 0, &child, nullptr));
    for (int i = 0; i < 4; ++i) {
      auto memory = std::make_unique<WindowMemory>(static_cast<size_t>(i + 1) * kChunk);
      ncclWindow_t of_child = nullptr, of_parent = nullptr;
      ASSERT_OK(Register(child, memory->at(), memory->bytes(), &of_child));
      ASSERT_OK(Register(clique.comm(), memory->at(), memory->bytes(), &of_parent));
      ASSERT_TRUE(context.Barrier());
      if (i % 2 == 0) memory = nullptr;
      EXPECT_OK(ncclCommWindowDeregister(clique.comm(), of_parent));
    }
    ASSERT_TRUE(context.Barrier());
    ASSERT_OK(round % 2 == 0 ? ncclCommDestroy(child) : ncclCommAbort(child));
    ASSERT_TRUE(context.Barrier());
  }
  // Memory of the communicators may be given back a little later, that of earlier rounds after the first look, too.
  Holdings now;
  const auto clean = [&] {
    now = Holdings::Now();
    return now.free_bytes >= before.free_bytes && now.files <= before.files && now.mappings <= before.mappings;
  };
  for (const uint64_t start = harness::NowNs(); !clean() && harness::NowNs() < start + harness::AllowedNs(5000);)
    harness::LookLater();
  EXPECT_TRUE(clean()) << testing::PrintToString(now) << "; before: " << testing::PrintToString(before);
  ASSERT_TRUE(context.Barrier());
}
TEST(WindowFailures, NothingIsLeft) {
  RunOnGpus(Threads(2), ComeAndGo);
  RunOnGpus(Processes(3), ComeAndGo);
}

}  // namespace
}  // namespace axccl::tests
