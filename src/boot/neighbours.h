// The neighbours of a rank in a tree, which of them have come and left, and the links to them: to its parent, to its
// children, and to the hubs at which it has checked in.
//
// A neighbour has the number that its Link reports: a child's index, or one of the constants below. Everything runs on
// the service thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/boot/link.h"
#include "src/boot/tree.h"

namespace axccl::boot {

struct Neighbour {
  std::shared_ptr<Link> link;  // null: not there yet, or closed
  std::string name;            // "rank 3 (pid 812 on node7)"
  bool came = false;           // the link stands; a hub: it has sent the start
  bool left = false;
};

class Neighbours {
 public:
  static constexpr int kParent = -1, kOwnHub = -2, kHubAbove = -3, kNone = -4;
  static bool IsHub(int which) { return which == kOwnHub || which == kHubAbove; }

  explicit Neighbours(const Branch& branch);

  Neighbour& At(int which) {
    return which >= 0 ? children_[static_cast<size_t>(which)] : which == kParent ? parent_ : hubs_[which == kHubAbove];
  }
  int num_children() const { return static_cast<int>(children_.size()); }

  // Whether the parent and all children have come.
  bool complete() const;
  // The names of those that have not.
  std::string Missing() const;
  // The parent or a child that has left; null if there is none.
  const Neighbour* FirstThatLeft() const;

  // Sends a frame, unless there is no link to that neighbour.
  void Send(int to, FrameType type, std::span<const std::byte> payload);
  void SendToChildren(FrameType type, std::span<const std::byte> payload);
  // Whether the kernel has taken all that was queued for the children.
  bool ChildrenIdle() const;

  // Leaves the hubs, or all neighbours. What is queued is still sent.
  void LeaveHubs();
  void LeaveAll();
  // Sends the reason why the rendezvous has failed, to one neighbour or to all, and ends the links. Does not throw.
  void End(int which, const Status& reason);
  void EndAll(const Status& reason);

 private:
  const bool has_parent_;
  Neighbour parent_;
  Neighbour hubs_[2];
  std::vector<Neighbour> children_;
};

}  // namespace axccl::boot
