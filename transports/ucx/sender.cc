#include "transports/ucx/sender.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "transports/ucx/worker.h"

namespace axccl::ucx {
namespace {

constexpr uint64_t kNoLine = transport::Reach::kNoLine;

}  // namespace

struct Sender::Outgoing {
  std::shared_ptr<Sender> sender;  // while UCX sends
  std::shared_ptr<Memory> memory;
  std::vector<std::byte> header;
  std::vector<ucp_dt_iov_t> data;
  WireControl flush{};  // kind 0: none
  size_t lane = 0, bytes = 0;
};

Sender::Sender(Worker* worker, uint64_t comm, uint32_t self, uint32_t peer)
    : worker_(worker), comm_(comm), self_(self), peer_(peer) {}

Sender::~Sender() = default;

void Sender::Connect(std::shared_ptr<Endpoint> endpoint, std::weak_ptr<void> owner) {
  endpoint_ = std::move(endpoint);
  owner_ = std::move(owner);
}

ucs_status_t Sender::Send(const std::shared_ptr<Memory>& memory, std::span<const Stretch> stretches, uint64_t line) {
  const size_t most_bytes = endpoint_->lanes[0].rail->most_bytes();
  Stretch some[kMaxStretches];
  size_t count = 0, bytes = 0;
  ucs_status_t result = UCS_OK;  // after an error, the peer will not be sent anything any more
  const auto send = [&](uint64_t with_line) {
    if (result == UCS_OK) result = SendOne(memory, {some, count}, with_line);
    count = bytes = 0;
  };
  const auto add = [&](const Stretch& stretch) {
    if (count == kMaxStretches) send(kNoLine);
    some[count++] = stretch;
    bytes += stretch.bytes;
  };
  for (Stretch rest : stretches) {
    while (!rest.guarded && bytes + rest.bytes > most_bytes) {
      const size_t room = most_bytes - std::min(bytes, most_bytes);
      const auto first = static_cast<uint32_t>(room);
      if (first > 0) add({rest.offset, first, rest.of_peer, false});
      rest.offset += first;
      rest.bytes -= first;
      send(kNoLine);
    }
    add(rest);
  }
  send(line);
  return result;
}

ucs_status_t Sender::SendOne(const std::shared_ptr<Memory>& memory, std::span<const Stretch> stretches, uint64_t line) {
  if (endpoint_->failed) return UCS_OK;
  std::unique_ptr<Outgoing> message = std::move(spare_);
  if (message == nullptr) message = std::make_unique<Outgoing>();
  WireHeader head{};
  head.comm = comm_;
  head.from = self_;
  head.to = peer_;
  head.area = memory->key();
  head.line = line;
  head.stretches = static_cast<uint32_t>(stretches.size());
  head.turn = static_cast<uint32_t>(sent_++);
  if (line != kNoLine) std::memcpy(head.line_bytes, memory->own() + line, transport::Reach::kLineBytes);
  message->header.resize(sizeof(head) + stretches.size() * sizeof(WireStretch));
  std::memcpy(message->header.data(), &head, sizeof(head));
  for (size_t i = 0; i < stretches.size(); ++i) {
    const Stretch& s = stretches[i];
    const WireStretch wire{s.offset, s.bytes, s.of_peer, s.guarded, {}};
    std::memcpy(message->header.data() + sizeof(head) + i * sizeof(wire), &wire, sizeof(wire));
    message->data.push_back({(s.of_peer ? memory->mirror() : memory->own()) + s.offset, s.bytes});
    message->bytes += s.bytes;
  }
  message->memory = memory;
  return Post(std::move(message));
}

void Sender::Flush(size_t lane, uint32_t number) {
  auto flush = std::make_unique<Outgoing>();
  flush->lane = lane;
  flush->flush = {comm_, self_, peer_, WireControl::kFlush, number, static_cast<uint32_t>(sent_++), 0};
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
    SendControl(worker_->ucx(), endpoint_->lanes[message->lane].ep, message->flush);
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
  const ucs_status_ptr_t request = worker_->ucx().ucp_am_send_nbx(lane.ep, kMessage, message->header.data(),
                                                                  message->header.size(), data, count, &param);
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

void Sender::OnSent(void* request, ucs_status_t, void* arg) {
  const std::unique_ptr<Outgoing> message(static_cast<Outgoing*>(arg));
  Sender& sender = *message->sender;
  sender.worker_->ucx().ucp_request_free(request);
  sender.worker_->AddUnsent(-1);
  sender.endpoint_->lanes[message->lane].unsent -= message->bytes;
  sender.in_flight_.fetch_sub(1, std::memory_order_release);
}

// ---- flushes ----

WireControl Answer(const WireControl& flush) {
  return WireControl{flush.comm, flush.to, flush.from, WireControl::kFlushed, flush.number, 0, 0};
}

void SendControl(const Library& ucx, ucp_ep_h ep, const WireControl& control) {
  auto* const header = new WireControl(control);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_EAGER | (control.kind == WireControl::kFlush ? uint32_t{UCP_AM_SEND_FLAG_REPLY} : 0u);
  param.cb.send = [](void* request, ucs_status_t, void* sent) {
    delete static_cast<WireControl*>(sent);
    Library::Get().value()->ucp_request_free(request);
  };
  param.user_data = header;
  const ucs_status_ptr_t request = ucx.ucp_am_send_nbx(ep, kControl, header, sizeof(*header), nullptr, 0, &param);
  if (request == nullptr || UCS_PTR_IS_ERR(request)) delete header;
}

}  // namespace axccl::ucx
