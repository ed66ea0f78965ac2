// A rank's place in the tree in which many ranks meet (see tree.h).
//
// Its links, to the hubs it checked in at, to the rank above and to those below, live on the service thread, which
// passes on what comes whatever the rank's own thread does: so a failure reaches everybody at once, and a rank that is
// late can be told from one that waits for others. The rank's thread only waits for what the node has for it.
//
//   check in       at the hub: who I am and where those below me can reach me
//   kStart         from the hub: all ranks of the group are there, and who is above me
//   connect        to the rank above; those below connect to me
//   kLeave         to the hubs, once all links stand. From here on a rank that dies is missed by those next to it in
//                  the tree; before, by the hub, which everybody who still misses a link listens to.
//   kContribute    (first of all one byte each, so that all know that all are there)
//                  upwards, once the rank and all below have contributed: one block
//   kGathered      downwards
//   kExpired       from one whose deadline has passed, to those it may be waiting for, and through the hubs while links
//                  are missing; a rank that has not contributed is the answer, and fails the rendezvous in its own
//                  name, or a hub that knows who has not come
//   kError         in all directions, the first time something goes wrong
//
// Methods marked T may be called by the rank's thread, and serialise with the service thread themselves.
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
  // `secret` is what the ranks of the tree prove to each other to know.
  Node(service::Loop* loop, int rank, int nranks, int roots, const Secret& secret);
  ~Node() override;

  const Branch& branch() const { return branch_; }
  const IdBytes& id() const { return id_; }
  const Secret& secret() const { return secret_; }

  // T. Takes over the connection to a hub that the rank has joined; `above` is where it hears who is above it.
  Status AddHub(Dial* dial, bool above);
  // T. Takes over the connection to the rank above.
  Status AddParent(Dial* dial, const std::string& name);
  bool gave_up() const { return !told_.ok(); }  // on the service thread
  // Adds a rank that has proved that it knows the secret. On the service thread.
  void Enter(service::Fd fd, const FrameCipher& cipher, const Hello& hello, const JoinBody& join);

  // T. Waits until every hub has said that all ranks are there. *parent: who is above, without address for rank 0.
  Status AwaitStart(const Patience& patience, StartBody* parent);
  // T. Waits until all links stand, and leaves the hubs.
  Status AwaitLinks(const Patience& patience);
  // T. The exchange.
  Status AllGather(const Patience& patience, std::span<const std::byte> mine, std::span<std::byte> all);
  // T. Ends the rendezvous for all, unless it has ended already. Gives the reason of the end.
  Status GiveUp(const Status& mine);
  // T. The reason of an end that shows as `seen` here, for which somebody may still be about to give the reason.
  Status AwaitReason(const Status& seen, const service::Stop& stop);
  // T. Leaves: what is queued is still sent.
  void Leave();

  void OnFrame(int from, FrameType type, std::span<const std::byte> payload) override;
  void OnClosed(int from, const std::string& reason) override;
  void OnSent(int from) override;

 private:
  // Who a link leads to, as Link's `rank`: a child's index, or one of these.
  static constexpr int kParent = -1, kOwnHub = -2, kHubAbove = -3, kNobody = -4;

  struct Neighbour {
    std::shared_ptr<Link> link;  // null: not there yet, or no more
    std::string name;            // "rank 3 (pid 812 on node7)"
    bool came = false;           // the link stands
    bool left = false;
    bool contributed = false;  // children: to the exchange under way
  };

  Neighbour& At(int from) {
    return from >= 0 ? children_[static_cast<size_t>(from)] : from == kParent ? parent_ : hubs_[from == kHubAbove];
  }
  // Every neighbour there is, hubs last.
  std::vector<Neighbour*> Everybody();
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
  // Whoever waits when its deadline has passed.
  Status AwaitBlame(const Patience& patience, const Status& seen, const std::function<bool()>& done);
  void Expire();
  void Expired(int from, uint32_t exchange, const std::string& text);
  Status failure();
  // The end for everybody this node can tell; `mine` is what the rank's own thread is told.
  void Fail(const Status& told, const Status& mine);
  void Fail(const Status& told) { Fail(told, told); }

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
  bool failed_ = false;  // or has left
  Status told_;          // to the neighbours
  bool expired_ = false;
  bool started_ = false;  // the rank has heard that all are there
  int exchanges_ = 0;     // finished, that of the start included
  bool open_ = false;     // somebody has contributed to the next
  bool own_ = false;      // this rank has
  bool sent_up_ = false;
  size_t bytes_ = 0;
  int first_ = -1;                 // who contributed first
  std::vector<std::byte> gather_;  // of this subtree
  std::vector<std::byte> ready_;   // of all, not yet the rank's

  // Between the two threads.
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
