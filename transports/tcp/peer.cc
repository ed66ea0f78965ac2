#include "transports/tcp/peer.h"

#include <algorithm>
#include <utility>

#include "transports/tcp/worker.h"

namespace axccl::tcp {

Peer::Peer(Worker* worker, const ProcessId& process, std::vector<uint8_t> rails, const Protection& protection)
    : worker_(worker), process_(process), protection_(protection) {
  for (const uint8_t rail : rails) lanes_.push_back({rail, nullptr});
}

// ---- ranks ----

void Peer::Add(Reach* reach) { reaches_[reach->key()] = reach; }

void Peer::Remove(Reach* reach) {
  DropDelayed(reach);
  for (const Lane& lane : lanes_) {
    if (lane.connection != nullptr) lane.connection->Forget(reach);
  }
  const auto it = reaches_.find(reach->key());
  if (it != reaches_.end() && it->second == reach) reaches_.erase(it);
}

Reach* Peer::Find(const remote::WireHeader& head) const {
  const auto it = reaches_.find(remote::Reach::Key{head.comm, head.to, head.from});
  return it != reaches_.end() ? it->second : nullptr;
}

// ---- lines ----

std::shared_ptr<Connection> Peer::Opened(uint8_t rail, service::Fd fd, const remote::LineSession& session) {
  for (size_t i = 0; i < lanes_.size() && !failed_; ++i) {
    Lane& lane = lanes_[i];
    if (lane.rail != rail || lane.connection != nullptr) continue;
    lane.connection = std::make_shared<Connection>(this, i, std::move(fd), session, protection_);
    return lane.connection;
  }
  return nullptr;
}

void Peer::SendDelayed() {
  open_ = std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.connection != nullptr; });
  if (!open_) return;
  for (Delayed& delayed : std::exchange(delayed_, {})) {
    const size_t lane = delayed.control ? delayed.frame->lane : Choose(delayed.frame->bytes());
    Post(lane, std::move(delayed.frame));
  }
}

size_t Peer::LaneOf(const void* connection) const {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].connection.get() == connection) return i;
  }
  return 0;
}

// A message that is not large uses the first lane, so that consecutive ones arrive in order and find each other in the
// processor's caches; a large one uses the lane with the least data under way.
size_t Peer::Choose(size_t bytes) {
  if (lanes_.size() == 1 || bytes < remote::kLargeBytes) return 0;
  size_t best = turn_;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const size_t next = (turn_ + i) % lanes_.size();
    if (lanes_[next].connection->unsent() < lanes_[best].connection->unsent()) best = next;
  }
  turn_ = (best + 1) % lanes_.size();
  return best;
}

// ---- sending ----

std::unique_ptr<Outgoing> Peer::TakeSpare() {
  return spare_ != nullptr ? std::move(spare_) : std::make_unique<Outgoing>();
}

void Peer::Send(std::unique_ptr<Outgoing> frame) {
  if (failed_) return;
  if (open_) {
    const size_t lane = Choose(frame->bytes());
    return Post(lane, std::move(frame));
  }
  frame->Hold();
  delayed_.push_back({std::move(frame), false});
}

void Peer::SendControl(size_t lane, const remote::WireControl& control, std::shared_ptr<Reach> owner) {
  if (failed_) return;
  auto frame = std::make_unique<Outgoing>();
  frame->Begin(FrameKind::kControl, &control, sizeof(control));
  frame->End();
  frame->owner = std::move(owner);
  frame->lane = lane;
  if (open_) return Post(lane, std::move(frame));
  frame->Hold();
  delayed_.push_back({std::move(frame), true});
}

void Peer::Post(size_t lane, std::unique_ptr<Outgoing> frame) {
  if (failed_) return;
  lanes_[lane].connection->Send(&frame);
  if (frame == nullptr) return;
  frame->Release();  // sent
  spare_ = std::move(frame);
}

void Peer::DropDelayed(const Reach* reach) {
  std::erase_if(delayed_, [&](const Delayed& delayed) { return delayed.frame->owner.get() == reach; });
}

// ---- for connections ----

void Peer::TakeControl(const Connection* connection, const remote::WireControl& control) {
  const remote::WireHeader head{control.comm, control.from, control.to, 0, 0, 0, 0, {}};
  if (Reach* const reach = Find(head); reach != nullptr) return reach->TakeControl(connection, control);
  if (control.kind == remote::WireControl::kFlush) SendControl(connection->lane(), remote::Answer(control), nullptr);
}

void Peer::ConnectionFailed(const Connection* connection) { Fail(connection->trouble()); }

void Peer::WantToSend(Connection* connection, bool wants) { worker_->WantToSend(connection, wants); }

void Peer::Fail(const std::string& why) {
  if (std::exchange(failed_, true)) return;
  for (const Lane& lane : lanes_) {
    if (lane.connection != nullptr) lane.connection->End();
  }
  delayed_.clear();
  for (const auto& [key, reach] : reaches_) reach->Lose(why);
  changed_.notify_all();
  // The other side may not have noticed.
  if (remote::Lines* const lines = remote::Lines::Made(); lines != nullptr) lines->Cut(process_);
}

}  // namespace axccl::tcp
