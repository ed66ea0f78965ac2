// Ranks that tests connect over TCP by hand, each in a process of its own.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "tests/harness/process_ids.h"
#include "tests/harness/run_ranks.h"
#include "transports/tcp/connect.h"

namespace axccl::tcp::test {

inline constexpr std::chrono::seconds kPatient{20};

// Fails if it does not hold in the end.
template <class Holds>
void AwaitUntil(const harness::RankContext& context, const Holds& holds) {
  const auto limit = std::chrono::steady_clock::now() + kPatient;
  while (!holds() && !context.AnyFailed() && std::chrono::steady_clock::now() < limit) usleep(1000);
  EXPECT_TRUE(holds());
}

// A rank and its peer in one communicator: words at the beginnings of lines of the block.
struct Pair {
  static constexpr uint64_t kBlockBytes = 4096;

  Pair() : block(kBlockBytes) {}
  void Say(uint64_t value, size_t line = 0) { std::memcpy(block.data() + line, &value, sizeof value); }
  uint64_t Heard(size_t line = 0) const {
    return __atomic_load_n(reinterpret_cast<const uint64_t*>(reach->block() + line), __ATOMIC_ACQUIRE);
  }

  std::vector<std::byte> block;
  std::shared_ptr<transport::Reach> reach;
  std::shared_ptr<std::atomic<int>> arrived = std::make_shared<std::atomic<int>>(0);  // messages
};

// The words of a message are there before the message is counted.
inline void ExpectMessages(const harness::RankContext& context, const Pair& pair, int messages) {
  AwaitUntil(context, [&] { return *pair.arrived >= messages; });
  EXPECT_EQ(*pair.arrived, messages);
}

// What the process of a rank needs for all its pairs.
class Node {
 public:
  // All ranks at once.
  explicit Node(harness::RankContext* context) : context_(*context) {
    remote::SelfOptions self;
    self.rails.resize(1);
    self.rails[0].devices = "lo";
    auto* const in = reinterpret_cast<sockaddr_in*>(&self.rails[0].local);
    in->sin_family = AF_INET;
    in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    self.process = ProcessOf(context_.rank());
    own_ = SelfAddress(self).value();
    std::byte* const shared = Shared(context_.rank());
    std::memcpy(shared, own_.key.data(), own_.key.size());
    std::memcpy(shared + own_.key.size(), &own_.rails[0].lifeline, sizeof own_.rails[0].lifeline);
    EXPECT_TRUE(context_.Barrier());
  }

  static std::array<uint8_t, 16> ProcessOf(int rank) { return harness::ProcessId(rank + 1); }

  // `sibling`: null, or an earlier pair with the same peer. `machine`: the peer's. `relays`: ranks there.
  void Connect(Pair* pair, uint64_t comm, int peer, uint64_t machine, bool watch, const Pair* sibling = nullptr,
               const std::vector<int>& relays = {}) {
    remote::ConnectOptions options;
    options.comm = comm;
    options.self = static_cast<uint32_t>(context_.rank());
    options.peer = static_cast<uint32_t>(peer);
    options.process = ProcessOf(peer);
    options.address = own_;
    std::memcpy(options.address.key.data(), Shared(peer), own_.key.size());
    std::memcpy(&options.address.rails[0].lifeline, Shared(peer) + own_.key.size(), sizeof(sockaddr_storage));
    options.block = pair->block.data();
    options.block_bytes = Pair::kBlockBytes;
    options.arrived = [arrived = pair->arrived] { ++*arrived; };
    options.machine = machine;
    options.watch = watch;
    std::vector<remote::Relay> some;
    for (const int relay : relays) some.push_back({ProcessOf(relay), relay});
    options.relays = std::make_shared<const std::vector<remote::Relay>>(std::move(some));
    options.sibling = sibling != nullptr ? sibling->reach.get() : nullptr;
    pair->reach = tcp::Connect(std::move(options)).value();
  }

 private:
  std::byte* Shared(int rank) const { return context_.board() + 4096 * rank; }

  harness::RankContext& context_;
  remote::NetworkAddress own_;
};

}  // namespace axccl::tcp::test
