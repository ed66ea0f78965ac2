// Processes of one machine that tell each other what they hear, and one of another user that would like to.
#include "transports/remote/mates.h"

#include <gtest/gtest.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "src/base/format.h"
#include "tests/harness/process_ids.h"
#include "tests/harness/run_ranks.h"

namespace axccl::remote {
namespace {

using harness::RankContext;
using service::Loop;

constexpr std::chrono::seconds kPatient{15};

struct Heard {
  uint64_t kind;
  uint8_t about;
  std::vector<std::byte> bytes;

  bool operator==(const Heard&) const = default;
};

// The mates of one process, which is never destroyed, as in the library.
class Mate {
 public:
  explicit Mate(int self) {
    loop_ = Loop::Get().value();
    EXPECT_TRUE(Run([&] {
      return mates_.Start(loop_, harness::ProcessId(self),
                          [this](const Mates::Head& head, std::span<const std::byte> bytes) {
                            std::lock_guard lock(mutex_);
                            heard_.push_back({head.kind, head.about[0], {bytes.begin(), bytes.end()}});
                          });
    }));
  }
  void Add(int mate) {
    EXPECT_TRUE(Run([&] { return mates_.Add(harness::ProcessId(mate)), Status(); }));
  }
  void Tell(int mate, uint64_t kind, int about, const std::vector<std::byte>& bytes = {}) {
    EXPECT_TRUE(Run([&] {
      return mates_.Tell(harness::ProcessId(mate), {kind, harness::ProcessId(about)}, bytes), Status();
    }));
  }
  void TellAll(uint64_t kind, int about) {
    EXPECT_TRUE(Run([&] { return mates_.TellAll({kind, harness::ProcessId(about)}), Status(); }));
  }
  std::vector<Heard> heard() {
    std::lock_guard lock(mutex_);
    return heard_;
  }
  std::vector<Heard> Await(size_t count) {
    const auto limit = std::chrono::steady_clock::now() + kPatient;
    while (heard().size() < count && std::chrono::steady_clock::now() < limit) usleep(1000);
    return heard();
  }
  // The service thread does nothing else until it gets a byte from that pipe.
  void Stop(int pipe) {
    EXPECT_TRUE(loop_
                    ->Post([pipe] {
                      char byte;
                      (void)!read(pipe, &byte, 1);
                    })
                    .ok());
  }

 private:
  template <class Do>
  bool Run(const Do& what) {
    Status status;
    return loop_->Run([&] { status = what(); }).ok() && status.ok();
  }

  Loop* loop_ = nullptr;
  Mates mates_;
  std::mutex mutex_;
  std::vector<Heard> heard_;
};

std::vector<std::byte> Bytes(size_t count, int value) { return std::vector<std::byte>(count, std::byte(value)); }

TEST(MatesTest, WhatOneTellsIsHeardInOrderHoweverLate) {
  constexpr int kMany = 600;  // more than a socket takes
  harness::RunRanks(harness::Processes(2), [](RankContext& context) {
    auto* const mate = new Mate(context.rank() + 1);
    mate->Add(2 - context.rank());
    int wake[2];
    ASSERT_EQ(pipe(wake), 0);
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 1) {
      mate->Stop(wake[0]);
      ASSERT_TRUE(context.Barrier(1));
      ASSERT_TRUE(context.Barrier(2));  // all has been told
      ASSERT_EQ(write(wake[1], "", 1), 1);
      const std::vector<Heard> heard = mate->Await(kMany + 1);
      ASSERT_EQ(heard.size(), static_cast<size_t>(kMany) + 1);
      for (int i = 0; i < kMany; ++i)
        EXPECT_EQ(heard[static_cast<size_t>(i)], (Heard{Mates::Head::kPassed, 9, Bytes(60'000, i)})) << i;
      EXPECT_EQ(heard[kMany], (Heard{Mates::Head::kLost, 7, {}}));
    } else {
      ASSERT_TRUE(context.Barrier(1));
      for (int i = 0; i < kMany; ++i) mate->Tell(2, Mates::Head::kPassed, 9, Bytes(60'000, i));
      mate->TellAll(Mates::Head::kLost, 7);
      ASSERT_TRUE(context.Barrier(2));
    }
    ASSERT_TRUE(context.Barrier(3));
  });
}

TEST(MatesTest, OneThatHasEndedHoldsUpNobody) {
  harness::RunRanks(harness::Processes(2), [](RankContext& context) {
    auto* const mate = new Mate(context.rank() + 1);
    mate->Add(3);  // there is none
    mate->Add(2 - context.rank());
    ASSERT_TRUE(context.Barrier());
    for (int i = 0; i < 50; ++i) mate->Tell(3, Mates::Head::kPassed, 9);
    mate->Tell(4, Mates::Head::kLost, 9);  // has not been added
    mate->TellAll(Mates::Head::kLost, 8);
    EXPECT_EQ(mate->Await(1), (std::vector<Heard>{{Mates::Head::kLost, 8, {}}}));
    ASSERT_TRUE(context.Barrier());
  });
}

void SendTo(int process, const void* bytes, size_t count) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::string name = "axccl-mate-";
  for (const uint8_t byte : harness::ProcessId(process)) name += Format("%02x", byte);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const service::Fd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(sendto(fd.get(), bytes, count, 0, reinterpret_cast<const sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())),
            static_cast<ssize_t>(count));
}

TEST(MatesTest, AnotherUserAndNoiseAreNotHeard) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    auto* const mate = new Mate(1);
    mate->Add(1);
    const Mates::Head head{Mates::Head::kLost, harness::ProcessId(9)};
    const pid_t child = fork();
    if (child == 0) {
      const bool other = setresuid(65534, 65534, 65534) == 0;
      SendTo(1, &head, sizeof head);
      _exit(other && !testing::Test::HasFailure() ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
    SendTo(1, &head, sizeof head - 1);
    SendTo(1, Bytes(100'000, 1).data(), 100'000);
    SendTo(1, "", 0);
    mate->Tell(1, Mates::Head::kLost, 5);
    EXPECT_EQ(mate->Await(1), (std::vector<Heard>{{Mates::Head::kLost, 5, {}}}));
  });
}

}  // namespace
}  // namespace axccl::remote
