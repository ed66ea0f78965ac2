#include "tests/net/stranger.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

namespace {

std::atomic<axccl::tests::Stranger*> g_stranger{nullptr};

int RealConnect(int fd, const sockaddr* address, socklen_t bytes) {
  return static_cast<int>(syscall(SYS_connect, fd, address, bytes));
}

}  // namespace

extern "C" [[gnu::visibility("default")]] int connect(int fd, const sockaddr* address, socklen_t bytes) {
  axccl::tests::Stranger* const stranger = g_stranger.load();
  if (stranger == nullptr || address->sa_family != AF_INET) return RealConnect(fd, address, bytes);
  sockaddr_in to;
  std::memcpy(&to, address, sizeof to);
  stranger->Redirect(fd, &to);
  return RealConnect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to);
}

namespace axccl::tests {
namespace {

constexpr uint64_t kLineMagic = 0x20656e696c6c7861ull;
constexpr size_t kHelloBytes = 80, kUseAt = 72;  // of a line's hello; that of a rank has as many bytes
constexpr int kCrowd = 400, kCutAtLeast = 100;   // more than any port keeps
constexpr size_t kSingle = 1500;                 // what is no longer is passed on byte by byte

void SendEachAtOnce(const service::Fd& fd) {
  const int on = 1;
  const timeval look{0, 100000};
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &look, sizeof look);
}

}  // namespace

Stranger::Stranger(const char* own) : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  own_.sin_family = AF_INET;
  inet_pton(AF_INET, own, &own_.sin_addr);
  auto* const at = reinterpret_cast<sockaddr*>(&own_);
  socklen_t bytes = sizeof own_;
  EXPECT_EQ(bind(listener_.get(), at, bytes), 0) << std::strerror(errno);
  EXPECT_EQ(listen(listener_.get(), 64), 0);
  EXPECT_EQ(getsockname(listener_.get(), at, &bytes), 0);
  thread_ = std::thread([this] { Main(); });
  g_stranger = this;
}

Stranger::~Stranger() {
  g_stranger = nullptr;
  over_ = true;
  thread_.join();
}

void Stranger::Begin(const Attack& attack) {
  std::lock_guard lock(mutex_);
  attack_ = attack;
  armed_ = attack.what == Attack::kFlip || attack.what == Attack::kCut;
  pieces_ = attack.what == Attack::kPieces;
  attacked_ = false;
  crowds_ = 0;
  for (auto& count : connections_) count = 0;
  for (auto& sides : passed_) sides[0] = sides[1] = 0;
}

void Stranger::HangUp() {
  hang_up_ = true;
  hang_up_.wait(true);
}

void Stranger::Redirect(int fd, sockaddr_in* to) {
  const uint32_t address = ntohl(to->sin_addr.s_addr);
  if (to->sin_addr.s_addr == own_.sin_addr.s_addr || address >> 24 == 127) return;
  sockaddr_in from = own_;
  from.sin_port = 0;
  socklen_t bytes = sizeof from;
  (void)bind(fd, reinterpret_cast<const sockaddr*>(&from), bytes);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&from), &bytes) != 0 || from.sin_port == 0) return;
  std::lock_guard lock(mutex_);
  destinations_[from.sin_port] = *to;
  *to = own_;
}

void Stranger::Main() {
  while (!over_) {
    if (hang_up_) {
      pairs_.clear();
      hang_up_ = false;
      hang_up_.notify_all();
    }
    std::vector<pollfd> fds{{listener_.get(), POLLIN, 0}};
    for (const Pair& pair : pairs_) {
      fds.push_back({pair.caller.fd.get(), POLLIN, 0});
      fds.push_back({pair.called.fd.get(), POLLIN, 0});
    }
    if (poll(fds.data(), fds.size(), 20) <= 0) continue;
    size_t i = 1;
    for (auto pair = pairs_.begin(); pair != pairs_.end(); i += 2) {
      if (fds[i].revents != 0) Pass(&*pair, true);
      if (fds[i + 1].revents != 0 && !pair->over) Pass(&*pair, false);
      pair = pair->over ? pairs_.erase(pair) : std::next(pair);
    }
    if (fds[0].revents != 0) Accept();
  }
}

void Stranger::Accept() {
  sockaddr_in from{}, to{};
  socklen_t bytes = sizeof from;
  Pair pair;
  pair.caller.fd = service::Fd(accept4(listener_.get(), reinterpret_cast<sockaddr*>(&from), &bytes, SOCK_CLOEXEC));
  {
    std::lock_guard lock(mutex_);
    to = destinations_[from.sin_port];
  }
  pair.called.fd = service::Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  SendEachAtOnce(pair.caller.fd);
  SendEachAtOnce(pair.called.fd);
  if (RealConnect(pair.called.fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0)
    pairs_.push_back(std::move(pair));
}

void Stranger::Pass(Pair* pair, bool of_caller) {
  Side& from = of_caller ? pair->caller : pair->called;
  const Side& to = of_caller ? pair->called : pair->caller;
  std::byte bytes[64 << 10];
  ssize_t got = recv(from.fd.get(), bytes, sizeof bytes, 0);
  if (got <= 0) {
    pair->over = true;
    return;
  }
  if (of_caller && !std::exchange(pair->known, true)) Look(pair, bytes, static_cast<size_t>(got));
  Attack attack;
  {
    std::lock_guard lock(mutex_);
    attack = attack_;
  }
  if (attack.what == Attack::kCrowd && pair->talk == attack.talk && of_caller && from.passed == kHelloBytes)
    Crowd(pair->called.fd);
  const int64_t at = attack.byte - from.passed;
  if (pair->attacked && of_caller == attack.of_caller && at >= 0 && at < got) {
    attacked_ = true;
    if (attack.what == Attack::kFlip) bytes[at] ^= static_cast<std::byte>(1u << attack.bit);
    if (attack.what == Attack::kCut) {
      got = at;
      pair->over = true;
    }
  }
  passed_[static_cast<size_t>(pair->talk)][of_caller] += got;
  if (!Forward(to.fd, bytes, static_cast<size_t>(got))) pair->over = true;
  from.passed += got;
}

// A connection begins with the whole hello of its caller.
void Stranger::Look(Pair* pair, const std::byte* bytes, size_t count) {
  uint64_t magic = 0;
  uint32_t use = 0;
  if (count >= kHelloBytes) {
    std::memcpy(&magic, bytes, sizeof magic);
    std::memcpy(&use, bytes + kUseAt, sizeof use);
  }
  if (magic == kLineMagic) pair->talk = use == 0 ? Talk::kLife : Talk::kData;
  ++connections_[static_cast<size_t>(pair->talk)];
  std::lock_guard lock(mutex_);
  if (armed_ && attack_.talk == pair->talk) {
    pair->attacked = true;
    armed_ = false;
  }
}

// Calls where `called` is connected to.
void Stranger::Crowd(const service::Fd& called) {
  sockaddr_in to{};
  socklen_t bytes = sizeof to;
  if (getpeername(called.get(), reinterpret_cast<sockaddr*>(&to), &bytes) != 0) return;  // it has been cut
  std::vector<service::Fd> crowd;
  for (int i = 0; i < kCrowd; ++i) {
    crowd.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (RealConnect(crowd.back().get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
      return;  // it has ended
  }
  for (int i = 0; i < kCutAtLeast; ++i) {
    char answer = 0;
    (void)!recv(crowd[static_cast<size_t>(i)].get(), &answer, 1, 0);
  }
  ++crowds_;
}

bool Stranger::Forward(const service::Fd& to, const std::byte* bytes, size_t count) {
  if (!pieces_) return SendAll(to, bytes, count);
  const bool single = count <= kSingle;
  for (size_t at = 0; at < count;) {
    const size_t some = single ? 1 : std::min<size_t>(count - at, 1 + random_.Below(3000));
    if (random_.OneIn(100)) usleep(static_cast<useconds_t>(random_.Below(3000)));
    if (!SendAll(to, bytes + at, some)) return false;
    at += some;
  }
  return true;
}

bool Stranger::SendAll(const service::Fd& to, const std::byte* bytes, size_t count) {
  while (count > 0) {
    const ssize_t sent = send(to.get(), bytes, count, MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN && !over_) continue;
    if (sent <= 0) return false;
    bytes += sent;
    count -= static_cast<size_t>(sent);
  }
  return true;
}

}  // namespace axccl::tests
