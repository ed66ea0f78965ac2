#include "src/comm/watchdog.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>
#include <vector>

#include "src/base/service.h"
#include "src/comm/communicator.h"

namespace axccl::comm {
namespace {

constexpr std::chrono::milliseconds kInterval(10);

struct Watched {
  std::mutex mutex;
  std::vector<Communicator*> comms;
  bool ticking = false;
};

Watched& Process() {
  static Watched* const watched = new Watched;
  return *watched;
}

void Tick(service::Loop* loop) {
  Watched& watched = Process();
  std::lock_guard lock(watched.mutex);
  for (Communicator* comm : watched.comms) comm->LookForFailures();
  watched.ticking = !watched.comms.empty();
  if (watched.ticking) loop->CallAt(service::Clock::now() + kInterval, [loop] { Tick(loop); });
}

}  // namespace

Status Watch(Communicator* comm) {
  Watched& watched = Process();
  {
    std::lock_guard lock(watched.mutex);
    watched.comms.push_back(comm);
    if (std::exchange(watched.ticking, true)) return Status();
  }
  const Status started = CatchAll("watching a communicator", [] {
    AXCCL_ASSIGN_OR_RETURN(service::Loop* const loop, service::Loop::Get());
    return loop->Run([loop] { Tick(loop); });
  });
  if (started.ok()) return Status();
  std::lock_guard lock(watched.mutex);
  watched.ticking = false;
  return started;
}

void Unwatch(Communicator* comm) {
  Watched& watched = Process();
  std::lock_guard lock(watched.mutex);
  watched.comms.erase(std::remove(watched.comms.begin(), watched.comms.end(), comm), watched.comms.end());
}

}  // namespace axccl::comm
