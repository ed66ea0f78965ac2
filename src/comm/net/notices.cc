#include "src/comm/net/notices.h"

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

struct Listeners {
  std::mutex mutex;
  std::multimap<uint64_t, NoticeListener*> by_comm;
  std::deque<remote::Notice> unheard;
};

Listeners& Process() {
  static Listeners* const listeners = new Listeners;
  return *listeners;
}

void Hear(const remote::Notice& notice) {
  if (notice.kind != remote::Notice::kRevoked) return;
  Listeners& listeners = Process();
  std::lock_guard lock(listeners.mutex);
  const auto [first, last] = listeners.by_comm.equal_range(notice.comm);
  for (auto it = first; it != last; ++it) it->second->OnRevoked(static_cast<int>(notice.rank));
  if (first != last) return;
  listeners.unheard.push_back(notice);
  if (listeners.unheard.size() > kMostUnheard) listeners.unheard.pop_front();
}

}  // namespace

void ListenForNotices(uint64_t comm, NoticeListener* listener) {
  Listeners& listeners = Process();
  {
    std::lock_guard lock(listeners.mutex);
    listeners.by_comm.emplace(comm, listener);
    for (const remote::Notice& notice : listeners.unheard) {
      if (notice.comm == comm) listener->OnRevoked(static_cast<int>(notice.rank));
    }
  }
  remote::Lines* const lines = remote::Lines::Made();
  if (lines == nullptr) return;
  if (const Status status = lines->HearNotices(Hear); !status.ok()) AXCCL_WARN("%s", status.message().data());
}

void StopListening(uint64_t comm, NoticeListener* listener) {
  Listeners& listeners = Process();
  std::lock_guard lock(listeners.mutex);
  const auto [first, last] = listeners.by_comm.equal_range(comm);
  for (auto it = first; it != last; ++it) {
    if (it->second != listener) continue;
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
