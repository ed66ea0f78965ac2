// The UCX worker of this process: endpoints to other processes, what arrives for whom, and who sees to progress.
//
// One lock guards all of it and all calls into UCX. Threads that wait for messages poll (Progress); while none does, a
// thread of the library's sleeps on UCX's descriptor and does it, so that a message is taken in, and an answer given,
// though the process is elsewhere. It lives as long as the process.
//
// To have that thread told of the next message costs system calls, and waking it a core. So it is told where a waiting thread
// goes to sleep, or leaves something unsent behind. A thread that is done leaves it be: while operations keep coming, it only
// looks now and then (kDoze) whether they still do, and listens once they do not.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "src/base/service_fd.h"
#include "src/base/status.h"
#include "transports/ucx/library.h"
#include "transports/ucx/wire.h"

namespace axccl::ucx {

class Remote;

// Of a process that this one sends to. Stays until one of the two ends: closing it would cut off communicators that are
// being made meanwhile.
struct Endpoint {
  ucp_ep_h ep = nullptr;  // null once it failed
  std::array<uint8_t, 16> process{};
  std::vector<Remote*> users;
};

class Worker {
 public:
  using ProcessId = std::array<uint8_t, 16>;
  // Of a rank here and its peer: communicator, rank, peer.
  using Key = std::tuple<uint64_t, uint32_t, uint32_t>;

  // As SelfOptions has them; empty: all. The first call counts.
  static Result<Worker*> Get(const std::string& devices, const std::string& families = "");

  // What others need to send to this process.
  const std::vector<std::byte>& address() const { return address_; }

  void Progress();
  void BeginPolling();
  // `waiting`: the caller still waits for a message, and sleeps meanwhile.
  void EndPolling(bool waiting);
  // Gives up a process that cannot be reached any more.
  void Fail(const ProcessId& process, const std::string& why);
  // Whether any rank has a peer on another machine.
  bool in_use();

  // ---- for Remote, with the lock held ----
  std::mutex& mutex() { return mutex_; }
  const Library& ucx() const { return *ucx_; }
  ucp_worker_h handle() const { return worker_; }
  Result<std::shared_ptr<Endpoint>> Reach(const ProcessId& process, const void* address);
  void Register(const Key& key, Remote* remote);
  void Unregister(const Key& key, Remote* remote);
  void Drive();
  // Unless somebody polls: has the own thread take in the next message.
  void LeaveToThread();
  bool ending() const { return ending_; }
  // Data of one message at most, but for a stretch that must not be divided.
  size_t most_bytes() const { return most_bytes_; }
  // Messages that UCX has not done with yet.
  void AddUnsent(int messages) { unsent_.fetch_add(messages, std::memory_order_relaxed); }
  // Told at every message that says a flush is over, and at every failure.
  std::condition_variable& told() { return told_; }
  Status Error(ucs_status_t status, const char* what) const;

 private:
  Worker() = default;
  Status Start(const std::string& devices, const std::string& families);
  Status Configure(const std::string& devices, const std::string& families, ucp_config_t* config) const;
  Status CreateWorker();
  Status Watch();
  void Listen();
  [[noreturn]] void Main();
  void Abandon(Endpoint* endpoint, const std::string& why);
  void CloseFailed();
  Remote* Find(uint64_t comm, uint32_t to, uint32_t from) const;
  static void OnError(void* endpoint, ucp_ep_h ep, ucs_status_t status);
  static ucs_status_t OnMessage(void* worker, const void* header, size_t header_bytes, void* data, size_t bytes,
                                const ucp_am_recv_param_t* param);
  static ucs_status_t OnControl(void* worker, const void* header, size_t header_bytes, void* data, size_t bytes,
                                const ucp_am_recv_param_t* param);

  const Library* ucx_ = nullptr;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::vector<std::byte> address_;
  size_t most_bytes_ = 0;
  int event_fd_ = -1;  // UCX's
  service::Fd epoll_;

  std::mutex mutex_;
  std::condition_variable told_;
  std::map<ProcessId, std::shared_ptr<Endpoint>> endpoints_;
  std::map<Key, Remote*> remotes_;
  std::vector<ucp_ep_h> failed_;  // to be closed
  std::atomic<int> unsent_{0};
  bool ending_ = false;           // the process exits, and UCX is being taken down: it is called no more
  // Threads that poll, and how many began to. They do not take the lock for that: whoever has just been woken would find it
  // held by the one who woke it.
  std::atomic<int> polling_{0};
  std::atomic<uint32_t> uses_{0};
  bool listening_ = false;        // the own thread is told of the next event; else it dozes
};

}  // namespace axccl::ucx
