// Lines that this side calls for.
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "transports/remote/line_socket.h"
#include "transports/remote/lines.h"

namespace axccl::remote {
namespace {

constexpr std::chrono::milliseconds kAgain{50};  // at most
constexpr int kMostImpostors = 3;                // for one call

}  // namespace

Status Lines::Call(const Key& key) {
  auto call = std::make_unique<Calling>();
  call->address = known_.at(key.process).address.at(key.rail);
  call->limit = service::Clock::now() + kMeeting;
  {
    std::lock_guard lock(mutex_);
    lines_[key].call = std::move(call);
  }
  const Status status = Dial(key);
  if (!status.ok()) {
    std::lock_guard lock(mutex_);
    lines_.erase(key);
  }
  return status;
}

Status Lines::CallLifeline(const ProcessId& process) {
  return Call({process, known_.at(process).address.begin()->first, LineUse::kLife});
}

Status Lines::Dial(const Key& key) {
  Line& line = lines_[key];
  AXCCL_ASSIGN_OR_RETURN(service::Fd fd, BeginConnect(line.call->address));
  line.call->stage = Calling::kConnecting;
  line.call->have = 0;
  const int number = fd.get();
  {
    std::lock_guard lock(mutex_);
    line.fd = std::move(fd);
    line.greeted = service::Clock::time_point::max();
  }
  return loop_->Watch(number, EPOLLOUT, [this, key](uint32_t events) { OnCall(key, events); });
}

void Lines::OnCall(const Key& key, uint32_t events) {
  Line& line = lines_[key];
  Calling& call = *line.call;
  const int fd = line.fd.get();
  if (call.stage == Calling::kConnecting) {
    if ((events & (EPOLLERR | EPOLLHUP)) != 0) return OnNoAnswer(key);
    call.looks = false;
    if (!Greet(&line, key)) CallAgain(key);
    return;
  }
  char taken;
  const bool proved = call.stage == Calling::kProved;
  void* const to = proved ? static_cast<void*>(&taken) : reinterpret_cast<char*>(&call.answer) + call.have;
  const ssize_t got = recv(fd, to, proved ? 1 : sizeof(call.answer) - call.have, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got == 0 || (got < 0 && (errno == ECONNRESET || errno == EPIPE))) return CallAgain(key);
  if (got < 0) return EndSoon(key, Reason(errno, names_[key.rail]));
  if (proved) {
    line.session = known_.at(key.process).calls.Session(call.hello, call.answer.nonce, true);
    return Stand(key);
  }
  call.have += static_cast<size_t>(got);
  if (call.have < sizeof(call.answer)) return;
  const LineKeys& keys = known_.at(key.process).calls;
  if (!SameProof(call.answer.proof, keys.CalledProof(call.hello, call.answer.nonce))) {
    if (++call.impostors < kMostImpostors) return CallAgain(key);  // or the answer was changed on its way
    return EndSoon(key, "what answers where it listened is another process");
  }
  const LineProof proof = keys.CallerProof(call.hello, call.answer.nonce);
  call.stage = Calling::kProved;
  if (send(fd, &proof, sizeof(proof), MSG_NOSIGNAL) != sizeof(proof)) CallAgain(key);
}

// The kernel calls a host unreachable after three lost packets of ARP, or because a switch does not know it yet.
void Lines::OnNoAnswer(const Key& key) {
  const Line& line = lines_[key];
  int error = 0;
  socklen_t bytes = sizeof(error);
  (void)getsockopt(line.fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
  if (error == EHOSTUNREACH && service::Clock::now() < line.call->limit) return CallAgain(key);
  EndSoon(key, Reason(error, names_[key.rail]));
}

bool Lines::Greet(Line* line, const Key& key) {
  Calling& call = *line->call;
  const int fd = line->fd.get();
  Tune(fd);
  AskWhileIdle(fd);
  {
    std::lock_guard lock(mutex_);
    line->greeted = service::Clock::now();
  }
  call.hello = LineHello{.from = self_, .to = key.process, .nonce = FreshNonce(), .use = key.use};
  call.stage = Calling::kGreeted;
  return send(fd, &call.hello, sizeof(call.hello), MSG_NOSIGNAL) == sizeof(call.hello) &&
         loop_->Modify(fd, EPOLLIN).ok();
}

void Lines::CallAgain(const Key& key) {
  Line& line = lines_[key];
  loop_->Unwatch(line.fd.get());
  bool cut = false;
  {
    std::lock_guard lock(mutex_);
    line.fd.Close();
    cut = line.cut;
  }
  // A process that was stopped may have called meanwhile, and refuse this call: the time does not count.
  const bool silent = line.call->stage != Calling::kConnecting && service::Clock::now() - line.greeted > kMeeting / 2;
  if (silent) line.call->limit = std::max(line.call->limit, service::Clock::now() + kMeeting);
  if (cut || service::Clock::now() >= line.call->limit)
    return End(key.process, "it does not take the call of this one");
  const auto delay = std::exchange(line.call->again, std::min(2 * line.call->again, kAgain));
  line.call->timer = loop_->CallAt(service::Clock::now() + delay, [this, key] {
    lines_[key].call->timer = 0;
    bool cut = false;
    {
      std::lock_guard lock(mutex_);
      cut = lines_[key].cut;
    }
    if (cut) return End(key.process, kProcessEnded);
    if (const Status status = Dial(key); !status.ok()) End(key.process, std::string(status.message()));
  });
}

void Lines::DropCall(Line* line) {
  loop_->Cancel(line->call->timer);
  if (line->fd) loop_->Unwatch(line->fd.get());
  line->fd.Close();
  line->call = nullptr;
}

}  // namespace axccl::remote
