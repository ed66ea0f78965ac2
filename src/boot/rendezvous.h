// One meeting of all ranks of an id: who has come, what they exchange, and how it ends.
//
// A rank enters once authenticated. When all have, each is told to start; then they exchange any number of
// contributions; then they leave. Ranks that meet in a tree (see tree.h) are told who is above them in it instead, and
// leave once they have found each other; several hubs may then serve a part of them each. The first thing that goes
// wrong (a rank gone, a disagreement, a deadline) fails the meeting: everybody present is told the same reason and the
// meeting is over. All on the service thread; kept alive by its members' links.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/base/service.h"
#include "src/boot/link.h"
#include "src/boot/wire.h"

namespace axccl::boot {

class Rendezvous : public LinkOwner, public std::enable_shared_from_this<Rendezvous> {
 public:
  // Called once: ok when every rank has left after the start, else the reason of the failure.
  using OnOver = std::function<void(Rendezvous*, const Status&)>;

  // The first rank to come decides the number of ranks and whether they meet in a tree.
  Rendezvous(service::Loop* loop, int nranks, const JoinBody& first, OnOver on_over);

  // Takes in rank `hello.rank` of 0 <= rank < hello.nranks <= kMaxRanks, or tells it why not. A second one of a rank is
  // turned away; if the meeting is not complete half a second later, that is why, and it fails.
  void Enter(std::shared_ptr<Link> link, const Hello& hello, const JoinBody& join);
  // Fails the meeting, e.g. because of a rank that was never let in.
  void Fail(const Status& reason);

  int nranks() const { return nranks_; }
  int expected() const { return expected_; }  // of them, at this hub
  bool started() const { return present_ == expected_; }
  bool over() const { return over_; }

  void OnFrame(int rank, FrameType type, std::span<const std::byte> payload) override;
  void OnClosed(int rank, const std::string& reason) override;

 private:
  struct Seat {
    bool expected = false;
    std::shared_ptr<Link> link;  // null: not come yet, or left
    JoinBody join;
    bool local = false;  // in this process
    bool came = false;
    bool left = false;
    bool contributed = false;  // to the exchange under way
    uint64_t timer = 0;
  };

  std::string Name(int rank) const;
  // The ranks for which `missing` holds, as "ranks 2, 5-7".
  std::string ListRanks(const std::function<bool(const Seat&)>& missing) const;
  // All seats, those of this process last: once its rank has what it wants the process may exit, and the hub with it.
  template <class Tell>
  void TellAll(const Tell& tell);
  void Take(int rank, FrameType type, std::span<const std::byte> payload);
  void StartAll();
  void StartInTree(int rank);
  void Contribute(int rank, std::span<const std::byte> payload);
  void Leave(int rank);
  void OnDeadline(int rank);
  void Expired(int rank, std::span<const std::byte> payload);
  void RejectDuplicate(const std::shared_ptr<Link>& link, const Hello& hello, const JoinBody& join);
  void End(const Status& status);

  service::Loop* const loop_;
  const int nranks_;
  const int roots_;  // 0: no tree
  const int root_;
  const OnOver on_over_;
  std::vector<Seat> seats_;  // of all ranks; those not expected stay empty
  int expected_ = 0;
  int present_ = 0;  // ranks that came
  int left_ = 0;
  int first_ = -1;         // the rank that came first
  std::string duplicate_;  // who else claimed a rank
  uint64_t duplicate_timer_ = 0;
  bool over_ = false;

  int exchanges_ = 0;  // finished
  int contributed_ = 0;
  size_t contribution_bytes_ = 0;
  int contribution_first_ = -1;
  std::vector<std::byte> gathered_;
};

// "rank 3 (pid 812 on node7)".
std::string DescribeRank(int rank, const JoinBody& join);

}  // namespace axccl::boot
