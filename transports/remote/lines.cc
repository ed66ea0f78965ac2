#include "transports/remote/lines.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "src/base/log.h"
#include "transports/remote/line_socket.h"

namespace axccl::remote {
namespace {

constexpr size_t kMostCallsOfAProcess = 2;  // over one rail: a lifeline and a data line
constexpr size_t kMostUnheard = 24u << 10;

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

  const Name* Named() const override { return guest_.answered() ? &guest_.from() : nullptr; }

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
  Status started;
  AXCCL_RETURN_IF_ERROR(loop_->Run([&] {
    started = mates_.Start(
        loop_, self, [this](const Mates::Head& head, std::span<const std::byte> bytes) { HearMate(head, bytes); });
    mates_.OnTaken([this] { SayPassed(); });
    if (started.ok()) started = next_mate_.Start(loop_, self, [this](const ProcessId& mate) { OnMateEnded(mate); });
  }));
  return started;
}

Status Lines::Listen(uint8_t rail) {
  AXCCL_ASSIGN_OR_RETURN(service::Fd listener, ListenAt(&addresses_[rail]));
  acceptors_.push_back(std::make_unique<service::Acceptor>(
      loop_, std::move(listener),
      [this, rail](service::Fd fd) { return std::make_unique<Stranger>(this, rail, std::move(fd)); },
      [] { return service::Acceptor::Places{.of_a_name = kMostCallsOfAProcess}; }));
  Status started;
  AXCCL_RETURN_IF_ERROR(loop_->Run([&] { started = acceptors_.back()->Start(); }));
  return started;
}

Status Lines::Meet(const Place& place, bool watch) {
  const Key key{place.process, place.rail, LineUse::kLife};
  Status status;
  AXCCL_RETURN_IF_ERROR(loop_->Run([&] {
    status = Know(place);
    if (!status.ok()) return;
    const bool held = lines_.find(key) != lines_.end();
    if (watch && !held && self_ < place.process) status = Call(key);
    if (watch && !held && place.process < self_) Expect(key);
    if (unknown_.erase(place.process) != 0) LookFor(place.process);
    if (!std::exchange(beating_, true)) loop_->CallAt(service::Clock::now() + kBeat, [this] { Beat(); });
  }));
  return status;
}

void Lines::AwaitLifelines(const ProcessId& process, service::Clock::time_point limit) {
  const auto stand = [&] {
    const Range lines = LinesTo(process);
    return std::all_of(lines.begin(), lines.end(),
                       [](const auto& entry) { return entry.first.use != LineUse::kLife || entry.second.stands; });
  };
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, limit, stand);
}

// The process may have called already.
Status Lines::Know(const Place& place) {
  auto found = known_.find(place.process);
  if (found != known_.end() && found->second.key != place.key)
    return MakeStatus(Code::kRemoteError, "a process on another machine announced two different keys");
  if (found == known_.end()) {
    AXCCL_ASSIGN_OR_RETURN(const LineKeys calls, identity_.KeysWith(place.key, true));
    AXCCL_ASSIGN_OR_RETURN(const LineKeys called, identity_.KeysWith(place.key, false));
    found = known_.emplace(place.process, Known{place.key, calls, called, {}}).first;
  }
  found->second.address[place.rail] = place.address;
  {
    std::lock_guard lock(mutex_);
    machines_[place.process] = place.machine;
    lost_.erase(place.process);
  }
  for (const auto& acceptor : acceptors_) acceptor->AskStrangers();
  return Status();
}

// What the process is told before it has called waits for that. If it does not in time, this one calls: it may have
// been stopped meanwhile.
void Lines::Expect(const Key& key) {
  const auto due = service::Clock::now() + kMeeting;
  {
    std::lock_guard lock(mutex_);
    lines_[key].due = due;
  }
  loop_->CallAt(due, [this, key, due] {
    const auto found = lines_.find(key);
    if (found == lines_.end() || found->second.due != due || !found->second.IsExpected()) return;
    if (const Status status = Call(key); !status.ok()) End(key.process, std::string(status.message()));
  });
}

const LineKeys* Lines::KeysOfCaller(const ProcessId& process) const {
  const auto found = known_.find(process);
  return found == known_.end() ? nullptr : &found->second.called;
}

bool Lines::CallForData(const ProcessId& process) {
  return PostAbout(process, [this, process] {
    for (const auto& [rail, address] : known_.at(process).address) {
      for (const LineUse use : {LineUse::kLife, LineUse::kData}) {
        const Key key{process, rail, use};
        if (lines_.find(key) != lines_.end()) continue;
        if (const Status status = Call(key); !status.ok()) return End(process, std::string(status.message()));
      }
    }
  });
}

bool Lines::PostAbout(const ProcessId& process, const std::function<void()>& task) {
  const Status posted = loop_->Post([this, process, task] {
    if (known_.contains(process) && !IsLost(process)) task();
  });
  if (!posted.ok()) AXCCL_WARN("%s", posted.message().data());
  return posted.ok();
}

bool Lines::HasLifeline(const ProcessId& process) {
  const Range lines = LinesTo(process);
  return std::any_of(lines.begin(), lines.end(), [](const auto& entry) { return entry.first.use == LineUse::kLife; });
}

// ---- lines that stand ----

// A caller that is refused, because its previous line is not known to have ended yet, or it is lost to this process,
// calls again.
void Lines::Adopt(const Key& key, service::Fd fd, const LineSession& session) {
  // The caller may know before this side that what was before is over.
  EndIfOver(key.process);
  if (IsLost(key.process)) return;
  {
    std::lock_guard lock(mutex_);
    Line& line = lines_[key];
    const bool both_call = line.call != nullptr;
    const bool own_counts = both_call && self_ < key.process && !line.call->looks;
    if (line.handed_over || (both_call ? own_counts : static_cast<bool>(line.fd))) return;
    if (both_call) DropCall(&line);
    line.fd = std::move(fd);
    line.session = session;
  }
  (void)send(lines_[key].fd.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);  // a failure is an event
  Stand(key);
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
  changed_.notify_all();
  (void)loop_->Watch(line.fd.get(), EPOLLIN | EPOLLRDHUP, [this, key](uint32_t events) { OnEvent(key, events); }).ok();
  WatchUnsent(key.process);
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
  for (auto& [key, line] : LinesTo(process)) {
    if (!line.stands || line.ending || line.watches_unsent != line.unsent.empty()) continue;
    line.watches_unsent = !line.unsent.empty();
    (void)loop_->Modify(line.fd.get(), EPOLLIN | EPOLLRDHUP | (line.watches_unsent ? uint32_t{EPOLLOUT} : 0)).ok();
  }
}

// Returns why the line has ended, if it has.
std::string Lines::Read(const Key& key, Line* line) {
  mates_.HearAll();  // what was passed on before the peer said something itself
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
    } else {
      std::lock_guard lock(mutex_);
      line->unheard = 0;
      line->unanswered += static_cast<size_t>(got);
      if (line->unanswered >= kMostUnheard / 4 && line->unsent.empty()) line->unsent.push_back(kBeatByte);
      Send(line);
    }
  }
  for (const Notice& notice : notices) {
    if (notice.kind == Notice::kGivenUp) line->given_up = true;
    if (!Take(key.process, notice)) why = "it sent what is no message";
  }
  SayPassed();
  return line->given_up && !why.empty() ? "it has given this process up" : why;
}

// Returns false if no process of this library has written it.
bool Lines::Take(const ProcessId& from, const Notice& notice) {
  switch (notice.kind) {
    case Notice::kMessage:
    case Notice::kState:
      return !take_message_ || take_message_(from, notice);
    case Notice::kPass:
      return PassOn(from, notice);
    case Notice::kEnded:
      return HearEnded(notice);
    case Notice::kPassed:
      return HearPassed(from, notice);
    default:
      if (hear_) hear_(from, notice);
      return true;
  }
}

// What comes after it does not overtake it, or has a turn.
bool Lines::CallAndTell(const ProcessId& process, const Notice& notice) {
  {
    std::lock_guard lock(mutex_);
    if (TellLocked(process, notice)) return CallExpected(process), true;
    if (lost_.contains(process)) return false;
    ++to_tell_;
  }
  const Status posted = loop_->Post([this, process, notice] { CallToTell(process, notice); });
  if (posted.ok()) return true;
  AXCCL_WARN("%s", posted.message().data());
  std::lock_guard lock(mutex_);
  --to_tell_;
  return false;
}

// A process that is to call may wait for what it was just told before it does.
void Lines::CallExpected(const ProcessId& process) {
  const auto is_expected = [](const auto& entry) {
    const auto& [key, line] = entry;
    return key.use == LineUse::kLife && line.IsExpected();
  };
  const Range lines = LinesTo(process);
  if (lost_.contains(process) || std::none_of(lines.begin(), lines.end(), is_expected)) return;
  (void)PostAbout(process, [this, process, is_expected] {
    std::vector<Key> expected;
    for (const auto& entry : LinesTo(process)) {
      if (is_expected(entry)) expected.push_back(entry.first);
    }
    for (const Key& key : expected) {
      if (const Status status = Call(key); !status.ok()) return End(process, std::string(status.message()));
    }
  });
}

void Lines::CallToTell(const ProcessId& process, const Notice& notice) {
  const Status told = CatchAll("telling another process", [&] {
    if (!known_.contains(process) || IsLost(process)) return Status();
    const Status called = HasLifeline(process) ? Status() : CallLifeline(process);
    if (!called.ok()) return End(process, std::string(called.message())), Status();
    (void)Tell(process, notice);
    return Status();
  });
  if (!told.ok()) AXCCL_WARN("%s", told.message().data());
  {
    std::lock_guard lock(mutex_);
    --to_tell_;
  }
  changed_.notify_all();
}

void Lines::AwaitTold(const ProcessId& process, service::Clock::time_point limit) {
  std::unique_lock lock(mutex_);
  const auto machine = machines_.find(process);
  if (machine == machines_.end()) return;
  const auto has_more = [&](const auto& entry) {
    const auto& [key, line] = entry;
    const bool counts = HasLifeline(process) ? key.process == process : machines_.at(key.process) == machine->second;
    const bool answers = line.stands || service::Clock::now() - kAnswer < line.greeted;
    return counts && answers && !line.ending && !line.cut && !(line.notices.empty() && line.unsent.empty());
  };
  const auto told = [&] { return to_tell_ == 0 && std::none_of(lines_.begin(), lines_.end(), has_more); };
  while (!told() && service::Clock::now() < limit)
    changed_.wait_until(lock, std::min(limit, service::Clock::now() + kAnswer / 10));
}

bool Lines::IsLost(const ProcessId& process) {
  std::lock_guard lock(mutex_);
  return lost_.contains(process);
}

// ---- what is sent ----

bool Lines::Tell(const ProcessId& process, const Notice& notice) {
  std::lock_guard lock(mutex_);
  return TellLocked(process, notice);
}

bool Lines::TellLocked(const ProcessId& process, const Notice& notice) {
  for (auto& [key, line] : LinesTo(process)) {
    if (key.use != LineUse::kLife) continue;
    line.notices.push_back(notice);
    Send(&line);
    if (line.stands && !line.unsent.empty() && !line.watches_unsent)
      (void)loop_->Post([this, process] { WatchUnsent(process); }).ok();
    return true;
  }
  return false;
}

// What the socket does not take follows once it does (WatchUnsent), or with the next beat.
void Lines::Send(Line* line) {
  if (!line->stands) return;
  auto next = line->notices.begin();
  for (; next != line->notices.end(); ++next) {
    if (line->unheard != 0 && line->unheard + next->text.size() > kMostUnheard) break;
    const size_t before = line->unsent.size();
    line->writer.Write(*next, &line->unsent);
    line->unheard += line->unsent.size() - before;
  }
  line->notices.erase(line->notices.begin(), next);
  if (line->unsent.empty() || !line->fd.IsOurs()) return;
  const ssize_t sent = send(line->fd.get(), line->unsent.data(), line->unsent.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent > 0) {
    line->unanswered = 0;
    line->unsent.erase(line->unsent.begin(), line->unsent.begin() + sent);
  }
  if (line->unsent.empty()) changed_.notify_all();
}

void Lines::EndSoon(const Key& key, const std::string& why) {
  Line& line = lines_[key];
  loop_->Unwatch(line.fd.get());
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(line.ending, true)) return;
  }
  changed_.notify_all();
  Lose(key.process);
  const int number = line.fd.get();
  auto words = line.call != nullptr ? line.call->last_words : kLastWords;
  for (const User& user : users_) {
    if (user.losing && user.losing(key.process)) words = std::max(words, kLastData);
  }
  // In the order in which they are seen: who leaves because of a loss is not to be taken for its cause.
  const auto now = service::Clock::now();
  last_end_ = std::max(now + words, std::min(last_end_, now + kLastData));
  loop_->CallAt(last_end_, [this, key, why, number] {
    const auto it = lines_.find(key);
    if (it != lines_.end() && it->second.ending && it->second.fd.get() == number) End(key.process, why);
  });
}

// Ends the lines of the other rails, too.
void Lines::End(const ProcessId& process, const std::string& why) {
  {
    std::lock_guard lock(mutex_);
    const Range ended = LinesTo(process);
    for (auto& [key, line] : ended) {
      if (line.fd) loop_->Unwatch(line.fd.get());
      if (line.call != nullptr) loop_->Cancel(line.call->timer);
    }
    lines_.erase(ended.begin(), ended.end());
  }
  const auto of_process = [&](const auto& passage) { return passage.first == process; };
  std::erase_if(to_say_, of_process);
  std::erase_if(taken_on_, [&](const auto& entry) { return of_process(entry.first); });
  Lose(process);
  for (const User& user : users_) user.lost(process, why);
  changed_.notify_all();
}

Status Lines::Settle(const ProcessId& process) {
  return loop_->Run([&] {
    EndIfOver(process);
    // One that is looked for is there, because it has told its address.
    for (auto& [key, line] : LinesTo(process))
      if (line.call != nullptr) line.call->looks = false;
  });
}

void Lines::EndIfOver(const ProcessId& process) {
  bool over = false;
  {
    std::lock_guard lock(mutex_);
    for (auto& [key, line] : LinesTo(process)) {
      over |= line.cut || line.ending || (line.fd && line.call == nullptr && HasEnded(line.fd.get()));
    }
  }
  if (over) End(process, kProcessEnded);
}

void Lines::Cut(const ProcessId& process) {
  std::lock_guard lock(mutex_);
  for (auto& [key, line] : LinesTo(process)) {
    if (!line.cut && line.stands) {
      line.notices.push_back({.kind = Notice::kGivenUp});
      Send(&line);
    }
    line.cut = true;
    line.fd.ShutDown();
  }
  changed_.notify_all();
}

bool Lines::HaveEnded(const ProcessId& process) {
  std::lock_guard lock(mutex_);
  for (auto& [key, line] : LinesTo(process)) {
    if (line.fd && line.call == nullptr && HasEnded(line.fd.get())) return true;
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
