// The UCX state of this process: its rails, the endpoints to other processes (endpoints.h), the receivers of messages,
// and the thread that makes progress.
//
// One lock guards all of it and all calls into UCX, on any rail: that of attendance (remote/attendance.h). It lives as
// long as the process.
//
// UCX has a thread of its own, which blocks all signals, as the library's threads do.
#pragma once

#include <array>
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
#include "transports/remote/attendance.h"
#include "transports/remote/reach.h"
#include "transports/ucx/connect.h"
#include "transports/ucx/endpoints.h"
#include "transports/ucx/library.h"
#include "transports/ucx/rail.h"

namespace axccl::ucx {

class Reach;

class Worker final : public remote::Attendance {
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

  // Gives up a process that cannot be reached any more.
  void Fail(const ProcessId& process, const std::string& why);
  // Whether any rank has a peer on another machine.
  bool in_use();

  // ---- for Reach, with the lock held ----
  const Library& ucx() const { return *ucx_; }
  Result<std::shared_ptr<Endpoint>> EndpointTo(const ProcessId& process, const remote::NetworkAddress& address);
  void Register(const Key& key, Reach* reach);
  void Unregister(const Key& key, Reach* reach);
  // Gives the endpoint's process up, on both sides, after an error of UCX in transferring a message. UCX itself may
  // take the endpoint for sound, but what was sent later would wait for that message forever.
  void LoseMessage(Endpoint* endpoint, ucs_status_t status);
  void Drive() override;
  bool ending() const { return ending_; }
  // Notified at every message that ends a flush, and at every failure.
  std::condition_variable& changed() { return changed_; }

 private:
  Worker() = default;
  Status Start(const remote::SelfOptions& options);
  Status AddRail(const remote::RailOptions& options, const std::string& families);
  Status StartThread();
  bool Watch() override;
  bool pressing() const override { return endpoints_->greeting(); }
  void Abandon(Endpoint* endpoint, const std::string& why);
  void GiveUp(Endpoint* endpoint, const std::string& why);
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

  std::condition_variable changed_;
  std::optional<Endpoints> endpoints_;  // from Start on
  std::map<Key, Reach*> reaches_;
  bool ending_ = false;  // the process exits, and UCX is being shut down: it must not be called any more
};

}  // namespace axccl::ucx
