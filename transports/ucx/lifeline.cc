#include "transports/ucx/lifeline.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "src/base/log.h"

namespace axccl::ucx {
namespace {

constexpr uint64_t kMagic = 0x656e696c6566696cull;  // "lifeline"
constexpr size_t kMostStrangers = 256;
constexpr int kSynTries = 3;               // 15 s
constexpr std::chrono::seconds kMeeting{20};

// The first bytes on a line, from who connects.
struct Hello {
  uint64_t magic;
  Lifelines::ProcessId from;
  std::array<uint8_t, 16> token;  // of who listens
};
static_assert(sizeof(Hello) == 40);

void SetInt(int fd, int option, int value) { (void)setsockopt(fd, IPPROTO_TCP, option, &value, sizeof(value)); }

// A byte that is lost is sent again every 200 ms, not after ever longer times: within kPatience often enough that a network
// that loses every tenth packet is no broken one.
void Tune(int fd) {
  SetInt(fd, TCP_NODELAY, 1);
  SetInt(fd, TCP_THIN_LINEAR_TIMEOUTS, 1);
  SetInt(fd, TCP_USER_TIMEOUT, static_cast<int>(Lifelines::kPatience.count()));
}

socklen_t BytesOf(const sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

Result<service::Fd> Listen(sockaddr_storage* local) {
  if (local->ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(local)->sin6_port = 0;
  } else {
    reinterpret_cast<sockaddr_in*>(local)->sin_port = 0;
  }
  service::Fd fd(socket(local->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  socklen_t bytes = BytesOf(*local);
  auto* const address = reinterpret_cast<sockaddr*>(local);
  if (!fd || bind(fd.get(), address, bytes) != 0 || listen(fd.get(), SOMAXCONN) != 0 ||
      getsockname(fd.get(), address, &bytes) != 0)
    return SystemError(errno, "listening for ranks of other machines");
  return fd;
}

std::string Reason(int error) {
  if (error == 0 || error == ECONNRESET || error == EPIPE) return "its process has ended, or has given this one up";
  if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH)
    return "its machine, or the network to it, has not answered for " + std::to_string(Lifelines::kPatience.count()) + " ms";
  return std::strerror(error);
}

}  // namespace

class Lifelines::Caller : public service::Guest {
 public:
  Caller(Lifelines* lines, service::Fd fd) : Guest(std::move(fd)), lines_(lines) {}

  Verdict OnEvent() override {
    const ssize_t got = recv(fd(), reinterpret_cast<char*>(&hello_) + have_, sizeof(hello_) - have_, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Verdict::kWait;
    if (got <= 0) return Verdict::kDrop;
    have_ += static_cast<size_t>(got);
    if (have_ < sizeof(hello_)) return Verdict::kWait;
    const bool meant = hello_.magic == kMagic && hello_.token == lines_->address_.token;
    return meant ? Verdict::kAdmit : Verdict::kDrop;
  }

  void Admitted(service::Fd fd) override { (void)lines_->Adopt(hello_.from, std::move(fd), true).ok(); }

 private:
  Lifelines* const lines_;
  Hello hello_{};
  size_t have_ = 0;
};

namespace {
std::atomic<Lifelines*> made{nullptr};
}

Lifelines* Lifelines::Made() { return made.load(std::memory_order_acquire); }

Result<Lifelines*> Lifelines::Get(const ProcessId& self, const sockaddr_storage& local, const Calls& calls) {
  static Lifelines* const lines = new Lifelines;
  static const Status* const status = new Status(lines->Start(self, local, calls));
  if (!status->ok()) return *status;
  made.store(lines, std::memory_order_release);
  return lines;
}

Status Lifelines::Start(const ProcessId& self, const sockaddr_storage& local, const Calls& calls) {
  AXCCL_ASSIGN_OR_RETURN(loop_, service::Loop::Get());
  self_ = self;
  calls_ = calls;
  address_.address = local;
  AXCCL_ASSIGN_OR_RETURN(service::Fd listener, Listen(&address_.address));
  if (getrandom(address_.token.data(), address_.token.size(), 0) != static_cast<ssize_t>(address_.token.size()))
    return SystemError(errno, "getrandom");
  acceptor_ = std::make_unique<service::Acceptor>(
      loop_, std::move(listener), [this](service::Fd fd) { return std::make_unique<Caller>(this, std::move(fd)); },
      [] { return kMostStrangers; });
  Status started;
  AXCCL_RETURN_IF_ERROR(loop_->Run([&] { started = acceptor_->Start(); }));
  return started;
}

Status Lifelines::Hold(const ProcessId& process, const LifelineAddress& address) {
  Status status;
  AXCCL_RETURN_IF_ERROR(loop_->Run([&] {
    const bool held = lines_.find(process) != lines_.end();
    if (!held && self_ < process) status = Connect(process, address);
    if (!held && process < self_) loop_->CallAt(service::Clock::now() + kMeeting, [this, process] {
      if (lines_.find(process) == lines_.end()) calls_.lost(process, "it has not called back");
    });
    if (!std::exchange(beating_, true)) loop_->CallAt(service::Clock::now() + kBeat, [this] { Beat(); });
  }));
  return status;
}

Status Lifelines::Connect(const ProcessId& process, const LifelineAddress& address) {
  service::Fd fd(socket(address.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return SystemError(errno, "watching over a process on another machine: socket");
  SetInt(fd.get(), TCP_NODELAY, 1);
  SetInt(fd.get(), TCP_SYNCNT, kSynTries);
  const auto* const to = reinterpret_cast<const sockaddr*>(&address.address);
  if (connect(fd.get(), to, BytesOf(address.address)) != 0 && errno != EINPROGRESS)
    return SystemError(errno, "watching over a process on another machine: connect");
  const int number = fd.get();
  AXCCL_RETURN_IF_ERROR(Adopt(process, std::move(fd), false));
  const Hello hello{kMagic, self_, address.token};
  // Once, as soon as there is a connection.
  return loop_->Watch(number, EPOLLOUT, [this, process, hello](uint32_t events) {
    if ((events & (EPOLLERR | EPOLLHUP)) != 0) return OnEvent(process, events);
    const Line& line = lines_[process];
    if (send(line.fd.get(), &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello)) return OnEvent(process, EPOLLHUP);
    OnConnected(process);
  });
}

// Takes the place of one that has ended, of which it is not known here yet.
Status Lifelines::Adopt(const ProcessId& process, service::Fd fd, bool connected) {
  {
    std::lock_guard lock(mutex_);
    Line& line = lines_[process];
    if (line.fd) loop_->Unwatch(line.fd.get());
    line = Line{};
    line.fd = std::move(fd);
  }
  if (connected) OnConnected(process);
  return Status();
}

void Lifelines::OnConnected(const ProcessId& process) {
  Line& line = lines_[process];
  line.connected = true;
  Tune(line.fd.get());
  loop_->Unwatch(line.fd.get());
  // What arrives is not worth waking up for.
  (void)loop_->Watch(line.fd.get(), EPOLLRDHUP, [this, process](uint32_t events) { OnEvent(process, events); }).ok();
}

void Lifelines::OnEvent(const ProcessId& process, uint32_t events) {
  Line& line = lines_[process];
  loop_->Unwatch(line.fd.get());
  int error = 0;
  socklen_t bytes = sizeof(error);
  (void)getsockopt(line.fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
  const std::string why = Reason(error);
  if (std::exchange(line.ending, true)) return;
  const int number = line.fd.get();
  loop_->CallAt(service::Clock::now() + kLastWords, [this, process, why, number] {
    const auto it = lines_.find(process);
    if (it != lines_.end() && it->second.ending && it->second.fd.get() == number) End(process, why);
  });
}

void Lifelines::End(const ProcessId& process, const std::string& why) {
  {
    std::lock_guard lock(mutex_);
    lines_.erase(process);
  }
  calls_.lost(process, why);
}

void Lifelines::Cut(const ProcessId& process) {
  std::lock_guard lock(mutex_);
  const auto it = lines_.find(process);
  if (it != lines_.end()) shutdown(it->second.fd.get(), SHUT_RDWR);
}

void Lifelines::Beat() {
  beating_ = calls_.in_use();
  if (!beating_) return;
  for (auto& [process, line] : lines_) {
    if (!line.connected || line.ending) continue;
    char heard[64];
    while (recv(line.fd.get(), heard, sizeof(heard), MSG_DONTWAIT) == sizeof(heard)) continue;
    (void)send(line.fd.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);  // a failure is an event
  }
  loop_->CallAt(service::Clock::now() + kBeat, [this] { Beat(); });
}

}  // namespace axccl::ucx
