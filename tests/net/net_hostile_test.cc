// An attacker on the network between the machines, who sees every packet, replays what was sent.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "src/base/service_fd.h"
#include "tests/harness/client.h"
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

// Records all connections over eth0 whose first bytes are those of a lifeline.
class Eavesdropper {
 public:
  Eavesdropper() : fd_(socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(ETH_P_ALL))) {
    EXPECT_TRUE(fd_) << std::strerror(errno);
    const timeval look{0, 20000};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &look, sizeof look);
    thread_ = std::thread([this] { Listen(); });
  }
  ~Eavesdropper() {
    over_ = true;
    thread_.join();
  }
  std::vector<Talk> talks() {
    std::lock_guard lock(mutex_);
    return talks_;
  }

 private:
  void Listen() {
    alignas(8) std::byte packet[65536];
    while (!over_) {
      const ssize_t got = recv(fd_.get(), packet, sizeof packet, 0);
      if (got > static_cast<ssize_t>(sizeof(iphdr) + sizeof(tcphdr))) Take({packet, static_cast<size_t>(got)});
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
    if (text.size() < 8 || std::memcmp(text.data(), "axlline ", 8) != 0) return;
    Talk talk;
    talk.from.sin_family = talk.to.sin_family = AF_INET;
    talk.from.sin_addr.s_addr = ip.saddr;
    talk.from.sin_port = tcp.source;
    talk.to.sin_addr.s_addr = ip.daddr;
    talk.to.sin_port = tcp.dest;
    talk.sent.emplace_back(text.begin(), text.end());
    talks_.push_back(std::move(talk));
  }

  const Fd fd_;
  std::atomic<bool> over_{false};
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
    if (context.rank() == 0) ear = std::make_unique<Eavesdropper>();
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

}  // namespace
}  // namespace axccl::tests
