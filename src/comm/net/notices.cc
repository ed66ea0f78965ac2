#include "src/comm/net/notices.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>

#include "src/base/log.h"
#include "src/base/status.h"
#include "transports/remote/lines.h"

namespace axccl::comm {
namespace {

// A rank may revoke a communicator before another one has begun to listen.
constexpr size_t kMostUnheard = 256;

using ProcessId = remote::Lines::ProcessId;

struct Listener {
  const FarProcesses* far;
  NoticeListener* rank;
};
struct Heard {
  ProcessId from;
  remote::Notice notice;
};

struct Listeners {
  std::mutex mutex;
  std::multimap<uint64_t, Listener> by_comm;
  std::deque<Heard> unheard;
};

Listeners& Process() {
  static Listeners* const listeners = new Listeners;
  return *listeners;
}

// Only from a process that has ranks of the communicator.
void Pass(const Heard& heard, const Listener& to) {
  if (std::find(to.far->ids.begin(), to.far->ids.end(), heard.from) == to.far->ids.end()) return;
  to.rank->OnRevoked(static_cast<int>(heard.notice.rank));
}

void Hear(const ProcessId& from, const remote::Notice& notice) {
  if (notice.kind != remote::Notice::kRevoked) return;
  Listeners& listeners = Process();
  std::lock_guard lock(listeners.mutex);
  const auto [first, last] = listeners.by_comm.equal_range(notice.comm);
  for (auto it = first; it != last; ++it) Pass({from, notice}, it->second);
  if (first != last) return;
  listeners.unheard.push_back({from, notice});
  if (listeners.unheard.size() > kMostUnheard) listeners.unheard.pop_front();
}

}  // namespace

void ListenForNotices(const FarProcesses& far, NoticeListener* listener) {
  remote::Lines* const lines = remote::Lines::Made();
  if (lines == nullptr) return;
  static const Status* const heard = new Status(lines->HearNotices(Hear));  // once for the process
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
  for (const auto& id : to.ids) lines->Tell(id, {remote::Notice::kRevoked, static_cast<uint32_t>(rank), to.comm});
}

}  // namespace axccl::comm
