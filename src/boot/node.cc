#include "src/boot/node.h"

#include <sodium.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "src/base/format.h"
#include "src/boot/rendezvous.h"

namespace axccl::boot {

Node::Node(service::Loop* loop, int rank, int nranks, int roots, const Secret& secret)
    : loop_(loop),
      rank_(rank),
      nranks_(nranks),
      branch_(BranchOf(rank, nranks, roots)),
      secret_(secret),
      self_(DescribeRank(rank, Self(Clock::now()))),
      mailbox_(rank, nranks),
      neighbours_(branch_),
      exchange_(rank, branch_) {
  randombytes_buf(id_.data(), id_.size());
}

Node::~Node() { sodium_memzero(const_cast<uint8_t*>(secret_.data()), secret_.size()); }

// ---- Links ----

// Starts the link to a neighbour that this rank has connected to. If this rank has failed meanwhile, it sends the
// reason, so that the neighbour does not take it for dead.
Status Node::Take(int from, Dial* dial, const std::string& name) {
  Status status;
  AXCCL_RETURN_IF_ERROR(loop_->Run([&] {
    const bool hub = Neighbours::IsHub(from);
    Neighbour& neighbour = neighbours_.At(from);
    neighbour.name = name;
    neighbour.came = !hub;
    const auto link =
        std::make_shared<Link>(loop_, dial->Release(), dial->cipher(), hub ? Role::kRank : Role::kChild, nranks_);
    neighbour.link = link;
    status = link->Start(shared_from_this(), from);
    if (status.ok() && failed_) neighbours_.End(from, reason_);
  }));
  return status;
}

Status Node::AddHub(Dial* dial, bool above) {
  mailbox_.ExpectStart();
  return Take(above ? Neighbours::kHubAbove : Neighbours::kOwnHub, dial, "the process that serves the unique id");
}

Status Node::AddParent(Dial* dial, const std::string& name) { return Take(Neighbours::kParent, dial, name); }

void Node::Enter(service::Fd fd, const FrameCipher& cipher, const Hello& hello, const JoinBody& join) {
  const auto link = std::make_shared<Link>(loop_, std::move(fd), cipher, Role::kParent, nranks_);
  const auto found = std::find(branch_.children.begin(), branch_.children.end(), hello.rank);
  if (hello.version != kProtocolVersion || hello.nranks != nranks_ || found == branch_.children.end()) {
    return link->Reject(MakeStatus(Code::kInvalidUsage, "rendezvous: rank %d of %d is not below rank %d of %d",
                                   hello.rank, hello.nranks, rank_, nranks_));
  }
  const int index = static_cast<int>(found - branch_.children.begin());
  Neighbour& child = neighbours_.At(index);
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
  Neighbour& hub = neighbours_.At(from);
  StartBody body;
  if (hub.came || payload.size() != sizeof body) {
    return Fail(MakeStatus(Code::kRemoteError, "%s sent a start at the wrong time", hub.name.c_str()));
  }
  std::memcpy(static_cast<void*>(&body), payload.data(), sizeof body);
  hub.came = true;
  mailbox_.PutStart(body);
}

// Leaves the hubs once no neighbour is missing any more.
void Node::NoteProgress() {
  if (failed_ || linked_ || !started_ || !neighbours_.complete()) return;
  neighbours_.LeaveHubs();
  linked_ = true;
  mailbox_.PutLinks();
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
  const bool hub = Neighbours::IsHub(from);
  const std::string& name = neighbours_.At(from).name;
  switch (type) {
    case FrameType::kError:
      return Fail(DecodeError(payload));
    case FrameType::kStart:
      if (!hub) break;
      return HubStarted(from, payload);
    case FrameType::kContribute:
      return Advance(exchange_.AddChild(static_cast<size_t>(from), payload, name));
    case FrameType::kGathered:
      if (hub || !exchange_.complete() || payload.size() != exchange_.block_bytes() * static_cast<size_t>(nranks_))
        break;
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
  Fail(MakeStatus(Code::kRemoteError, "%s sent a frame of type %u at the wrong time", name.c_str(),
                  static_cast<unsigned>(type)));
}

void Node::OnClosed(int from, const std::string& reason) {
  const auto keep = shared_from_this();
  Neighbour& peer = neighbours_.At(from);
  peer.link.reset();
  if (failed_ || peer.left) return;
  Fail(MakeStatus(Code::kRemoteError, "%s is gone: %s during the exchange of addresses", peer.name.c_str(),
                  reason.c_str()));
}

void Node::Fail(const Status& reason) {
  if (failed_) return;
  failed_ = true;
  reason_ = reason;
  const auto keep = shared_from_this();
  neighbours_.EndAll(reason_);
  mailbox_.PutFailure(reason_);
}

// ---- Exchanges ----

void Node::Contribute(std::span<const std::byte> mine) {
  if (failed_) return;
  if (const Neighbour* const left = neighbours_.FirstThatLeft(); left != nullptr) {
    return Fail(MakeStatus(Code::kRemoteError, "%s left after %d exchanges, but %s takes part in another",
                           left->name.c_str(), exchange_.user_exchanges(), self_.c_str()));
  }
  Advance(exchange_.AddOwn(mine));
}

// Follows a contribution, which has been refused unless `contributed` is ok.
void Node::Advance(const Status& contributed) {
  if (!contributed.ok()) return Fail(contributed);
  if (!exchange_.complete()) return;
  if (branch_.parent < 0) return Deliver(exchange_.blocks());
  neighbours_.Send(Neighbours::kParent, FrameType::kContribute, exchange_.blocks());
}

// Sends to the children first. The rank's thread gets the data once the kernel has taken all of it, because its process
// may then exit and end its links.
void Node::Deliver(std::span<const std::byte> all) {
  exchange_.Finish();
  neighbours_.SendToChildren(FrameType::kGathered, all);
  ready_.assign(all.begin(), all.end());
  HandOver();
}

void Node::OnSent(int) { HandOver(); }

void Node::HandOver() {
  if (failed_ || ready_.empty() || !neighbours_.ChildrenIdle()) return;
  mailbox_.PutBlocks(std::exchange(ready_, {}));
}

void Node::PeerLeft(int from) {
  Neighbour& peer = neighbours_.At(from);
  peer.left = true;
  if (peer.link != nullptr) std::exchange(peer.link, nullptr)->Close();
  if (Neighbours::IsHub(from) || !exchange_.HasOwn()) return;
  Fail(MakeStatus(Code::kRemoteError, "%s left after %d exchanges, but %s takes part in another", peer.name.c_str(),
                  exchange_.user_exchanges(), self_.c_str()));
}

void Node::Leave() {
  (void)!loop_
      ->Run([this] {
        if (failed_) return;
        failed_ = true;  // from now on, no neighbour gets errors
        neighbours_.LeaveAll();
      })
      .ok();
}

// ---- Deadlines ----

// A rank that has not contributed is the one that the others wait for. A rank that has contributed, or still misses a
// link, forwards the question to the neighbours that it waits for itself.
void Node::Expired(int from, uint32_t exchange, const std::string& text) {
  if (expired_ || exchange != static_cast<uint32_t>(exchange_.finished())) return;
  expired_ = true;
  if (!exchange_.HasOwn() && linked_) {
    return Fail(MakeStatus(Code::kTimeout, "rendezvous: %s for the addresses of %s", text.c_str(), self_.c_str()));
  }
  std::string payload(reinterpret_cast<const char*>(&exchange), sizeof exchange);
  payload += text.substr(0, kMaxText);
  const auto ask = [&](int which) {
    if (which != from) neighbours_.Send(which, FrameType::kExpired, std::as_bytes(std::span(payload)));
  };
  ask(Neighbours::kOwnHub);
  ask(Neighbours::kHubAbove);
  if (exchange_.complete()) return ask(Neighbours::kParent);
  for (int child = 0; child < neighbours_.num_children(); ++child) {
    if (!exchange_.HasChild(static_cast<size_t>(child))) ask(child);
  }
}

// Some rank will name the missing one, unless that process is stopped.
Status Node::AwaitBlame(const Patience& patience, const Status& seen, Mailbox::News news) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.3g s",
                std::chrono::duration<double>(patience.deadline - patience.start).count());
  AXCCL_RETURN_IF_ERROR(loop_->Run([&] {
    if (failed_) return;
    Expired(Neighbours::kNone, static_cast<uint32_t>(exchange_.finished()),
            self_ + " waited until its deadline (" + seconds + ")");
  }));
  return mailbox_.AwaitReason(news, seen, patience.stop);
}

// ---- The rank's thread ----

// The hub watches the deadlines of the ranks that have checked in, and names the missing ones.
Status Node::AwaitStart(const Patience& patience, StartBody* parent) {
  const Patience longer{patience.deadline + kGrace, patience.stop};
  AXCCL_RETURN_IF_ERROR(mailbox_.Await(Mailbox::News::kStart, longer, "waiting for the other ranks to come"));
  *parent = mailbox_.start();
  return Status();
}

Status Node::AwaitLinks(const Patience& patience) {
  constexpr auto kNews = Mailbox::News::kLinks;
  AXCCL_RETURN_IF_ERROR(loop_->Run([this] {
    started_ = true;
    NoteProgress();
  }));
  const Status status = mailbox_.Await(kNews, patience, "waiting for the ranks next to it in the tree");
  if (status.code() != Code::kTimeout) return status;
  std::string missing;
  AXCCL_RETURN_IF_ERROR(loop_->Run([&] { missing = neighbours_.Missing(); }));
  return AwaitBlame(patience, MakeStatus(Code::kTimeout, "%s (%s)", status.message().data(), missing.c_str()), kNews);
}

Status Node::AllGather(const Patience& patience, std::span<const std::byte> mine, std::span<std::byte> all) {
  constexpr auto kNews = Mailbox::News::kBlocks;
  mailbox_.ExpectBlocks();
  AXCCL_RETURN_IF_ERROR(loop_->Run([&] { Contribute(mine); }));
  Status status = mailbox_.Await(kNews, patience, "waiting for the addresses of the others");
  if (status.code() == Code::kTimeout && mailbox_.failure().ok()) status = AwaitBlame(patience, status, kNews);
  AXCCL_RETURN_IF_ERROR(status);
  return mailbox_.CopyBlocks(all);
}

// This rank's own thread gets `mine` itself, not the text for the others.
Status Node::GiveUp(const Status& mine) {
  AXCCL_RETURN_IF_ERROR(loop_->Run([&] {
    if (failed_) return;
    const Status others =
        MakeStatus(CodeForOthers(mine.code()), "%s gave up: %s", self_.c_str(), mine.message().data());
    mailbox_.PutFailure(mine);
    Fail(others);
  }));
  return mailbox_.failure();
}

Status Node::AwaitReason(const Status& seen, const service::Stop& stop) {
  return mailbox_.AwaitReason(Mailbox::News::kEnd, seen, stop);
}

}  // namespace axccl::boot
