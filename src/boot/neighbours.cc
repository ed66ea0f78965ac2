#include "src/boot/neighbours.h"

#include <algorithm>
#include <utility>

namespace axccl::boot {
namespace {

// What is queued is still sent. If sending fails for want of memory, the link stays, for the reason of the end.
void LeaveLink(Neighbour* neighbour) {
  if (neighbour->link == nullptr) return;
  neighbour->link->Send(FrameType::kLeave, {});
  std::exchange(neighbour->link, nullptr)->Finish();
}

}  // namespace

Neighbours::Neighbours(const Branch& branch) : has_parent_(branch.parent >= 0), children_(branch.children.size()) {
  if (has_parent_) parent_.name = "rank " + std::to_string(branch.parent);
  for (size_t i = 0; i < children_.size(); ++i) children_[i].name = "rank " + std::to_string(branch.children[i]);
}

bool Neighbours::complete() const {
  return (!has_parent_ || parent_.came) &&
         std::all_of(children_.begin(), children_.end(), [](const Neighbour& child) { return child.came; });
}

std::string Neighbours::Missing() const {
  std::string text;
  const auto add = [&](const std::string& name) { text += (text.empty() ? "" : ", ") + name; };
  if (has_parent_ && !parent_.came) add(parent_.name);
  for (const Neighbour& child : children_) {
    if (!child.came) add(child.name);
  }
  return text;
}

const Neighbour* Neighbours::FirstThatLeft() const {
  if (parent_.left) return &parent_;
  const auto found =
      std::find_if(children_.begin(), children_.end(), [](const Neighbour& child) { return child.left; });
  return found != children_.end() ? &*found : nullptr;
}

void Neighbours::Send(int to, FrameType type, std::span<const std::byte> payload) {
  if (const std::shared_ptr<Link>& link = At(to).link; link != nullptr) link->Send(type, payload);
}

void Neighbours::SendToChildren(FrameType type, std::span<const std::byte> payload) {
  for (int child = 0; child < num_children(); ++child) Send(child, type, payload);
}

bool Neighbours::ChildrenIdle() const {
  return std::all_of(children_.begin(), children_.end(),
                     [](const Neighbour& child) { return child.link == nullptr || child.link->idle(); });
}

void Neighbours::LeaveHubs() {
  for (Neighbour& hub : hubs_) {
    if (hub.link != nullptr) hub.left = true;
    LeaveLink(&hub);
  }
}

void Neighbours::LeaveAll() {
  LeaveLink(&parent_);
  for (Neighbour& child : children_) LeaveLink(&child);
  for (Neighbour& hub : hubs_) LeaveLink(&hub);
}

void Neighbours::End(int which, const Status& reason) {
  const std::shared_ptr<Link> link = std::exchange(At(which).link, nullptr);
  if (link == nullptr) return;
  if (!IsHub(which)) return link->End(reason);
  // If there is no memory for the frame, the end of the connection has to be enough.
  const Status sent = CatchAll("rendezvous", [&] {
    const std::string text = EncodeError(reason);
    link->Send(FrameType::kFailed, std::as_bytes(std::span(text)));
    return link->Finish(), Status();
  });
  if (!sent.ok()) link->Close();
}

void Neighbours::EndAll(const Status& reason) {
  for (int which = kHubAbove; which < num_children(); ++which) End(which, reason);
}

}  // namespace axccl::boot
