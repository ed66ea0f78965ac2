// A rank's place in the tree in which many ranks meet (see tree.h).
//
// The service thread owns the links to the hubs, to the parent and to the children, and forwards what arrives, whatever
// the rank's own thread does. So a failure reaches every rank at once, and a late rank can be distinguished from one
// that waits for others. The rank's thread only waits for what the node has for it.
//
//   check in       at the hub: this rank's identity, and the address at which its children can connect
//   kStart         from the hub: all ranks of the group have checked in; the address of the parent
//   connect        to the parent; the children connect to this rank
//   kLeave         to the hubs, once all links stand. From here on, the neighbours in the tree notice when a rank dies;
//                  before, the hub does, and every rank that still misses a link is connected to it.
//   kContribute    (first of all one byte each, so that all ranks know that all have joined)
//                  upwards, once the rank and all its descendants have contributed: one block
//   kGathered      downwards
//   kExpired       from a rank whose deadline has passed, to those it may be waiting for, and through the hubs while
//   links
//                  are missing. A rank that has not contributed fails the rendezvous in its own name; so does a hub
//                  that knows which ranks have not come.
//   kError         in all directions, the first time something goes wrong
//
// The rank's thread may call the methods marked T, which serialise with the service thread themselves.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "src/base/service.h"
#include "src/boot/dial.h"
#include "src/boot/link.h"
#include "src/boot/tree.h"
#include "src/boot/unique_id.h"
#include "src/boot/wire.h"

namespace axccl::boot {

class Node : public LinkOwner, public std::enable_shared_from_this<Node> {
 public:
  // `secret`: the secret that the ranks of the tree prove to each other.
  Node(service::Loop* loop, int rank, int nranks, int roots, const Secret& secret);
  ~Node() override;

  const Branch& branch() const { return branch_; }
  const IdBytes& id() const { return id_; }
  const Secret& secret() const { return secret_; }

  // T. Takes over the connection to a hub that the rank has joined; `above`: that hub sends the address of the parent.
  Status AddHub(Dial* dial, bool above);
  // T. Takes over the connection to the parent.
  Status AddParent(Dial* dial, const std::string& name);
  bool gave_up() const { return !reason_.ok(); }  // on the service thread
  // Adds a rank that has proved that it knows the secret. On the service thread.
  void Enter(service::Fd fd, const FrameCipher& cipher, const Hello& hello, const JoinBody& join);

  // T. Waits until every hub has sent kStart. *parent: the parent, without address for rank 0.
  Status AwaitStart(const Patience& patience, StartBody* parent);
  // T. Waits until all links stand, and leaves the hubs.
  Status AwaitLinks(const Patience& patience);
  // T. The exchange.
  Status AllGather(const Patience& patience, std::span<const std::byte> mine, std::span<std::byte> all);
  // T. Ends the rendezvous for all ranks, unless it has ended already. Returns the reason of the end.
  Status GiveUp(const Status& mine);
  // T. Returns the reason of an end that this rank sees as `seen`; waits a moment in case another rank is about to send
  // it.
  Status AwaitReason(const Status& seen, const service::Stop& stop);
  // T. Leaves; what is queued is still sent.
  void Leave();

  void OnFrame(int from, FrameType type, std::span<const std::byte> payload) override;
  void OnClosed(int from, const std::string& reason) override;
  void OnSent(int from) override;

 private:
  // The neighbour that a link leads to, as Link's `rank`: a child's index, or one of these.
  static constexpr int kParent = -1, kOwnHub = -2, kHubAbove = -3, kNone = -4;

  struct Neighbour {
    std::shared_ptr<Link> link;  // null: not there yet, or closed
    std::string name;            // "rank 3 (pid 812 on node7)"
    bool came = false;           // the link stands
    bool left = false;
    bool contributed = false;  // children: to the current exchange
  };

  Neighbour& At(int from) {
    return from >= 0 ? children_[static_cast<size_t>(from)] : from == kParent ? parent_ : hubs_[from == kHubAbove];
  }
  // All neighbours, hubs last.
  std::vector<Neighbour*> Neighbours();
  Status Take(int from);
  void Handle(int from, FrameType type, std::span<const std::byte> payload);
  void Dismiss(int from);
  Status Wait(const Patience& patience, const char* what, const std::function<bool()>& done);
  std::string Missing();
  void HubStarted(int from, std::span<const std::byte> payload);
  void NoteProgress();
  void Contribute(std::span<const std::byte> mine);
  void ChildContributed(int child, std::span<const std::byte> payload);
  bool Begin(size_t bytes, int rank);
  void Advance();
  void Deliver(std::span<const std::byte> all);
  void HandOver();
  void PeerLeft(int from);
  int UserExchanges() const { return std::max(exchanges_ - 1, 0); }
  // Asks which rank is missing, when the deadline has passed.
  Status AwaitBlame(const Patience& patience, const Status& seen, const std::function<bool()>& done);
  void Expire();
  void Expired(int from, uint32_t exchange, const std::string& text);
  Status failure();
  // Ends the rendezvous for all neighbours; `mine` is the error that the rank's own thread gets.
  void Fail(const Status& reason, const Status& mine);
  void Fail(const Status& reason) { Fail(reason, reason); }

  service::Loop* const loop_;
  const int rank_;
  const int nranks_;
  const Branch branch_;
  const Secret secret_;
  const std::string self_;
  IdBytes id_;
  std::string patience_text_;

  // On the service thread.
  Neighbour parent_;
  Neighbour hubs_[2];
  std::vector<Neighbour> children_;
  bool failed_ = false;  // also true after this rank has left
  Status reason_;        // the error that the neighbours get
  bool expired_ = false;
  bool started_ = false;  // the rank has received kStart from all its hubs
  int exchanges_ = 0;     // finished, including the one at the start
  bool open_ = false;     // a rank has contributed to the next exchange
  bool own_ = false;      // this rank has contributed to it
  bool sent_up_ = false;
  size_t bytes_ = 0;
  int first_ = -1;                 // the rank that contributed first
  std::vector<std::byte> gather_;  // blocks of this subtree
  std::vector<std::byte> ready_;   // blocks of all ranks, before the rank's thread gets them

  // Shared by the two threads.
  std::mutex mutex_;
  std::condition_variable changed_;
  Status failure_;
  int starts_awaited_ = 0;
  StartBody start_;
  bool linked_ = false;
  uint64_t delivered_ = 0;
  std::vector<std::byte> gathered_;
};

}  // namespace axccl::boot
