// Tests the hosts: what they send each other arrives, or is lost, as configured, and nothing of them is left.
#include "tests/harness/test_hosts.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/harness/run_ranks.h"
#include "tests/harness/timing.h"

namespace axccl::harness {
namespace {

constexpr uint16_t kPort = 7000;
using Way = TestHosts::Way;

// A datagram socket on a host.
class Mailbox {
 public:
  Mailbox(const TestHosts& hosts, int host, int family) : family_(family) {
    // Only the socket is there, which belongs to the namespace it was made in.
    std::thread([&] {
      if (!hosts.EnterNetwork(host)) return;
      socket_ = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
      const sockaddr_storage any = Text(family == AF_INET ? "0.0.0.0" : "::");
      bind(socket_, reinterpret_cast<const sockaddr*>(&any), sizeof(any));
    }).join();
  }
  ~Mailbox() { close(socket_); }

  void Send(const std::string& address, uint32_t number, size_t bytes = sizeof(uint32_t)) {
    const sockaddr_storage to = Text(address);
    std::vector<std::byte> datagram(bytes);
    std::memcpy(datagram.data(), &number, sizeof(number));
    EXPECT_GT(sendto(socket_, datagram.data(), bytes, 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0)
        << std::strerror(errno);
  }
  // Returns false if nothing arrives for a while.
  bool Receive(uint32_t* number, int patience_ms) {
    pollfd wait{socket_, POLLIN, 0};
    return poll(&wait, 1, patience_ms) == 1 && recv(socket_, number, sizeof(*number), 0) > 0;  // the rest is cut off
  }

 private:
  sockaddr_storage Text(const std::string& address) const {
    sockaddr_storage storage{};
    storage.ss_family = static_cast<sa_family_t>(family_);
    auto* const in = reinterpret_cast<sockaddr_in*>(&storage);
    auto* const in6 = reinterpret_cast<sockaddr_in6*>(&storage);
    in->sin_port = htons(kPort);  // at the same place in both
    inet_pton(family_, address.c_str(), family_ == AF_INET ? static_cast<void*>(&in->sin_addr) : &in6->sin6_addr);
    return storage;
  }
  const int family_;
  int socket_ = -1;
};

// A link may take a second to come up, and address resolution may be repeated.
constexpr int kPatienceMs = 5000;

// Returns how many of `sent` datagrams from one host to the other arrive; waits with patience for `expected` of them.
int Arrivals(const TestHosts& hosts, int from, int to, int sent, int nic = 0, int expected = 0) {
  Mailbox source(hosts, from, AF_INET), sink(hosts, to, AF_INET);
  int arrived = 0;
  uint32_t number = 0;
  for (int i = 0; i < sent; ++i) source.Send(TestHosts::Address(to, nic), static_cast<uint32_t>(i));
  while (arrived < sent && sink.Receive(&number, arrived < expected ? kPatienceMs : 100)) ++arrived;
  return arrived;
}

// As soon as hosts exist: a connection that starts before a route is complete would keep missing it.
TEST(TestHosts, ReachThemselvesAtOnce) {
  for (int round = 0; round < 20; ++round) {
    const auto hosts = TestHosts::Create(2);
    ASSERT_NE(hosts, nullptr);
    std::thread([&] {
      ASSERT_TRUE(hosts->EnterNetwork(1));
      sockaddr_in6 own{};
      own.sin6_family = AF_INET6;
      ASSERT_EQ(inet_pton(AF_INET6, TestHosts::Address6(1).c_str(), &own.sin6_addr), 1);
      const int listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const int caller = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
      socklen_t bytes = sizeof own;
      EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&own), bytes), 0) << std::strerror(errno);
      EXPECT_EQ(listen(listener, 1), 0);
      EXPECT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&own), &bytes), 0);
      EXPECT_EQ(connect(caller, reinterpret_cast<sockaddr*>(&own), bytes), 0) << std::strerror(errno);
      close(caller);
      close(listener);
    }).join();
  }
}

TEST(TestHosts, ReachEachOtherByBothFamiliesAndHaveTheirOwnLoopback) {
  const auto hosts = TestHosts::Create(3);
  ASSERT_NE(hosts, nullptr);
  for (const int family : {AF_INET, AF_INET6}) {
    Mailbox first(*hosts, 0, family), last(*hosts, 2, family);
    uint32_t number = 0;
    first.Send(family == AF_INET ? TestHosts::Address(2) : TestHosts::Address6(2), 17);
    EXPECT_TRUE(last.Receive(&number, kPatienceMs)) << family;
    EXPECT_EQ(number, 17u);
    first.Send(family == AF_INET ? "127.0.0.1" : "::1", 18);
    EXPECT_TRUE(first.Receive(&number, kPatienceMs)) << family;
    EXPECT_FALSE(last.Receive(&number, 10)) << family;
  }
  EXPECT_EQ(if_nametoindex("port0"), 0u) << "the network shows up in the test's own namespace";
}

TEST(TestHosts, LinksAreCutEachWayAndHealed) {
  const auto hosts = TestHosts::Create(2);
  ASSERT_NE(hosts, nullptr);
  const auto arrivals = [&](int from, int to, int expected) { return Arrivals(*hosts, from, to, 5, 0, expected); };
  ASSERT_EQ(arrivals(0, 1, 5), 5);  // knows the neighbour's hardware address from here on
  ASSERT_EQ(arrivals(1, 0, 5), 5);
  const struct {
    Way way;
    int to_it, from_it;
  } cuts[] = {{Way::kIn, 0, 5}, {Way::kOut, 5, 0}, {Way::kBoth, 0, 0}};
  for (const auto& cut : cuts) {
    ASSERT_TRUE(hosts->Cut(1, cut.way));
    EXPECT_EQ(arrivals(0, 1, cut.to_it), cut.to_it);
    EXPECT_EQ(arrivals(1, 0, cut.from_it), cut.from_it);
    ASSERT_TRUE(hosts->Heal(1));
    EXPECT_EQ(arrivals(0, 1, 5), 5);
    EXPECT_EQ(arrivals(1, 0, 5), 5);
  }
}

TEST(TestHosts, HaveSeveralNicsOfNetworksOfTheirOwn) {
  const auto hosts = TestHosts::Create(3, 2);
  ASSERT_NE(hosts, nullptr);
  for (const int nic : {0, 1}) EXPECT_EQ(Arrivals(*hosts, 0, 2, 5, nic, 5), 5) << nic;
  ASSERT_TRUE(hosts->PullCable(2, 1));
  EXPECT_EQ(Arrivals(*hosts, 0, 2, 5, 0, 5), 5);
  EXPECT_EQ(Arrivals(*hosts, 0, 2, 5, 1), 0);
  EXPECT_EQ(Arrivals(*hosts, 0, 1, 5, 1, 5), 5);
  ASSERT_TRUE(hosts->Cut(1, Way::kIn));
  for (const int nic : {0, 1}) EXPECT_EQ(Arrivals(*hosts, 0, 1, 5, nic), 0) << nic;
}

TEST(TestHosts, LoseTheShareOfPacketsTheyAreTold) {
  const auto hosts = TestHosts::Create(2);
  ASSERT_NE(hosts, nullptr);
  ASSERT_EQ(Arrivals(*hosts, 0, 1, 1, 0, 1), 1);
  ASSERT_TRUE(hosts->Lose(1, 10));
  int arrived = 0;
  for (int i = 0; i < 10; ++i) arrived += Arrivals(*hosts, 0, 1, 200);
  // 2000 of them, 200 lost on the average with a deviation of 13.
  EXPECT_GT(arrived, 1800 - 7 * 13);
  EXPECT_LT(arrived, 1800 + 7 * 13);
}

TEST(TestHosts, AreNoFasterThanTheirLimit) {
  const auto hosts = TestHosts::Create(2);
  ASSERT_NE(hosts, nullptr);
  ASSERT_TRUE(hosts->Limit(1, "10mbit"));
  ASSERT_EQ(Arrivals(*hosts, 0, 1, 1, 0, 1), 1);
  Mailbox source(*hosts, 0, AF_INET), sink(*hosts, 1, AF_INET);
  // Sends what takes 250 ms beyond the bucket; 100 ms of it are kept and the rest is lost.
  const uint64_t start = NowNs();
  for (uint32_t i = 0; i < 280; ++i) source.Send(TestHosts::Address(1), i, 1400);
  int arrived = 0;
  uint32_t number = 0;
  while (sink.Receive(&number, 200)) ++arrived;
  EXPECT_LT(arrived, 230);
  EXPECT_GT(arrived, 100);
  EXPECT_GT(NowNs() - start, 80'000'000u);
}

TEST(TestHosts, RanksLiveOnThemByTurns) {
  const auto hosts = TestHosts::Create(2);
  ASSERT_NE(hosts, nullptr);
  RunOptions options;
  options.hosts = hosts.get();
  RunRanks(
      Processes(4),
      [](RankContext& context) {
        char name[64] = {};
        ASSERT_EQ(gethostname(name, sizeof(name)), 0);
        EXPECT_EQ(name, TestHosts::Name(context.rank() % 2));
        EXPECT_STREQ(getenv("NCCL_SOCKET_IFNAME"), "eth0");
        EXPECT_NE(if_nametoindex("eth0"), 0u);
        EXPECT_EQ(access("/sys/class/net/eth0", F_OK), 0) << "UCX looks for devices there";
      },
      options);
}

// The namespace of a host no longer exists as soon as the other end of a link into it is gone.
bool AwaitGone(int notices, const char* interface, int seconds) {
  const uint64_t limit = NowNs() + static_cast<uint64_t>(seconds) * 1000000000u;
  while (if_nametoindex(interface) != 0) {
    if (NowNs() > limit) return false;
    pollfd wait{notices, POLLIN, 0};
    char text[8192];
    if (poll(&wait, 1, 1000) == 1) (void)!read(notices, text, sizeof(text));
  }
  return true;
}

TEST(TestHosts, NothingIsLeftWhenTheTestIsKilled) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t observer = fork();  // in a namespace of its own, and so must not be the test itself
  if (observer == 0) {
    if (unshare(CLONE_NEWNET) != 0) _exit(2);
    const int notices = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    address.nl_groups = RTMGRP_LINK;
    if (bind(notices, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) _exit(3);
    const pid_t doomed = fork();
    if (doomed == 0) {
      const auto hosts = TestHosts::Create(2);
      RunOptions options;
      options.hosts = hosts.get();
      RunRanks(
          Processes(2),
          [&](RankContext& context) {
            const char byte = '!';
            if (context.Barrier() && context.rank() == 0) (void)!write(ready[1], &byte, 1);
            pause();
          },
          options);
      _exit(4);
    }
    char byte;
    if (read(ready[0], &byte, 1) != 1) _exit(5);
    // Links from here into each namespace that the doomed process holds.
    int links = 0;
    for (int fd = 3; fd < 64; ++fd) {
      const std::string path = "/proc/" + std::to_string(doomed) + "/fd/" + std::to_string(fd);
      char target[64] = {};
      if (readlink(path.c_str(), target, sizeof(target) - 1) < 0 || std::strncmp(target, "net:", 4) != 0) continue;
      const std::string add =
          "ip link add watch" + std::to_string(links++) + " type veth peer name watch netns " + path;
      if (system(add.c_str()) != 0) _exit(6);
    }
    if (links != 3) _exit(7);
    kill(doomed, SIGKILL);
    waitpid(doomed, nullptr, 0);
    for (int i = 0; i < links; ++i)
      if (!AwaitGone(notices, ("watch" + std::to_string(i)).c_str(), 20)) _exit(8);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(observer, &status, 0), observer);
  EXPECT_EQ(status, 0) << "stopped at " << WEXITSTATUS(status);
  // Every process that had the other end is dead, including the ranks.
  close(ready[1]);
  pollfd wait{ready[0], POLLIN, 0};
  EXPECT_EQ(poll(&wait, 1, 20000), 1);
  EXPECT_NE(wait.revents & POLLHUP, 0);
  close(ready[0]);
}

}  // namespace
}  // namespace axccl::harness
