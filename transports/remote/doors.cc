#include "transports/remote/doors.h"

#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "src/base/service_fd.h"
#include "transports/remote/address.h"

namespace axccl::remote {
namespace {

using Clock = std::chrono::steady_clock;

// A process that lives waits for the greeting of who calls.
constexpr std::chrono::milliseconds kStays(50);
constexpr std::chrono::milliseconds kCallAgain(5);

struct Call {
  Call(size_t process_called, const sockaddr_storage* at) : process(process_called), address(at) {}

  size_t process;
  const sockaddr_storage* address;
  service::Fd fd;
  bool taken = false, over = false;
  Clock::time_point when;  // of the next attempt; if taken, since when
};

// Returns false if the call was refused at once. Where it cannot be made at all, nobody answers.
bool Dial(Call* call) {
  call->fd = service::Fd(socket(call->address->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const auto* const to = reinterpret_cast<const sockaddr*>(call->address);
  call->over = !call->fd;
  if (call->over || connect(call->fd.get(), to, BytesOf(*call->address)) == 0 || errno == EINPROGRESS) return true;
  const bool refused = errno == ECONNREFUSED;
  call->fd.Close();
  call->over = true;
  return !refused;
}

int ErrorOf(const Call& call) {
  int error = 0;
  socklen_t bytes = sizeof(error);
  return getsockopt(call.fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 ? error : errno;
}

// Something has come of the call. Returns false if it was refused.
bool Listen(Call* call) {
  const int error = ErrorOf(*call);
  if (error == ECONNREFUSED) return false;
  const bool hung_up = error != 0 || call->taken;  // or this machine knows no way
  if (hung_up) call->fd.Close();
  call->taken = !hung_up;
  call->when = Clock::now() + (hung_up ? kCallAgain : std::chrono::milliseconds(0));
  return true;
}

}  // namespace

std::vector<Door> LookAtDoors(std::span<const std::vector<sockaddr_storage>> processes, Clock::time_point limit) {
  std::vector<Door> doors(processes.size(), Door::kSilent);
  std::vector<Call> calls;
  for (size_t process = 0; process < processes.size(); ++process) {
    for (const sockaddr_storage& address : processes[process]) calls.emplace_back(process, &address);
  }
  for (;;) {
    const auto now = Clock::now();
    auto next = limit;
    std::vector<pollfd> sockets;
    std::vector<Call*> polled;
    for (Call& call : calls) {
      Door& door = doors[call.process];
      if (call.taken && now - call.when >= kStays && door == Door::kSilent) door = Door::kOpen;
      if (door == Door::kSilent && !call.over && !call.fd && now >= call.when && !Dial(&call)) door = Door::kClosed;
      if (door != Door::kSilent || call.over) continue;
      if (call.taken || !call.fd) next = std::min(next, call.fd ? call.when + kStays : call.when);
      if (!call.fd) continue;
      sockets.push_back({call.fd.get(), static_cast<short>(call.taken ? POLLIN : POLLOUT), 0});
      polled.push_back(&call);
    }
    if (now >= limit || (sockets.empty() && next == limit)) return doors;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now);
    if (poll(sockets.data(), sockets.size(), static_cast<int>(std::max<int64_t>(left.count(), 0))) <= 0) continue;
    for (size_t i = 0; i < sockets.size(); ++i) {
      if (sockets[i].revents != 0 && !Listen(polled[i])) doors[polled[i]->process] = Door::kClosed;
    }
  }
}

}  // namespace axccl::remote
