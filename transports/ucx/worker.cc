#include "transports/ucx/worker.h"
#include "transports/ucx/greeting.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "src/base/blocked_signals.h"
#include "src/base/detached_thread.h"
#include "src/base/log.h"
#include "transports/remote/lines.h"
#include "transports/remote/pairing.h"
#include "transports/ucx/descriptors.h"
#include "transports/ucx/reach.h"
#include "transports/ucx/sender.h"

namespace axccl::ucx {
Result<Worker*> Worker::Get(const remote::SelfOptions& options) {
  static Worker* const worker = new Worker;
  static const Status* const status = new Status(worker->Start(options));
  if (!status->ok()) return *status;
  return worker;
}

Status Worker::Start(const remote::SelfOptions& options) {
  const BlockedSignals blocked;  // UCX starts a thread
  AXCCL_ASSIGN_OR_RETURN(ucx_, Library::Get());
  const std::set<int> before = EpollsThatExecKeeps();
  Status failed;
  for (const remote::RailOptions& of_rail : options.rails) {
    const Status added = AddRail(of_rail, options.families);
    if (added.ok()) continue;
    failed = added;
    AXCCL_INFO(kNet, "no rail over %s: %s", of_rail.devices.c_str(), std::string(added.message()).c_str());
  }
  const std::set<int> after = EpollsThatExecKeeps();
  std::vector<int> epolls;
  std::set_difference(after.begin(), after.end(), before.begin(), before.end(), std::back_inserter(epolls));
  CloseOnExec(epolls);
  endpoints_.emplace(*ucx_, options.process, OnError, std::move(epolls));
  return rails_.empty() ? failed : StartThread();
}

Status Worker::AddRail(const remote::RailOptions& options, const std::string& families) {
  AXCCL_ASSIGN_OR_RETURN(std::unique_ptr<Rail> rail, Rail::Create(this, *ucx_, options, families));
  AXCCL_RETURN_IF_ERROR(rail->Receive(kMessage, OnMessage));
  AXCCL_RETURN_IF_ERROR(rail->Receive(kControl, OnControl));
  AXCCL_RETURN_IF_ERROR(rail->Receive(kGreeting, OnGreeting));
  addresses_.push_back({options.network, options.megabits, rail->address(), options.local});
  rails_.push_back(std::move(rail));
  return Status();
}

// ---- progress ----

Status Worker::StartThread() {
  epoll_ = service::Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return service::OpenError(errno, "watching UCX: epoll_create1");
  for (const auto& rail : rails_) {
    epoll_event event{};
    event.events = EPOLLONESHOT;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, rail->event_fd(), &event) != 0)
      return SystemError(errno, "watching UCX's descriptor");
  }
  AXCCL_RETURN_IF_ERROR(StartDetached("UCX's messages", [this] { Main("axccl-ucx", epoll_); }));
  static Worker* const self = this;
  std::atexit([] {
    if (service::Forked()) return;  // the lock may be held by a thread that this process does not have
    std::lock_guard lock(self->mutex());
    self->ending_ = true;
  });
  return Status();
}

// Makes the thread receive one event from each rail.
bool Worker::Watch() {
  if (ending_) return false;
  endpoints_->Arm();
  endpoints_->CloseFailed();
  for (const Rail* rail : endpoints_->rails()) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLONESHOT;
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, rail->event_fd(), &event);
  }
  return true;
}

void Worker::Drive() {
  if (ending_) return;
  endpoints_->Progress();
  endpoints_->Tend();
}

// ---- endpoints ----

Result<std::shared_ptr<Endpoint>> Worker::EndpointTo(const ProcessId& process, const remote::NetworkAddress& address) {
  if (ending_) return MakeStatus(Code::kInvalidUsage, "the process is exiting");
  endpoints_->CloseFailed();
  if (auto known = endpoints_->Find(process); known != nullptr) return known;
  const BlockedSignals blocked;  // UCX may start a thread
  const size_t rails_before = endpoints_->rails().size();
  std::vector<Endpoints::Way> ways;
  std::string names;
  for (const remote::RailPair& pair : remote::PairRails(addresses_, address.rails)) {
    ways.push_back({rails_[pair.own].get(), &address.rails[pair.peer]});
    names.append(names.empty() ? "" : ", ").append(ways.back().rail->name());
  }
  AXCCL_ASSIGN_OR_RETURN(std::shared_ptr<Endpoint> endpoint, endpoints_->Make(process, ways));
  if (rails_.size() > 1) AXCCL_INFO(kNet, "a process on another machine is sent messages over %s", names.c_str());
  endpoints_->Greet();
  // The library's thread listens on the rails that were in use when it last began to.
  if (endpoints_->rails().size() > rails_before) Listen();
  if (endpoint->failed)
    return MakeStatus(Code::kSystemError, "UCX: another machine is not reached over %s", names.c_str());
  return endpoint;
}

void Worker::OnError(void* arg, ucp_ep_h ep, ucs_status_t status) {
  auto* const endpoint = static_cast<Endpoint*>(arg);
  Worker* const worker = Get({}).value();
  std::string why = std::string("its process has ended, or the network to it is broken (UCX: ") +
                    worker->ucx_->ucs_status_string(status);
  for (const Endpoint::Lane& lane : endpoint->lanes) {
    if (lane.ep == ep) why += " over " + lane.rail->name();
  }
  worker->GiveUp(endpoint, why + ")");
}

void Worker::LoseMessage(Endpoint* endpoint, ucs_status_t status) {
  GiveUp(endpoint, std::string("a message was lost (UCX: ") + ucx_->ucs_status_string(status) + ")");
}

void Worker::GiveUp(Endpoint* endpoint, const std::string& why) {
  if (endpoint->failed) return;
  // UCX does not distinguish a process that has ended from a network that is broken; its lifelines may.
  Abandon(endpoint, remote::Lines::Made()->HaveEnded(endpoint->process) ? remote::kProcessEnded : why);
  // The other side may not have noticed.
  remote::Lines::Made()->Cut(endpoint->process);
}

void Worker::Abandon(Endpoint* endpoint, const std::string& why) {
  if (endpoints_->Abandon(endpoint, why)) changed_.notify_all();
}

void Worker::Fail(const ProcessId& process, const std::string& why) {
  std::lock_guard lock(mutex());
  const std::shared_ptr<Endpoint> endpoint = endpoints_->Find(process);
  if (ending_ || endpoint == nullptr || endpoint->failed) return;
  Abandon(endpoint.get(), why);
  endpoints_->CloseFailed();
  // UCX finishes closing when it is next called.
  if (!polled()) Listen();
}

bool Worker::in_use() {
  std::lock_guard lock(mutex());
  return !reaches_.empty();
}

// ---- what arrives ----

void Worker::Register(const Key& key, Reach* reach) { reaches_[key] = reach; }

void Worker::Unregister(const Key& key, Reach* reach) {
  const auto it = reaches_.find(key);
  if (it != reaches_.end() && it->second == reach) reaches_.erase(it);
}

Reach* Worker::Find(uint64_t comm, uint32_t to, uint32_t from) const {
  const auto it = reaches_.find(Key{comm, to, from});
  return it != reaches_.end() ? it->second : nullptr;
}

ucs_status_t Worker::OnMessage(void* arg, const void* header, size_t header_bytes, void* data, size_t bytes,
                               const ucp_am_recv_param_t* param) {
  auto* const rail = static_cast<Rail*>(arg);
  remote::Message message;
  if (!remote::ParseMessage(header, header_bytes, &message)) return UCS_OK;
  Reach* const reach = rail->owner()->Find(message.head.comm, message.head.to, message.head.from);
  if (reach == nullptr) return UCS_OK;  // the communicator is gone
  const bool to_fetch = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  return reach->Take(*rail, message, data, bytes, to_fetch);
}

ucs_status_t Worker::OnControl(void* arg, const void* header, size_t header_bytes, void*, size_t,
                               const ucp_am_recv_param_t* param) {
  auto* const rail = static_cast<Rail*>(arg);
  Worker* const worker = rail->owner();
  remote::WireControl control;
  if (header_bytes != sizeof(control)) return UCS_OK;
  std::memcpy(&control, header, sizeof(control));
  Reach* const reach = worker->Find(control.comm, control.to, control.from);
  if (reach != nullptr) {
    reach->TakeControl(rail, control);
  } else if (control.kind == remote::WireControl::kFlush && (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0) {
    SendControl(worker, nullptr, param->reply_ep, remote::Answer(control));
  }
  return UCS_OK;
}

ucs_status_t Worker::OnGreeting(void* arg, const void* header, size_t header_bytes, void*, size_t,
                                const ucp_am_recv_param_t*) {
  auto* const rail = static_cast<Rail*>(arg);
  WireGreeting greeting;
  if (header_bytes != sizeof(greeting)) return UCS_OK;
  std::memcpy(&greeting, header, sizeof(greeting));
  rail->owner()->endpoints_->Hear(greeting.process, rail, greeting.asks != 0);
  return UCS_OK;
}

}  // namespace axccl::ucx
