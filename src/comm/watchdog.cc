#include "src/comm/watchdog.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <vector>

#include "src/base/log.h"
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
  for (Communicator* comm : watched.comms) (void)comm->AsyncError().ok();
  watched.ticking = !watched.comms.empty();
  if (watched.ticking) loop->CallAt(service::Clock::now() + kInterval, [loop] { Tick(loop); });
}

}  // namespace

void Watch(Communicator* comm) {
  Watched& watched = Process();
  {
    std::lock_guard lock(watched.mutex);
    watched.comms.push_back(comm);
    if (watched.ticking) return;
    watched.ticking = true;
  }
  auto loop = service::Loop::Get();
  if (loop.ok() && loop.value()->Run([&] { Tick(loop.value()); }).ok()) return;
  AXCCL_WARN("no service thread: a rank whose peer dies will wait until its communicator is aborted");
}

void Unwatch(Communicator* comm) {
  Watched& watched = Process();
  std::lock_guard lock(watched.mutex);
  watched.comms.erase(std::remove(watched.comms.begin(), watched.comms.end(), comm), watched.comms.end());
}

}  // namespace axccl::comm
