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
  Lifelines::Token token;  // of who listens
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

Result<service::Fd> ListenAt(sockaddr_storage* local) {
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

std::string Reason(int error, const std::string& rail) {
  if (error == 0 || error == ECONNRESET || error == EPIPE) return "its process has ended, or has given this one up";
  if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH)
    return "its machine, or the network to it, has not answered for " + std::to_string(Lifelines::kPatience.count()) +
           " ms over " + rail;
  return std::strerror(error);
}

}  // namespace

class Lifelines::Caller : public service::Guest {
 public:
  Caller(Lifelines* lines, uint8_t rail, service::Fd fd) : Guest(std::move(fd)), lines_(lines), rail_(rail) {}

  Verdict OnEvent() override {
    const ssize_t got = recv(fd(), reinterpret_cast<char*>(&hello_) + have_, sizeof(hello_) - have_, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Verdict::kWait;
    if (got <= 0) return Verdict::kDrop;
    have_ += static_cast<size_t>(got);
    if (have_ < sizeof(hello_)) return Verdict::kWait;
    const bool meant = hello_.magic == kMagic && hello_.token == lines_->token_;
    return meant ? Verdict::kAdmit : Verdict::kDrop;
  }

  void Admitted(service::Fd fd) override { (void)lines_->Adopt({hello_.from, rail_}, std::move(fd), true).ok(); }

 private:
  Lifelines* const lines_;
  const uint8_t rail_;
  Hello hello_{};
  size_t have_ = 0;
};

namespace {
std::atomic<Lifelines*> made{nullptr};
}

Lifelines* Lifelines::Made() { return made.load(std::memory_order_acquire); }

Result<Lifelines*> Lifelines::Get(const ProcessId& self, const std::vector<sockaddr_storage>& local, const Calls& calls) {
  static Lifelines* const lines = new Lifelines;
  static const Status* const status = new Status(lines->Start(self, local, calls));
  if (!status->ok()) return *status;
  made.store(lines, std::memory_order_release);
  return lines;
}

Status Lifelines::Start(const ProcessId& self, const std::vector<sockaddr_storage>& local, const Calls& calls) {
  AXCCL_ASSIGN_OR_RETURN(loop_, service::Loop::Get());
  self_ = self;
  calls_ = calls;
  addresses_ = local;
  if (getrandom(token_.data(), token_.size(), 0) != static_cast<ssize_t>(token_.size()))
    return SystemError(errno, "getrandom");
  for (size_t rail = 0; rail < local.size(); ++rail) AXCCL_RETURN_IF_ERROR(Listen(static_cast<uint8_t>(rail)));
  return Status();
}

Status Lifelines::Listen(uint8_t rail) {
  AXCCL_ASSIGN_OR_RETURN(service::Fd listener, ListenAt(&addresses_[rail]));
  acceptors_.push_back(std::make_unique<service::Acceptor>(
      loop_, std::move(listener), [this, rail](service::Fd fd) { return std::make_unique<Caller>(this, rail, std::move(fd)); },
      [] { return kMostStrangers; }));
  Status started;
  AXCCL_RETURN_IF_ERROR(loop_->Run([&] { started = acceptors_.back()->Start(); }));
  return started;
}

Status Lifelines::Hold(const Key& key, const sockaddr_storage& address, const Token& token) {
  Status status;
  AXCCL_RETURN_IF_ERROR(loop_->Run([&] {
    const bool held = lines_.find(key) != lines_.end();
    if (!held && self_ < key.process) status = Connect(key, address, token);
    if (!held && key.process < self_) loop_->CallAt(service::Clock::now() + kMeeting, [this, key] {
      if (lines_.find(key) == lines_.end()) End(key.process, "it has not called back");
    });
    if (!std::exchange(beating_, true)) loop_->CallAt(service::Clock::now() + kBeat, [this] { Beat(); });
  }));
  return status;
}

Status Lifelines::Connect(const Key& key, const sockaddr_storage& address, const Token& token) {
  service::Fd fd(socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return SystemError(errno, "watching over a process on another machine: socket");
  SetInt(fd.get(), TCP_NODELAY, 1);
  SetInt(fd.get(), TCP_SYNCNT, kSynTries);
  const auto* const to = reinterpret_cast<const sockaddr*>(&address);
  if (connect(fd.get(), to, BytesOf(address)) != 0 && errno != EINPROGRESS)
    return SystemError(errno, "watching over a process on another machine: connect");
  const int number = fd.get();
  AXCCL_RETURN_IF_ERROR(Adopt(key, std::move(fd), false));
  const Hello hello{kMagic, self_, token};
  // Once, as soon as there is a connection.
  return loop_->Watch(number, EPOLLOUT, [this, key, hello](uint32_t events) {
    if ((events & (EPOLLERR | EPOLLHUP)) != 0) return OnEvent(key, events);
    const Line& line = lines_[key];
    if (send(line.fd.get(), &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello)) return OnEvent(key, EPOLLHUP);
    OnConnected(key);
  });
}

// Takes the place of one that has ended, of which it is not known here yet.
Status Lifelines::Adopt(const Key& key, service::Fd fd, bool connected) {
  {
    std::lock_guard lock(mutex_);
    Line& line = lines_[key];
    if (line.fd) loop_->Unwatch(line.fd.get());
    line = Line{};
    line.fd = std::move(fd);
  }
  if (connected) OnConnected(key);
  return Status();
}

void Lifelines::OnConnected(const Key& key) {
  Line& line = lines_[key];
  line.connected = true;
  Tune(line.fd.get());
  loop_->Unwatch(line.fd.get());
  // What arrives is not worth waking up for.
  (void)loop_->Watch(line.fd.get(), EPOLLRDHUP, [this, key](uint32_t events) { OnEvent(key, events); }).ok();
}

void Lifelines::OnEvent(const Key& key, uint32_t events) {
  Line& line = lines_[key];
  loop_->Unwatch(line.fd.get());
  int error = 0;
  socklen_t bytes = sizeof(error);
  (void)getsockopt(line.fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
  const std::string why = Reason(error, calls_.name(key.rail));
  if (std::exchange(line.ending, true)) return;
  const int number = line.fd.get();
  loop_->CallAt(service::Clock::now() + kLastWords, [this, key, why, number] {
    const auto it = lines_.find(key);
    if (it != lines_.end() && it->second.ending && it->second.fd.get() == number) End(key.process, why);
  });
}

// The lines of other rails go, too.
void Lifelines::End(const ProcessId& process, const std::string& why) {
  {
    std::lock_guard lock(mutex_);
    for (auto it = lines_.lower_bound({process, 0}); it != lines_.end() && it->first.process == process;) {
      loop_->Unwatch(it->second.fd.get());
      it = lines_.erase(it);
    }
  }
  calls_.lost(process, why);
}

void Lifelines::Cut(const ProcessId& process) {
  std::lock_guard lock(mutex_);
  for (auto it = lines_.lower_bound({process, 0}); it != lines_.end() && it->first.process == process; ++it)
    shutdown(it->second.fd.get(), SHUT_RDWR);
}

void Lifelines::Beat() {
  beating_ = calls_.in_use();
  if (!beating_) return;
  for (auto& [key, line] : lines_) {
    if (!line.connected || line.ending) continue;
    char heard[64];
    while (recv(line.fd.get(), heard, sizeof(heard), MSG_DONTWAIT) == sizeof(heard)) continue;
    (void)send(line.fd.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);  // a failure is an event
  }
  loop_->CallAt(service::Clock::now() + kBeat, [this] { Beat(); });
}

}  // namespace axccl::ucx
