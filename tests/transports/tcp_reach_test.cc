// Two processes that are connected through a stranger in the path, who passes on what they send and may change one bit.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/service_fd.h"
#include "tests/harness/process_ids.h"
#include "tests/harness/random.h"
#include "tests/harness/run_ranks.h"
#include "transports/remote/line_proof.h"
#include "transports/tcp/connect.h"
#include "transports/tcp/peer.h"
#include "transports/tcp/reach.h"
#include "transports/tcp/worker.h"

namespace axccl::tcp {
namespace {

using harness::RankContext;
using service::Fd;

constexpr std::chrono::seconds kPatient{20};
constexpr uint64_t kBlockBytes = 1u << 20;
constexpr uint64_t kSmall = 4096, kSmallBytes = 600;              // of a message whose data wait for their turn
constexpr uint64_t kLarge = 64u << 10, kLargeBytes = 300u << 10;  // of one whose data go to their places
constexpr int kMessages = 8;

sockaddr_storage Loopback(uint16_t port = 0) {
  sockaddr_storage storage{};
  auto* const in = reinterpret_cast<sockaddr_in*>(&storage);
  in->sin_family = AF_INET;
  in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  in->sin_port = htons(port);
  return storage;
}
uint16_t PortOf(const sockaddr_storage& address) {
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

// Passes connections on to a port. Of the next data line, it changes that bit of what one side sends.
class Path {
 public:
  explicit Path(uint16_t to) : to_(to), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_storage address = Loopback();
    socklen_t bytes = sizeof(sockaddr_in);
    auto* const at = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_.get(), at, bytes), 0);
    EXPECT_EQ(listen(listener_.get(), 16), 0);
    EXPECT_EQ(getsockname(listener_.get(), at, &bytes), 0);
    port_ = PortOf(address);
    thread_ = std::thread([this] { Main(); });
  }
  ~Path() {
    over_ = true;
    thread_.join();
  }
  uint16_t port() const { return port_; }
  // `byte` counts from the first after the line has been accepted. Negative: none is changed.
  void Change(bool of_caller, int64_t byte, int bit) {
    of_caller_ = of_caller;
    bit_ = bit;
    byte_ = byte;
  }
  bool changed() const { return changed_; }

 private:
  struct Side {
    Fd fd;
    int64_t passed = 0;
    bool ended = false;
  };
  struct Pair {
    Side caller, called;
    bool data = false, looked = false;
  };

  void Main() {
    while (!over_) {
      std::vector<pollfd> fds{{listener_.get(), POLLIN, 0}};
      for (const Pair& pair : pairs_) {
        fds.push_back({pair.caller.ended ? -1 : pair.caller.fd.get(), POLLIN, 0});
        fds.push_back({pair.called.ended ? -1 : pair.called.fd.get(), POLLIN, 0});
      }
      if (poll(fds.data(), fds.size(), 20) <= 0) continue;
      size_t i = 1;
      for (auto pair = pairs_.begin(); pair != pairs_.end(); i += 2) {
        if (fds[i].revents != 0) Pass(&*pair, &pair->caller, &pair->called, true);
        if (fds[i + 1].revents != 0) Pass(&*pair, &pair->called, &pair->caller, false);
        pair = pair->caller.ended || pair->called.ended ? pairs_.erase(pair) : std::next(pair);
      }
      if (fds[0].revents != 0) Accept();
    }
  }
  void Accept() {
    Pair pair;
    pair.caller.fd = Fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    pair.called.fd = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_storage to = Loopback(to_);
    if (connect(pair.called.fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(sockaddr_in)) == 0)
      pairs_.push_back(std::move(pair));
  }
  void Pass(Pair* pair, Side* from, Side* to, bool of_caller) {
    std::byte bytes[64 << 10];
    const ssize_t got = recv(from->fd.get(), bytes, sizeof bytes, 0);
    from->ended = got <= 0;
    if (got <= 0) return;
    if (of_caller && !std::exchange(pair->looked, true) && got >= static_cast<ssize_t>(sizeof(remote::LineHello))) {
      remote::LineHello hello;
      std::memcpy(&hello, bytes, sizeof hello);
      pair->data = hello.use == remote::LineUse::kData;
    }
    const int64_t proofs =
        of_caller ? sizeof(remote::LineHello) + sizeof(remote::LineProof) : sizeof(remote::LineAnswer) + 1;
    const int64_t at = byte_.load() + proofs - from->passed;
    if (pair->data && byte_ >= 0 && of_caller == of_caller_ && at >= 0 && at < got) {
      bytes[at] ^= static_cast<std::byte>(1u << bit_);
      byte_ = -1;
      changed_ = true;
    }
    from->passed += got;
    for (ssize_t sent = 0; sent < got;) {
      const ssize_t some = send(to->fd.get(), bytes + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
      if (some <= 0) {
        to->ended = true;
        return;
      }
      sent += some;
    }
  }

  const uint16_t to_;
  const Fd listener_;
  uint16_t port_ = 0;
  std::list<Pair> pairs_;
  std::atomic<bool> of_caller_{false}, changed_{false}, over_{false};
  std::atomic<int> bit_{0};
  std::atomic<int64_t> byte_{-1};
  std::thread thread_;
};

// One rank of two, each in a process of its own. Rank 0 calls, through the path.
class Rank {
 public:
  Rank(RankContext* context, remote::Sealing sealing) : context_(*context) {
    remote::SelfOptions self;
    self.rails.resize(1);
    self.rails[0].devices = "lo";
    self.rails[0].local = Loopback();
    self.process = harness::ProcessId(context_.rank() + 1);
    self.sealing = sealing;
    remote::NetworkAddress own = SelfAddress(self).value();
    if (context_.rank() == 1) path = std::make_unique<Path>(PortOf(own.rails[0].lifeline));
    auto* const shared = context_.board() + 4096 * context_.rank();
    const uint16_t port = path != nullptr ? path->port() : PortOf(own.rails[0].lifeline);
    std::memcpy(shared, own.key.data(), own.key.size());
    std::memcpy(shared + own.key.size(), &port, sizeof port);
    EXPECT_TRUE(context_.Barrier());
    const auto* const there = context_.board() + 4096 * (1 - context_.rank());
    peer_ = own;
    uint16_t peer_port = 0;
    std::memcpy(peer_.key.data(), there, peer_.key.size());
    std::memcpy(&peer_port, there + peer_.key.size(), sizeof peer_port);
    peer_.rails[0].lifeline = Loopback(peer_port);
  }

  void Connect(uint64_t comm) {
    block.assign(kBlockBytes, std::byte{0});
    remote::ConnectOptions options;
    options.comm = comm;
    options.self = static_cast<uint32_t>(context_.rank());
    options.peer = 1 - options.self;
    options.process = harness::ProcessId(2 - context_.rank());
    options.address = peer_;
    options.block = block.data();
    options.block_bytes = kBlockBytes;
    options.arrived = [this] { ++arrived; };
    reach = tcp::Connect(std::move(options)).value();
  }

  // The number is in all data, and in the line.
  void Send(int number) {
    std::memset(block.data() + kSmall, number, kSmallBytes);
    std::memset(block.data() + kLarge, number, kLargeBytes);
    const uint64_t word = static_cast<uint64_t>(number);
    std::memcpy(block.data(), &word, sizeof word);
    const transport::Reach::Stretch stretches[] = {{kSmall, kSmallBytes, false, false},
                                                   {kLarge, kLargeBytes, false, false}};
    reach->Publish(nullptr, stretches, 0);
  }
  uint64_t Line() const { return __atomic_load_n(reinterpret_cast<const uint64_t*>(reach->block()), __ATOMIC_SEQ_CST); }
  // Whether what the line promises is there. The sender waits for the answer before it sends the next.
  bool Right(int number) const {
    const auto all = [&](uint64_t at, uint64_t bytes) {
      for (uint64_t i = 0; i < bytes; ++i) {
        if (reach->block()[at + i] != static_cast<std::byte>(number)) return false;
      }
      return true;
    };
    return all(kSmall, kSmallBytes) && all(kLarge, kLargeBytes);
  }
  // Waits for the line to have that number; false if the peer is lost first.
  bool Await(int number) {
    const auto limit = std::chrono::steady_clock::now() + kPatient;
    transport::Inbox* const inbox = reach->inbox();
    inbox->BeginPolling();
    while (Line() < static_cast<uint64_t>(number) && !reach->Died() && std::chrono::steady_clock::now() < limit) {
      inbox->Progress();
      std::this_thread::yield();
    }
    inbox->EndPolling(false);
    return Line() >= static_cast<uint64_t>(number);
  }
  // Each sends in turn, and looks at what came. Returns whether all was right; *through: whether all came.
  bool Talk(bool* through) {
    bool right = true;
    *through = true;
    for (int number = 1; number <= kMessages && *through; ++number) {
      if (context_.rank() == 0) Send(number);
      *through = Await(number);
      if (*through) right = right && Right(number);
      if (context_.rank() == 1 && *through) Send(number);
    }
    return right;
  }

  std::unique_ptr<Path> path;
  std::shared_ptr<transport::Reach> reach;
  std::vector<std::byte> block;
  std::atomic<int> arrived{0};

 private:
  RankContext& context_;
  remote::NetworkAddress peer_;
};

// A thread polls while the first line stands, and then goes on with other things: the library's thread receives.
TEST(WithoutAThread, MessagesAreReceivedAfterAThreadHasPolled) {
  harness::RunRanks(harness::Processes(2), [](RankContext& context) {
    Rank rank(&context, remote::Sealing::kNone);
    Worker* const worker = Worker::Get({}).value();
    worker->BeginPolling();
    rank.Connect(1);
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 0) {
      rank.Send(1);
    } else {
      EXPECT_TRUE(rank.Await(1));
    }
    worker->EndPolling(false);
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 0) {
      while (rank.reach->sending()) std::this_thread::yield();  // the bytes of the first
      rank.Send(2);
    } else {
      const auto limit = std::chrono::steady_clock::now() + kPatient;
      while (rank.Line() < 2 && std::chrono::steady_clock::now() < limit) usleep(1000);
      EXPECT_EQ(rank.Line(), 2u);
    }
    ASSERT_TRUE(context.Barrier());
    rank.reach->Detach();
  });
}

// What goes aside takes the lifeline until there is a data line, and its turn in any case.
TEST(AsideTest, NeedsNoDataLineAndKeepsItsTurn) {
  harness::RunRanks(harness::Processes(2), [](RankContext& context) {
    Rank rank(&context, remote::Sealing::kNone);
    rank.Connect(1);
    ASSERT_TRUE(context.Barrier());
    const auto say = [&](int number) {
      std::memset(rank.block.data() + kSmall, number, kSmallBytes);
      const uint64_t word = static_cast<uint64_t>(number);
      std::memcpy(rank.block.data(), &word, sizeof word);
      const transport::Reach::Stretch stretch{kSmall, kSmallBytes, false, false};
      rank.reach->PublishAside({&stretch, 1}, 0);
    };
    const auto peer = [&] { return static_cast<const Reach&>(*rank.reach).peer(); };
    const auto called = [&] {
      std::lock_guard lock(peer()->mutex());
      return peer()->called();
    };
    for (int number = 1; number <= 3; ++number) say(number);
    EXPECT_TRUE(rank.Await(3));
    EXPECT_EQ(rank.reach->block()[kSmall + kSmallBytes - 1], std::byte{3});
    EXPECT_FALSE(called());
    rank.reach->BeginFlush();  // nothing has been sent that way
    rank.reach->AwaitFlush(kPatient);
    EXPECT_FALSE(called());
    ASSERT_TRUE(context.Barrier());
    // The first on the data line, which has to be made, and then both ways of going aside. No line comes early.
    rank.Send(4);
    EXPECT_TRUE(called());
    for (int number = 5; number <= 8; ++number) say(number);
    EXPECT_TRUE(rank.Await(8));
    EXPECT_EQ(rank.reach->block()[kSmall], std::byte{8});
    EXPECT_EQ(rank.reach->block()[kLarge + kLargeBytes - 1], std::byte{4});
    ASSERT_TRUE(context.Barrier());
    rank.reach->Detach();
  });
}

// The first message of each is on its way at once, again and again.
TEST(CallTest, BothSidesMayCallAtOnce) {
  for (int round = 0; round < 20; ++round) {
    harness::RunRanks(harness::Processes(2), [](RankContext& context) {
      Rank rank(&context, remote::Sealing::kNone);
      rank.Connect(1);
      ASSERT_TRUE(context.Barrier());
      rank.Send(1);
      EXPECT_TRUE(rank.Await(1)) << rank.reach->Trouble();
      EXPECT_TRUE(rank.Right(1));
      ASSERT_TRUE(context.Barrier());
      rank.reach->Detach();
    });
  }
}

class PathTest : public testing::TestWithParam<remote::Sealing> {};

TEST_P(PathTest, WhatIsSentArrives) {
  harness::RunRanks(harness::Processes(2), [](RankContext& context) {
    Rank rank(&context, GetParam());
    for (uint64_t comm = 1; comm <= 3; ++comm) {
      rank.Connect(comm);
      ASSERT_TRUE(context.Barrier());
      bool through = false;
      EXPECT_TRUE(rank.Talk(&through));
      EXPECT_TRUE(through) << rank.reach->Trouble();
      rank.reach->BeginFlush();
      rank.reach->AwaitFlush(std::chrono::seconds(5));
      ASSERT_TRUE(context.Barrier());
      rank.reach->Detach();
    }
    ASSERT_TRUE(context.Barrier());
  });
}

// Both ends give the other up, and nothing that was changed is taken for what was sent.
TEST_P(PathTest, ABitThatChangesOnTheWay) {
  const bool plain = GetParam() == remote::Sealing::kNone;
  const int rounds = harness::FullTests() ? 300 : plain ? 1 : 10;
  harness::RunOptions options;
  options.deadline = std::chrono::minutes(5);
  harness::RunRanks(
      harness::Processes(2),
      [&](RankContext& context) {
        Rank rank(&context, GetParam());
        harness::Random random(harness::Scramble(harness::Seed(), 5));
        // Of the last message, its sender does not wait for an answer.
        const int64_t span = (kMessages - 1) * static_cast<int64_t>(kSmallBytes + kLargeBytes);
        for (int round = 0; round < rounds; ++round) {
          // In the clear, it changes data of the first message: the test must notice.
          const bool of_caller = plain || random.Below(2) == 0;
          const auto byte = plain ? static_cast<int64_t>(kLargeBytes / 2)
                                  : static_cast<int64_t>(random.Below(static_cast<uint64_t>(span)));
          if (context.rank() == 1) rank.path->Change(of_caller, byte, static_cast<int>(random.Below(8)));
          if (context.rank() == 0) (void)random.Below(8);
          ASSERT_TRUE(context.Barrier());
          rank.Connect(static_cast<uint64_t>(round) + 1);
          ASSERT_TRUE(context.Barrier());
          bool through = false;
          const bool right = rank.Talk(&through);
          if (plain) {
            EXPECT_EQ(right, context.rank() == 0) << "the change did not reach the data";
          } else {
            EXPECT_TRUE(right) << "byte " << byte;
            EXPECT_FALSE(through) << "byte " << byte;
            const bool found_it = (context.rank() == 1) == of_caller;
            const std::string why = rank.reach->Trouble();
            const auto says = [&](const char* text) { return why.find(text) != std::string::npos; };
            EXPECT_TRUE(found_it ? says("was changed on the way") : says("has ended") || says("has given"))
                << why << ", byte " << byte;
          }
          ASSERT_TRUE(context.Barrier());
          if (context.rank() == 1) {
            EXPECT_TRUE(rank.path->changed());
          }
          rank.reach->Detach();
        }
        ASSERT_TRUE(context.Barrier());
      },
      options);
}

std::string NameOf(const testing::TestParamInfo<remote::Sealing>& info) {
  if (info.param == remote::Sealing::kNone) return "Plain";
  return info.param == remote::Sealing::kAuth ? "Auth" : "Encrypted";
}

INSTANTIATE_TEST_SUITE_P(Sealings, PathTest,
                         testing::Values(remote::Sealing::kNone, remote::Sealing::kAuth, remote::Sealing::kAll),
                         NameOf);

}  // namespace
}  // namespace axccl::tcp
