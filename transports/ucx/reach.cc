#include "transports/ucx/reach.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "transports/ucx/devices.h"

namespace axccl::ucx {

// A message whose data UCX fetches.
struct Reach::Fetched final : remote::Incoming {
  bool fetching() const override { return owner != nullptr; }

  std::shared_ptr<Reach> owner;  // while data is fetched
  std::vector<ucp_dt_iov_t> places;
};

Reach::Reach(Worker* worker, remote::ConnectOptions options, std::shared_ptr<Mirror> mirror)
    : remote::Reach(&worker->mutex(), std::move(options), std::move(mirror)),
      worker_(worker),
      sender_(worker, options_.comm, options_.self, options_.peer) {}

Result<std::shared_ptr<Reach>> Reach::Create(Worker* worker, remote::ConnectOptions options) {
  AXCCL_ASSIGN_OR_RETURN(std::shared_ptr<Mirror> mirror, MakeMirror(options));
  std::shared_ptr<Reach> reach(new Reach(worker, std::move(options), std::move(mirror)));
  std::lock_guard lock(worker->mutex());
  AXCCL_ASSIGN_OR_RETURN(reach->endpoint_, worker->EndpointTo(reach->options_.process, reach->options_.address));
  reach->sender_.Connect(reach->endpoint_, reach);
  reach->endpoint_->users.push_back(reach.get());
  worker->Register(reach->key(), reach.get());
  return reach;
}

// The last owner may be a message that has just ended, with the lock held.
Reach::~Reach() {
  if (!detached_) Detach();
}

void Reach::Detach() {
  std::lock_guard lock(worker_->mutex());
  if (std::exchange(detached_, true) || endpoint_ == nullptr) return;
  worker_->Unregister(key(), this);
  std::erase(endpoint_->users, this);
  sender_.DropDelayed();
}

void Reach::LoseOn(ucs_status_t status) {
  if (status != UCS_OK) worker_->LoseMessage(endpoint_.get(), status);
}

// ---- sending ----

void Reach::Publish(const std::shared_ptr<Area>& area, std::span<const Stretch> stretches, LineAt line) {
  const auto memory = area != nullptr ? std::static_pointer_cast<remote::Memory>(area) : block_memory();
  std::lock_guard lock(worker_->mutex());
  if (endpoint_->failed || worker_->ending()) return;
  LoseOn(sender_.Send(memory, stretches, line));
}

// The farthest lane counts.
transport::Reach::DeviceAccess Reach::AccessTo(const std::string& pci_address) const {
  std::lock_guard lock(worker_->mutex());
  DeviceAccess access{Devices::kByAdapter, PciDistance::kLoc, HasPeerMemory("")};
  for (const Endpoint::Lane& lane : endpoint_->lanes) {
    if (!lane.rail->reaches_devices()) return {Devices::kSomehow};
    access.distance = std::max(access.distance, lane.rail->DistanceTo(pci_address));
  }
  return access;
}

Status Reach::Register(const DevicePart& part, std::byte* memory, uint64_t bytes) const {
  std::lock_guard lock(worker_->mutex());
  for (const Endpoint::Lane& lane : endpoint_->lanes) AXCCL_RETURN_IF_ERROR(lane.rail->Register(part, memory, bytes));
  return Status();
}

void Reach::SendDelayed() { LoseOn(sender_.SendDelayed()); }

// ---- receiving ----

ucs_status_t Reach::Take(const Rail& rail, const remote::Message& came, void* data, size_t bytes, bool to_fetch) {
  Admission admitted;
  if (!Admit(came, bytes, &admitted)) return UCS_OK;
  if (came.on_device() && !to_fetch) {
    Lose("it sent data for a device that cannot be fetched");
    return UCS_OK;
  }
  if (!to_fetch || admitted.memory == nullptr || bytes == 0) {
    remote::Reach::Take(admitted, came, data, bytes);
    return UCS_OK;
  }
  auto message = std::make_shared<Fetched>();
  message->message = came;
  message->memory = std::move(admitted.memory);
  arrivals_.Hold(admitted.number, message);
  return Fetch(rail, std::move(message), data, bytes);
}

ucs_status_t Reach::Fetch(const Rail& rail, std::shared_ptr<Fetched> message, void* data, size_t bytes) {
  for (const remote::WireStretch& stretch : message->message.stretches())
    message->places.push_back({message->memory->PlaceOf(stretch), stretch.bytes});
  message->owner = std::static_pointer_cast<Reach>(shared_from_this());
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = OnFetched;
  param.user_data = message.get();
  void* to = message->places[0].buffer;
  size_t count = bytes;
  if (message->places.size() > 1) {
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype = ucp_dt_make_iov();
    to = message->places.data();
    count = message->places.size();
  }
  const auto receive = [&] { return worker_->ucx().ucp_am_recv_data_nbx(rail.handle(), data, to, count, &param); };
  const ucs_status_ptr_t request =
      message->message.on_device() ? rail.CallFor(*message->memory->device(), &param, receive) : receive();
  if (UCS_PTR_IS_ERR(request)) {
    message->owner = nullptr;
    LoseOn(UCS_PTR_STATUS(request));
    return UCS_PTR_STATUS(request);  // makes UCX drop the data, and end the peer's send with that error
  }
  if (request == nullptr) {
    message->owner = nullptr;
    EndFetch(message.get());
  } else {
    fetching_.fetch_add(1, std::memory_order_relaxed);
  }
  return UCS_INPROGRESS;
}

void Reach::EndFetch(Fetched* message) {
  if (message->message.on_device()) {
    const Status landed = message->memory->device()->Land();
    if (!landed.ok()) return Lose(std::string(landed.message()));
  }
  message->here = true;
  Settle();
}

void Reach::OnFetched(void* request, ucs_status_t status, size_t, void* arg) {
  auto* const message = static_cast<Fetched*>(arg);
  const std::shared_ptr<Reach> self = std::move(message->owner);
  self->worker_->ucx().ucp_request_free(request);
  self->fetching_.fetch_sub(1, std::memory_order_release);
  if (status != UCS_OK) return self->LoseOn(status);
  self->EndFetch(message);
}

// ---- flushes ----

// Uses the rail on which the flush arrived, so that it has been used in both directions.
void Reach::AnswerFlush(const void* rail, const remote::WireControl& answer) {
  if (!endpoint_->failed) SendControl(worker_, endpoint_, endpoint_->LaneOf(static_cast<const Rail*>(rail)).ep, answer);
}

void Reach::ReceiveOnce(std::unique_lock<std::mutex>*) {
  worker_->Drive();
  worker_->LeaveToThread();
}

}  // namespace axccl::ucx
