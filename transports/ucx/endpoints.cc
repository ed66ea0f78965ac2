#include "transports/ucx/endpoints.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "transports/ucx/descriptors.h"
#include "transports/ucx/reach.h"
#include "transports/ucx/stalled.h"

namespace axccl::ucx {
namespace {

// How long a connection without room may take to show whether its peer is still there.
constexpr std::chrono::milliseconds kRoom(500);

}  // namespace

std::shared_ptr<Endpoint> Endpoints::Find(const ProcessId& process) const {
  const auto found = endpoints_.find(process);
  return found != endpoints_.end() ? found->second : nullptr;
}

Result<std::shared_ptr<Endpoint>> Endpoints::Make(const ProcessId& process, std::span<const Way> ways) {
  auto endpoint = std::make_shared<Endpoint>(process);
  for (const Way& way : ways) {
    const Status status = AddLane(endpoint.get(), way);
    if (status.ok()) continue;
    for (const Endpoint::Lane& lane : endpoint->lanes) failed_.push_back(lane.ep);
    CloseFailed();
    return status;
  }
  endpoints_[process] = endpoint;
  greeting_.push_back(endpoint);
  return endpoint;
}

Status Endpoints::AddLane(Endpoint* endpoint, const Way& way) {
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(way.address->worker.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = on_error_;
  params.err_handler.arg = endpoint;
  ucp_ep_h ep = nullptr;
  if (const ucs_status_t status = ucx_.ucp_ep_create(way.rail->handle(), &params, &ep); status != UCS_OK)
    return ucx_.Error(status, "reaching another machine (is there a network device that both have?)");
  endpoint->Add(way.rail, ep, way.address->lifeline);
  if (std::find(rails_.begin(), rails_.end(), way.rail) == rails_.end()) rails_.push_back(way.rail);
  return Status();
}

void Endpoints::Greet() {
  // A peer that has been greeted has connections in both directions.
  if (std::erase_if(greeting_, [&](const auto& endpoint) { return endpoint->Greet(ucx_, self_); }) != 0)
    CloseOnExec(epolls_);
}

void Endpoints::Hear(const ProcessId& process, const Rail* rail, bool asks) {
  const std::shared_ptr<Endpoint> endpoint = Find(process);
  if (endpoint == nullptr || endpoint->failed) return;
  endpoint->Hear(rail, asks);
  if (std::find(greeting_.begin(), greeting_.end(), endpoint) == greeting_.end()) greeting_.push_back(endpoint);
}

bool Endpoints::Abandon(Endpoint* endpoint, const std::string& why) {
  if (std::exchange(endpoint->failed, true)) return false;
  for (Endpoint::Lane& lane : endpoint->lanes) failed_.push_back(std::exchange(lane.ep, nullptr));
  for (Reach* reach : endpoint->users) reach->Lose(why);
  return true;
}

// The addresses of processes that have not failed, except where one that has failed has the same.
std::vector<sockaddr_storage> Endpoints::SoundHosts() const {
  std::vector<sockaddr_storage> sound, lost;
  for (const auto& [process, endpoint] : endpoints_)
    for (const Endpoint::Lane& lane : endpoint->lanes) (endpoint->failed ? lost : sound).push_back(lane.peer);
  std::erase_if(sound, [&](const sockaddr_storage& host) {
    return std::any_of(lost.begin(), lost.end(), [&](const auto& other) { return OfSameHost(host, other); });
  });
  return sound;
}

void Endpoints::CloseFailed() {
  if (failed_.empty()) return;
  std::vector<int> event_fds;
  for (const Rail* rail : rails_) event_fds.push_back(rail->event_fd());
  ShutStalled(event_fds, SoundHosts(), kRoom);
  for (const ucp_ep_h ep : std::exchange(failed_, {})) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    param.cb.send = [](void* request, ucs_status_t, void*) { Library::Get().value()->ucp_request_free(request); };
    ucx_.ucp_ep_close_nbx(ep, &param);
  }
  std::erase_if(endpoints_, [](const auto& entry) { return entry.second->failed; });
}

void Endpoints::Arm() {
  do {
    while (Progress()) continue;
    Greet();
  } while (!std::all_of(rails_.begin(), rails_.end(), [](Rail* rail) { return rail->Arm(); }));
}

}  // namespace axccl::ucx
