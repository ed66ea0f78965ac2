#include "transports/ucx/sender.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "transports/ucx/greeting.h"
#include "transports/ucx/worker.h"

namespace axccl::ucx {
struct Sender::Outgoing {
  std::shared_ptr<Sender> sender;  // while UCX sends
  std::shared_ptr<remote::Memory> memory;
  remote::OutgoingHeader header;
  std::vector<ucp_dt_iov_t> data;
  remote::WireControl flush{};  // kind 0: none
  size_t lane = 0, bytes = 0;
  bool on_device = false;
};

Sender::Sender(Worker* worker, uint64_t comm, uint32_t self, uint32_t peer)
    : worker_(worker), direction_{comm, self, peer} {}

Sender::~Sender() = default;

void Sender::Connect(std::shared_ptr<Endpoint> endpoint, std::weak_ptr<void> owner) {
  endpoint_ = std::move(endpoint);
  owner_ = std::move(owner);
}

ucs_status_t Sender::Send(const std::shared_ptr<remote::Memory>& memory, std::span<const Stretch> stretches,
                          LineAt line) {
  ucs_status_t result = UCS_OK;  // after an error, the peer will not be sent anything any more
  remote::CutIntoMessages(stretches, line, endpoint_->lanes[0].rail->most_bytes(),
                          [&](std::span<const Stretch> some, LineAt with_line) {
                            if (result == UCS_OK) result = SendOne(memory, some, with_line);
                          });
  return result;
}

ucs_status_t Sender::SendOne(const std::shared_ptr<remote::Memory>& memory, std::span<const Stretch> stretches,
                             LineAt line) {
  if (endpoint_->failed) return UCS_OK;
  std::unique_ptr<Outgoing> message = std::move(spare_);
  if (message == nullptr) message = std::make_unique<Outgoing>();
  message->header.Write(direction_, static_cast<uint32_t>(sent_++), *memory, stretches, line);
  message->on_device = false;
  for (const Stretch& s : stretches) {
    message->data.push_back({const_cast<std::byte*>(remote::BytesOf(*memory, s)), s.bytes});
    message->bytes += s.bytes;
    message->on_device = s.on_device;  // there is one then
  }
  message->memory = memory;
  return Post(std::move(message));
}

void Sender::Flush(size_t lane, uint32_t number) {
  auto flush = std::make_unique<Outgoing>();
  flush->lane = lane;
  flush->flush = {direction_.comm,
                  direction_.from,
                  direction_.to,
                  remote::WireControl::kFlush,
                  number,
                  static_cast<uint32_t>(sent_++),
                  0};
  Post(std::move(flush));
}

ucs_status_t Sender::Post(std::unique_ptr<Outgoing> message) {
  if (endpoint_->failed) return UCS_OK;
  if (!endpoint_->open()) {
    in_flight_.fetch_add(1, std::memory_order_relaxed);
    worker_->AddUnsent(1);
    delayed_.push_back(std::move(message));
    return UCS_OK;
  }
  if (message->flush.kind != 0) {
    SendControl(worker_, endpoint_, endpoint_->lanes[message->lane].ep, message->flush);
    return UCS_OK;
  }
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = OnSent;
  param.user_data = message.get();
  const void* data = nullptr;
  size_t count = 0;
  if (message->data.size() == 1) {
    data = message->data[0].buffer;
    count = message->data[0].length;
  } else if (!message->data.empty()) {
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype = ucp_dt_make_iov();
    data = message->data.data();
    count = message->data.size();
  }
  message->lane = endpoint_->Choose(message->bytes);
  Endpoint::Lane& lane = endpoint_->lanes[message->lane];
  const auto send = [&] {
    return worker_->ucx().ucp_am_send_nbx(lane.ep, kMessage, message->header.bytes.data(), message->header.size, data,
                                          count, &param);
  };
  if (message->on_device) {
    // The receiver fetches it to where it belongs, because the processor there does not reach that.
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_AM_SEND_FLAG_RNDV;
  }
  const ucs_status_ptr_t request =
      message->on_device ? lane.rail->CallFor(*message->memory->device(), &param, send) : send();
  if (request == nullptr) {  // the usual case
    message->memory = nullptr;
    message->data.clear();
    message->bytes = 0;
    spare_ = std::move(message);
    return UCS_OK;
  }
  if (UCS_PTR_IS_ERR(request)) return UCS_PTR_STATUS(request);
  const std::shared_ptr<void> owner = owner_.lock();
  assert(owner != nullptr);
  message->sender = {owner, this};
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  worker_->AddUnsent(1);
  lane.unsent += message->bytes;
  message.release();
  return UCS_OK;
}

std::vector<std::unique_ptr<Sender::Outgoing>> Sender::TakeDelayed() {
  const auto count = static_cast<int>(delayed_.size());
  worker_->AddUnsent(-count);
  in_flight_.fetch_sub(count, std::memory_order_release);
  return std::exchange(delayed_, {});
}

void Sender::DropDelayed() { TakeDelayed(); }

ucs_status_t Sender::SendDelayed() {
  ucs_status_t result = UCS_OK;
  for (std::unique_ptr<Outgoing>& message : TakeDelayed()) {
    if (result == UCS_OK) result = Post(std::move(message));
  }
  return result;
}

void Sender::OnSent(void* request, ucs_status_t status, void* arg) {
  const std::unique_ptr<Outgoing> message(static_cast<Outgoing*>(arg));
  Sender& sender = *message->sender;
  sender.worker_->ucx().ucp_request_free(request);
  sender.worker_->AddUnsent(-1);
  sender.endpoint_->lanes[message->lane].unsent -= message->bytes;
  sender.in_flight_.fetch_sub(1, std::memory_order_release);
  if (status != UCS_OK) sender.worker_->LoseMessage(sender.endpoint_.get(), status);
}

// ---- flushes ----

namespace {

struct OutgoingControl {
  remote::WireControl control;
  Worker* worker;
  std::shared_ptr<Endpoint> endpoint;

  void End(ucs_status_t status) const {
    if (status != UCS_OK && endpoint != nullptr) worker->LoseMessage(endpoint.get(), status);
  }
};

}  // namespace

void SendControl(Worker* worker, std::shared_ptr<Endpoint> endpoint, ucp_ep_h ep, const remote::WireControl& control) {
  auto out = std::make_unique<OutgoingControl>(OutgoingControl{control, worker, std::move(endpoint)});
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags =
      UCP_AM_SEND_FLAG_EAGER | (control.kind == remote::WireControl::kFlush ? uint32_t{UCP_AM_SEND_FLAG_REPLY} : 0u);
  param.cb.send = [](void* request, ucs_status_t status, void* sent) {
    const std::unique_ptr<OutgoingControl> out(static_cast<OutgoingControl*>(sent));
    out->worker->ucx().ucp_request_free(request);
    out->End(status);
  };
  param.user_data = out.get();
  const ucs_status_ptr_t request =
      worker->ucx().ucp_am_send_nbx(ep, kControl, &out->control, sizeof(out->control), nullptr, 0, &param);
  if (request == nullptr || UCS_PTR_IS_ERR(request)) return out->End(UCS_PTR_STATUS(request));
  out.release();
}

}  // namespace axccl::ucx
