#include "transports/ucx/worker.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include "src/base/detached_thread.h"
#include "src/base/log.h"
#include "src/base/processors.h"
#include "transports/ucx/lifeline.h"
#include "transports/ucx/remote.h"
#include "transports/ucx/stalled.h"

namespace axccl::ucx {
namespace {

// What is on one machine goes over shared memory of the library's own (transports/shm).
constexpr const char* kNotOfNetworks = "^sm,self";
// TCP copies data anyway, and asking the receiver to fetch them costs it a round trip. An adapter would write them in place.
constexpr const char* kNeverToBeFetched = "inf";
// What UCX sends over TCP in one piece, without the header. The receiver puts pieces together in memory of its own first.
constexpr size_t kPieceOfTcp = 56u << 10;
bool HasAdapters(const std::string& devices) { return devices.empty() || devices.find(':') != std::string::npos; }

// How long a message may lie there that nobody waits for.
constexpr std::chrono::milliseconds kDoze(1);
// How long a connection without room may take to show whether its peer is still there.
constexpr std::chrono::milliseconds kRoom(500);

}  // namespace

Status Worker::Error(ucs_status_t status, const char* what) const {
  return MakeStatus(Code::kSystemError, "UCX: %s: %s", what, ucx_->ucs_status_string(status));
}

Result<Worker*> Worker::Get(const std::string& devices, const std::string& families) {
  static Worker* const worker = new Worker;
  static const Status* const status = new Status(worker->Start(devices, families));
  if (!status->ok()) return *status;
  return worker;
}

Status Worker::Start(const std::string& devices, const std::string& families) {
  AXCCL_ASSIGN_OR_RETURN(ucx_, Library::Get());
  ucp_config_t* config = nullptr;
  if (const ucs_status_t status = ucx_->ucp_config_read(nullptr, nullptr, &config); status != UCS_OK)
    return Error(status, "reading the settings of the environment (UCX_*)");
  Status status = Configure(devices, families, config);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  if (status.ok()) {
    const ucs_status_t made = ucx_->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
    if (made != UCS_OK) status = Error(made, "starting");
  }
  ucx_->ucp_config_release(config);
  AXCCL_RETURN_IF_ERROR(status);
  AXCCL_RETURN_IF_ERROR(CreateWorker());
  most_bytes_ = HasAdapters(devices) ? ~size_t{0} : kPieceOfTcp;
  AXCCL_INFO(kNet, "UCX %s over %s: an address takes %zu bytes", ucx_->ucp_get_version_string(),
             devices.empty() ? "all devices" : devices.c_str(), address_.size());
  return Watch();
}

// What the user has set in the environment stays.
Status Worker::Configure(const std::string& devices, const std::string& families, ucp_config_t* config) const {
  unsigned major = 0, minor = 0, release = 0;
  ucx_->ucp_get_version(&major, &minor, &release);
  const auto set = [&](const std::string& prefix, const std::string& name, const std::string& value) -> Status {
    if (std::getenv(("UCX_" + prefix + name).c_str()) != nullptr) return Status();
    // Before 1.17, a setting of a transport goes by its last name when it is made by a program.
    const bool last_name = major == 1 && minor < 17;
    const ucs_status_t status = ucx_->ucp_config_modify(config, ((last_name ? "" : prefix) + name).c_str(), value.c_str());
    return status == UCS_OK ? Status() : Error(status, ("setting " + prefix + name + " to " + value).c_str());
  };
  AXCCL_RETURN_IF_ERROR(set("", "TLS", kNotOfNetworks));
  if (!devices.empty()) AXCCL_RETURN_IF_ERROR(set("", "NET_DEVICES", devices));
  if (!families.empty()) AXCCL_RETURN_IF_ERROR(set("TCP_", "AF_PRIO", families));
  // A connection that cannot be made must not hold up the others.
  AXCCL_RETURN_IF_ERROR(set("TCP_", "CONN_NB", "y"));
  return HasAdapters(devices) ? Status() : set("", "RNDV_THRESH", kNeverToBeFetched);
}

Status Worker::CreateWorker() {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  if (const ucs_status_t status = ucx_->ucp_worker_create(context_, &params, &worker_); status != UCS_OK)
    return Error(status, "creating a worker (no network device that works? NCCL_NET=Socket keeps to TCP; UCX_TLS and UCX_NET_DEVICES "
                         "restrict what is used)");
  ucp_worker_attr_t attributes{};
  attributes.field_mask =
      UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS | UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER;
  attributes.address_flags = UCP_WORKER_ADDRESS_FLAG_NET_ONLY;
  if (const ucs_status_t status = ucx_->ucp_worker_query(worker_, &attributes); status != UCS_OK)
    return Error(status, "asking for the worker's address");
  const auto* const address = reinterpret_cast<const std::byte*>(attributes.address);
  address_.assign(address, address + attributes.address_length);
  ucx_->ucp_worker_release_address(worker_, attributes.address);
  constexpr size_t kHeader = sizeof(WireHeader) + kMaxStretches * sizeof(WireStretch);
  if (attributes.max_am_header < kHeader)
    return MakeStatus(Code::kSystemError, "UCX takes headers of %zu bytes, %zu are needed", attributes.max_am_header, kHeader);
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.arg = this;
  for (const unsigned id : {kMessage, kControl}) {
    handler.id = id;
    handler.cb = id == kMessage ? OnMessage : OnControl;
    if (const ucs_status_t status = ucx_->ucp_worker_set_am_recv_handler(worker_, &handler); status != UCS_OK)
      return Error(status, "setting a handler");
  }
  return Status();
}

// ---- progress ----

Status Worker::Watch() {
  if (const ucs_status_t status = ucx_->ucp_worker_get_efd(worker_, &event_fd_); status != UCS_OK)
    return Error(status, "asking for the worker's descriptor");
  epoll_ = service::Fd(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLONESHOT;
  if (!epoll_ || epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, event_fd_, &event) != 0)
    return SystemError(errno, "watching UCX's descriptor");
  try {
    StartDetached([this] { Main(); });
  } catch (const std::system_error& error) {
    return SystemError(error.code().value(), "starting the thread for messages");
  }
  static Worker* const self = this;
  std::atexit([] {
    std::lock_guard lock(self->mutex_);
    self->ending_ = true;
  });
  std::lock_guard lock(mutex_);
  Listen();
  return Status();
}

// Once per call the thread hears of an event.
void Worker::Listen() {
  if (ending_) return;
  ucs_status_t status;
  do {
    while (ucx_->ucp_worker_progress(worker_) != 0) continue;
    status = ucx_->ucp_worker_arm(worker_);
  } while (status == UCS_ERR_BUSY);
  CloseFailed();
  epoll_event event{};
  event.events = EPOLLIN | EPOLLONESHOT;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, event_fd_, &event);
  listening_ = true;
}

void Worker::Main() {
  BecomeOwnThread("axccl-ucx");
  uint32_t seen = 0;
  for (bool doze = false;;) {
    epoll_event event{};
    const int events = epoll_wait(epoll_.get(), &event, 1, doze ? static_cast<int>(kDoze.count()) : -1);
    std::lock_guard lock(mutex_);
    if (events > 0) listening_ = false;
    const uint32_t uses = uses_.load(std::memory_order_relaxed);
    const bool used = std::exchange(seen, uses) != uses;
    // An event that nobody polls for is this thread's.
    if (!listening_ && polling_ == 0 && (events > 0 || !used)) Listen();
    doze = !listening_;
  }
}

void Worker::LeaveToThread() {
  if (polling_ == 0 && !listening_) Listen();
}

void Worker::Drive() {
  if (ending_) return;
  ucx_->ucp_worker_progress(worker_);
  if (!failed_.empty()) CloseFailed();
}

void Worker::Progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) Drive();
}

void Worker::BeginPolling() {
  polling_.fetch_add(1);
  uses_.fetch_add(1, std::memory_order_relaxed);
}

// The thread looks at the count with the lock held. If it still counted on this one, it is told now.
void Worker::EndPolling(bool waiting) {
  polling_.fetch_sub(1);
  if (!waiting && unsent_.load(std::memory_order_relaxed) == 0) return;
  std::lock_guard lock(mutex_);
  LeaveToThread();
}

// ---- endpoints ----

Result<std::shared_ptr<Endpoint>> Worker::Reach(const ProcessId& process, const void* address) {
  std::shared_ptr<Endpoint>& known = endpoints_[process];
  if (known != nullptr) return known;
  auto endpoint = std::make_shared<Endpoint>();
  endpoint->process = process;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = static_cast<const ucp_address_t*>(address);
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = OnError;
  params.err_handler.arg = endpoint.get();
  const ucs_status_t status = ucx_->ucp_ep_create(worker_, &params, &endpoint->ep);
  if (status != UCS_OK) {
    endpoints_.erase(process);
    return Error(status, "reaching another machine (is there a network device that both have?)");
  }
  return known = std::move(endpoint);
}

void Worker::OnError(void* arg, ucp_ep_h ep, ucs_status_t status) {
  auto* const endpoint = static_cast<Endpoint*>(arg);
  Worker* const worker = Get("").value();
  worker->Abandon(endpoint, worker->ucx_->ucs_status_string(status));
  // The other side may not have noticed.
  Lifelines::Made()->Cut(endpoint->process);
}

void Worker::Abandon(Endpoint* endpoint, const std::string& why) {
  if (endpoint->ep != nullptr) failed_.push_back(endpoint->ep);
  endpoint->ep = nullptr;
  for (Remote* remote : endpoint->users) remote->Lose(why);
  told_.notify_all();
}

void Worker::Fail(const ProcessId& process, const std::string& why) {
  std::lock_guard lock(mutex_);
  const auto found = endpoints_.find(process);
  if (ending_ || found == endpoints_.end() || found->second->ep == nullptr) return;
  const std::shared_ptr<Endpoint> endpoint = found->second;
  Abandon(endpoint.get(), why);
  CloseFailed();
  // What closing takes, UCX does when it is called next.
  if (polling_ == 0) Listen();
}

bool Worker::in_use() {
  std::lock_guard lock(mutex_);
  return !remotes_.empty();
}

// Not from within their own error handlers.
void Worker::CloseFailed() {
  if (failed_.empty()) return;
  ShutStalled(event_fd_, kRoom);
  for (const ucp_ep_h ep : failed_) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    param.cb.send = [](void* request, ucs_status_t, void*) { Get("").value()->ucx_->ucp_request_free(request); };
    ucx_->ucp_ep_close_nbx(ep, &param);
  }
  failed_.clear();
  std::erase_if(endpoints_, [](const auto& entry) { return entry.second->ep == nullptr && entry.second.use_count() == 1; });
  // Whoever comes next makes a new one.
  for (auto it = endpoints_.begin(); it != endpoints_.end();) it = it->second->ep == nullptr ? endpoints_.erase(it) : std::next(it);
}

// ---- what arrives ----

void Worker::Register(const Key& key, Remote* remote) { remotes_[key] = remote; }

void Worker::Unregister(const Key& key, Remote* remote) {
  const auto it = remotes_.find(key);
  if (it != remotes_.end() && it->second == remote) remotes_.erase(it);
}

Remote* Worker::Find(uint64_t comm, uint32_t to, uint32_t from) const {
  const auto it = remotes_.find(Key{comm, to, from});
  return it != remotes_.end() ? it->second : nullptr;
}

ucs_status_t Worker::OnMessage(void* arg, const void* header, size_t header_bytes, void* data, size_t bytes,
                               const ucp_am_recv_param_t* param) {
  auto* const worker = static_cast<Worker*>(arg);
  Message message;
  if (!ParseMessage(header, header_bytes, &message)) return UCS_OK;
  Remote* const remote = worker->Find(message.head.comm, message.head.to, message.head.from);
  if (remote == nullptr) return UCS_OK;  // of a communicator that is gone
  const bool to_fetch = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  return remote->Take(message, data, bytes, to_fetch);
}

ucs_status_t Worker::OnControl(void* arg, const void* header, size_t header_bytes, void*, size_t,
                               const ucp_am_recv_param_t* param) {
  auto* const worker = static_cast<Worker*>(arg);
  WireControl control;
  if (header_bytes != sizeof(control)) return UCS_OK;
  std::memcpy(&control, header, sizeof(control));
  Remote* const remote = worker->Find(control.comm, control.to, control.from);
  if (remote != nullptr) {
    remote->TakeControl(control);
  } else if (control.kind == WireControl::kFlush && (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0) {
    SendControl(*worker, param->reply_ep, Answer(control));
  }
  return UCS_OK;
}

}  // namespace axccl::ucx
