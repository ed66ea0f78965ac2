#include "transports/remote/lines.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "src/base/log.h"
#include "src/base/param.h"

namespace axccl::remote {
namespace {

constexpr size_t kMostStrangers = 256;
constexpr int kSynTries = 3;  // 15 s
constexpr std::chrono::seconds kMeeting{20};
constexpr std::chrono::milliseconds kAgain{50};

void SetInt(int fd, int option, int value) { (void)setsockopt(fd, IPPROTO_TCP, option, &value, sizeof(value)); }

// Retransmits a lost byte every 200 ms, not after growing delays. That is often enough within kPatience that a network
// which loses every tenth packet does not count as broken.
void Tune(int fd) {
  SetInt(fd, TCP_NODELAY, 1);
  SetInt(fd, TCP_THIN_LINEAR_TIMEOUTS, 1);
  SetInt(fd, TCP_USER_TIMEOUT, static_cast<int>(Lines::kPatience.count()));
}

// While nothing is sent, because an answer is missing, the kernel probes whether the machine is there.
void AskWhileIdle(int fd) {
  const int on = 1;
  (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  SetInt(fd, TCP_KEEPIDLE, 1);
  SetInt(fd, TCP_KEEPINTVL, 1);
}

// Unanswered data are the lifeline's business.
void TuneForData(int fd) {
  const int off = 0;
  SetInt(fd, TCP_NODELAY, 1);
  SetInt(fd, TCP_THIN_LINEAR_TIMEOUTS, 0);
  SetInt(fd, TCP_USER_TIMEOUT, 0);
  (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &off, sizeof off);
  const auto poll = static_cast<int>(param::GetInt("AXCCL_BUSY_POLL"));
  if (poll <= 0 || setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL, &poll, sizeof poll) == 0) return;
  AXCCL_INFO(kNet, "AXCCL_BUSY_POLL=%d: SO_BUSY_POLL: %s; threads look for so long, without the driver's help", poll,
             std::strerror(errno));
}

bool HasEnded(int fd) {
  pollfd socket{fd, POLLRDHUP, 0};
  return poll(&socket, 1, 0) > 0;
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
  if (error == 0) return "its process has ended";
  if (error == ECONNRESET || error == EPIPE) return kProcessEnded;
  if (error == ECONNREFUSED) return "its process has ended: nothing listens at its address";
  if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH)
    return "its machine, or the network to it, has not answered for " + std::to_string(Lines::kPatience.count()) +
           " ms over " + rail;
  return std::strerror(error);
}

}  // namespace

// A process that has called, until it has proved its identity.
class Lines::Stranger : public service::Guest {
 public:
  Stranger(Lines* lines, uint8_t rail, service::Fd fd)
      : Guest(std::move(fd)),
        lines_(lines),
        rail_(rail),
        guest_(lines->self_, [lines](const ProcessId& process) { return lines->KeysOfCaller(process); }) {}

  Verdict OnEvent() override {
    for (;;) {
      const std::span<std::byte> room = guest_.room();
      char more;
      // A process that is not known yet cannot send anything until it is.
      const ssize_t got = room.empty() ? recv(fd(), &more, 1, MSG_PEEK) : recv(fd(), room.data(), room.size(), 0);
      const bool nothing = got < 0 && (errno == EAGAIN || errno == EINTR);
      if (nothing && !room.empty()) return Verdict::kWait;
      if (room.empty() != nothing || got == 0 || (got < 0 && !nothing)) return Verdict::kDrop;
      switch (nothing ? guest_.Look() : guest_.Took(static_cast<size_t>(got))) {
        case LineGuest::Verdict::kMore:
          continue;
        case LineGuest::Verdict::kUnknown:
          return Verdict::kWait;
        case LineGuest::Verdict::kAnswer:
          if (send(fd(), &guest_.answer(), sizeof(LineAnswer), MSG_NOSIGNAL) != sizeof(LineAnswer))
            return Verdict::kDrop;
          continue;
        case LineGuest::Verdict::kProved:
          return guest_.hello().use == LineUse::kData && !lines_->take_data_ ? Verdict::kDrop : Verdict::kAdmit;
        case LineGuest::Verdict::kDrop:
          return Verdict::kDrop;
      }
    }
  }

  void Admitted(service::Fd fd) override {
    const LineHello& hello = guest_.hello();
    const LineSession session = lines_->KeysOfCaller(hello.from)->Session(hello, guest_.answer().nonce, false);
    lines_->Adopt({hello.from, rail_, hello.use}, std::move(fd), session);
  }

 private:
  Lines* const lines_;
  const uint8_t rail_;
  LineGuest guest_;
};

namespace {
std::atomic<Lines*> made{nullptr};
}

Lines* Lines::Made() { return made.load(std::memory_order_acquire); }

Result<Lines*> Lines::Get(const ProcessId& self, const std::vector<sockaddr_storage>& local,
                          const std::vector<std::string>& names) {
  static Lines* const lines = new Lines;
  static const Status* const status = new Status(lines->Start(self, local, names));
  if (!status->ok()) return *status;
  made.store(lines, std::memory_order_release);
  return lines;
}

Status Lines::Add(const User& user) {
  return loop_->Run([&] { users_.push_back(user); });
}

Status Lines::TakeDataLines(const TakeData& take) {
  return loop_->Run([&] { take_data_ = take; });
}

Status Lines::TakeMessages(const TakeMessage& take) {
  return loop_->Run([&] { take_message_ = take; });
}

Status Lines::HearNotices(const Hear& hear) {
  return loop_->Run([&] { hear_ = hear; });
}

Status Lines::Start(const ProcessId& self, const std::vector<sockaddr_storage>& local,
                    const std::vector<std::string>& names) {
  AXCCL_ASSIGN_OR_RETURN(loop_, service::Loop::Get());
  self_ = self;
  names_ = names;
  addresses_ = local;
  AXCCL_ASSIGN_OR_RETURN(identity_, LineIdentity::Make());
  for (size_t rail = 0; rail < local.size(); ++rail) AXCCL_RETURN_IF_ERROR(Listen(static_cast<uint8_t>(rail)));
  return Status();
}

Status Lines::Listen(uint8_t rail) {
  AXCCL_ASSIGN_OR_RETURN(service::Fd listener, ListenAt(&addresses_[rail]));
  acceptors_.push_back(std::make_unique<service::Acceptor>(
      loop_, std::move(listener),
      [this, rail](service::Fd fd) { return std::make_unique<Stranger>(this, rail, std::move(fd)); },
      [] { return kMostStrangers; }));
  Status started;
  AXCCL_RETURN_IF_ERROR(loop_->Run([&] { started = acceptors_.back()->Start(); }));
  return started;
}

Status Lines::Hold(const ProcessId& process, uint8_t rail, const sockaddr_storage& address, const LineKey& peer) {
  const Key key{process, rail, LineUse::kLife};
  Status status;
  AXCCL_RETURN_IF_ERROR(loop_->Run([&] {
    status = Know(process, rail, address, peer);
    if (!status.ok()) return;
    const bool held = lines_.find(key) != lines_.end();
    if (!held && self_ < process) status = Call(key);
    if (!held && process < self_) Expect(key);
    if (!std::exchange(beating_, true)) loop_->CallAt(service::Clock::now() + kBeat, [this] { Beat(); });
  }));
  return status;
}

// The process may have called already.
Status Lines::Know(const ProcessId& process, uint8_t rail, const sockaddr_storage& address, const LineKey& peer) {
  auto found = known_.find(process);
  if (found != known_.end() && found->second.key != peer)
    return MakeStatus(Code::kRemoteError, "a process on another machine announced two different keys");
  if (found == known_.end()) {
    AXCCL_ASSIGN_OR_RETURN(const LineKeys calls, identity_.KeysWith(peer, true));
    AXCCL_ASSIGN_OR_RETURN(const LineKeys called, identity_.KeysWith(peer, false));
    found = known_.emplace(process, Known{peer, calls, called, {}}).first;
  }
  found->second.address[rail] = address;
  for (const auto& acceptor : acceptors_) acceptor->AskGuests();
  return Status();
}

// What the process is told before it has called waits for that.
void Lines::Expect(const Key& key) {
  const auto due = service::Clock::now() + kMeeting;
  {
    std::lock_guard lock(mutex_);
    lines_[key].due = due;
  }
  loop_->CallAt(due, [this, key, due] {
    const auto found = lines_.find(key);
    if (found != lines_.end() && found->second.due == due && !found->second.stands)
      End(key.process, "it has not called back");
  });
}

const LineKeys* Lines::KeysOfCaller(const ProcessId& process) const {
  const auto found = known_.find(process);
  return found == known_.end() ? nullptr : &found->second.called;
}

void Lines::CallForData(const ProcessId& process) {
  const Status posted = loop_->Post([this, process] {
    for (const auto& [rail, address] : known_.at(process).address) {
      const Key key{process, rail, LineUse::kData};
      if (lines_.find(key) != lines_.end()) continue;
      if (const Status status = Call(key); !status.ok()) return End(process, std::string(status.message()));
    }
  });
  if (!posted.ok()) AXCCL_WARN("%s", posted.message().data());
}

// ---- calling ----

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

Status Lines::Dial(const Key& key) {
  Line& line = lines_[key];
  const sockaddr_storage& address = line.call->address;
  service::Fd fd(socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return service::OpenError(errno, "watching over a process on another machine: a socket");
  SetInt(fd.get(), TCP_NODELAY, 1);
  SetInt(fd.get(), TCP_SYNCNT, kSynTries);
  const auto* const to = reinterpret_cast<const sockaddr*>(&address);
  if (connect(fd.get(), to, BytesOf(address)) != 0 && errno != EINPROGRESS)
    return SystemError(errno, "watching over a process on another machine: connect");
  line.call->stage = Calling::kConnecting;
  line.call->have = 0;
  const int number = fd.get();
  {
    std::lock_guard lock(mutex_);
    line.fd = std::move(fd);
  }
  return loop_->Watch(number, EPOLLOUT, [this, key](uint32_t events) { OnCall(key, events); });
}

void Lines::OnCall(const Key& key, uint32_t events) {
  Line& line = lines_[key];
  Calling& call = *line.call;
  const int fd = line.fd.get();
  if (call.stage == Calling::kConnecting) {
    if ((events & (EPOLLERR | EPOLLHUP)) != 0) return OnNoAnswer(key);
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
  if (!SameProof(call.answer.proof, keys.CalledProof(call.hello, call.answer.nonce)))
    return EndSoon(key, "what answers where it listened is another process");
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
  if (cut || service::Clock::now() >= line.call->limit)
    return End(key.process, "it does not take the call of this one");
  line.call->timer = loop_->CallAt(service::Clock::now() + kAgain, [this, key] {
    lines_[key].call->timer = 0;
    if (const Status status = Dial(key); !status.ok()) End(key.process, std::string(status.message()));
  });
}

// ---- lines that stand ----

// A caller that is refused, because its previous line is not known to have ended yet, calls again.
void Lines::Adopt(const Key& key, service::Fd fd, const LineSession& session) {
  // The caller may know before this side that what was before is over.
  EndIfOver(key.process);
  {
    std::lock_guard lock(mutex_);
    Line& line = lines_[key];
    const bool both_call = line.call != nullptr;
    if (line.handed_over || (both_call ? self_ < key.process : static_cast<bool>(line.fd))) return;
    if (both_call) DropCall(&line);
    line.fd = std::move(fd);
    line.session = session;
  }
  (void)send(lines_[key].fd.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);  // a failure is an event
  Stand(key);
}

void Lines::DropCall(Line* line) {
  loop_->Cancel(line->call->timer);
  if (line->fd) loop_->Unwatch(line->fd.get());
  line->fd.Close();
  line->call = nullptr;
}

void Lines::Stand(const Key& key) {
  Line& line = lines_[key];
  {
    std::lock_guard lock(mutex_);
    line.call = nullptr;
  }
  loop_->Unwatch(line.fd.get());
  if (key.use == LineUse::kData) return HandOver(key);
  Tune(line.fd.get());
  {
    std::lock_guard lock(mutex_);
    line.reader = NoticeReader(line.session.receives);
    line.writer = NoticeWriter(line.session.sends);
    line.session = {};
    line.stands = true;
    Send(&line);
  }
  (void)loop_->Watch(line.fd.get(), EPOLLIN | EPOLLRDHUP, [this, key](uint32_t events) { OnEvent(key, events); }).ok();
}

void Lines::HandOver(const Key& key) {
  service::Fd fd;
  LineSession session;
  {
    std::lock_guard lock(mutex_);
    Line& line = lines_[key];
    line.handed_over = true;
    fd = std::move(line.fd);
    session = std::exchange(line.session, {});
  }
  TuneForData(fd.get());
  take_data_(key, std::move(fd), session);
}

void Lines::OnEvent(const Key& key, uint32_t events) {
  if ((events & EPOLLOUT) != 0) {
    std::lock_guard lock(mutex_);
    Send(&lines_[key]);
  }
  const std::string why = Read(key, &lines_[key]);
  WatchUnsent(key.process);
  if (!why.empty()) EndSoon(key, why);
}

// A long notice, such as the answer to one that has just come, does not fit into a socket's buffer.
void Lines::WatchUnsent(const ProcessId& process) {
  std::lock_guard lock(mutex_);
  for (auto it = lines_.lower_bound({process, 0}); it != lines_.end() && it->first.process == process; ++it) {
    Line& line = it->second;
    if (!line.stands || line.ending || line.watches_unsent != line.unsent.empty()) continue;
    line.watches_unsent = !line.unsent.empty();
    (void)loop_->Modify(line.fd.get(), EPOLLIN | EPOLLRDHUP | (line.watches_unsent ? uint32_t{EPOLLOUT} : 0)).ok();
  }
}

// Returns why the line has ended, if it has.
std::string Lines::Read(const Key& key, Line* line) {
  std::byte bytes[4096];
  std::string why;
  std::vector<Notice> notices;
  while (why.empty()) {
    const ssize_t got = recv(line->fd.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) {
      why = Reason(got == 0 ? 0 : errno, names_[key.rail]);
    } else if (!line->reader.Read({bytes, static_cast<size_t>(got)}, &notices)) {
      why = "what came over " + names_[key.rail] + " is not from it";
    }
  }
  for (const Notice& notice : notices) {
    if (notice.kind == Notice::kGivenUp) line->given_up = true;
    if (notice.kind == Notice::kMessage && take_message_ && !take_message_(key.process, notice.text))
      why = "it sent what is no message";
    if (notice.kind != Notice::kMessage && hear_) hear_(key.process, notice);
  }
  return line->given_up && !why.empty() ? "it has given this process up" : why;
}

bool Lines::Tell(const ProcessId& process, const Notice& notice) {
  std::lock_guard lock(mutex_);
  for (auto it = lines_.lower_bound({process, 0}); it != lines_.end() && it->first.process == process; ++it) {
    if (it->first.use != LineUse::kLife) continue;
    it->second.notices.push_back(notice);
    Send(&it->second);
    return true;
  }
  return false;
}

// What the socket does not take follows once it does (WatchUnsent), or with the next beat.
void Lines::Send(Line* line) {
  if (!line->stands) return;
  for (const Notice& notice : line->notices) line->writer.Write(notice, &line->unsent);
  line->notices.clear();
  if (line->unsent.empty() || !line->fd) return;
  const ssize_t sent = send(line->fd.get(), line->unsent.data(), line->unsent.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent > 0) line->unsent.erase(line->unsent.begin(), line->unsent.begin() + sent);
}

void Lines::EndSoon(const Key& key, const std::string& why) {
  Line& line = lines_[key];
  loop_->Unwatch(line.fd.get());
  if (std::exchange(line.ending, true)) return;
  const int number = line.fd.get();
  loop_->CallAt(service::Clock::now() + kLastWords, [this, key, why, number] {
    const auto it = lines_.find(key);
    if (it != lines_.end() && it->second.ending && it->second.fd.get() == number) End(key.process, why);
  });
}

// Ends the lines of the other rails, too.
void Lines::End(const ProcessId& process, const std::string& why) {
  {
    std::lock_guard lock(mutex_);
    for (auto it = lines_.lower_bound({process, 0}); it != lines_.end() && it->first.process == process;) {
      if (it->second.fd) loop_->Unwatch(it->second.fd.get());
      if (it->second.call != nullptr) loop_->Cancel(it->second.call->timer);
      it = lines_.erase(it);
    }
  }
  for (const User& user : users_) user.lost(process, why);
}

Status Lines::Settle(const ProcessId& process) {
  return loop_->Run([&] { EndIfOver(process); });
}

void Lines::EndIfOver(const ProcessId& process) {
  bool over = false;
  for (auto it = lines_.lower_bound({process, 0}); it != lines_.end() && it->first.process == process; ++it) {
    const Line& line = it->second;
    over |= line.cut || line.ending || (line.fd && line.call == nullptr && HasEnded(line.fd.get()));
  }
  if (over) End(process, kProcessEnded);
}

void Lines::Cut(const ProcessId& process) {
  std::lock_guard lock(mutex_);
  for (auto it = lines_.lower_bound({process, 0}); it != lines_.end() && it->first.process == process; ++it) {
    Line& line = it->second;
    if (!line.cut && line.stands) {
      line.notices.push_back({.kind = Notice::kGivenUp});
      Send(&line);
    }
    line.cut = true;
    if (line.fd) shutdown(line.fd.get(), SHUT_RDWR);
  }
}

bool Lines::HaveEnded(const ProcessId& process) {
  std::lock_guard lock(mutex_);
  for (auto it = lines_.lower_bound({process, 0}); it != lines_.end() && it->first.process == process; ++it) {
    if (it->second.fd && it->second.call == nullptr && HasEnded(it->second.fd.get())) return true;
  }
  return false;
}

bool Lines::InUse() const {
  return std::any_of(users_.begin(), users_.end(), [](const User& user) { return user.in_use(); });
}

void Lines::Beat() {
  beating_ = InUse();
  if (!beating_) return;
  for (auto& [key, line] : lines_) {
    if (line.call != nullptr || line.ending || line.handed_over) continue;
    std::lock_guard lock(mutex_);
    if (line.unsent.empty()) line.unsent.push_back(kBeatByte);
    Send(&line);  // a failure is an event
  }
  loop_->CallAt(service::Clock::now() + kBeat, [this] { Beat(); });
}

}  // namespace axccl::remote
