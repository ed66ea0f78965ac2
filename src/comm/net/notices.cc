#include "src/comm/net/notices.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>

#include "src/base/log.h"
#include "src/base/status.h"
#include "transports/remote/lines.h"

namespace axccl::comm {
namespace {

// A rank may revoke a communicator before another one has begun to listen.
constexpr size_t kMostUnheard = 256;
// A process that is stopped does not answer, but another one of its machine can.
constexpr std::chrono::milliseconds kNextIsAsked{250};
constexpr std::chrono::seconds kAnswerIsDue{3};

using ProcessId = remote::Lines::ProcessId;

struct Listener {
  const FarProcesses* far;
  NoticeListener* rank;
};
struct Heard {
  ProcessId from;
  remote::Notice notice;
};

// What a thread waits to learn.
struct Question {
  std::vector<ProcessId> asked;  // and has not answered
  std::optional<std::vector<std::byte>> answer = {};
};

struct Listeners {
  std::mutex mutex;
  std::multimap<uint64_t, Listener> by_comm;
  std::deque<Heard> unheard;
  std::map<uint32_t, Question*> questions;
  uint32_t last_question = 0;
  std::condition_variable answered;
};

Listeners& Process() {
  static Listeners* const listeners = new Listeners;
  return *listeners;
}

// Only a process that has ranks of the communicator is heard.
bool MayHear(const Listener& listener, const ProcessId& from) {
  return std::find(listener.far->ids.begin(), listener.far->ids.end(), from) != listener.far->ids.end();
}

void Pass(const Heard& heard, const Listener& to) {
  if (MayHear(to, heard.from)) to.rank->OnRevoked(static_cast<int>(heard.notice.rank));
}

// All with the mutex.

void Answer(Listeners* listeners, const ProcessId& from, const remote::Notice& question) {
  remote::Notice answer{remote::Notice::kShown, question.rank, question.comm, question.number};
  const auto [first, last] = listeners->by_comm.equal_range(question.comm);
  for (auto it = first; it != last && answer.text.empty(); ++it) {
    if (MayHear(it->second, from))
      answer.text = it->second.rank->OnAsked(static_cast<int>(question.rank), remote::Notice::kMostText);
  }
  remote::Lines::Made()->Tell(from, answer);
}

// One that was asked will not answer, or cannot tell.
void CrossOut(Listeners* listeners, Question* question, const ProcessId& process) {
  if (std::erase(question->asked, process) != 0) listeners->answered.notify_all();
}

void TakeAnswer(Listeners* listeners, const ProcessId& from, const remote::Notice& answer) {
  const auto found = listeners->questions.find(answer.number);
  if (found == listeners->questions.end()) return;
  Question& question = *found->second;
  const bool was_asked = std::find(question.asked.begin(), question.asked.end(), from) != question.asked.end();
  if (was_asked && !answer.text.empty()) question.answer = answer.text;
  CrossOut(listeners, &question, from);
}

void HearRevoked(Listeners* listeners, const ProcessId& from, const remote::Notice& notice) {
  const auto [first, last] = listeners->by_comm.equal_range(notice.comm);
  for (auto it = first; it != last; ++it) Pass({from, notice}, it->second);
  if (first != last) return;
  listeners->unheard.push_back({from, notice});
  if (listeners->unheard.size() > kMostUnheard) listeners->unheard.pop_front();
}

// Without it.

void Hear(const ProcessId& from, const remote::Notice& notice) {
  Listeners& listeners = Process();
  std::lock_guard lock(listeners.mutex);
  if (notice.kind == remote::Notice::kRevoked) HearRevoked(&listeners, from, notice);
  if (notice.kind == remote::Notice::kAsked) Answer(&listeners, from, notice);
  if (notice.kind == remote::Notice::kShown) TakeAnswer(&listeners, from, notice);
}

void Lose(const ProcessId& process) {
  Listeners& listeners = Process();
  std::lock_guard lock(listeners.mutex);
  for (const auto& [number, question] : listeners.questions) CrossOut(&listeners, question, process);
}

Status Begin(remote::Lines* lines) {
  AXCCL_RETURN_IF_ERROR(lines->Add(
      {.lost = [](const ProcessId& process, const std::string&) { Lose(process); }, .in_use = [] { return false; }}));
  return lines->HearNotices(Hear);
}

}  // namespace

void ListenForNotices(const FarProcesses& far, NoticeListener* listener) {
  remote::Lines* const lines = remote::Lines::Made();
  if (lines == nullptr) return;
  static const Status* const heard = new Status(Begin(lines));  // once for the process
  if (!heard->ok()) AXCCL_WARN("%s", heard->message().data());
  Listeners& listeners = Process();
  std::lock_guard lock(listeners.mutex);
  listeners.by_comm.emplace(far.comm, Listener{&far, listener});
  for (const Heard& early : listeners.unheard) {
    if (early.notice.comm == far.comm) Pass(early, {&far, listener});
  }
}

void StopListening(const FarProcesses& far, NoticeListener* listener) {
  Listeners& listeners = Process();
  std::lock_guard lock(listeners.mutex);
  const auto [first, last] = listeners.by_comm.equal_range(far.comm);
  for (auto it = first; it != last; ++it) {
    if (it->second.rank != listener) continue;
    listeners.by_comm.erase(it);
    return;
  }
}

void TellRevoked(const FarProcesses& to, int rank) {
  remote::Lines* const lines = remote::Lines::Made();
  if (lines == nullptr) return;
  for (const auto& id : to.ids)
    (void)lines->TellSomehow(id, {remote::Notice::kRevoked, static_cast<uint32_t>(rank), to.comm});
}

Result<std::vector<std::byte>> Ask(const FarProcesses& far, int rank, const NoticeListener* asker) {
  const auto own = static_cast<size_t>(far.of_rank[static_cast<size_t>(rank)]);
  std::deque<ProcessId> to_ask = {far.ids[own]};
  for (size_t i = 0; i < far.ids.size(); ++i) {
    if (i != own && far.machines[i] == far.machines[own]) to_ask.push_back(far.ids[i]);
  }
  remote::Lines* const lines = remote::Lines::Made();
  Listeners& listeners = Process();
  Question question;
  std::unique_lock lock(listeners.mutex);
  const uint32_t number = ++listeners.last_question;
  listeners.questions[number] = &question;
  const auto limit = std::chrono::steady_clock::now() + kAnswerIsDue;
  auto next = std::chrono::steady_clock::time_point();
  while (!question.answer.has_value() && !asker->stopped_asking_ && (!question.asked.empty() || !to_ask.empty())) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= limit) break;
    if (!to_ask.empty() && (now >= next || question.asked.empty())) {
      if (lines->CallAndTell(to_ask.front(), {remote::Notice::kAsked, static_cast<uint32_t>(rank), far.comm, number}))
        question.asked.push_back(to_ask.front());
      to_ask.pop_front();
      next = now + kNextIsAsked;
      continue;
    }
    listeners.answered.wait_until(lock, to_ask.empty() ? limit : std::min(next, limit));
  }
  listeners.questions.erase(number);
  if (question.answer.has_value()) return std::move(*question.answer);
  if (asker->stopped_asking_) return MakeStatus(Code::kInvalidUsage, "the communicator was aborted meanwhile");
  if (question.asked.empty())
    return MakeStatus(Code::kRemoteError,
                      "what rank %d is doing is not known here: no process of its machine is left that shares the "
                      "communicator with it",
                      rank);
  return MakeStatus(
      Code::kTimeout,
      "what rank %d is doing is not known here: its process, and others of its machine, have not answered "
      "for %lld s; are they stopped?",
      rank, static_cast<long long>(kAnswerIsDue.count()));
}

void StopAsking(NoticeListener* asker) {
  Listeners& listeners = Process();
  std::lock_guard lock(listeners.mutex);
  asker->stopped_asking_ = true;
  listeners.answered.notify_all();
}

}  // namespace axccl::comm
