#include "src/boot/node.h"

#include <sodium.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "src/base/format.h"
#include "src/base/log.h"
#include "src/boot/rendezvous.h"

namespace axccl::boot {

Node::Node(service::Loop* loop, int rank, int nranks, int roots, const Secret& secret)
    : loop_(loop),
      rank_(rank),
      nranks_(nranks),
      branch_(BranchOf(rank, nranks, roots)),
      secret_(secret),
      self_(DescribeRank(rank, Self(Clock::now()))),
      children_(branch_.children.size()) {
  randombytes_buf(id_.data(), id_.size());
  for (size_t i = 0; i < children_.size(); ++i) children_[i].name = "rank " + std::to_string(branch_.children[i]);
}

Node::~Node() { sodium_memzero(const_cast<uint8_t*>(secret_.data()), secret_.size()); }

std::vector<Node::Neighbour*> Node::Neighbours() {
  std::vector<Neighbour*> all{&parent_};
  for (Neighbour& child : children_) all.push_back(&child);
  all.push_back(&hubs_[0]);
  all.push_back(&hubs_[1]);
  return all;
}

// ---- Links ----

// Starts a new link. If this rank has failed meanwhile, it sends the reason, so that the neighbour does not take it for
// dead.
Status Node::Take(int from) {
  const std::shared_ptr<Link> link = At(from).link;
  AXCCL_RETURN_IF_ERROR(link->Start(shared_from_this(), from));
  if (failed_) Dismiss(from);
  return Status();
}

void Node::Dismiss(int from) {
  const std::shared_ptr<Link> link = std::exchange(At(from).link, nullptr);
  if (link == nullptr) return;
  if (from != kOwnHub && from != kHubAbove) return link->End(reason_);
  // If there is no memory for the frame, the end of the connection has to be enough.
  const Status sent = CatchAll("rendezvous", [&] {
    const std::string text = EncodeError(reason_);
    link->Send(FrameType::kFailed, std::as_bytes(std::span(text)));
    return link->Finish(), Status();
  });
  if (!sent.ok()) link->Close();
}

Status Node::AddHub(Dial* dial, bool above) {
  {
    std::lock_guard lock(mutex_);
    ++starts_awaited_;
  }
  Status status;
  AXCCL_RETURN_IF_ERROR(loop_->Run([&] {
    const int from = above ? kHubAbove : kOwnHub;
    At(from).name = "the process that serves the unique id";
    At(from).link = std::make_shared<Link>(loop_, dial->Release(), dial->cipher(), Role::kRank, nranks_);
    status = Take(from);
  }));
  return status;
}

Status Node::AddParent(Dial* dial, const std::string& name) {
  Status status;
  AXCCL_RETURN_IF_ERROR(loop_->Run([&] {
    parent_.name = name;
    parent_.link = std::make_shared<Link>(loop_, dial->Release(), dial->cipher(), Role::kChild, nranks_);
    parent_.came = true;
    status = Take(kParent);
  }));
  return status;
}

void Node::Enter(service::Fd fd, const FrameCipher& cipher, const Hello& hello, const JoinBody& join) {
  const auto link = std::make_shared<Link>(loop_, std::move(fd), cipher, Role::kParent, nranks_);
  const auto found = std::find(branch_.children.begin(), branch_.children.end(), hello.rank);
  if (hello.version != kProtocolVersion || hello.nranks != nranks_ || found == branch_.children.end()) {
    return link->Reject(MakeStatus(Code::kInvalidUsage, "rendezvous: rank %d of %d is not below rank %d of %d",
                                   hello.rank, hello.nranks, rank_, nranks_));
  }
  const int index = static_cast<int>(found - branch_.children.begin());
  Neighbour& child = At(index);
  if (failed_ || child.came) {
    return link->Reject(
        failed_ ? reason_
                : MakeStatus(Code::kInvalidUsage, "rendezvous: rank %d came twice to rank %d", hello.rank, rank_));
  }
  child.came = true;
  child.name = DescribeRank(hello.rank, join);
  child.link = link;
  if (const Status status = link->Start(shared_from_this(), index); !status.ok()) return Fail(status);
  link->Send(FrameType::kAdmitted, {});
  NoteProgress();
}

void Node::HubStarted(int from, std::span<const std::byte> payload) {
  Neighbour& hub = At(from);
  StartBody body;
  if (hub.came || payload.size() != sizeof body) {
    return Fail(MakeStatus(Code::kRemoteError, "%s sent a start at the wrong time", hub.name.c_str()));
  }
  std::memcpy(static_cast<void*>(&body), payload.data(), sizeof body);
  hub.came = true;
  std::lock_guard lock(mutex_);
  if (body.parent.num_addresses != 0) start_ = body;
  --starts_awaited_;
  changed_.notify_all();
}

// Leaves the hubs once no neighbour is missing any more.
void Node::NoteProgress() {
  if (failed_ || linked_ || !started_) return;
  if (branch_.parent >= 0 && !parent_.came) return;
  if (std::any_of(children_.begin(), children_.end(), [](const Neighbour& child) { return !child.came; })) return;
  for (Neighbour& hub : hubs_) {
    if (hub.link == nullptr) continue;
    hub.left = true;
    hub.link->Send(FrameType::kLeave, {});
    std::exchange(hub.link, nullptr)->Finish();
  }
  std::lock_guard lock(mutex_);
  linked_ = true;
  changed_.notify_all();
}

std::string Node::Missing() {
  std::string text;
  const auto add = [&](const std::string& name) { text += (text.empty() ? "" : ", ") + name; };
  if (branch_.parent >= 0 && !parent_.came)
    add(parent_.name.empty() ? "rank " + std::to_string(branch_.parent) : parent_.name);
  for (const Neighbour& child : children_) {
    if (!child.came) add(child.name);
  }
  return text;
}

// If memory runs out while a frame is handled, the rendezvous fails: ranks that did not get the frame would wait
// forever.
void Node::OnFrame(int from, FrameType type, std::span<const std::byte> payload) {
  const auto keep = shared_from_this();
  const Status taken = CatchAll("rendezvous", [&] { return Handle(from, type, payload), Status(); });
  if (!taken.ok()) Fail(taken);
}

void Node::Handle(int from, FrameType type, std::span<const std::byte> payload) {
  if (failed_) return;
  const bool hub = from == kOwnHub || from == kHubAbove;
  switch (type) {
    case FrameType::kError:
      return Fail(DecodeError(payload));
    case FrameType::kStart:
      if (!hub) break;
      return HubStarted(from, payload);
    case FrameType::kContribute:
      return ChildContributed(from, payload);
    case FrameType::kGathered:
      if (hub || !sent_up_ || payload.size() != bytes_ * static_cast<size_t>(nranks_)) break;
      return Deliver(payload);
    case FrameType::kLeave:
      return PeerLeft(from);
    case FrameType::kExpired: {
      uint32_t exchange = 0;
      if (payload.size() < sizeof exchange) break;
      std::memcpy(&exchange, payload.data(), sizeof exchange);
      const std::string_view text(reinterpret_cast<const char*>(payload.data()) + sizeof exchange,
                                  payload.size() - sizeof exchange);
      return Expired(from, exchange, Printable(text));
    }
    default:
      break;
  }
  Fail(MakeStatus(Code::kRemoteError, "%s sent a frame of type %u at the wrong time", At(from).name.c_str(),
                  static_cast<unsigned>(type)));
}

void Node::OnClosed(int from, const std::string& reason) {
  const auto keep = shared_from_this();
  Neighbour& peer = At(from);
  peer.link.reset();
  if (failed_ || peer.left) return;
  Fail(MakeStatus(Code::kRemoteError, "%s is gone: %s during the exchange of addresses", peer.name.c_str(),
                  reason.c_str()));
}

void Node::Fail(const Status& reason, const Status& mine) {
  if (failed_) return;
  failed_ = true;
  reason_ = reason;
  const auto keep = shared_from_this();
  for (int from = kHubAbove; from < static_cast<int>(children_.size()); ++from) Dismiss(from);
  std::lock_guard lock(mutex_);
  failure_ = mine;
  changed_.notify_all();
}

// ---- Exchanges ----

bool Node::Begin(size_t bytes, int rank) {
  if (!open_) {
    open_ = true;
    bytes_ = bytes;
    first_ = rank;
    gather_.resize(bytes * static_cast<size_t>(branch_.end - rank_));
    return true;
  }
  if (bytes == bytes_) return true;
  Fail(MakeStatus(Code::kInternalError, "exchange %d: rank %d contributed %zu bytes, rank %d %zu", UserExchanges(),
                  rank, bytes, first_, bytes_));
  return false;
}

void Node::Contribute(std::span<const std::byte> mine) {
  if (failed_) return;
  for (const Neighbour* each : Neighbours()) {
    if (!each->left || each == &hubs_[0] || each == &hubs_[1]) continue;
    return Fail(MakeStatus(Code::kRemoteError, "%s left after %d exchanges, but %s takes part in another",
                           each->name.c_str(), UserExchanges(), self_.c_str()));
  }
  if (!Begin(mine.size(), rank_)) return;
  std::copy(mine.begin(), mine.end(), gather_.begin());
  own_ = true;
  Advance();
}

void Node::ChildContributed(int index, std::span<const std::byte> payload) {
  Neighbour& child = At(index);
  const int rank = branch_.children[static_cast<size_t>(index)];
  const size_t ranks = static_cast<size_t>(branch_.ends[static_cast<size_t>(index)] - rank);
  if (child.contributed || payload.empty() || payload.size() % ranks != 0 ||
      payload.size() / ranks > kMaxContribution) {
    return Fail(MakeStatus(Code::kRemoteError, "%s contributed to an exchange at the wrong time", child.name.c_str()));
  }
  if (!Begin(payload.size() / ranks, rank)) return;
  child.contributed = true;
  std::copy(payload.begin(), payload.end(),
            gather_.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(rank - rank_) * bytes_));
  Advance();
}

void Node::Advance() {
  if (!own_ ||
      std::any_of(children_.begin(), children_.end(), [](const Neighbour& child) { return !child.contributed; }))
    return;
  if (branch_.parent < 0) return Deliver(gather_);
  sent_up_ = true;
  if (parent_.link != nullptr) parent_.link->Send(FrameType::kContribute, gather_);
}

// Sends to the children first. The rank's thread gets the data once the kernel has taken all of it, because its process
// may then exit and end its links.
void Node::Deliver(std::span<const std::byte> all) {
  open_ = own_ = sent_up_ = false;
  for (Neighbour& child : children_) child.contributed = false;
  ++exchanges_;
  for (const Neighbour& child : children_) {
    if (child.link != nullptr) child.link->Send(FrameType::kGathered, all);
  }
  ready_.assign(all.begin(), all.end());
  HandOver();
}

void Node::OnSent(int) { HandOver(); }

void Node::HandOver() {
  if (failed_ || ready_.empty()) return;
  for (const Neighbour& child : children_) {
    if (child.link != nullptr && !child.link->idle()) return;
  }
  std::lock_guard lock(mutex_);
  gathered_ = std::exchange(ready_, {});
  ++delivered_;
  changed_.notify_all();
}

void Node::PeerLeft(int from) {
  Neighbour& peer = At(from);
  peer.left = true;
  if (peer.link != nullptr) std::exchange(peer.link, nullptr)->Close();
  if (from == kOwnHub || from == kHubAbove || !own_) return;
  Fail(MakeStatus(Code::kRemoteError, "%s left after %d exchanges, but %s takes part in another", peer.name.c_str(),
                  UserExchanges(), self_.c_str()));
}

void Node::Leave() {
  (void)!loop_
      ->Run([this] {
        if (failed_) return;
        failed_ = true;  // from now on, no neighbour gets errors
        for (Neighbour* each : Neighbours()) {
          const std::shared_ptr<Link> link = std::exchange(each->link, nullptr);
          if (link == nullptr) continue;
          link->Send(FrameType::kLeave, {});
          link->Finish();
        }
      })
      .ok();
}

// ---- Deadlines ----

void Node::Expire() {
  if (failed_) return;
  Expired(kNone, static_cast<uint32_t>(exchanges_), self_ + " waited until its deadline (" + patience_text_ + ")");
}

// A rank that has not contributed is the one that the others wait for. A rank that has contributed, or still misses a
// link, forwards the question to the neighbours that it waits for itself.
void Node::Expired(int from, uint32_t exchange, const std::string& text) {
  if (expired_ || exchange != static_cast<uint32_t>(exchanges_)) return;
  expired_ = true;
  if (!own_ && linked_) {
    return Fail(MakeStatus(Code::kTimeout, "rendezvous: %s for the addresses of %s", text.c_str(), self_.c_str()));
  }
  std::string payload(reinterpret_cast<const char*>(&exchange), sizeof exchange);
  payload += text.substr(0, kMaxText);
  const auto ask = [&](const Neighbour& who) {
    if ((from == kNone || &who != &At(from)) && who.link != nullptr)
      who.link->Send(FrameType::kExpired, std::as_bytes(std::span(payload)));
  };
  for (const Neighbour& hub : hubs_) ask(hub);
  if (sent_up_) return ask(parent_);
  for (const Neighbour& child : children_) {
    if (!child.contributed) ask(child);
  }
}

// ---- The rank's thread ----

Status Node::Wait(const Patience& patience, const char* what, const std::function<bool()>& done) {
  constexpr auto kSlice = std::chrono::milliseconds(10);
  std::unique_lock lock(mutex_);
  for (;;) {
    if (done()) return Status();  // data that has come belongs to the rank, whatever has happened since
    if (!failure_.ok()) return failure_;
    if (patience.stop && patience.stop()) {
      return WaitFailed(service::Wait::kStopped, rank_, nranks_, "", what);
    }
    const auto now = Clock::now();
    if (now >= patience.deadline) return WaitFailed(service::Wait::kTimeout, rank_, nranks_, "", what);
    const auto slice = patience.stop ? std::min(patience.deadline, now + kSlice)
                                     : std::min(patience.deadline, now + std::chrono::hours(1));
    changed_.wait_until(lock, slice);
  }
}

// The hub watches the deadlines of the ranks that have checked in, and names the missing ones.
Status Node::AwaitStart(const Patience& patience, StartBody* parent) {
  const Patience longer{patience.deadline + kGrace, patience.stop};
  AXCCL_RETURN_IF_ERROR(Wait(longer, "waiting for the other ranks to come", [this] { return starts_awaited_ == 0; }));
  std::lock_guard lock(mutex_);
  *parent = start_;
  return Status();
}

Status Node::AwaitLinks(const Patience& patience) {
  AXCCL_RETURN_IF_ERROR(loop_->Run([this] {
    started_ = true;
    NoteProgress();
  }));
  const auto done = [this] { return linked_; };
  const Status status = Wait(patience, "waiting for the ranks next to it in the tree", done);
  if (status.code() != Code::kTimeout) return status;
  std::string missing;
  AXCCL_RETURN_IF_ERROR(loop_->Run([&] { missing = Missing(); }));
  return AwaitBlame(patience, MakeStatus(Code::kTimeout, "%s (%s)", status.message().data(), missing.c_str()), done);
}

// Some rank will name the missing one, unless that process is stopped.
Status Node::AwaitBlame(const Patience& patience, const Status& seen, const std::function<bool()>& done) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.3g s",
                std::chrono::duration<double>(patience.deadline - patience.start).count());
  AXCCL_RETURN_IF_ERROR(loop_->Run([&] {
    patience_text_ = seconds;
    Expire();
  }));
  const Status status = Wait(Patience{Clock::now() + kGrace, patience.stop}, "", done);
  return status.code() == Code::kTimeout && failure().ok() ? seen : status;
}

Status Node::AllGather(const Patience& patience, std::span<const std::byte> mine, std::span<std::byte> all) {
  uint64_t before;
  {
    std::lock_guard lock(mutex_);
    before = delivered_;
  }
  AXCCL_RETURN_IF_ERROR(loop_->Run([&] { Contribute(mine); }));
  const auto done = [&] { return delivered_ != before; };
  Status status = Wait(patience, "waiting for the addresses of the others", done);
  if (status.code() == Code::kTimeout && failure().ok()) status = AwaitBlame(patience, status, done);
  AXCCL_RETURN_IF_ERROR(status);
  std::lock_guard lock(mutex_);
  if (gathered_.size() != all.size())
    return MakeStatus(Code::kInternalError, "exchange of %zu bytes gave %zu", all.size(), gathered_.size());
  std::copy(gathered_.begin(), gathered_.end(), all.begin());
  return Status();
}

Status Node::failure() {
  std::lock_guard lock(mutex_);
  return failure_;
}

Status Node::GiveUp(const Status& mine) {
  AXCCL_RETURN_IF_ERROR(loop_->Run([&] {
    Fail(MakeStatus(CodeForOthers(mine.code()), "%s gave up: %s", self_.c_str(), mine.message().data()), mine);
  }));
  return failure();
}

Status Node::AwaitReason(const Status& seen, const service::Stop& stop) {
  const Status status = Wait(Patience{Clock::now() + kGrace, stop}, "", [] { return false; });
  return status.code() == Code::kTimeout && failure().ok() ? seen : status;
}

}  // namespace axccl::boot
