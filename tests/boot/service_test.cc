// The service thread and the acceptor (src/base/service*.h). Each test runs in its own process.
#include "src/base/service.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "src/base/service_acceptor.h"
#include "tests/harness/run_ranks.h"

namespace axccl::service {
namespace {

using harness::RankContext;

void InAProcess(const std::function<void()>& body) {
  harness::RunRanks(harness::Processes(1), [&](RankContext&) { body(); });
}

// Runs `body` on the service thread and returns its result: GoogleTest failures belong on the test's own thread.
template <class Body>
auto OnLoop(Loop* loop, Body body) {
  decltype(body()) result{};
  EXPECT_TRUE(loop->Run([&] { result = body(); }).ok());
  return result;
}

#define ASSERT_LOOP(name)                                              \
  Result<Loop*> name##_result = Loop::Get();                           \
  ASSERT_TRUE(name##_result.ok()) << name##_result.status().message(); \
  Loop* const name = name##_result.value()

TEST(LoopTest, RunsTasksOfManyThreadsOneAtATime) {
  harness::RunRanks(harness::Threads(4), [](RankContext& context) {
    ASSERT_LOOP(loop);
    static int unguarded = 0;  // only the service thread touches it
    for (int i = 0; i < 200; ++i) {
      ASSERT_TRUE(OnLoop(loop, [&] {
        ++unguarded;
        return loop->Run([] { ++unguarded; }).ok();  // nested: at once
      }));
    }
    context.Barrier();
    EXPECT_EQ(OnLoop(loop, [&] { return unguarded; }), 4 * 200 * 2);
  });
}

TEST(LoopTest, TimersFireInOrderAndCanBeCancelled) {
  InAProcess([] {
    ASSERT_LOOP(loop);
    std::vector<int> order;
    std::promise<void> last;
    ASSERT_TRUE(loop->Run([&] {
                      const auto now = Clock::now();
                      const auto at = [&](int ms) { return now + std::chrono::milliseconds(ms); };
                      loop->CallAt(at(30), [&] {
                        order.push_back(3);
                        last.set_value();
                      });
                      const uint64_t cancelled = loop->CallAt(at(5), [&] { order.push_back(99); });
                      loop->CallAt(at(20), [&] { order.push_back(2); });
                      loop->CallAt(at(-1), [&] { order.push_back(1); });
                      loop->Cancel(cancelled);
                      loop->Cancel(cancelled);
                      loop->Cancel(0);
                    })
                    .ok());
    last.get_future().wait();
    EXPECT_EQ(OnLoop(loop, [&] { return loop->timers(); }), 0u);
    EXPECT_EQ(OnLoop(loop, [&] { return order; }), (std::vector<int>{1, 2, 3}));
  });
}

TEST(LoopTest, HandlersMayUnwatchThemselvesAndOthers) {
  InAProcess([] {
    ASSERT_LOOP(loop);
    int pipes[2][2];
    for (auto& ends : pipes) ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    for (auto& ends : pipes) ASSERT_EQ(write(ends[1], "x", 1), 1);
    // Both are ready at once; whichever handler runs first removes both, so the other must not run.
    int calls = 0;
    std::promise<void> called;
    const auto handler = [&](uint32_t) {
      ++calls;
      for (auto& each : pipes) loop->Unwatch(each[0]);
      called.set_value();
    };
    ASSERT_TRUE(OnLoop(loop, [&] {
      return loop->Watch(pipes[0][0], EPOLLIN, handler).ok() && loop->Watch(pipes[1][0], EPOLLIN, handler).ok();
    }));
    called.get_future().wait();
    EXPECT_EQ(OnLoop(loop, [&] { return loop->watched(); }), 0u);
    EXPECT_EQ(OnLoop(loop, [&] { return calls; }), 1);
    for (auto& ends : pipes) close(ends[0]), close(ends[1]);
  });
}

TEST(LoopTest, ReusedDescriptorNumberDoesNotGetEarlierEvents) {
  InAProcess([] {
    ASSERT_LOOP(loop);
    int ready[2][2], idle[2];
    for (auto& ends : ready) {
      ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
      ASSERT_EQ(write(ends[1], "x", 1), 1);
    }
    ASSERT_EQ(pipe2(idle, O_CLOEXEC | O_NONBLOCK), 0);
    // Both are ready in one wake-up. The first one served replaces the other with an idle pipe.
    int spurious = 0;
    std::promise<void> replaced;
    const auto handler_of = [&](int mine, int other) {
      return [&, mine, other](uint32_t) {
        loop->Unwatch(mine);
        loop->Unwatch(other);
        dup2(idle[0], other);
        (void)!loop->Watch(other, EPOLLIN, [&](uint32_t) { ++spurious; }).ok();
        replaced.set_value();
      };
    };
    ASSERT_TRUE(OnLoop(loop, [&] {
      return loop->Watch(ready[0][0], EPOLLIN, handler_of(ready[0][0], ready[1][0])).ok() &&
             loop->Watch(ready[1][0], EPOLLIN, handler_of(ready[1][0], ready[0][0])).ok();
    }));
    replaced.get_future().wait();
    EXPECT_EQ(OnLoop(loop, [&] { return loop->watched(); }), 1u);
    EXPECT_EQ(OnLoop(loop, [&] { return spurious; }), 0);
    OnLoop(loop, [&] {
      for (auto& ends : ready) loop->Unwatch(ends[0]);
      return 0;
    });
    for (auto& ends : {ready[0], ready[1], idle}) close(ends[0]), close(ends[1]);
  });
}

TEST(LoopTest, TakesNoSignalsOfTheApplication) {
  InAProcess([] {
    ASSERT_LOOP(loop);
    const sigset_t blocked = OnLoop(loop, [] {
      sigset_t mask;
      sigemptyset(&mask);
      pthread_sigmask(SIG_BLOCK, nullptr, &mask);
      return mask;
    });
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGALRM}) {
      EXPECT_EQ(sigismember(&blocked, signal), 1) << signal;
    }
    sigset_t mine;
    sigemptyset(&mine);
    pthread_sigmask(SIG_BLOCK, nullptr, &mine);
    EXPECT_EQ(sigismember(&mine, SIGTERM), 0) << "the starting thread's mask is unchanged";
  });
}

// POSIX lets a program close any of its descriptors, and daemons close all. The thread that shows peers that the
// process lives must outlive its descriptors, and no thread may wait for work that it can no longer do.
TEST(LoopTest, StaysWhenTheApplicationClosesItsDescriptors) {
  auto* const held = static_cast<pthread_mutex_t*>(
      mmap(nullptr, sizeof(pthread_mutex_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ASSERT_EQ(pthread_mutex_init(held, &attributes), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const auto loop = Loop::Get();
    if (!loop.ok() || !loop.value()->Run([&] { (void)pthread_mutex_lock(held); }).ok()) _exit(2);
    // The timer finds that the descriptors are closed.
    std::promise<void> closed, looked;
    if (!loop.value()
             ->Run([&] {
               loop.value()->CallAt(Clock::now(), [&] {
                 closed.get_future().wait();
                 looked.set_value();
               });
             })
             .ok())
      _exit(3);
    closefrom(3);
    const int reused = open("/dev/null", O_WRONLY);  // reuses a descriptor number of the library
    closed.set_value();
    looked.get_future().wait();
    const Status ran = loop.value()->Run([] { _exit(4); });
    if (ran.code() != Code::kInvalidUsage || ran.message().find("closefrom") == std::string_view::npos) _exit(5);
    if (Loop::Get().ok() || reused < 0) _exit(6);
    // The mutex that the thread holds stays locked; if the thread had ended, this would return EOWNERDEAD at once.
    timespec limit{};
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_nsec += 100'000'000;
    limit.tv_sec += limit.tv_nsec / 1'000'000'000;
    limit.tv_nsec %= 1'000'000'000;
    if (pthread_mutex_timedlock(held, &limit) != ETIMEDOUT) _exit(7);
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  munmap(held, sizeof(pthread_mutex_t));
}

int AwaitChild(pid_t child) {
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

#if !defined(__SANITIZE_THREAD__)  // ThreadSanitizer ends forked children that start a thread if their parent has some
TEST(LoopTest, ForkedChildHasItsOwn) {
  InAProcess([] {
    ASSERT_LOOP(loop);
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    Fd tracked(ends[0]);
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      int wrong = loop->OfThisProcess() || loop->Run([] {}).code() != Code::kInvalidUsage ? 1 : 0;
      wrong += fcntl(tracked.get(), F_GETFD) == -1 && errno == EBADF ? 0 : 2;
      const Result<Loop*> own = Loop::Get();
      pid_t ran_in = 0;
      const bool ran = own.ok() && own.value()->Run([&] { ran_in = getpid(); }).ok();
      wrong += ran && own.value() != loop && ran_in == getpid() ? 0 : 4;
      // A descriptor number that the child reuses belongs to the child, also if the library had used it.
      const Fd fresh(dup2(STDERR_FILENO, tracked.get()));
      tracked.Close();
      wrong += fcntl(fresh.get(), F_GETFD) != -1 ? 0 : 8;
      _exit(wrong);
    }
    EXPECT_EQ(AwaitChild(child), 0);
    EXPECT_NE(fcntl(tracked.get(), F_GETFD), -1) << "the parent's descriptor stays open";
    EXPECT_TRUE(loop->Run([] {}).ok());
    close(ends[1]);
  });
}
#endif

TEST(LoopTest, ForkedChildOfABoundProcessIsRefused) {
  InAProcess([] {
    ASSERT_LOOP(loop);
    BindToProcess();
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    Fd tracked(ends[0]);
    const pid_t child = fork();
    if (child == 0) {
      int wrong = Loop::Get().status().code() == Code::kInvalidUsage ? 0 : 1;
      wrong += loop->Run([] {}).code() == Code::kInvalidUsage ? 0 : 2;
      wrong += fcntl(tracked.get(), F_GETFD) == -1 && errno == EBADF ? 0 : 4;
      // A descriptor number that the child reuses belongs to the child.
      const int reused = dup2(STDERR_FILENO, tracked.get());
      Fd copy = std::move(tracked);
      copy.Close();
      wrong += fcntl(reused, F_GETFD) != -1 ? 0 : 8;
      _exit(wrong);
    }
    EXPECT_EQ(AwaitChild(child), 0);
    EXPECT_NE(fcntl(tracked.get(), F_GETFD), -1) << "the parent's descriptor stays open";
    EXPECT_TRUE(loop->Run([] {}).ok());
    close(ends[1]);
  });
}

TEST(PollTest, EndsWithDataDeadlineOrStop) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const auto now = Clock::now();
  const auto later = now + std::chrono::hours(1);
  EXPECT_EQ(PollUntil(ends[0], POLLIN, now, nullptr), Wait::kTimeout);
  EXPECT_EQ(PollUntil(ends[0], POLLIN, now + std::chrono::milliseconds(25), nullptr), Wait::kTimeout);
  EXPECT_GE(Clock::now(), now + std::chrono::milliseconds(25));
  std::atomic<bool> stop{false};
  std::thread stopper([&] { stop.store(true); });
  EXPECT_EQ(PollUntil(ends[0], POLLIN, later, [&] { return stop.load(); }), Wait::kStopped);
  stopper.join();
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  EXPECT_EQ(PollUntil(ends[0], POLLIN, later, nullptr), Wait::kReady);
  close(ends[1]);
  char byte;
  ASSERT_EQ(read(ends[0], &byte, 1), 1);
  EXPECT_EQ(PollUntil(ends[0], POLLIN, later, nullptr), Wait::kReady) << "a hang-up is an event";
  close(ends[0]);
}

// ---- Acceptor ----

class Silent : public Guest {
 public:
  using Guest::Guest;
  Verdict OnEvent() override { return Verdict::kDrop; }
};

// Names what it receives first and says so, and is admitted by the byte after that.
class Naming : public Guest {
 public:
  using Guest::Guest;
  Verdict OnEvent() override {
    if (named_) return Verdict::kAdmit;
    named_ = recv(fd(), name_.data(), name_.size(), MSG_DONTWAIT) == static_cast<ssize_t>(name_.size());
    return named_ && send(fd(), "?", 1, MSG_NOSIGNAL) == 1 ? Verdict::kWait : Verdict::kDrop;
  }
  const Name* Named() const override { return named_ ? &name_ : nullptr; }
  void Admitted(Fd fd) override { (void)!send(fd.get(), "!", 1, MSG_NOSIGNAL); }

 private:
  Name name_{};
  bool named_ = false;
};

sockaddr_un TestName(socklen_t* bytes, int number = 0) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const int n =
      std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "axccl-acceptor-test-%d-%d", getpid(), number);
  *bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(n));
  return address;
}

Fd Listening(int number = 0) {
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  socklen_t bytes;
  const sockaddr_un address = TestName(&bytes, number);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), bytes), 0);
  EXPECT_EQ(listen(fd.get(), 512), 0);
  return fd;
}

Fd Dial(int number = 0) {
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  socklen_t bytes;
  const sockaddr_un address = TestName(&bytes, number);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), bytes), 0);
  return fd;
}

bool AwaitCut(const Fd& fd) {
  char byte;
  return recv(fd.get(), &byte, 1, 0) <= 0;
}

TEST(AcceptorTest, CutsTheOldestBeyondTheCapAndAllAfterTheirTime) {
  InAProcess([] {
    ASSERT_LOOP(loop);
    auto acceptor = std::make_unique<Acceptor>(
        loop, Listening(), [](Fd fd) { return std::make_unique<Silent>(std::move(fd)); },
        [] { return Acceptor::Places{3}; });
    ASSERT_TRUE(OnLoop(loop, [&] { return acceptor->Start().ok(); }));
    std::vector<Fd> guests;
    const auto start = Clock::now();
    for (int i = 0; i < 8; ++i) guests.push_back(Dial());
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(AwaitCut(guests[static_cast<size_t>(i)]));
    EXPECT_LT(Clock::now() - start, kGuestTime);
    EXPECT_EQ(OnLoop(loop, [&] { return acceptor->guests(); }), 3u);
    for (int i = 5; i < 8; ++i) EXPECT_TRUE(AwaitCut(guests[static_cast<size_t>(i)]));
    EXPECT_GE(Clock::now() - start, kGuestTime);
    EXPECT_EQ(OnLoop(loop, [&] { return acceptor->guests(); }), 0u);
    const size_t left = OnLoop(loop, [&] {
      acceptor.reset();
      return loop->watched() + loop->timers();
    });
    EXPECT_EQ(left, 0u);
  });
}

TEST(AcceptorTest, CutsRecognisedGuestsForOthersOfTheirNameAlone) {
  InAProcess([] {
    ASSERT_LOOP(loop);
    auto acceptor = std::make_unique<Acceptor>(
        loop, Listening(), [](Fd fd) { return std::make_unique<Naming>(std::move(fd)); },
        [] {
          return Acceptor::Places{3, 2};
        });
    ASSERT_TRUE(OnLoop(loop, [&] { return acceptor->Start().ok(); }));
    const auto name = [](uint8_t number) {
      Fd guest = Dial();
      const Guest::Name text{number};
      EXPECT_EQ(send(guest.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
      char answer = 0;
      EXPECT_EQ(recv(guest.get(), &answer, 1, 0), 1);
      return guest;
    };
    const auto admitted = [](const Fd& guest) {
      char answer = 0;
      return send(guest.get(), "?", 1, MSG_NOSIGNAL) == 1 && recv(guest.get(), &answer, 1, 0) == 1 && answer == '!';
    };
    const Fd first = name(1), other = name(2), second = name(1);
    for (int i = 0; i < 25; ++i) {
      std::vector<Fd> strangers;
      for (int j = 0; j < 4; ++j) strangers.push_back(Dial());
      ASSERT_TRUE(AwaitCut(strangers[0]));
    }
    const Fd third = name(1);
    EXPECT_TRUE(AwaitCut(first));
    EXPECT_TRUE(admitted(other));
    EXPECT_TRUE(admitted(second));
    EXPECT_TRUE(admitted(third));
    ASSERT_TRUE(loop->Run([&] { acceptor.reset(); }).ok());
    EXPECT_EQ(OnLoop(loop, [&] { return loop->watched() + loop->timers(); }), 0u);
  });
}

// Four acceptors would otherwise take half of the descriptors that a process usually has. Those that fill one port push
// out their like.
TEST(AcceptorTest, StrangersTakeNoMoreThanAnEighthOfTheDescriptors) {
  InAProcess([] {
    ASSERT_LOOP(loop);
    rlimit limit{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = 320;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    std::vector<std::unique_ptr<Acceptor>> acceptors;
    for (int number = 0; number < 2; ++number) {
      acceptors.push_back(std::make_unique<Acceptor>(
          loop, Listening(number), [](Fd fd) { return std::make_unique<Silent>(std::move(fd)); },
          [] { return Acceptor::Places(); }));
      ASSERT_TRUE(OnLoop(loop, [&] { return acceptors.back()->Start().ok(); }));
    }
    const auto count = [&](size_t which) { return OnLoop(loop, [&] { return acceptors[which]->guests(); }); };
    const Fd early = Dial(1);
    while (count(1) != 1) sched_yield();
    std::vector<Fd> many;
    for (int i = 0; i < 60; ++i) many.push_back(Dial(0));
    for (size_t i = 0; i < 21; ++i) EXPECT_TRUE(AwaitCut(many[i]));
    EXPECT_EQ(count(0), 39u);
    EXPECT_EQ(count(1), 1u);
    const Fd late = Dial(1);
    EXPECT_TRUE(AwaitCut(many[21]));
    EXPECT_EQ(count(0), 38u);
    EXPECT_EQ(count(1), 2u);
    ASSERT_TRUE(loop->Run([&] { acceptors.clear(); }).ok());
  });
}

TEST(AcceptorTest, WaitsWithoutSpinningWhenDescriptorsRunOut) {
  InAProcess([] {
    ASSERT_LOOP(loop);
    auto acceptor = std::make_unique<Acceptor>(
        loop, Listening(), [](Fd fd) { return std::make_unique<Silent>(std::move(fd)); },
        [] { return Acceptor::Places{99}; });
    ASSERT_TRUE(OnLoop(loop, [&] { return acceptor->Start().ok(); }));
    Fd guest = Dial();
    const auto count = [&] { return OnLoop(loop, [&] { return acceptor->guests(); }); };
    while (count() != 1) sched_yield();
    Fd second(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    rlimit limit{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const rlimit none{static_cast<rlim_t>(second.get()), limit.rlim_max};  // no higher number is available
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    socklen_t bytes;
    const sockaddr_un address = TestName(&bytes);
    ASSERT_EQ(connect(second.get(), reinterpret_cast<const sockaddr*>(&address), bytes), 0);
    while (OnLoop(loop, [&] { return loop->timers(); }) != 2) sched_yield();  // of the first guest, and of the pause
    EXPECT_EQ(count(), 1u);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    while (count() != 2) sched_yield();
    ASSERT_TRUE(loop->Run([&] { acceptor.reset(); }).ok());
  });
}

}  // namespace
}  // namespace axccl::service
