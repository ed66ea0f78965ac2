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
//                  links are missing. A rank that has not contributed fails the rendezvous in its own name; so does a
//                  hub that knows which ranks have not come.
//   kError         in all directions, the first time something goes wrong
//
// The rank's thread may call the methods marked T, which serialise with the service thread themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/base/service.h"
#include "src/boot/dial.h"
#include "src/boot/link.h"
#include "src/boot/mailbox.h"
#include "src/boot/neighbours.h"
#include "src/boot/tree.h"
#include "src/boot/tree_exchange.h"
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
  Status Take(int from, Dial* dial, const std::string& name);
  void Handle(int from, FrameType type, std::span<const std::byte> payload);
  void HubStarted(int from, std::span<const std::byte> payload);
  void NoteProgress();
  void Contribute(std::span<const std::byte> mine);
  void Advance(const Status& contributed);
  void Deliver(std::span<const std::byte> all);
  void HandOver();
  void PeerLeft(int from);
  // Asks which rank is missing, when the deadline has passed.
  Status AwaitBlame(const Patience& patience, const Status& seen, Mailbox::News news);
  void Expired(int from, uint32_t exchange, const std::string& text);
  // Ends the rendezvous for this rank and all neighbours.
  void Fail(const Status& reason);

  service::Loop* const loop_;
  const int rank_;
  const int nranks_;
  const Branch branch_;
  const Secret secret_;
  const std::string self_;
  IdBytes id_;
  Mailbox mailbox_;

  // On the service thread.
  Neighbours neighbours_;
  TreeExchange exchange_;
  bool failed_ = false;  // also true after this rank has left
  Status reason_;        // the error that the neighbours get
  bool expired_ = false;
  bool started_ = false;          // the rank has received kStart from all its hubs
  bool linked_ = false;           // all links stand
  std::vector<std::byte> ready_;  // blocks of all ranks, before the rank's thread gets them
};

}  // namespace axccl::boot
