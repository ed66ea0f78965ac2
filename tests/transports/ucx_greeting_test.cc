// A peer that dies while the connection to it is being made, for which UCX 1.13 would end this process.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/harness/networks.h"
#include "tests/harness/process_ids.h"
#include "tests/harness/run_ranks.h"
#include "tests/harness/timing.h"
#include "transports/ucx/connect.h"
#include "transports/ucx/reach.h"
#include "transports/ucx/worker.h"

namespace axccl::ucx {
namespace {

using harness::RankContext;

constexpr uint64_t kBlockBytes = 256u << 10;
constexpr uint64_t kNoLine = transport::Reach::kNoLine;
// Well below the time after which messages are sent to a peer although it has not greeted.
constexpr std::chrono::milliseconds kLook(200);

// Written by the rank that dies, for the other one.
struct Shared {
  pid_t pid;
  size_t bytes;
  std::byte address[4096];
};

class GreetingTest : public testing::Test {
 protected:
  void SetUp() override {
    void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    shared_ = static_cast<Shared*>(memory);
  }
  void TearDown() override { munmap(shared_, sizeof(Shared)); }

  Shared* shared_ = nullptr;
};

Result<remote::NetworkAddress> OwnAddress(int rank) {
  remote::SelfOptions self;
  self.process = harness::ProcessId(rank + 1);
  self.rails.resize(1);
  self.rails[0].devices = "lo";
  auto* const local = reinterpret_cast<sockaddr_in*>(&self.rails[0].local);
  local->sin_family = AF_INET;
  local->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return SelfAddress(self);
}

Result<std::shared_ptr<Reach>> ReachPeer(int peer, const remote::NetworkAddress& address,
                                         std::vector<std::byte>* block) {
  remote::ConnectOptions options;
  options.comm = 1;
  options.peer = static_cast<uint32_t>(peer);
  options.process = harness::ProcessId(peer + 1);
  options.address = address;
  options.block = block->data();
  options.block_bytes = kBlockBytes;
  options.arrived = [] {};
  return Reach::Create(Worker::Get({}).value(), options);
}

void Look(Worker* worker) {
  for (const auto end = std::chrono::steady_clock::now() + kLook; std::chrono::steady_clock::now() < end;) {
    worker->Progress();
    sched_yield();
  }
}

// From now on, closing a connection resets it, and so does the end of the process.
void ResetConnectionsAtTheEnd() {
  const linger at_once{1, 0};
  for (int fd = 3; fd < 1024; ++fd) (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

void WaitForEnd(pid_t pid) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return;
  pollfd ended{fd, POLLIN, 0};
  poll(&ended, 1, -1);
  close(fd);
}

TEST_F(GreetingTest, APeerThatDiesBeforeItIsConnectedIsLost) {
  if (access(harness::kNetworks, F_OK) != 0) GTEST_SKIP() << harness::kNoNetworks;
  harness::RunRanks(harness::Processes(2), [this](RankContext& context) {
    const Result<remote::NetworkAddress> own = OwnAddress(context.rank());
    ASSERT_TRUE(own.ok()) << own.status().message();
    std::vector<std::byte> block(kBlockBytes);
    Worker* const worker = Worker::Get({}).value();
    if (context.rank() == 1) {
      // A connection to itself makes it look at incoming messages.
      const auto self = ReachPeer(1, own.value(), &block);
      ASSERT_TRUE(self.ok());
      shared_->pid = getpid();
      shared_->bytes = own.value().rails[0].worker.size();
      ASSERT_LE(shared_->bytes, sizeof shared_->address);
      {
        std::lock_guard lock(worker->mutex());  // it receives nothing for now
        std::memcpy(shared_->address, own.value().rails[0].worker.data(), shared_->bytes);
        context.Set(0, 1);
        context.Await(1);
      }
      Look(worker);
      ResetConnectionsAtTheEnd();
      context.Die();
    }
    context.Await(0);
    remote::NetworkAddress other = own.value();
    other.rails[0].worker.assign(shared_->address, shared_->address + shared_->bytes);
    const auto remote = ReachPeer(1, other, &block);
    ASSERT_TRUE(remote.ok()) << remote.status().message();
    const transport::Reach::Stretch data{0, 100000, false, false};
    remote.value()->Publish(nullptr, {&data, 1}, kNoLine);
    Look(worker);
    {
      std::lock_guard lock(worker->mutex());  // it notices nothing meanwhile
      context.Set(1, 1);
      WaitForEnd(shared_->pid);
    }
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!remote.value()->Died() && std::chrono::steady_clock::now() < limit) {
      worker->Progress();
      harness::LookLater();
    }
    EXPECT_TRUE(remote.value()->Died());
    EXPECT_FALSE(remote.value()->sending());
    remote.value()->Detach();
  });
}

}  // namespace
}  // namespace axccl::ucx
