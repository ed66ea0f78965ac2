// Attaching between processes: sharing, caching, death, fork.
#include "transports/shm/attach.h"
#include "tests/harness/timing.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/restrict.h"
#include "tests/harness/run_ranks.h"
#include "tests/transports/peer.h"
#include "transports/shm/heap.h"
#include "transports/shm/host_id.h"
#include "transports/shm/mapping.h"

namespace axccl::shm {
namespace {

using harness::RankContext;
using transport::PeerProcess;
using transport::ProcessAddress;

constexpr char kHeapName[] = "memfd:axccl-heap";

Clock::time_point In(std::chrono::milliseconds time) { return Clock::now() + time * harness::TimeScale(); }

uint64_t NowNs() { return static_cast<uint64_t>(Clock::now().time_since_epoch().count()); }

#define ASSERT_SELF(name)                                              \
  Result<ProcessAddress> name##_result = SelfAddress();                \
  ASSERT_TRUE(name##_result.ok()) << name##_result.status().message(); \
  const ProcessAddress name = name##_result.value()

#define ASSERT_ATTACHED(name, address)                                                                         \
  Result<std::shared_ptr<PeerProcess>> name##_result = Attach(address, In(std::chrono::seconds(10)), nullptr); \
  ASSERT_TRUE(name##_result.ok()) << name##_result.status().message();                                         \
  std::shared_ptr<PeerProcess> name = std::move(name##_result).value()

// Every rank publishes its address first, and waits until all have.
#define ASSERT_PUBLISHED(context)            \
  {                                          \
    ASSERT_SELF(own);                        \
    Publish(context, (context).rank(), own); \
    ASSERT_TRUE((context).Barrier());        \
  }

TEST(AttachTest, EveryProcessReadsAndWritesEveryHeap) {
  harness::RunRanks(harness::Processes(4), [](RankContext& context) {
    Result<Heap*> heap = Heap::Get();
    ASSERT_TRUE(heap.ok());
    Result<void*> mine = heap.value()->Allocate(4096, 64);
    ASSERT_TRUE(mine.ok());
    auto* const cells = static_cast<std::atomic<uint64_t>*>(mine.value());
    cells[4].store(100 + static_cast<uint64_t>(context.rank()));
    uint64_t offset = 0;
    ASSERT_TRUE(heap.value()->Contains(cells, 4096, &offset));
    context.Set(context.rank(), offset);
    ASSERT_PUBLISHED(context);
    for (int r = 0; r < context.nranks(); ++r) {
      ASSERT_ATTACHED(peer, Published(context, r));
      EXPECT_EQ(peer->is_self(), r == context.rank());
      EXPECT_EQ(peer->pid(), peer->page()->pid);
      EXPECT_FALSE(peer->Died());
      auto* const theirs = reinterpret_cast<std::atomic<uint64_t>*>(peer->heap() + context.Get(r));
      EXPECT_EQ(theirs[4].load(), 100 + static_cast<uint64_t>(r));
      theirs[context.rank()].store(7 + static_cast<uint64_t>(context.rank()));
    }
    ASSERT_TRUE(context.Barrier());
    for (int r = 0; r < context.nranks(); ++r) EXPECT_EQ(cells[r].load(), 7 + static_cast<uint64_t>(r));
  });
}

// A window of a peer's heap, its first page, which is read-only, and the page from which further windows are made.
constexpr int kMappingsPerPeer = 3;

TEST(AttachTest, OneMappingAndNoDescriptorPerPeer) {
  harness::RunRanks(harness::Processes(2), [](RankContext& context) {
    ASSERT_PUBLISHED(context);
    const int before = CountDescriptors();
    EXPECT_EQ(CountMappings(kHeapName), 1);
    const ProcessAddress address = Published(context, 1 - context.rank());
    for (int cycle = 0; cycle < 200; ++cycle) {
      ASSERT_ATTACHED(first, address);
      ASSERT_ATTACHED(second, address);
      EXPECT_EQ(first, second);
      EXPECT_EQ(CountMappings(kHeapName), 1 + kMappingsPerPeer);
      first.reset();
      EXPECT_EQ(second->page()->magic, transport::ProcessPage::kMagic);
    }
    EXPECT_EQ(CountMappings(kHeapName), 1);
    ASSERT_TRUE(context.Barrier());  // the service thread closes the peer's last connection to this process
    ASSERT_ATTACHED(last, address);
    ASSERT_TRUE(context.Barrier());
    EXPECT_LE(CountDescriptors(), before + 1) << "at most the connection of a peer that is being closed";
  });
}

TEST(AttachTest, ThreadsOfAProcessShareTheMapping) {
  harness::RunRanks(harness::Layout{2, 4, 1}, [](RankContext& context) {
    const int process = context.rank() / 4;
    ASSERT_SELF(own);
    if (context.rank() % 4 == 0) Publish(context, process, own);
    ASSERT_TRUE(context.Barrier());
    ASSERT_ATTACHED(peer, Published(context, 1 - process));
    ASSERT_TRUE(context.Barrier());
    EXPECT_EQ(CountMappings(kHeapName), 1 + kMappingsPerPeer);
    EXPECT_EQ(peer->pid(), Published(context, 1 - process).pid);
    ASSERT_TRUE(context.Barrier());
  });
}

// All of a heap can be used, even if it is larger than what is mapped at first; addresses stay valid.
TEST(AttachTest, WindowsGrowAndStay) {
  harness::RunRanks(harness::Processes(2), [](RankContext& context) {
    constexpr uint64_t kMiB = 1 << 20;
    Result<Heap*> heap = Heap::Get();
    ASSERT_TRUE(heap.ok());
    const uint64_t sizes[] = {4096, 80 * kMiB, 4096, 300 * kMiB, 4096};  // sizes in address space
    for (uint64_t i = 0; i < 5; ++i) {
      Result<void*> memory = heap.value()->Allocate(sizes[i], 64);
      ASSERT_TRUE(memory.ok()) << memory.status().message();
      auto* const last = static_cast<std::byte*>(memory.value()) + sizes[i] - sizeof(uint64_t);
      *reinterpret_cast<uint64_t*>(last) = 100 * i + static_cast<uint64_t>(context.rank());
      context.Set(static_cast<int>(8 * i) + context.rank(), static_cast<uint64_t>(last - heap.value()->base()));
    }
    ASSERT_PUBLISHED(context);
    const int other = 1 - context.rank();
    ASSERT_ATTACHED(peer, Published(context, other));
    std::vector<uint64_t*> words;
    for (uint64_t i = 0; i < 5; ++i) {
      Result<std::byte*> there = peer->At(context.Get(static_cast<int>(8 * i) + other), sizeof(uint64_t));
      ASSERT_TRUE(there.ok()) << there.status().message();
      words.push_back(reinterpret_cast<uint64_t*>(there.value()));
      for (uint64_t k = 0; k <= i; ++k) EXPECT_EQ(*words[k], 100 * k + static_cast<uint64_t>(other));
    }
    EXPECT_EQ(peer->At(peer->heap_bytes(), 1).status().code(), Code::kRemoteError);
    EXPECT_EQ(peer->At(8, peer->heap_bytes()).status().code(), Code::kRemoteError);
    EXPECT_EQ(peer->At(~uint64_t{0}, 8).status().code(), Code::kRemoteError);
    peer.reset();
    EXPECT_EQ(CountMappings(kHeapName), 1);
    ASSERT_TRUE(context.Barrier());
  });
}

TEST(AttachTest, ThreadsGrowWindowsAtTheSameTime) {
  harness::RunRanks(harness::Layout{2, 4, 1}, [](RankContext& context) {
    const int process = context.rank() / 4, thread = context.rank() % 4;
    ASSERT_SELF(own);
    Heap* const heap = Heap::Get().value();
    if (thread == 0) {
      Publish(context, process, own);
      // Words at 64 MiB, 128 MiB, ... of the heap; each holds its position.
      auto* const all = static_cast<std::byte*>(heap->Allocate(uint64_t{2} << 30, 64).value());
      ASSERT_LE(all - heap->base(), 2 << 20);
      for (uint64_t at = 64 << 20; at < uint64_t{2} << 30; at += 64 << 20)
        *reinterpret_cast<uint64_t*>(heap->base() + at) = at;
    }
    ASSERT_TRUE(context.Barrier());
    ASSERT_ATTACHED(peer, Published(context, 1 - process));
    for (uint64_t at = 64 << 20; at < uint64_t{2} << 30; at += 64 << 20) {
      Result<std::byte*> there = peer->At(at, sizeof(uint64_t));
      ASSERT_TRUE(there.ok()) << there.status().message();
      ASSERT_EQ(*reinterpret_cast<uint64_t*>(there.value()), at);
    }
    ASSERT_TRUE(context.Barrier());
  });
}

// A process that overwrites all of a peer's memory that it has mapped does not make the peer look different or dead.
TEST(AttachTest, FirstPageOfAPeerCannotBeWritten) {
  harness::RunRanks(harness::Processes(2), [](RankContext& context) {
    ASSERT_PUBLISHED(context);
    ASSERT_ATTACHED(peer, Published(context, 1 - context.rank()));
    ASSERT_TRUE(peer->At(200 << 20, 4096).ok());
    // A system call reports whether the page is writable.
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    for (const std::byte* base : {peer->heap(), peer->At(0, 4096).value()}) {
      for (const size_t at : {size_t{0}, offsetof(transport::ProcessPage, liveness), transport::kPageBytes - 1}) {
        ASSERT_EQ(write(ends[1], "x", 1), 1);
        EXPECT_EQ(read(ends[0], const_cast<std::byte*>(base) + at, 1), -1) << at;
        EXPECT_EQ(errno, EFAULT);
        char byte;
        ASSERT_EQ(read(ends[0], &byte, 1), 1);
      }
    }
    peer->page()->doorbell[3].rings.fetch_add(1);
    ASSERT_TRUE(context.Barrier());
    EXPECT_EQ(Heap::Get().value()->page()->doorbell[3].rings.load(), 1u);
    close(ends[0]), close(ends[1]);
  });
}

// ---- restrictions by containers and administrators ----

// A heap's address space is reserved in its own process only, and not again in every peer: 4 heaps of 1 TiB, with room
// for 2. Machines with more than 512 GiB of memory and 128 processes have the same problem with 128 TiB.
TEST(RestrictedTest, HeapsLargerThanTheAddressSpaceAreShared) {
  if (harness::TimeScale() != 1) GTEST_SKIP() << "sanitizers need the address space";
  harness::RunOptions options;
  options.environment = {{"AXCCL_HEAP_BYTES", "1T"}};
  harness::RunRanks(
      harness::Processes(4),
      [](RankContext& context) {
        ASSERT_TRUE(harness::Limit(RLIMIT_AS, rlim_t{2} << 40));
        ASSERT_PUBLISHED(context);
        for (int r = 0; r < context.nranks(); ++r) {
          ASSERT_ATTACHED(peer, Published(context, r));
          EXPECT_TRUE(peer->At(1 << 30, 1 << 20).ok());
          if (peer->is_self()) continue;
          const Status status = peer->At(900ull << 30, 1 << 20).status();
          EXPECT_EQ(status.code(), Code::kSystemError);
          EXPECT_NE(status.message().find("limit (ulimit -v) 2097152 MiB"), std::string_view::npos) << status.message();
          EXPECT_TRUE(peer->At(1 << 30, 1 << 20).ok()) << "still mapped";
        }
        ASSERT_TRUE(context.Barrier());
      },
      options);
}

// memfd_create is forbidden: heaps are unnamed files in a /dev/shm as small as Docker's.
TEST(RestrictedTest, WithoutMemfdHeapsAreInDevShm) {
  if (access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "there is no /dev/shm to write to";
  harness::RunRanks(harness::Processes(2), [](RankContext& context) {
    if (!harness::ReplaceDevShm("size=64m")) {
      std::printf("not allowed to mount: with the /dev/shm that is there\n");
    }
    ASSERT_TRUE(harness::Refuse({{SYS_memfd_create, EPERM}}));
    ASSERT_PUBLISHED(context);
    EXPECT_EQ(Published(context, 1 - context.rank()).heap_kind, transport::HeapKind::kTmpfs);
    ASSERT_ATTACHED(peer, Published(context, 1 - context.rank()));
    Heap* const heap = Heap::Get().value();
    auto* const word = static_cast<uint64_t*>(heap->Allocate(16 << 20, 64).value());
    *word = 5 + static_cast<uint64_t>(context.rank());
    context.Set(context.rank(), static_cast<uint64_t>(reinterpret_cast<std::byte*>(word) - heap->base()));
    ASSERT_TRUE(context.Barrier());
    EXPECT_EQ(*reinterpret_cast<uint64_t*>(peer->At(context.Get(1 - context.rank()), 8).value()),
              6 - static_cast<uint64_t>(context.rank()));
    ASSERT_TRUE(context.Barrier());
  });
}

// Touching a page that a full tmpfs has no room for raises SIGBUS, so allocation reports the lack of memory first.
TEST(RestrictedTest, FullDevShmIsAnErrorAndNoSignal) {
  for (const bool fallocate : {true, false}) {
    harness::RunRanks(harness::Processes(1), [fallocate](RankContext&) {
      if (!harness::ReplaceDevShm("size=8m")) GTEST_SKIP() << "not allowed to mount";
      ASSERT_TRUE(harness::Refuse({{SYS_memfd_create, EPERM}}));
      if (!fallocate) {
        ASSERT_TRUE(harness::Refuse({{SYS_fallocate, EOPNOTSUPP}}));
      }
      Result<Heap*> heap = Heap::Get();
      ASSERT_TRUE(heap.ok()) << heap.status().message();
      for (int cycle = 0; cycle < 3; ++cycle) {
        std::vector<void*> given;
        Result<void*> memory = heap.value()->Allocate(1 << 20, 64);
        for (; memory.ok(); memory = heap.value()->Allocate(1 << 20, 64)) {
          EXPECT_TRUE(std::all_of(static_cast<char*>(memory.value()), static_cast<char*>(memory.value()) + (1 << 20),
                                  [](char byte) { return byte == 0; }));
          std::memset(memory.value(), 1, 1 << 20);
          given.push_back(memory.value());
        }
        EXPECT_EQ(given.size(), 7u) << cycle;
        for (const char* words : {"need 1024 KiB", "/dev/shm has", "of 8192 KiB free", "--shm-size", "memfd_create"})
          EXPECT_NE(memory.status().message().find(words), std::string_view::npos) << memory.status().message();
        for (void* p : given) EXPECT_TRUE(heap.value()->Free(p).ok());
      }
    });
  }
}

// Without both, the ranks of one process work, and other processes get an error that explains why they cannot attach.
TEST(RestrictedTest, WithoutMemfdAndDevShmAProcessIsAlone) {
  harness::RunRanks(harness::Processes(2), [](RankContext& context) {
    ASSERT_TRUE(harness::Refuse({{SYS_memfd_create, EPERM}}));
    if (!harness::ReplaceDevShm("size=4m")) {
      ASSERT_TRUE(harness::Limit(RLIMIT_FSIZE, 0));  // has the same effect
    }
    ASSERT_PUBLISHED(context);
    ASSERT_SELF(self);
    ASSERT_ATTACHED(own, self);
    Heap* const heap = Heap::Get().value();
    void* const memory = heap->Allocate(1 << 20, 64).value();
    std::memset(memory, 1, 1 << 20);
    EXPECT_TRUE(heap->Free(memory).ok());
    ASSERT_EQ(heap->Allocate(1 << 20, 64).value(), memory);
    EXPECT_EQ(*static_cast<char*>(memory), 0);
    const Status status =
        Attach(Published(context, 1 - context.rank()), In(std::chrono::seconds(10)), nullptr).status();
    EXPECT_EQ(status.code(), Code::kInvalidUsage);
    EXPECT_NE(status.message().find("only its own threads reach its memory"), std::string_view::npos)
        << status.message();
    ASSERT_TRUE(context.Barrier());
  });
}

// ---- death ----

enum class End { kKilled, kKilledWithGigabyte, kExits, kExecs };

// Rank 1 ends in the given way and publishes when; rank 0 polls the page and returns how long the detection took.
uint64_t MicrosecondsToSee(End end) {
  uint64_t microseconds = 0;
  const harness::Layout layout = harness::Processes(2);
  std::atomic<uint64_t>* const shared = static_cast<std::atomic<uint64_t>*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  harness::RunRanks(layout, [&](RankContext& context) {
    ASSERT_PUBLISHED(context);
    if (context.rank() == 0) {
      ASSERT_ATTACHED(peer, Published(context, 1));
      EXPECT_FALSE(peer->Died());
      ASSERT_TRUE(context.Barrier());
      const uint64_t died = context.Await(0);
      while (!peer->Died()) sched_yield();
      shared->store((NowNs() - died) / 1000);
      return;
    }
    std::vector<char> ballast;
    if (end == End::kKilledWithGigabyte) ballast.assign(size_t{1} << 30, 1);
    ASSERT_TRUE(context.Barrier());
    context.Set(0, NowNs());
    if (end == End::kExits) exit(0);
    if (end == End::kExecs) execl("/bin/true", "true", static_cast<char*>(nullptr));
    context.Die();
  });
  microseconds = shared->load();
  munmap(shared, 4096);
  return microseconds;
}

void ExpectSeen(End end, const char* name) {
  const uint64_t microseconds = MicrosecondsToSee(end);
  testing::Test::RecordProperty(name, static_cast<int>(microseconds));
  std::printf("             %s: seen after %llu us\n", name, static_cast<unsigned long long>(microseconds));
  uint64_t limit = 100000u * static_cast<unsigned>(harness::TimeScale());
  if (harness::TimeScale() > 1 && end == End::kExits) limit += 1000000;  // ThreadSanitizer sleeps a second in exit()
  EXPECT_LT(microseconds, limit);
}

TEST(DeathTestOfPeer, KilledIsSeenWithin100Ms) { ExpectSeen(End::kKilled, "killed"); }
TEST(DeathTestOfPeer, KilledWithAGigabyteIsSeenWithin100Ms) { ExpectSeen(End::kKilledWithGigabyte, "killed_1g"); }
TEST(DeathTestOfPeer, ExitIsSeenWithin100Ms) { ExpectSeen(End::kExits, "exit"); }
TEST(DeathTestOfPeer, ExecIsSeenWithin100Ms) { ExpectSeen(End::kExecs, "exec"); }

TEST(DeathTestOfPeer, AttachingToADeadProcessFailsAtOnce) {
  harness::RunRanks(harness::Processes(2), [](RankContext& context) {
    ASSERT_PUBLISHED(context);
    if (context.rank() == 1) context.Die();
    ASSERT_ATTACHED(self, Published(context, 0));
    const ProcessAddress address = Published(context, 1);
    // Until the kernel has closed its socket, attaching may still work; then the page shows the death.
    for (;;) {
      Result<std::shared_ptr<PeerProcess>> peer = Attach(address, Clock::now() + std::chrono::hours(1), nullptr);
      if (peer.ok()) continue;
      EXPECT_EQ(peer.status().code(), Code::kRemoteError) << peer.status().message();
      EXPECT_NE(peer.status().message().find(std::to_string(address.pid)), std::string_view::npos);
      break;
    }
  });
}

TEST(AttachTest, StoppedPeerCostsTheDeadlineOrAnAbort) {
  harness::RunRanks(harness::Processes(2), [](RankContext& context) {
    ASSERT_PUBLISHED(context);
    if (context.rank() == 1) {
      context.Await(0);
      return;
    }
    const ProcessAddress address = Published(context, 1);
    StopProcess(static_cast<pid_t>(address.pid));
    Result<std::shared_ptr<PeerProcess>> peer = Attach(address, Clock::now() + std::chrono::milliseconds(50), nullptr);
    EXPECT_EQ(peer.status().code(), Code::kTimeout) << peer.status().message();
    const std::atomic<bool> abort{true};
    peer = Attach(address, Clock::now() + std::chrono::hours(1), &abort);
    EXPECT_EQ(peer.status().code(), Code::kInvalidUsage) << peer.status().message();
    EXPECT_NE(peer.status().message().find("aborted"), std::string_view::npos);
    ASSERT_EQ(kill(static_cast<pid_t>(address.pid), SIGCONT), 0);
    ASSERT_ATTACHED(thawed, address);
    context.Set(0, 1);
  });
}

TEST(AttachTest, OtherHostsAreRefusedBeforeConnecting) {
  harness::RunRanks(harness::Processes(2), [](RankContext& context) {
    ASSERT_PUBLISHED(context);
    const ProcessAddress address = Published(context, 1 - context.rank());
    EXPECT_EQ(WhyApart(address.host_id, CurrentHostId().value()), nullptr);
    const std::pair<std::function<void(transport::HostId*)>, const char*> changes[] = {
        {[](transport::HostId* id) { id->machine[3] ^= 1, ++id->network, ++id->processes; }, "another machine"},
        {[](transport::HostId* id) { id->given[3] ^= 1; }, "another NCCL_HOSTID"},
        {[](transport::HostId* id) { ++id->network, ++id->processes; }, "another network namespace"},
        {[](transport::HostId* id) { ++id->users; }, "another user namespace"},
        {[](transport::HostId* id) { ++id->user; }, "another user"},
        {[](transport::HostId* id) { ++id->processes; }, "another PID namespace"}};
    for (const auto& [change, why] : changes) {
      ProcessAddress other = address;
      change(&other.host_id);
      const auto peer = Attach(other, Clock::now() + std::chrono::hours(1), nullptr);
      EXPECT_EQ(peer.status().code(), Code::kInvalidUsage) << peer.status().message();
      EXPECT_TRUE(peer.status().message().ends_with(why)) << peer.status().message();
    }
    ASSERT_TRUE(context.Barrier());
  });
}

TEST(AttachTest, WorksWithoutDevShm) {
  harness::RunRanks(harness::Processes(2), [](RankContext& context) {
    if (unshare(CLONE_NEWNS) == 0 && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0) {
      // Hides it under an empty, unwritable file system; without the privilege, the test is an ordinary one.
      (void)!mount("none", "/dev/shm", "tmpfs", MS_RDONLY, "size=4k");
    }
    ASSERT_PUBLISHED(context);
    ASSERT_ATTACHED(peer, Published(context, 1 - context.rank()));
    EXPECT_FALSE(peer->Died());
    ASSERT_TRUE(context.Barrier());
  });
}

// ---- fork ----

TEST(ForkTest, ChildGetsErrorsAndKeepsTheMemory) {
  harness::RunRanks(harness::Processes(2), [](RankContext& context) {
    ASSERT_PUBLISHED(context);
    Heap* const heap = Heap::Get().value();
    auto* const word = static_cast<std::atomic<uint64_t>*>(heap->Allocate(64, 64).value());
    word->store(42);
    const ProcessAddress address = Published(context, 1 - context.rank());
    ASSERT_ATTACHED(peer, address);
    const pid_t child = fork();
    if (child == 0) {
      const auto usage = Code::kInvalidUsage;
      int wrong = 0;
      wrong += Heap::Get().status().code() != usage ? 1 : 0;
      wrong += heap->Allocate(64, 64).status().code() != usage ? 2 : 0;
      wrong += heap->Free(word).code() != usage ? 4 : 0;
      wrong += SelfAddress().status().code() != usage ? 8 : 0;
      wrong += Attach(address, Clock::now() + std::chrono::hours(1), nullptr).status().code() != usage ? 16 : 0;
      wrong += word->exchange(43) != 42 || peer->Died() ? 32 : 0;
      peer.reset();
      _exit(wrong);
    }
    EXPECT_EQ(AwaitChild(child), 0);
    EXPECT_EQ(word->load(), 43u);
    EXPECT_FALSE(peer->Died());
    ASSERT_TRUE(context.Barrier());
    EXPECT_FALSE(peer->Died()) << "the end of the peer's child is not the end of the peer";
    peer.reset();
    ASSERT_ATTACHED(again, address);
    ASSERT_TRUE(context.Barrier());
  });
}

TEST(ForkTest, ParentsDeathIsSeenWhileItsChildLives) {
  harness::RunRanks(harness::Processes(2), [](RankContext& context) {
    ASSERT_PUBLISHED(context);
    const ProcessAddress address = Published(context, 1);
    if (context.rank() == 1) {
      const pid_t child = fork();
      if (child == 0) {
        context.Set(1, 1);
        context.Await(2);
        _exit(0);
      }
      context.Await(1);
      context.Set(3, static_cast<uint64_t>(child));
      context.Await(4);
      context.Die();
    }
    const pid_t child = static_cast<pid_t>(context.Await(3));
    ASSERT_ATTACHED(peer, address);
    context.Set(4, 1);
    while (!peer->Died()) harness::LookLater();
    EXPECT_EQ(kill(child, 0), 0) << "the child still lives";
    peer.reset();
    for (;;) {  // its socket is closed last
      const auto late = Attach(address, Clock::now() + std::chrono::hours(1), nullptr);
      if (late.ok()) continue;
      EXPECT_EQ(late.status().code(), Code::kRemoteError) << late.status().message();
      break;
    }
    EXPECT_EQ(kill(child, 0), 0);
    context.Set(2, 1);
  });
}

TEST(PagesTest, LargerOnesAreRefusedWithWhatToDo) {
  EXPECT_TRUE(CheckPages(kPageBytes).ok());
  const Status refused = CheckPages(65536);
  EXPECT_EQ(refused.code(), Code::kSystemError);
  for (const char* part : {"65536 bytes", "in pages of 4096", "threads of one process", "NCCL_HOSTID"})
    EXPECT_NE(std::string(refused.message()).find(part), std::string::npos) << refused.message();
}

TEST(ForkTest, ExecutedProgramsInheritNothing) {
  harness::RunRanks(harness::Processes(2), [](RankContext& context) {
    ASSERT_PUBLISHED(context);
    ASSERT_ATTACHED(peer, Published(context, 1 - context.rank()));
    FILE* const list = popen("ls -l /proc/self/fd", "r");
    ASSERT_NE(list, nullptr);
    std::string text;
    for (char line[512]; fgets(line, sizeof line, list) != nullptr;) text += line;
    pclose(list);
    EXPECT_NE(text.find("->"), std::string::npos);
    for (const char* forbidden : {"memfd", "eventpoll", "eventfd", "socket:"}) {
      EXPECT_EQ(text.find(forbidden), std::string::npos) << text;
    }
    ASSERT_TRUE(context.Barrier());
  });
}

}  // namespace
}  // namespace axccl::shm
