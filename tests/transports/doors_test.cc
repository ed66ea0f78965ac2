// Whether a process is there shows at its port: one that listens, one that has ended, one that ends meanwhile, and an
// address that nobody answers at.
#include "transports/remote/doors.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <unistd.h>

#include <thread>

#include "src/base/service_fd.h"

namespace axccl::remote {
namespace {

using Clock = std::chrono::steady_clock;

struct Listener {
  Listener() : fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    auto* const in = reinterpret_cast<sockaddr_in*>(&address);
    in->sin_family = AF_INET;
    in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(*in);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(in), bytes), 0);
    EXPECT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(in), &bytes), 0);
  }
  sockaddr_storage address{};
  service::Fd fd;
};

TEST(Doors, ShowWhoIsThere) {
  Listener there, gone;
  ASSERT_EQ(listen(there.fd.get(), 8), 0);
  gone.fd.Close();
  const std::vector<std::vector<sockaddr_storage>> processes = {{there.address}, {gone.address}, {}};
  const auto doors = LookAtDoors(processes, Clock::now() + std::chrono::milliseconds(300));
  EXPECT_EQ(doors, (std::vector{Door::kOpen, Door::kClosed, Door::kSilent}));
}

// The kernel completes connections to a process that ends, and resets them.
TEST(Doors, OfAProcessThatEndsMeanwhileAreClosed) {
  Listener ends;
  ASSERT_EQ(listen(ends.fd.get(), 8), 0);
  std::thread process([&] {
    const service::Fd caller(accept(ends.fd.get(), nullptr, nullptr));
    ends.fd.Close();
  });
  const std::vector<std::vector<sockaddr_storage>> processes = {{ends.address}};
  const auto doors = LookAtDoors(processes, Clock::now() + std::chrono::seconds(20));
  process.join();
  EXPECT_EQ(doors[0], Door::kClosed);
}

// Of a process with two addresses, one is enough.
TEST(Doors, AreAskedAtAllAddresses) {
  Listener there, gone;
  ASSERT_EQ(listen(there.fd.get(), 8), 0);
  gone.fd.Close();
  sockaddr_storage nowhere{};
  auto* const in = reinterpret_cast<sockaddr_in*>(&nowhere);
  in->sin_family = AF_INET;
  in->sin_addr.s_addr = inet_addr("240.0.0.1");  // no host has it
  in->sin_port = htons(9);
  const std::vector<std::vector<sockaddr_storage>> processes = {{nowhere, gone.address}, {nowhere, there.address}};
  const auto doors = LookAtDoors(processes, Clock::now() + std::chrono::milliseconds(300));
  EXPECT_EQ(doors, (std::vector{Door::kClosed, Door::kOpen}));
}

}  // namespace
}  // namespace axccl::remote
