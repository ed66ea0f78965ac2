// The UCX state of this process: its rails, the endpoints to other processes (endpoints.h), the receivers of messages,
// and the thread that makes progress.
//
// One lock guards all of it and all calls into UCX, on any rail. Threads that wait for messages poll (Progress). While
// none does, a thread of the library sleeps on UCX's descriptors and makes progress, so that messages are received and
// answered although the process is elsewhere. It lives as long as the process.
//
// To make that thread wait for the next message costs system calls, and waking it uses a core. So it does only
// when a waiting thread goes to sleep, or leaves something unsent behind. A thread that has finished does not do so:
// while operations keep coming, the library's thread only looks now and then (kDoze) whether they still do, and listens
// once they do not.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/base/service_fd.h"
#include "src/base/status.h"
#include "transports/remote/reach.h"
#include "transports/ucx/connect.h"
#include "transports/ucx/endpoints.h"
#include "transports/ucx/library.h"
#include "transports/ucx/rail.h"

namespace axccl::ucx {

class Reach;

class Worker final : public transport::Inbox {
 public:
  using ProcessId = Endpoint::ProcessId;
  using Key = remote::Reach::Key;

  // The arguments of the first call count.
  static Result<Worker*> Get(const remote::SelfOptions& options);

  // What others need to send to this process, by rail; `lifeline` is the address for that. Rails that do not work are
  // left out.
  const std::vector<remote::RailAddress>& addresses() const { return addresses_; }

  // The name of one of these rails, for messages.
  std::string NameOf(size_t rail) const { return rails_[rail]->name(); }

  void Progress() override;
  void BeginPolling() override;
  void EndPolling(bool waiting) override;
  // Gives up a process that cannot be reached any more.
  void Fail(const ProcessId& process, const std::string& why);
  // Whether any rank has a peer on another machine.
  bool in_use();

  // ---- for Reach, with the lock held ----
  std::mutex& mutex() { return mutex_; }
  const Library& ucx() const { return *ucx_; }
  Result<std::shared_ptr<Endpoint>> EndpointTo(const ProcessId& process, const remote::NetworkAddress& address);
  void Register(const Key& key, Reach* reach);
  void Unregister(const Key& key, Reach* reach);
  void Drive();
  // Unless a thread polls: makes the library's thread receive the next message.
  void LeaveToThread();
  bool ending() const { return ending_; }
  // Messages that UCX has not finished sending.
  void AddUnsent(int messages) { unsent_.fetch_add(messages, std::memory_order_relaxed); }
  // Notified at every message that ends a flush, and at every failure.
  std::condition_variable& changed() { return changed_; }

 private:
  Worker() = default;
  Status Start(const remote::SelfOptions& options);
  Status AddRail(const remote::RailOptions& options, const std::string& families);
  Status Watch();
  void Listen();
  [[noreturn]] void Main();
  void Abandon(Endpoint* endpoint, const std::string& why);
  Reach* Find(uint64_t comm, uint32_t to, uint32_t from) const;
  static void OnError(void* endpoint, ucp_ep_h ep, ucs_status_t status);
  static ucs_status_t OnMessage(void* rail, const void* header, size_t header_bytes, void* data, size_t bytes,
                                const ucp_am_recv_param_t* param);
  static ucs_status_t OnControl(void* rail, const void* header, size_t header_bytes, void* data, size_t bytes,
                                const ucp_am_recv_param_t* param);
  static ucs_status_t OnGreeting(void* rail, const void* header, size_t header_bytes, void* data, size_t bytes,
                                 const ucp_am_recv_param_t* param);

  const Library* ucx_ = nullptr;
  std::vector<std::unique_ptr<Rail>> rails_;
  std::vector<remote::RailAddress> addresses_;
  service::Fd epoll_;  // of the descriptors of all rails

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Endpoints> endpoints_;  // from Start on
  std::map<Key, Reach*> reaches_;
  std::atomic<int> unsent_{0};
  bool ending_ = false;  // the process exits, and UCX is being shut down: it must not be called any more
  // Threads that poll, and how many began to. They do not take the lock for that, because a thread that has just been
  // woken would find it held by the thread that woke it.
  std::atomic<int> polling_{0};
  std::atomic<uint32_t> uses_{0};
  bool listening_ = false;  // the library's thread waits for the next event; otherwise it dozes
};

}  // namespace axccl::ucx
