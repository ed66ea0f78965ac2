// Rendezvous that cannot succeed: every rank soon gets an error that names the cause.
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "src/boot/boot.h"
#include "src/boot/hub.h"
#include "src/boot/tcp.h"
#include "src/boot/unique_id.h"
#include "src/boot/wire.h"
#include "tests/boot/meeting.h"
#include "tests/harness/run_ranks.h"
#include "tests/transports/peer.h"

namespace axccl::boot {
namespace {

using harness::RankContext;

#define EXPECT_MENTIONS(status, text) \
  EXPECT_NE(std::string((status).message()).find(text), std::string::npos) << (status).message()

std::chrono::milliseconds OneSecond() { return std::chrono::milliseconds(1000) * harness::TimeScale(); }

TEST(FailureTest, DisagreementAboutNranksReachesAll) {
  harness::RunRanks(harness::Processes(4), [](RankContext& context) {
    const UniqueId id = ShareId(context);
    const auto start = Clock::now();
    const Status status = JoinStatus(id, context.rank(), context.rank() == 2 ? 5 : 4);
    EXPECT_LT(Clock::now() - start, OneSecond());
    EXPECT_EQ(status.code(), Code::kInvalidUsage) << status.message();
    EXPECT_MENTIONS(status, "rank 2 (pid");
    EXPECT_MENTIONS(status, "nranks 5");
    EXPECT_MENTIONS(status, "nranks 4");
    ASSERT_TRUE(context.Barrier());  // the hub must serve until all ranks have the error
  });
}

TEST(FailureTest, RankUsedTwiceWithOneMissingReachesAll) {
  harness::RunRanks(harness::Processes(4), [](RankContext& context) {
    const UniqueId id = ShareId(context);
    const auto start = Clock::now();
    const Status status = JoinStatus(id, context.rank() == 3 ? 1 : context.rank(), 4);
    EXPECT_LT(Clock::now() - start, OneSecond());
    EXPECT_EQ(status.code(), Code::kInvalidUsage) << status.message();
    EXPECT_MENTIONS(status, "rank 1 was claimed twice");
    ASSERT_TRUE(context.Barrier());
  });
}

TEST(FailureTest, StrayDuplicateHarmsNoOtherRank) {
  harness::RunRanks(harness::Threads(2), [](RankContext& context) {
    const UniqueId id = ShareId(context);
    if (context.rank() == 0) {
      while (Hub::Get().value()->Count().value().meetings != 1) sched_yield();  // rank 1 has joined
      const Status stray = JoinStatus(id, 1, 2);
      EXPECT_EQ(stray.code(), Code::kInvalidUsage);
      EXPECT_MENTIONS(stray, "rank 1 was claimed twice");
    }
    const auto session = JoinWell(context, id);
    ASSERT_NE(session, nullptr);
    if (context.rank() == 0) {
      EXPECT_MENTIONS(JoinStatus(id, 1, 2), "rank 1 was claimed twice");
      // Only the deadlines of the two ranks are left: no timer for the stray is pending.
      while (Hub::Get().value()->Count().value().timers != 2) sched_yield();
    }
    ExpectExchange(session.get(), context.rank(), 2, 30, 1);
  });
}

TEST(FailureTest, DeadlineNamesTheMissing) {
  harness::RunRanks(harness::Processes(4), [](RankContext& context) {
    const UniqueId id = ShareId(context);
    if (context.rank() == 1 || context.rank() == 2) {
      ASSERT_TRUE(context.Barrier());
      return;
    }
    // Rank 3 has a long deadline, but gets the error together with rank 0.
    const auto patience = context.rank() == 0 ? std::chrono::milliseconds(200) : std::chrono::milliseconds(14000);
    const Status status = JoinStatus(id, context.rank(), 4, Clock::now() + patience);
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_MENTIONS(status, "rank 0 (pid");
    EXPECT_MENTIONS(status, "of 4");
    EXPECT_TRUE(status.message().find("ranks 1, 2 of") != std::string_view::npos ||
                status.message().find("ranks 1-3 of") != std::string_view::npos)
        << status.message();
    ASSERT_TRUE(context.Barrier());
  });
}

TEST(FailureTest, DeadlineInAnExchangeNamesTheMissing) {
  harness::RunRanks(harness::Threads(3), [](RankContext& context) {
    const UniqueId id = ShareId(context);
    // Rank 1's deadline passes first, which does not matter: it does not wait.
    const auto patience = std::chrono::milliseconds(context.rank() == 1 ? 300 : 400) * harness::TimeScale();
    const auto deadline = Clock::now() + patience;
    Result<std::unique_ptr<Session>> session = Session::Join(id, context.rank(), 3, deadline, nullptr);
    ASSERT_TRUE(session.ok()) << session.status().message();
    if (context.rank() != 1) {
      uint64_t mine = 0, all[3];
      const Status status = session.value()->AllGather(&mine, sizeof mine, all);
      EXPECT_EQ(status.code(), Code::kTimeout) << status.message();
      EXPECT_MENTIONS(status, "addresses of rank 1");
      EXPECT_GT(status.message().find("rank 1 (pid"), status.message().find(" waited until")) << status.message();
    }
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 1) {
      uint64_t mine = 0, all[3];
      EXPECT_EQ(session.value()->AllGather(&mine, sizeof mine, all).code(), Code::kTimeout);
    }
    ASSERT_TRUE(context.Barrier());
  });
}

TEST(FailureTest, AbortEndsEveryWaitAndReachesTheOthers) {
  harness::RunRanks(harness::Threads(3), [](RankContext& context) {
    const UniqueId id = ShareId(context);
    static std::atomic<bool> abort{false};
    if (context.rank() == 2) {                                                  // never joins
      while (Hub::Get().value()->Count().value().meetings != 1) sched_yield();  // rank 0 has joined
      context.Set(0, 1);
      const size_t all = Unpack(id).value().num_addresses + size_t{2};  // the listeners and both ranks
      while (Hub::Get().value()->Count().value().watched < all) sched_yield();
      abort.store(true);
      ASSERT_TRUE(context.Barrier());
      return;
    }
    if (context.rank() == 1) context.Await(0);  // a rank can only report its abort once others know it
    const service::Stop stop = [] { return abort.load(); };
    const Status status =
        Session::Join(id, context.rank(), 3, Patient(), context.rank() == 0 ? stop : nullptr).status();
    EXPECT_EQ(status.code(), Code::kRemoteError) << status.message();
    EXPECT_MENTIONS(status, "aborted by the caller");
    if (context.rank() == 1) {
      EXPECT_MENTIONS(status, "rank 0 (pid");
    }
    ASSERT_TRUE(context.Barrier());
  });
}

TEST(FailureTest, AbortBeforeAnything) {
  harness::RunRanks(harness::Processes(1), [](RankContext& context) {
    const UniqueId id = ShareId(context);
    const Status status = Session::Join(id, 0, 2, Patient(), [] { return true; }).status();
    EXPECT_EQ(status.code(), Code::kRemoteError) << status.message();
    EXPECT_MENTIONS(status, "aborted");
  });
}

TEST(FailureTest, ReasonOfARankThatGivesUpReachesAll) {
  for (const Code code : {Code::kSystemError, Code::kInvalidUsage}) {
    harness::RunRanks(harness::Processes(4), [&](RankContext& context) {
      const auto session = JoinWell(context, ShareId(context));
      ASSERT_NE(session, nullptr);
      ExpectExchange(session.get(), context.rank(), 4, 10, 1);
      uint64_t mine = 0, all[4];
      if (context.rank() == 3) {
        session->Fail(Status(code, "the dog ate the heap"));
        const Status again = session->AllGather(&mine, sizeof mine, all);
        EXPECT_EQ(again.code(), code);
        EXPECT_MENTIONS(again, "the dog ate the heap");
      } else {
        const Status status = session->AllGather(&mine, sizeof mine, all);
        EXPECT_EQ(status.code(), code == Code::kInvalidUsage ? code : Code::kRemoteError);
        EXPECT_MENTIONS(status, "rank 3 (pid");
        EXPECT_MENTIONS(status, "the dog ate the heap");
        EXPECT_EQ(session->AllGather(&mine, sizeof mine, all).message(), status.message()) << "the error is kept";
      }
      ASSERT_TRUE(context.Barrier());
    });
  }
}

TEST(FailureTest, UnequalContributionsAndEarlyLeavers) {
  harness::RunRanks(harness::Threads(2), [](RankContext& context) {
    {
      const auto session = JoinWell(context, ShareId(context));
      ASSERT_NE(session, nullptr);
      char mine[16] = {}, all[32];
      const Status status = session->AllGather(mine, context.rank() == 0 ? 8 : 16, all);
      EXPECT_FALSE(status.ok());
      EXPECT_MENTIONS(status, "16");
      EXPECT_MENTIONS(status, "8");
    }
    {
      auto session = JoinWell(context, ShareId(context));
      ASSERT_NE(session, nullptr);
      if (context.rank() == 0) {
        char mine[16] = {}, all[32];
        const Status status = session->AllGather(mine, 16, all);
        EXPECT_EQ(status.code(), Code::kRemoteError);
        EXPECT_MENTIONS(status, "rank 1");
        EXPECT_MENTIONS(status, "left after 0 exchanges");
      } else {
        session.reset();
      }
      ASSERT_TRUE(context.Barrier());
    }
    {
      auto session = JoinWell(context, ShareId(context));
      ASSERT_NE(session, nullptr);
      if (context.rank() == 1) session.reset();
      ASSERT_TRUE(context.Barrier());  // this time rank 1 has left before rank 0 calls
      if (context.rank() == 0) {
        char mine[16] = {}, all[32];
        const Status status = session->AllGather(mine, 16, all);
        EXPECT_EQ(status.code(), Code::kRemoteError);
        EXPECT_MENTIONS(status, "left after 0 exchanges");
      }
      ASSERT_TRUE(context.Barrier());
    }
    const auto session = JoinWell(context, ShareId(context));
    ASSERT_NE(session, nullptr);
    char mine[1] = {}, all[2];
    EXPECT_EQ(session->AllGather(mine, 0, all).code(), Code::kInternalError);
    EXPECT_EQ(session->AllGather(mine, kMaxContribution + 1, all).code(), Code::kInternalError);
    EXPECT_TRUE(session->AllGather(mine, 1, all).ok()) << "a refused call changes nothing";
    ASSERT_TRUE(context.Barrier());
  });
}

TEST(FailureTest, UsedIdsAndLateRanksGetTheOutcome) {
  harness::RunRanks(harness::Threads(2), [](RankContext& context) {
    const UniqueId used = ShareId(context);
    auto session = JoinWell(context, used);
    session.reset();
    ASSERT_TRUE(context.Barrier());
    Hub* const hub = Hub::Get().value();
    while (hub->Count().value().meetings != 0) sched_yield();
    const Status again = JoinStatus(used, context.rank(), 2);
    EXPECT_EQ(again.code(), Code::kInvalidUsage);
    EXPECT_MENTIONS(again, "has already made a communicator of 2 ranks");

    const UniqueId failed = ShareId(context);
    if (context.rank() == 0) {
      EXPECT_EQ(JoinStatus(failed, 0, 2, Clock::now() + std::chrono::milliseconds(30)).code(), Code::kTimeout);
      ASSERT_TRUE(context.Barrier());
    } else {
      ASSERT_TRUE(context.Barrier());
      const Status late = JoinStatus(failed, 1, 2);
      EXPECT_EQ(late.code(), Code::kTimeout);
      EXPECT_MENTIONS(late, "rank 0 (pid");
      EXPECT_MENTIONS(late, "for rank 1 of 2");
    }
  });
}

TEST(FailureTest, ArgumentsAreCheckedBeforeAnythingIsSent) {
  harness::RunRanks(harness::Processes(1), [](RankContext& context) {
    const UniqueId id = ShareId(context);
    for (const auto& [rank, nranks] :
         {std::pair{-1, 2}, {2, 2}, {0, 0}, {0, -1}, {0, kMaxRanks + 1}, {1 << 30, 1 << 30}}) {
      EXPECT_EQ(JoinStatus(id, rank, nranks).code(), Code::kInvalidArgument) << rank << " " << nranks;
    }
    UniqueId bad = id;
    bad.bytes[40] ^= 1;
    EXPECT_EQ(JoinStatus(bad, 0, 1).code(), Code::kInvalidArgument);
    EXPECT_EQ(Hub::Get().value()->Count().value().meetings, 0u);
    EXPECT_TRUE(JoinStatus(id, 0, 1).ok());
  });
}

TEST(FailureTest, TooFewDescriptorsAreCountedBeforeAnyRankWaits) {
  harness::RunRanks(harness::Processes(2), [](RankContext& context) {
    const UniqueId id = ShareId(context);
    if (context.rank() == 0) {
      rlimit limit{};
      ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
      limit.rlim_cur = 100;
      ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
      ASSERT_TRUE(context.Barrier());
      ASSERT_TRUE(context.Barrier());
    } else {
      ASSERT_TRUE(context.Barrier());
      const auto start = Clock::now();
      const Status status = JoinStatus(id, 1, 400);
      EXPECT_LT(Clock::now() - start, OneSecond());
      EXPECT_EQ(status.code(), Code::kSystemError) << status.message();
      EXPECT_MENTIONS(status, "a rendezvous of 400 ranks needs 400 file descriptors");
      EXPECT_MENTIONS(status, "of its 100 open already");
      EXPECT_MENTIONS(status, "ulimit -n");
      ASSERT_TRUE(context.Barrier());
    }
  });
}

TEST(FailureTest, NoDescriptorLeftIsReportedWithTheLimit) {
  harness::RunRanks(harness::Processes(1), [](RankContext& context) {
    const UniqueId id = ShareId(context);
    const int next = dup(0);
    close(next);
    rlimit limit{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const rlimit none{static_cast<rlim_t>(next), limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    const Status status = JoinStatus(id, 0, 1);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    EXPECT_EQ(status.code(), Code::kSystemError) << status.message();
    EXPECT_MENTIONS(status, "of its " + std::to_string(next) + " open already");
    EXPECT_MENTIONS(status, "ulimit -n");
  });
}

// A port of this process, and an id whose hub would be there.
struct PortOfAnId {
  PortOfAnId() {
    fields.num_addresses = 1;
    fields.address[0].family = 4;
    fields.address[0].ip = {127, 0, 0, 1};
    listener = Listen(&fields.address[0], false, nullptr).value();
  }

  IdFields fields;
  service::Fd listener;
};

TEST(FailureTest, AHubOfAnotherVersionIsNamed) {
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    const PortOfAnId port;
    std::thread hub([&] {
      pollfd entry{port.listener.get(), POLLIN, 0};
      poll(&entry, 1, 10000);
      const service::Fd peer(accept4(port.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      struct {
        Hello hello;
        Proof proof;
      } answer;
      Hello rank;
      EXPECT_EQ(recv(peer.get(), &rank, sizeof rank, MSG_WAITALL), static_cast<ssize_t>(sizeof rank));
      answer.hello.role = Role::kHub;
      answer.hello.version = 77;
      answer.hello.id = rank.id;
      answer.proof = Prove(port.fields.secret, Role::kHub, rank, answer.hello);
      EXPECT_EQ(send(peer.get(), &answer, sizeof answer, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof answer));
      Proof proof;  // lets the hub name this rank to its other ranks
      EXPECT_EQ(recv(peer.get(), &proof, sizeof proof, MSG_WAITALL), static_cast<ssize_t>(sizeof proof));
      EXPECT_TRUE(SameProof(proof, Prove(port.fields.secret, Role::kRank, rank, answer.hello)));
    });
    const auto start = Clock::now();
    const Status status = JoinStatus(Pack(port.fields), 0, 2);
    EXPECT_LT(Clock::now() - start, OneSecond());
    hub.join();
    EXPECT_EQ(status.code(), Code::kInvalidUsage) << status.message();
    EXPECT_MENTIONS(status, "speaks version " + std::to_string(kProtocolVersion));
    EXPECT_MENTIONS(status, "version 77");
  });
}

// The process that serves the id lives, but has no place for this rank.
TEST(FailureTest, AConnectionThatIsAlwaysCutIsReportedAsSuch) {
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    const PortOfAnId port;
    std::atomic<bool> over{false};
    std::thread hub([&] {
      while (!over) {
        pollfd entry{port.listener.get(), POLLIN, 0};
        if (poll(&entry, 1, 10) > 0)
          const service::Fd cut(accept4(port.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      }
    });
    const Status status = JoinStatus(Pack(port.fields), 0, 2, Clock::now() + OneSecond() / 2);
    over = true;
    hub.join();
    EXPECT_EQ(status.code(), Code::kTimeout) << status.message();
    EXPECT_MENTIONS(status, "cut the connection before it admitted this rank");
    EXPECT_MENTIONS(status, "its port may be flooded with connections");
  });
}

// Another program had the port when rank 1 called, keeps the connection without a word, and has left the port.
TEST(FailureTest, APortThatAnotherProgramHadForAMomentDelaysTheStart) {
  const std::string port = FreePort();
  harness::RunOptions options;
  options.environment = {{"AXCCL_SECRET", "a secret of these two ranks"}};
  options.deadline = std::chrono::seconds(40);
  harness::RunRanks(
      harness::Processes(3),
      [&](RankContext& context) {
        const UniqueId id = IdFromText("127.0.0.1:" + port).value();
        if (context.rank() == 2) {
          Address address = Unpack(id).value().address[0];
          service::Fd listener = Listen(&address, true, nullptr).value();
          context.Set(0, 1);
          pollfd entry{listener.get(), POLLIN, 0};
          ASSERT_EQ(poll(&entry, 1, 10000), 1);
          const service::Fd kept(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
          ASSERT_TRUE(kept);
          listener.Close();
          context.Set(1, 1);
          context.Barrier();
          return;
        }
        context.Await(static_cast<int>(1 - context.rank()));
        const Status status = JoinStatus(id, context.rank(), 2, Clock::now() + 2 * kGreeting + OneSecond());
        EXPECT_TRUE(status.ok()) << status.message();
        context.Barrier();
      },
      options);
}

// ---- death ----

TEST(DeathOfARankTest, WhileOthersStillJoin) {
  harness::RunRanks(harness::Processes(4), [](RankContext& context) {
    const UniqueId id = ShareId(context);
    if (context.rank() == 2) {
      std::thread joiner([&] { (void)!JoinStatus(id, 2, 4).ok(); });
      joiner.detach();
      context.Await(0);  // rank 0 has seen it join
      context.Die();
    }
    if (context.rank() == 1) context.Await(0);  // so that rank 2 is the first to join
    if (context.rank() == 3) context.Await(1);  // joins after the death
    if (context.rank() == 0) {
      Hub* const hub = Hub::Get().value();
      while (hub->Count().value().meetings != 1 || hub->Count().value().guests != 0) sched_yield();
      context.Set(0, 1);
    }
    const Status status = JoinStatus(id, context.rank(), 4);
    EXPECT_EQ(status.code(), Code::kRemoteError) << status.message();
    EXPECT_MENTIONS(status, "rank 2 (pid");
    EXPECT_MENTIONS(status, "is gone");
    context.Set(1, 1);
    ASSERT_TRUE(context.Barrier(1, 3));
  });
}

TEST(DeathOfARankTest, DuringTheExchanges) {
  harness::RunRanks(harness::Processes(4), [](RankContext& context) {
    const auto session = JoinWell(context, ShareId(context));
    ASSERT_NE(session, nullptr);
    ExpectExchange(session.get(), context.rank(), 4, 10, 1);
    if (context.rank() == 1) context.Die();
    const auto start = Clock::now();
    uint64_t mine = 0, all[4];
    const Status status = session->AllGather(&mine, sizeof mine, all);
    EXPECT_LT(Clock::now() - start, OneSecond());
    EXPECT_EQ(status.code(), Code::kRemoteError);
    EXPECT_MENTIONS(status, "rank 1 (pid");
    ASSERT_TRUE(context.Barrier(1, 3));
  });
}

TEST(DeathOfARankTest, OfTheProcessThatServes) {
  harness::RunRanks(harness::Processes(3), [](RankContext& context) {
    const UniqueId id = ShareId(context);
    const auto session = JoinWell(context, id);
    ASSERT_NE(session, nullptr);
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 0) context.Die();
    uint64_t mine = 0, all[3];
    const Status status = session->AllGather(&mine, sizeof mine, all);
    EXPECT_EQ(status.code(), Code::kRemoteError) << status.message();
    // Its port is free once the kernel has ended the process.
    Status late;
    do {
      late = JoinStatus(id, context.rank(), 3, Clock::now() + std::chrono::milliseconds(100));
    } while (late.code() == Code::kTimeout);
    EXPECT_EQ(late.code(), Code::kRemoteError) << late.message();
  });
}

TEST(DeathOfARankTest, StoppedServerCostsTheDeadline) {
  harness::RunRanks(harness::Processes(2), [](RankContext& context) {
    const UniqueId id = ShareId(context);
    if (context.rank() == 0) {
      context.Set(0, static_cast<uint64_t>(getpid()));
      context.Await(1);
      return;
    }
    const pid_t pid = static_cast<pid_t>(context.Await(0));
    shm::StopProcess(pid);
    const auto start = Clock::now();
    const Status status = JoinStatus(id, 1, 2, start + std::chrono::milliseconds(100));
    EXPECT_EQ(status.code(), Code::kTimeout) << status.message();
    EXPECT_LT(Clock::now() - start, OneSecond());
    ASSERT_EQ(kill(pid, SIGCONT), 0);
    context.Set(1, 1);
  });
}

TEST(ForkTest, ChildIsRefusedAndParentContinues) {
  harness::RunRanks(harness::Processes(2), [](RankContext& context) {
    const UniqueId id = ShareId(context);
    const auto session = JoinWell(context, id);
    ASSERT_NE(session, nullptr);
    const pid_t child = fork();
    if (child == 0) {
      uint64_t mine = 0, all[2];
      int wrong = CreateUniqueId().status().code() == Code::kInvalidUsage ? 0 : 1;
      wrong += JoinStatus(id, 0, 1).code() == Code::kInvalidUsage ? 0 : 2;
      wrong += session->AllGather(&mine, sizeof mine, all).code() == Code::kInvalidUsage ? 0 : 4;
      session->Fail(MakeStatus(Code::kInternalError, "from the child"));
      // The child may reuse the connection's descriptor number for something else, which must stay untouched.
      int ends[2];
      wrong += socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0 ? 0 : 8;
      for (int number = 64; number < 128; ++number) dup2(ends[0], number);
      for (int number = 3; number < 64; ++number) {
        if (number != ends[1] && number != ends[0] && fcntl(number, F_GETFD) < 0) dup2(ends[0], number);
      }
      delete session.get();  // as the child's static destructors would; the parent has its own copy
      char byte;
      wrong += recv(ends[1], &byte, 1, 0) < 0 && errno == EAGAIN ? 0 : 16;
      for (int number = 3; number < 128; ++number) wrong += fcntl(number, F_GETFD) >= 0 ? 0 : 32;
      _exit(wrong == 0 ? 0 : 1 + wrong % 100);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    ExpectExchange(session.get(), context.rank(), 2, 100, 1);
    ASSERT_TRUE(context.Barrier());
  });
}

}  // namespace
}  // namespace axccl::boot
