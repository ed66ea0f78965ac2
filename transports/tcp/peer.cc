#include "transports/tcp/peer.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "transports/tcp/worker.h"

namespace axccl::tcp {
namespace {

constexpr size_t kSmall = 0;  // the lane of messages that are not large (remote::LaneChoice)
constexpr size_t kMostPaced = 48u << 10;
constexpr size_t kMostSpares = 4;
constexpr size_t kMostKept = 4u << 10;  // bytes of a frame

// BBR paces what it sends by timers. Between virtual NICs, which pass packets on at once, messages of more than one
// packet of 64 KiB then overtake each other, are taken as lost, and take up to four times as long
// (perf/results/hosts.md).
bool IsPaced(int fd) {
  char name[16] = {};
  socklen_t bytes = sizeof name;
  return getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes) == 0 && std::strncmp(name, "bbr", 3) == 0;
}

}  // namespace

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

Reach* Peer::Find(const remote::Reach::Key& key) const {
  const auto it = reaches_.find(key);
  return it != reaches_.end() ? it->second : nullptr;
}

std::vector<std::shared_ptr<Reach>> Peer::Reaches() const {
  std::vector<std::shared_ptr<Reach>> reaches;
  for (const auto& [key, reach] : reaches_) {
    if (auto kept = std::static_pointer_cast<Reach>(reach->weak_from_this().lock()); kept != nullptr)
      reaches.push_back(std::move(kept));
  }
  return reaches;
}

// ---- lines ----

std::shared_ptr<Connection> Peer::Opened(uint8_t rail, service::Fd fd, const remote::LineSession& session) {
  for (size_t i = 0; i < lanes_.size() && !failed_; ++i) {
    Lane& lane = lanes_[i];
    if (lane.rail != rail || lane.connection != nullptr) continue;
    called_ = true;
    if (IsPaced(fd.get())) most_bytes_ = kMostPaced;
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

size_t Peer::Choose(size_t bytes) {
  return choice_.Of(lanes_.size(), bytes, [this](size_t lane) { return lanes_[lane].connection->unsent(); });
}

// ---- sending ----

std::unique_ptr<Outgoing> Peer::TakeSpare() {
  if (spares_.empty()) return std::make_unique<Outgoing>();
  std::unique_ptr<Outgoing> spare = std::move(spares_.back());
  spares_.pop_back();
  return spare;
}

void Peer::PutSpare(std::unique_ptr<Outgoing> sent) {
  sent->Release();
  if (spares_.size() < kMostSpares) spares_.push_back(std::move(sent));
}

void Peer::Send(std::unique_ptr<Outgoing> frame) {
  if (failed_) return;
  if (open_) {
    const size_t lane = Choose(frame->bytes());
    return Post(lane, std::move(frame));
  }
  Delay(std::move(frame), false);
}

void Peer::Delay(std::unique_ptr<Outgoing> frame, bool control) {
  frame->Hold();
  delayed_.push_back({std::move(frame), control});
  if (!std::exchange(called_, true) && !remote::Lines::Made()->CallForData(process_))
    Fail("this process can make no connection any more");
}

void Peer::SendAside(std::unique_ptr<Outgoing> frame) {
  if (failed_) return;
  if (called_ || frame->bytes() > remote::Notice::kMostText) return Send(std::move(frame));
  remote::Lines::Made()->CallAndTell(process_, {.kind = remote::Notice::kMessage, .text = frame->Copy()});
  PutSpare(std::move(frame));
}

void Peer::SendState(std::unique_ptr<Outgoing> frame) {
  (void)remote::Lines::Made()->TellSomehow(process_, {.kind = remote::Notice::kState, .text = frame->Copy()});
  PutSpare(std::move(frame));
}

uint32_t Peer::SendBy(const ProcessId& relay, remote::Notice::Kind kind, const Outgoing& frame) {
  return remote::Lines::Made()->TellBy(relay, process_, {.kind = kind, .text = frame.Copy()});
}

void Peer::SendLater(std::unique_ptr<Outgoing> frame) {
  const bool small = frame->bytes() <= kMostKept;
  if (small) frame->CopyData();
  if (!open_ || !small) return Send(std::move(frame));
  kept_.push_back(std::move(frame));
}

bool Peer::SendKept(const Reach* reach) {
  const bool any =
      std::any_of(kept_.begin(), kept_.end(), [&](const auto& frame) { return frame->owner.get() == reach; });
  if (!any || failed_) return false;
  QueueKept();
  lanes_[kSmall].connection->SendMore();
  return true;
}

void Peer::QueueKept() {
  for (std::unique_ptr<Outgoing>& frame : kept_) lanes_[kSmall].connection->Queue(std::move(frame));
  kept_.clear();
}

void Peer::SendControl(size_t lane, const remote::WireControl& control, std::shared_ptr<Reach> owner) {
  if (failed_) return;
  auto frame = std::make_unique<Outgoing>();
  frame->Begin(FrameKind::kControl, &control, sizeof(control));
  frame->End();
  frame->owner = std::move(owner);
  frame->lane = lane;
  if (open_) return Post(lane, std::move(frame));
  Delay(std::move(frame), true);
}

void Peer::Post(size_t lane, std::unique_ptr<Outgoing> frame) {
  if (failed_) return;
  if (!kept_.empty()) {
    QueueKept();
    if (lane != kSmall) lanes_[kSmall].connection->SendMore();
  }
  lanes_[lane].connection->Send(&frame);
  if (frame != nullptr) PutSpare(std::move(frame));  // sent
}

void Peer::DropDelayed(const Reach* reach) {
  std::erase_if(delayed_, [&](const Delayed& delayed) { return delayed.frame->owner.get() == reach; });
  std::erase_if(kept_, [&](const auto& frame) { return frame->owner.get() == reach; });
}

// ---- for connections ----

bool Peer::Take(std::span<const std::byte> header, std::span<const std::byte> data, bool in_turn) {
  remote::Message message;
  if (!remote::ParseMessage(header.data(), header.size(), &message)) return false;
  Reach* const reach = Find({message.head.comm, message.head.to, message.head.from});
  Reach::Admission admitted;
  if (reach == nullptr) return true;
  if (!in_turn)
    reach->TakeState(message, data.data(), data.size());
  else if (reach->Admit(message, data.size(), &admitted))
    reach->Take(admitted, message, data.data(), data.size());
  return true;
}

void Peer::TakeControl(const Connection* connection, const remote::WireControl& control) {
  if (Reach* const reach = Find({control.comm, control.to, control.from}); reach != nullptr)
    return reach->TakeControl(connection, control);
  if (control.kind == remote::WireControl::kFlush) SendControl(connection->lane(), remote::Answer(control), nullptr);
}

void Peer::WantToSend(Connection* connection, bool wants) { worker_->WantToSend(connection, wants); }

void Peer::Fail(const std::string& why) {
  if (std::exchange(failed_, true)) return;
  for (const Lane& lane : lanes_) {
    if (lane.connection != nullptr) lane.connection->End();
  }
  delayed_.clear();
  kept_.clear();
  for (const auto& [key, reach] : reaches_) reach->Lose(why);
  changed_.notify_all();
  // The other side may not have noticed.
  if (remote::Lines* const lines = remote::Lines::Made(); lines != nullptr) lines->Cut(process_);
}

}  // namespace axccl::tcp
