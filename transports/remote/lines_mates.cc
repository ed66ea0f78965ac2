// What processes of one machine tell each other of lines that others of them have.
#include <algorithm>
#include <cstring>
#include <utility>

#include "transports/remote/lines.h"

namespace axccl::remote {
namespace {

constexpr size_t kMostUnknown = 4096;

}  // namespace

Status Lines::AddMates(const std::vector<ProcessId>& mates) {
  return loop_->Run([&] {
    for (const ProcessId& mate : mates) mates_.Add(mate);
    next_mate_.Add(mates);
  });
}

// ---- losses ----

// What follows at once. The process may still be heard.
void Lines::Lose(const ProcessId& process) {
  {
    std::lock_guard lock(mutex_);
    if (!known_.contains(process) || !lost_.insert(process).second) return;
  }
  mates_.TellAll({Mates::Head::kLost, process});
  WatchAnother(process);
  // It may not have passed on which processes have ended here.
  if (const auto told = told_ended_.extract(process); !told.empty()) {
    for (const ProcessId& mate : told.mapped()) TellEnded(mate, machines_.at(process));
  }
  LoseRelay(process);
}

// What the process was to pass on may go to another one.
void Lines::LoseRelay(const ProcessId& process) {
  for (const User& user : users_) {
    if (user.relay_lost) user.relay_lost(process);
  }
  std::lock_guard lock(mutex_);
  std::erase_if(passing_, [&](const auto& entry) { return entry.first.first == process; });
}

// One that was lost is looked for only once it has been met again. Who is to call is called.
void Lines::LookFor(const ProcessId& process, std::chrono::milliseconds last_words) {
  const auto known = known_.find(process);
  if (known == known_.end()) {
    if (unknown_.size() < kMostUnknown) unknown_.insert(process);
    return;
  }
  if (!InUse()) return;
  const Key key{process, known->second.address.begin()->first, LineUse::kLife};
  if (IsLost(process) || Looks(key)) return;
  auto found = lines_.find(key);
  if (!HasLifeline(process) || (found != lines_.end() && found->second.IsExpected())) {
    if (const Status status = Call(key); !status.ok()) return End(process, std::string(status.message()));
    found = lines_.find(key);
  }
  if (found == lines_.end() || found->second.call == nullptr) return;
  Calling& call = *found->second.call;
  if (call.stage != Calling::kConnecting) return;
  call.looks = true;
  call.last_words = last_words;
  LookAgain(key, call.limit, 1);
}

// A packet may be lost, and the kernel sends the next one only after a second.
void Lines::LookAgain(const Key& key, service::Clock::time_point limit, int calls) {
  loop_->CallAt(service::Clock::now() + kLook, [this, key, limit, calls] {
    if (!Looks(key) || lines_[key].call->limit != limit) return;
    if (calls == kLooks)
      return End(key.process, "its machine, or the network to it, does not answer over " + names_[key.rail]);
    const Line& line = lines_[key];
    if (line.fd) loop_->Unwatch(line.fd.get());
    loop_->Cancel(std::exchange(line.call->timer, 0));
    if (const Status status = Dial(key); !status.ok()) return End(key.process, std::string(status.message()));
    LookAgain(key, limit, calls + 1);
  });
}

bool Lines::Looks(const Key& key) const {
  const auto found = lines_.find(key);
  return found != lines_.end() && found->second.call != nullptr && found->second.call->looks;
}

// So that this process hears of losses of the machine, and is watched from there, as long as there are others.
void Lines::WatchAnother(const ProcessId& lost) {
  if (!known_.contains(lost) || WatchesMachineOf(lost) || !InUse()) return;
  const auto other = std::find_if(known_.begin(), known_.end(), [&](const auto& known) {
    return machines_.at(known.first) == machines_.at(lost) && !IsLost(known.first);
  });
  if (other != known_.end()) LookFor(other->first, kLastWordsOfOthers);
}

void Lines::OnMateEnded(const ProcessId& mate) {
  std::set<uint64_t> machines;
  for (const auto& [key, line] : lines_) machines.insert(machines_.at(key.process));
  for (const uint64_t machine : machines) TellEnded(mate, machine);
}

// Two processes of the machine, because one may be stopped. If either is lost, others are told (Lose). Also if no rank
// here needs a process: others may.
void Lines::TellEnded(const ProcessId& mate, uint64_t machine) {
  std::set<ProcessId> told;
  for (const auto& [key, line] : lines_) {
    if (key.use == LineUse::kLife && told.size() < 2 && machines_.at(key.process) == machine && !IsLost(key.process))
      told.insert(key.process);
  }
  const auto id = std::as_bytes(std::span(mate));
  for (const ProcessId& process : told) {
    (void)Tell(process, {.kind = Notice::kEnded, .text = {id.begin(), id.end()}});
    std::set<ProcessId>& ended = told_ended_[process];
    ended.insert(mate);
    if (ended.size() > kMostUnknown) ended.erase(ended.begin());
  }
}

// Mates may know it if this process does not.
bool Lines::HearEnded(const Notice& notice) {
  ProcessId ended;
  if (notice.text.size() != sizeof ended) return false;
  std::memcpy(ended.data(), notice.text.data(), sizeof ended);
  if (IsLost(ended)) return true;
  mates_.TellAll({Mates::Head::kLost, ended});
  LookFor(ended);
  return true;
}

// ---- notices ----

bool Lines::Watches(const ProcessId& process) {
  std::lock_guard lock(mutex_);
  return !lost_.contains(process) && HasLifeline(process);
}

bool Lines::WatchesMachineOf(const ProcessId& process) {
  const uint64_t machine = machines_.at(process);
  return std::any_of(lines_.begin(), lines_.end(), [&](const auto& entry) {
    const ProcessId& other = entry.first.process;
    return entry.first.use == LineUse::kLife && machines_.at(other) == machine && !IsLost(other);
  });
}

// Who tells this process's mate of a loss has passed on before what came from the lost one.
bool Lines::TellSomehow(const ProcessId& process, const Notice& notice) {
  if (Tell(process, notice)) return true;
  std::vector<std::pair<ProcessId, uint32_t>> relays;
  {
    std::lock_guard lock(mutex_);
    std::vector<ProcessId> near;
    const auto machine = machines_.find(process);
    for (const auto& [key, line] : lines_) {
      if (key.use != LineUse::kLife || machine == machines_.end() || machines_.at(key.process) != machine->second)
        continue;
      if (near.empty() || near.back() != key.process) near.push_back(key.process);
    }
    for (const ProcessId& other : near) {
      if (const uint32_t number = TellByLocked(other, process, notice); number != 0) relays.emplace_back(other, number);
    }
  }
  if (relays.empty()) return CallAndTell(process, notice);
  const Status posted = loop_->Post([this, process, notice, relays] {
    loop_->CallAt(service::Clock::now() + kRelayPatience,
                  [this, process, notice, relays] { TellUnlessPassed(process, notice, relays); });
  });
  return posted.ok() || CallAndTell(process, notice);
}

// They may all be stopped, or have ended.
void Lines::TellUnlessPassed(const ProcessId& process, const Notice& notice,
                             const std::vector<std::pair<ProcessId, uint32_t>>& relays) {
  const auto has_passed = [&](const auto& relay) { return HasPassed(relay.first, process, relay.second); };
  if (std::none_of(relays.begin(), relays.end(), has_passed)) (void)CallAndTell(process, notice);
}

uint32_t Lines::TellBy(const ProcessId& relay, const ProcessId& to, const Notice& notice) {
  std::lock_guard lock(mutex_);
  return TellByLocked(relay, to, notice);
}

uint32_t Lines::TellByLocked(const ProcessId& relay, const ProcessId& to, const Notice& notice) {
  Notice pass{.kind = Notice::kPass, .text = PackNotice(notice)};
  const auto id = std::as_bytes(std::span(to));
  pass.text.insert(pass.text.begin(), id.begin(), id.end());
  if (lost_.contains(relay) || pass.text.size() > Notice::kMostText || !TellLocked(relay, pass)) return 0;
  return ++passing_[{relay, to}].told;
}

bool Lines::HasPassed(const ProcessId& relay, const ProcessId& to, uint32_t number) {
  std::lock_guard lock(mutex_);
  return HasPassedLocked(relay, to, number);
}

bool Lines::HasPassedLocked(const ProcessId& relay, const ProcessId& to, uint32_t number) const {
  const auto found = passing_.find({relay, to});
  return found != passing_.end() && found->second.passed >= number;
}

bool Lines::AwaitPassed(const ProcessId& relay, const ProcessId& to, uint32_t number,
                        service::Clock::time_point limit) {
  std::unique_lock lock(mutex_);
  const auto passed = [&] { return HasPassedLocked(relay, to, number); };
  changed_.wait_until(lock, limit, [&] { return passed() || !HasLifeline(relay); });
  return passed();
}

bool Lines::PassOn(const ProcessId& from, const Notice& notice) {
  ProcessId to;
  if (notice.text.size() < sizeof to) return false;
  std::memcpy(to.data(), notice.text.data(), sizeof to);
  TakenOn& taken = taken_on_[{from, to}];
  ++taken.count;
  taken.drops |= !mates_.Tell(to, {Mates::Head::kPassed, from}, std::span(notice.text).subspan(sizeof to));
  to_say_.insert({from, to});
  return true;
}

// Tells who was to be told something by this process what their receivers have taken.
void Lines::SayPassed() {
  std::map<ProcessId, Notice> said;
  std::erase_if(to_say_, [&](const Passage& passage) {
    const auto& [from, to] = passage;
    TakenOn& taken = taken_on_.at(passage);
    const auto waiting = static_cast<uint32_t>(mates_.Waiting(to, from));
    taken.drops |= mates_.Misses(to);
    const uint32_t count = taken.count - std::min(waiting, taken.count);
    if (taken.drops || count == taken.said) return taken.drops || waiting == 0;
    std::vector<std::byte>& text = said.try_emplace(from, Notice{.kind = Notice::kPassed}).first->second.text;
    if (text.size() + sizeof(to) + sizeof(count) > Notice::kMostText) return false;
    const auto id = std::as_bytes(std::span(to));
    const auto number = std::as_bytes(std::span(&count, 1));
    text.insert(text.end(), id.begin(), id.end());
    text.insert(text.end(), number.begin(), number.end());
    taken.said = count;
    return waiting == 0;
  });
  for (const auto& [from, notice] : said) (void)Tell(from, notice);
}

bool Lines::HearPassed(const ProcessId& from, const Notice& notice) {
  ProcessId to;
  uint32_t count = 0;
  if (notice.text.size() % (sizeof(to) + sizeof(count)) != 0) return false;
  {
    std::lock_guard lock(mutex_);
    for (const std::byte* at = notice.text.data(); at != notice.text.data() + notice.text.size();) {
      std::memcpy(to.data(), at, sizeof(to));
      std::memcpy(&count, at + sizeof(to), sizeof(count));
      at += sizeof(to) + sizeof(count);
      const auto found = passing_.find({from, to});
      if (found != passing_.end() && count <= found->second.told) found->second.passed = count;
    }
  }
  changed_.notify_all();
  return true;
}

void Lines::HearMate(const Mates::Head& head, std::span<const std::byte> bytes) {
  if (head.kind == Mates::Head::kLost) return LookFor(head.about);
  Notice notice;
  if (head.kind != Mates::Head::kPassed || !known_.contains(head.about) || !UnpackNotice(bytes, &notice)) return;
  const bool of_line =
      notice.kind == Notice::kPass || notice.kind == Notice::kPassed || notice.kind == Notice::kGivenUp;
  if (!of_line) (void)Take(head.about, notice);
}

}  // namespace axccl::remote
