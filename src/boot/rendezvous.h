// One meeting of all ranks of an id: the ranks that have come, what they exchange, and how it ends.
//
// A rank enters once it is authenticated. When all have entered, each gets kStart; then they exchange any number of
// contributions; then they leave. Ranks that meet in a tree (see tree.h) get the address of their parent instead, and
// leave once they have found each other; several hubs may then serve a part of them each. The first failure (a rank
// gone, a disagreement, a deadline) ends the meeting, and all ranks that have come get the same reason. Everything runs
// on the service thread; the members' links keep the meeting alive.
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
  // Called once: ok when every rank has left after the start, otherwise the reason of the failure.
  using OnOver = std::function<void(Rendezvous*, const Status&)>;

  // The first rank to come determines the number of ranks and whether they meet in a tree.
  Rendezvous(service::Loop* loop, int nranks, const JoinBody& first, OnOver on_over);

  // Admits rank `hello.rank` of 0 <= rank < hello.nranks <= kMaxRanks, or sends it the reason why not. A second rank
  // with the same number is refused; if the meeting is still incomplete half a second later, it fails for that reason.
  void Enter(std::shared_ptr<Link> link, const Hello& hello, const JoinBody& join);
  // Fails the meeting, for example because of a rank that was never admitted.
  void Fail(const Status& reason);

  int nranks() const { return nranks_; }
  int expected() const { return expected_; }  // number of ranks at this hub
  bool started() const { return present_ == expected_; }
  bool over() const { return over_; }

  void OnFrame(int rank, FrameType type, std::span<const std::byte> payload) override;
  void OnClosed(int rank, const std::string& reason) override;

 private:
  struct Seat {
    bool expected = false;
    std::shared_ptr<Link> link;  // null: has not come yet, or has left
    JoinBody join;
    bool local = false;  // in this process
    bool came = false;
    bool left = false;
    bool contributed = false;  // to the current exchange
    uint64_t timer = 0;
  };

  std::string Name(int rank) const;
  // The ranks for which `missing` is true, as "ranks 2, 5-7".
  std::string ListRanks(const std::function<bool(const Seat&)>& missing) const;
  // Visits all seats, those of this process last: once its rank has what it needs, this process may exit, and the hub
  // with it.
  template <class Visit>
  void ForEachSeat(const Visit& visit);
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
  std::vector<Seat> seats_;  // of all ranks; seats of ranks of other hubs stay empty
  int expected_ = 0;
  int present_ = 0;  // ranks that came
  int left_ = 0;
  int first_ = -1;         // the rank that came first
  std::string duplicate_;  // the reason if two ranks had the same number
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
