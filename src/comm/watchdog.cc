#include "src/comm/watchdog.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include "src/base/detached_thread.h"
#include "src/base/service.h"
#include "src/base/service_fd.h"
#include "src/comm/communicator.h"

namespace axccl::comm {
namespace {

constexpr std::chrono::milliseconds kInterval(10);

// The communicators that one thread looks at, round after round. Thread-safe.
class Rounds {
 public:
  using Look = void (Communicator::*)();
  explicit Rounds(Look look) : look_(look) {}

  // Returns true if nothing looks yet, and the caller has to see to it that something does.
  bool Add(Communicator* comm) {
    std::lock_guard lock(mutex_);
    comms_.push_back(comm);
    return !ended_ && !std::exchange(running_, true);
  }
  // Waits for the end of a look at it, and for no other.
  void Remove(Communicator* comm) {
    std::unique_lock lock(mutex_);
    std::erase(comms_, comm);
    changed_.wait(lock, [&] { return looked_at_ != comm; });
  }
  void CouldNotStart() {
    std::lock_guard lock(mutex_);
    running_ = false;
  }

  // Goes one round. Returns false if that was the last.
  bool Go() {
    std::unique_lock lock(mutex_);
    for (size_t i = 0; i < comms_.size() && !ended_; ++i) {
      looked_at_ = comms_[i];
      lock.unlock();
      (void)CatchAll("watching a communicator", [&] { return (looked_at_->*look_)(), Status(); }).ok();
      lock.lock();
      looked_at_ = nullptr;
      changed_.notify_all();
    }
    running_ = !comms_.empty() && !ended_;
    return running_;
  }
  // Goes rounds until the last.
  void GoOn() {
    while (Go()) {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kInterval, [this] { return ended_; });
    }
  }
  // There will be no further look. Waits for one under way, but not for long. Of a forked child's there is none, and
  // the lock may be held by a thread that it does not have.
  void End() {
    if (service::Forked()) return;
    constexpr std::chrono::seconds kPatience(1);
    std::unique_lock lock(mutex_);
    ended_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, kPatience, [this] { return looked_at_ == nullptr; });
  }

 private:
  const Look look_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Communicator*> comms_;
  Communicator* looked_at_ = nullptr;
  bool running_ = false;
  bool ended_ = false;
};

Rounds& OfMemory() {
  static Rounds* const rounds = new Rounds(&Communicator::LookForFailures);
  return *rounds;
}

Rounds& OfDrivers() {
  static Rounds* const rounds = new Rounds(&Communicator::AttendDevice);
  return *rounds;
}

void Tick(service::Loop* loop) {
  if (OfMemory().Go()) loop->CallAt(service::Clock::now() + kInterval, [loop] { Tick(loop); });
}

Status StartMemory() {
  return CatchAll("watching a communicator", [] {
    AXCCL_ASSIGN_OR_RETURN(service::Loop* const loop, service::Loop::Get());
    return loop->Run([loop] { Tick(loop); });
  });
}

// The driver has been started by now, so this is called at exit before what it has registered to end itself.
Status StartDrivers() {
  [[maybe_unused]] static const int registered = std::atexit([] { OfDrivers().End(); });
  return StartDetached("watching a device", [] { OfDrivers().GoOn(); });
}

Status Start(Rounds* rounds, Communicator* comm, Status (*start)()) {
  if (!rounds->Add(comm)) return Status();
  const Status started = start();
  if (!started.ok()) rounds->CouldNotStart();
  return started;
}

}  // namespace

Status Watch(Communicator* comm) {
  Status status = Start(&OfMemory(), comm, StartMemory);
  if (status.ok()) status = Start(&OfDrivers(), comm, StartDrivers);
  if (!status.ok()) Unwatch(comm);
  return status;
}

void Unwatch(Communicator* comm) {
  OfMemory().Remove(comm);
  OfDrivers().Remove(comm);
}

}  // namespace axccl::comm
