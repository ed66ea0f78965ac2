// Which thread receives what comes from other machines.
//
// Threads that wait for messages poll (Progress). While none does, a thread of the library sleeps on descriptors and
// makes progress, so that messages are received and answered although the process is elsewhere.
//
// To make that thread wait for the next message costs system calls, and waking it uses a core. So it does only when a
// waiting thread goes to sleep, or leaves something unsent behind. A thread that has finished does not do so: while
// operations keep coming, the library's thread only looks now and then (kDoze) whether they still do, and listens once
// they do not.
//
// One lock guards what is received. Lives as long as the process.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "src/base/service_fd.h"
#include "transports/transport.h"

namespace axccl::remote {

class Attendance : public transport::Inbox {
 public:
  void Progress() final;
  void BeginPolling() final;
  void EndPolling(bool waiting) final;

  std::mutex& mutex() { return mutex_; }
  // Unless a thread polls: makes the library's thread receive what comes.
  void ReceiveSoon();
  // What has not been sent yet: while there is any, the library's thread listens when no thread polls.
  void AddUnsent(int count) { unsent_.fetch_add(count, std::memory_order_relaxed); }

  // ---- with the lock ----
  // Receives what has come.
  virtual void Drive() = 0;
  // Unless a thread polls: makes the library's thread receive the next message.
  void LeaveToThread();

 protected:
  // The library's thread, of that name, which sleeps on the epoll descriptor. If the application closes that, the
  // thread receives nothing any more.
  [[noreturn]] void Main(const char* name, const service::Fd& epoll);

  // ---- with the lock ----
  bool polled() const { return polling_ != 0; }
  bool any_unsent() const { return unsent_.load(std::memory_order_relaxed) != 0; }
  void Listen() { listening_ = Watch(); }
  // Makes the descriptor show the next event, once. Returns false if that is not possible.
  virtual bool Watch() = 0;
  // What the library's thread does when it takes over.
  virtual void Attend() { Listen(); }
  // Whether there is something to do that no event shows.
  virtual bool pressing() const { return false; }

 private:
  std::mutex mutex_;
  bool listening_ = false;  // the library's thread waits for the next event; otherwise it dozes
  std::atomic<int> unsent_{0};
  // Threads that poll, and how many began to. They do not take the lock for that, because a thread that has just been
  // woken would find it held by the thread that woke it.
  std::atomic<int> polling_{0};
  std::atomic<uint32_t> uses_{0};
};

}  // namespace axccl::remote
