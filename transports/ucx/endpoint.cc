#include "transports/ucx/endpoint.h"
#include "transports/ucx/greeting.h"

#include <algorithm>

#include "src/base/log.h"
#include "transports/ucx/greeting.h"
#include "transports/ucx/reach.h"

namespace axccl::ucx {
namespace {

// Sends the greeting now, or not at all.
ucs_status_t SendAtOnce(const Library& ucx, ucp_ep_h ep, const WireGreeting& greeting) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
  return UCS_PTR_STATUS(ucx.ucp_am_send_nbx(ep, kGreeting, &greeting, sizeof(greeting), nullptr, 0, &param));
}

}  // namespace

void Endpoint::Add(Rail* rail, ucp_ep_h ep, const sockaddr_storage& peer) {
  lanes.push_back({rail, ep, peer, 0, rail->greets(), !rail->greets()});
}

size_t Endpoint::Choose(size_t bytes) {
  return choice_.Of(lanes.size(), bytes, [this](size_t lane) { return lanes[lane].unsent; });
}

Endpoint::Lane& Endpoint::LaneOf(const Rail* rail) {
  const auto found = std::find_if(lanes.begin(), lanes.end(), [&](const Lane& lane) { return lane.rail == rail; });
  return found != lanes.end() ? *found : lanes.front();
}

bool Endpoint::Greet(const Library& ucx, const ProcessId& self) {
  const bool late = Clock::now() >= until_;
  bool all_said = true, all_done = true;
  for (Lane& lane : lanes) {
    if (failed) return true;
    if (lane.to_greet) lane.to_greet = !late && SendAtOnce(ucx, lane.ep, {self, !lane.greeted, 0}) != UCS_OK;
    all_done = all_done && !lane.to_greet;
    all_said = all_said && !lane.to_greet && lane.greeted;
  }
  if (failed || (open_ && all_done)) return true;
  if (open_ || !(all_said || late)) return false;
  if (!all_said) {
    AXCCL_INFO(kNet, "a process on another machine has not greeted for %d s; it is sent messages all the same",
               static_cast<int>(kPatience.count()));
  }
  open_ = true;
  for (Reach* reach : users) reach->SendDelayed();
  return all_done;
}

void Endpoint::Hear(const Rail* rail, bool asks) {
  Lane& lane = LaneOf(rail);
  lane.greeted = true;
  if (!asks) return;
  // Earlier greetings, if any, arrived when the peer did not know this process yet.
  lane.to_greet = true;
  until_ = Clock::now() + kPatience;
}

}  // namespace axccl::ucx
