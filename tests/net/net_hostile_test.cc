// An attacker on the network between the machines, who sees every packet, replays what was sent.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/service_fd.h"
#include "tests/harness/client.h"
#include "tests/harness/random.h"
#include "tests/net/run_on_hosts.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::RankContext;
using harness::TestHosts;
using service::Fd;

// The packets that one side of a connection sent, in order.
struct Talk {
  sockaddr_in from{}, to{};
  std::vector<std::vector<std::byte>> sent;
};

enum class Hears { kLines, kAll };

// Records connections over eth0: those whose first bytes are a line's, or all.
class Eavesdropper {
 public:
  explicit Eavesdropper(Hears hears)
      : hears_(hears), fd_(socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(ETH_P_ALL))) {
    EXPECT_TRUE(fd_) << std::strerror(errno);
    const timeval look{0, 20000};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &look, sizeof look);
    const int bytes = 16 << 20;
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
    thread_ = std::thread([this] { Listen(); });
  }
  ~Eavesdropper() {
    over_ = true;
    thread_.join();
  }
  // Of all packets that have reached their receivers, none is missing.
  std::vector<Talk> talks() {
    for (int looks = 0; looks < 2; ++looks) drained_.wait(drained_.load());  // the first may have begun before
    std::lock_guard lock(mutex_);
    return talks_;
  }

 private:
  void Listen() {
    alignas(8) std::byte packet[65536];
    while (!over_) {
      const ssize_t got = recv(fd_.get(), packet, sizeof packet, 0);
      if (got > static_cast<ssize_t>(sizeof(iphdr) + sizeof(tcphdr))) Take({packet, static_cast<size_t>(got)});
      if (got >= 0) continue;
      ++drained_;
      drained_.notify_all();
    }
  }

  void Take(std::span<const std::byte> packet) {
    iphdr ip;
    std::memcpy(&ip, packet.data(), sizeof ip);
    if (ip.version != 4 || ip.protocol != IPPROTO_TCP || packet.size() < ip.ihl * 4 + sizeof(tcphdr)) return;
    packet = packet.first(std::min<size_t>(packet.size(), ntohs(ip.tot_len))).subspan(ip.ihl * 4);
    tcphdr tcp;
    std::memcpy(&tcp, packet.data(), sizeof tcp);
    if (packet.size() <= tcp.doff * 4u) return;
    const std::span<const std::byte> text = packet.subspan(tcp.doff * 4u);
    std::lock_guard lock(mutex_);
    for (Talk& talk : talks_) {
      if (talk.from.sin_addr.s_addr != ip.saddr || talk.from.sin_port != tcp.source || talk.to.sin_port != tcp.dest)
        continue;
      talk.sent.emplace_back(text.begin(), text.end());
      return;
    }
    if (hears_ == Hears::kLines && (text.size() < 8 || std::memcmp(text.data(), "axlline ", 8) != 0)) return;
    Talk talk;
    talk.from.sin_family = talk.to.sin_family = AF_INET;
    talk.from.sin_addr.s_addr = ip.saddr;
    talk.from.sin_port = tcp.source;
    talk.to.sin_addr.s_addr = ip.daddr;
    talk.to.sin_port = tcp.dest;
    talk.sent.emplace_back(text.begin(), text.end());
    talks_.push_back(std::move(talk));
  }

  const Hears hears_;
  const Fd fd_;
  std::atomic<bool> over_{false};
  std::atomic<int> drained_{0};  // how often there was no packet left
  std::mutex mutex_;
  std::vector<Talk> talks_;
  std::thread thread_;
};

void AllReduce(Clique& clique, int rounds) {
  std::vector<int> data(1000);
  for (int round = 0; round < rounds; ++round) {
    std::fill(data.begin(), data.end(), round);
    ASSERT_OK(
        ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
    ASSERT_OK(axcclStreamSynchronize(clique.stream()));
    ASSERT_EQ(data, std::vector<int>(1000, 2 * round));
  }
}

// Replays the packets and keeps the connection open. Waits for an answer to each; a side that has seen the connection
// before need not answer.
Fd Replay(const Talk& talk) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval look{0, 300000};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &look, sizeof look);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&talk.to), sizeof talk.to), 0);
  for (size_t i = 0; i < std::min<size_t>(talk.sent.size(), 2); ++i) {
    char answer[256];
    (void)!send(fd.get(), talk.sent[i].data(), talk.sent[i].size(), MSG_NOSIGNAL);
    (void)!recv(fd.get(), answer, sizeof answer, 0);
  }
  return fd;
}

// The peer does not count as dead, and its death is noticed although the attacker holds connections.
TEST(HostileNetwork, AReplayedLifelineIsIgnored) {
  RunOnHosts(2, 2, [](const TestHosts&, RankContext& context) {
    std::unique_ptr<Eavesdropper> ear;
    if (context.rank() == 0) ear = std::make_unique<Eavesdropper>(Hears::kLines);
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    ASSERT_NO_FATAL_FAILURE(AllReduce(clique, 10));
    ASSERT_TRUE(context.Barrier(1));
    std::vector<Fd> held;
    if (context.rank() == 0) {
      const std::vector<Talk> talks = ear->talks();
      EXPECT_FALSE(talks.empty());
      for (const Talk& talk : talks) held.push_back(Replay(talk));
      usleep(100000);  // twice the time after which a closed lifeline counts as an end
    }
    ASSERT_TRUE(context.Barrier(2));
    ASSERT_NO_FATAL_FAILURE(AllReduce(clique, 10));
    ncclResult_t state = ncclInternalError;
    ASSERT_OK(ncclCommGetAsyncError(clique.comm(), &state));
    EXPECT_EQ(state, ncclSuccess);
    ASSERT_TRUE(context.Barrier(3));
    if (context.rank() == 1) context.Die();
    std::vector<int> data(1000);
    ncclResult_t result =
        ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream()));
    if (result == ncclSuccess) result = axcclStreamSynchronize(clique.stream());
    EXPECT_EQ(result, ncclRemoteError);
    ASSERT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
  });
}

// ---- everything again ----

// Connects where the talk went and sends all of it, once the first answer has come. Without a descriptor: nothing
// listens there. Keeps the connection.
Fd ReplayAll(const Talk& talk) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval look{0, 300000};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &look, sizeof look);
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &look, sizeof look);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&talk.to), sizeof talk.to) != 0) return Fd();
  for (size_t i = 0; i < talk.sent.size(); ++i) {
    char answer[256];
    if (send(fd.get(), talk.sent[i].data(), talk.sent[i].size(), MSG_NOSIGNAL) < 0) break;
    if (i < 2) (void)!recv(fd.get(), answer, sizeof answer, 0);
  }
  return fd;
}

// A communicator is made and used, and its connections end. The attacker repeats all that it has heard: how the ranks
// met, how their lines began, and the data. Nothing is written, and the ranks meet again.
TEST(HostileNetwork, AllThatWasSentIsOfNoUseLater) {
  RunOnHosts(2, 2, [](const TestHosts&, RankContext& context) {
    std::unique_ptr<Eavesdropper> ear;
    if (context.rank() == 0) ear = std::make_unique<Eavesdropper>(Hears::kAll);
    ncclUniqueId unused;
    ASSERT_OK(ncclGetUniqueId(&unused));  // its process listens as long as no ranks have met with it
    const std::vector<int> canary(1000, 0x77777777);
    std::vector<int> data(canary.size(), 1);
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    ASSERT_NO_FATAL_FAILURE(AllReduce(clique, 10));
    ASSERT_TRUE(context.Barrier(1));
    if (context.rank() == 0) {
      for (const int fd : TestHosts::Connections()) shutdown(fd, SHUT_RDWR);
    }
    ncclResult_t result = ncclSuccess;
    while (result == ncclSuccess) {
      result = ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclMax, clique.comm(),
                             Cuda(clique.stream()));
      if (result == ncclSuccess) result = axcclStreamSynchronize(clique.stream());
    }
    EXPECT_EQ(result, ncclRemoteError);
    ASSERT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
    data = canary;
    ASSERT_TRUE(context.Barrier(2));
    std::vector<Fd> held;
    if (context.rank() == 0) {
      for (const Talk& talk : ear->talks()) {
        if (Fd fd = ReplayAll(talk)) held.push_back(std::move(fd));
      }
      EXPECT_GE(held.size(), 3u) << "a rendezvous and two lines";
    }
    ASSERT_TRUE(context.Barrier(3));
    Clique again;
    ASSERT_TRUE(again.Init(context));
    ASSERT_NO_FATAL_FAILURE(AllReduce(again, 100));
    EXPECT_EQ(data, canary);
    ASSERT_TRUE(context.Barrier(4));
    for (const Fd& fd : held) {  // all are cut
      const timeval patient{10, 0};
      setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patient, sizeof patient);
      char answer[256];
      ssize_t got = 0;
      while ((got = recv(fd.get(), answer, sizeof answer, 0)) > 0) continue;
      EXPECT_TRUE(got == 0 || errno == ECONNRESET) << std::strerror(errno);
    }
    ASSERT_TRUE(context.Barrier(5));
  });
}

class HearingTest : public testing::TestWithParam<const char*> {};

// Whether the attacker hears what the ranks send each other.
TEST_P(HearingTest, DataAreReadUnlessEncrypted) {
  RunOnHosts(2, 2,
             [](const TestHosts&, RankContext& context) {
               std::unique_ptr<Eavesdropper> ear;
               if (context.rank() == 0) ear = std::make_unique<Eavesdropper>(Hears::kAll);
               const std::string secret = "the weights of a model that is not public";
               std::vector<char> data(1000);
               Clique clique;
               ASSERT_TRUE(clique.Init(context));
               if (context.rank() == 1) std::copy(secret.begin(), secret.end(), data.begin());
               ASSERT_OK(ncclBroadcast(data.data(), data.data(), data.size(), ncclInt8, 1, clique.comm(),
                                       Cuda(clique.stream())));
               ASSERT_OK(axcclStreamSynchronize(clique.stream()));
               ASSERT_EQ(std::string(data.data(), secret.size()), secret);
               ASSERT_TRUE(context.Barrier(1));
               if (ear == nullptr) return;
               int talks = 0;
               bool heard = false;
               for (const Talk& talk : ear->talks()) {
                 std::string text;
                 for (const auto& packet : talk.sent)
                   text.append(reinterpret_cast<const char*>(packet.data()), packet.size());
                 heard |= text.find(secret) != std::string::npos;
                 ++talks;
               }
               EXPECT_GE(talks, 4) << "both directions of two lines";
               EXPECT_EQ(heard, std::string(GetParam()) != "1");
             },
             {{"AXCCL_ENCRYPT", GetParam()}});
}

INSTANTIATE_TEST_SUITE_P(Settings, HearingTest, testing::Values("0", "auth", "1"),
                         [](const auto& info) { return "Encrypt_" + std::string(info.param); });

// ---- strangers who reach the ports, and see nothing ----

// The ports at which this host listens.
std::vector<uint16_t> ListeningPorts() {
  std::vector<uint16_t> ports;
  std::ifstream table("/proc/self/net/tcp");
  for (std::string line; std::getline(table, line);) {
    unsigned port = 0, state = 0;
    if (std::sscanf(line.c_str(), " %*u: %*8x:%x %*8x:%*x %x", &port, &state) == 2 && state == 0x0a)
      ports.push_back(static_cast<uint16_t>(port));
  }
  return ports;
}

// A connection to that port of the first host; none if it is refused.
Fd CallFirstHost(uint16_t port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  inet_pton(AF_INET, "10.77.0.1", &to.sin_addr);
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0 ? std::move(fd) : Fd();
}

// What a stranger may say: nothing, noise, what UCX would take for a connection and a write, HTTP, or a hello of
// nobody.
std::vector<std::byte> Speech(int which) {
  harness::Random random(harness::Scramble(harness::Seed(), static_cast<uint64_t>(which)));
  std::vector<std::byte> speech;
  const auto say = [&](const void* bytes, size_t count) {
    const auto* const from = static_cast<const std::byte*>(bytes);
    speech.insert(speech.end(), from, from + count);
  };
  const auto noise = [&](size_t count) {
    for (size_t i = 0; i < count; ++i) speech.push_back(static_cast<std::byte>(random.Below(256)));
  };
  switch (which % 5) {
    case 1:
      noise(1 + random.Below(5000));
      break;
    case 2: {
      const uint64_t magic = 0xCAFEBABE12345678ull;  // of UCX's TCP connections
      say(&magic, sizeof magic);
      noise(300);
      break;
    }
    case 3:
      say("GET / HTTP/1.1\r\n\r\n", 18);
      break;
    case 4: {
      const uint64_t magic = 0x20656e696c6c7861ull;  // of lines
      say(&magic, sizeof magic);
      noise(72 + random.Below(2) * 4096);
      break;
    }
    default:
      break;
  }
  return speech;
}

// 2,000 connections, hundreds at a time: all results are right, nothing is lost, and all strangers are cut in the end.
TEST(HostileNetwork, StrangersAtThePortsChangeNothing) {
  RunOnHosts(2, 2, [](const TestHosts&, RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    ASSERT_NO_FATAL_FAILURE(AllReduce(clique, 10));
    if (context.rank() == 0) {
      const std::vector<uint16_t> ports = ListeningPorts();
      ASSERT_FALSE(ports.empty());
      std::memcpy(context.board(), ports.data(), ports.size() * sizeof(uint16_t));
      context.Set(1, ports.size());
    }
    const auto count = static_cast<size_t>(context.Await(1));
    std::thread strangers;
    std::atomic<int> cut{0};
    std::atomic<bool> over{false};
    constexpr int kConnections = 2000, kAtOnce = 500;
    if (context.rank() == 1)
      strangers = std::thread([&] {
        std::vector<Fd> held;
        for (int i = 0; i < kConnections; ++i) {
          uint16_t port = 0;
          std::memcpy(&port, context.board() + sizeof port * (static_cast<size_t>(i) % count), sizeof port);
          Fd fd = CallFirstHost(port);
          EXPECT_TRUE(fd) << std::strerror(errno);
          const timeval look{5, 0};
          setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &look, sizeof look);
          const std::vector<std::byte> speech = Speech(i);
          (void)!send(fd.get(), speech.data(), speech.size(), MSG_NOSIGNAL);
          held.push_back(std::move(fd));
          if (held.size() < kAtOnce) continue;
          for (const Fd& each : held) {  // a guest is cut after 3 s, or earlier
            char answer[256];
            ssize_t got = 0;
            while ((got = recv(each.get(), answer, sizeof answer, 0)) > 0) continue;
            cut += got == 0 || errno == ECONNRESET;
          }
          held.clear();
        }
        over = true;
      });
    // Until the strangers have gone, on both ranks alike.
    for (int round = 0;; ++round) {
      int going = context.rank() == 1 && !over;
      ASSERT_OK(ncclAllReduce(&going, &going, 1, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
      ASSERT_OK(axcclStreamSynchronize(clique.stream()));
      if (going == 0) break;
      ASSERT_NO_FATAL_FAILURE(AllReduce(clique, 3));
    }
    if (strangers.joinable()) strangers.join();
    if (context.rank() == 1) {
      EXPECT_EQ(cut, kConnections);
    }
  });
}

#ifdef AXCCL_UCX

// What a stranger finds who says nothing: TCP's ports cut him within 3 s, and one of UCX's keeps him.
class SilentStrangerTest : public testing::TestWithParam<const char*> {};

TEST_P(SilentStrangerTest, IsKeptByUcxAlone) {
  RunOnHosts(2, 2,
             [](const TestHosts&, RankContext& context) {
               Clique clique;
               ASSERT_TRUE(clique.Init(context));
               ASSERT_NO_FATAL_FAILURE(AllReduce(clique, 10));
               if (context.rank() == 0) {
                 std::vector<pollfd> kept;
                 std::vector<Fd> fds;
                 for (const uint16_t port : ListeningPorts()) {
                   Fd fd = CallFirstHost(port);
                   if (!fd) continue;  // of lo alone
                   kept.push_back({fd.get(), POLLRDHUP, 0});
                   fds.push_back(std::move(fd));
                 }
                 ASSERT_FALSE(kept.empty());
                 const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
                 while (!kept.empty() && std::chrono::steady_clock::now() < limit) {
                   (void)poll(kept.data(), kept.size(), 100);
                   std::erase_if(kept, [](const pollfd& each) { return each.revents != 0; });
                 }
                 EXPECT_EQ(kept.size(), std::string(GetParam()) == "ucx" ? 1u : 0u);
               }
               ASSERT_TRUE(context.Barrier());
               ASSERT_NO_FATAL_FAILURE(AllReduce(clique, 10));
             },
             {{"AXCCL_NET", GetParam()}, {"AXCCL_TRUST_NETWORK", "1"}});
}

INSTANTIATE_TEST_SUITE_P(Networks, SilentStrangerTest, testing::Values("tcp", "ucx"),
                         [](const auto& info) { return std::string(info.param); });

#endif

}  // namespace
}  // namespace axccl::tests
