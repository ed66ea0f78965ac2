#include "src/boot/rendezvous.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "src/base/format.h"
#include "src/base/log.h"
#include "src/base/rank_list.h"
#include "src/boot/tree.h"

namespace axccl::boot {
namespace {

constexpr std::chrono::milliseconds kDuplicateGrace{500};
// A longer patience counts as this one, because the arithmetic of the clock would overflow.
constexpr uint64_t kMaxPatienceNs = uint64_t{365} * 24 * 3600 * 1000000000;

bool IsLocal(const JoinBody& join) {
  std::array<char, 64> host{};
  gethostname(host.data(), host.size() - 1);
  return join.pid == static_cast<uint32_t>(getpid()) && join.host == host;
}

}  // namespace

std::string DescribeRank(int rank, const JoinBody& join) {
  const std::string host(join.host.data(), strnlen(join.host.data(), join.host.size()));
  return "rank " + std::to_string(rank) + " (pid " + std::to_string(join.pid) + " on " + Printable(host) + ")";
}

Rendezvous::Rendezvous(service::Loop* loop, int nranks, const JoinBody& first, OnOver on_over)
    : loop_(loop),
      nranks_(nranks),
      roots_(static_cast<int>(std::min(first.roots, static_cast<uint32_t>(nranks)))),
      root_(roots_ == 0 ? 0 : static_cast<int>(std::min(first.root, static_cast<uint32_t>(roots_ - 1)))),
      on_over_(std::move(on_over)),
      seats_(static_cast<size_t>(nranks)) {
  for (int rank = 0; rank < nranks; ++rank) {
    seats_[static_cast<size_t>(rank)].expected = roots_ == 0 || ChecksInAt(rank, root_, nranks, roots_);
    expected_ += seats_[static_cast<size_t>(rank)].expected;
  }
}

std::string Rendezvous::Name(int rank) const { return DescribeRank(rank, seats_[rank].join); }

std::string Rendezvous::ListRanks(const std::function<bool(const Seat&)>& missing) const {
  return axccl::ListRanks(nranks_, [&](int rank) { return missing(seats_[static_cast<size_t>(rank)]); });
}

void Rendezvous::Enter(std::shared_ptr<Link> link, const Hello& hello, const JoinBody& join) {
  const auto keep = shared_from_this();
  if (hello.nranks != nranks_) {
    const Status reason =
        MakeStatus(Code::kInvalidUsage, "rendezvous: %s was called with nranks %d, %s with nranks %d; they must agree",
                   DescribeRank(hello.rank, join).c_str(), hello.nranks, Name(first_).c_str(), nranks_);
    link->Reject(reason);
    return Fail(reason);
  }
  if (join.roots != static_cast<uint32_t>(roots_) || (roots_ != 0 && join.root != static_cast<uint32_t>(root_))) {
    const Status reason = MakeStatus(Code::kInvalidUsage,
                                     "rendezvous: %s came with %u ids in a tree (0: none) to id %u, %s with %d "
                                     "to id %d; pass the same ids in the "
                                     "same order, and set AXCCL_TREE_RANKS alike, on all ranks",
                                     DescribeRank(hello.rank, join).c_str(), join.roots, join.root,
                                     first_ < 0 ? "another" : Name(first_).c_str(), roots_, root_);
    link->Reject(reason);
    return Fail(reason);
  }
  Seat& seat = seats_[hello.rank];
  if (!seat.expected) {
    return link->Reject(
        MakeStatus(Code::kInvalidUsage, "rendezvous: rank %d does not meet at id %d of %d", hello.rank, root_, roots_));
  }
  if (seat.came) return RejectDuplicate(link, hello, join);
  seat.came = true;
  seat.join = join;
  seat.local = IsLocal(join);
  seat.link = std::move(link);
  if (first_ < 0) first_ = hello.rank;
  ++present_;
  const auto patience = std::chrono::nanoseconds(std::min(join.patience_ns, kMaxPatienceNs));
  seat.timer = loop_->CallAt(service::Clock::now() + patience, [this, rank = hello.rank] {
    seats_[rank].timer = 0;
    OnDeadline(rank);
  });
  if (Status status = seat.link->Start(keep, hello.rank); !status.ok()) return Fail(status);
  seat.link->Send(FrameType::kAdmitted, {});
  AXCCL_INFO(kBootstrap, "rendezvous: %s has come, %d of %d ranks are here", Name(hello.rank).c_str(), present_,
             expected_);
  if (started()) StartAll();
}

void Rendezvous::StartAll() {
  loop_->Cancel(std::exchange(duplicate_timer_, 0));
  ForEachSeat([this](Seat* seat) {
    if (roots_ != 0) {
      StartInTree(static_cast<int>(seat - seats_.data()));
    } else {
      seat->link->Send(FrameType::kStart, {});
    }
  });
}

// The leader of another hub's ranks comes here only for the address of its parent, which its own hub does not know.
void Rendezvous::StartInTree(int rank) {
  const int parent = BranchOf(rank, nranks_, roots_).parent;
  StartBody body;
  if (parent >= 0 && seats_[static_cast<size_t>(parent)].expected && RootOf(parent, nranks_, roots_) == root_) {
    const JoinBody& above = seats_[static_cast<size_t>(parent)].join;
    body.parent = above.listens;
    body.pid = above.pid;
    body.host = above.host;
  }
  seats_[static_cast<size_t>(rank)].link->Send(FrameType::kStart, std::as_bytes(std::span(&body, 1)));
}

template <class Visit>
void Rendezvous::ForEachSeat(const Visit& visit) {
  for (const bool local : {false, true}) {
    for (Seat& seat : seats_) {
      if (seat.local == local && seat.link != nullptr) visit(&seat);
    }
  }
}

void Rendezvous::RejectDuplicate(const std::shared_ptr<Link>& link, const Hello& hello, const JoinBody& join) {
  const Status reason = MakeStatus(
      Code::kInvalidUsage, "rendezvous: rank %d was claimed twice: by %s and by %s; every rank must be used once",
      hello.rank, Name(hello.rank).c_str(), DescribeRank(hello.rank, join).c_str());
  link->Reject(reason);
  if (started() || duplicate_timer_ != 0) return;
  // The second one may be a stray process, and the others all right. But if a rank is missing, too, the second one was
  // meant to be it, and no rank should wait for its deadline to learn that.
  duplicate_ = reason.message();
  duplicate_timer_ = loop_->CallAt(service::Clock::now() + kDuplicateGrace, [this] {
    duplicate_timer_ = 0;
    const auto keep = shared_from_this();
    Fail(MakeStatus(Code::kInvalidUsage, "%s; missing: %s", duplicate_.c_str(),
                    ListRanks([](const Seat& seat) { return seat.expected && !seat.came; }).c_str()));
  });
}

// If memory runs out while a frame is handled, the meeting fails: ranks that did not get the frame would wait forever.
void Rendezvous::OnFrame(int rank, FrameType type, std::span<const std::byte> payload) {
  const auto keep = shared_from_this();
  const Status taken = CatchAll("rendezvous", [&] { return Take(rank, type, payload), Status(); });
  if (!taken.ok()) Fail(taken);
}

void Rendezvous::Take(int rank, FrameType type, std::span<const std::byte> payload) {
  if (over_) return;
  switch (type) {
    case FrameType::kContribute:
      return Contribute(rank, payload);
    case FrameType::kLeave:
      return Leave(rank);
    case FrameType::kError: {
      const Status reason = DecodeError(payload);
      return Fail(
          MakeStatus(CodeForOthers(reason.code()), "%s gave up: %s", Name(rank).c_str(), reason.message().data()));
    }
    case FrameType::kExpired:
      return Expired(rank, payload);
    case FrameType::kFailed:
      return Fail(DecodeError(payload));
    default:
      return Fail(MakeStatus(Code::kRemoteError, "%s sent a frame of type %u at the wrong time", Name(rank).c_str(),
                             static_cast<unsigned>(type)));
  }
}

void Rendezvous::Contribute(int rank, std::span<const std::byte> payload) {
  Seat& seat = seats_[rank];
  if (!started() || roots_ != 0 || seat.contributed || payload.empty()) {
    return Fail(MakeStatus(Code::kRemoteError, "%s contributed to an exchange at the wrong time", Name(rank).c_str()));
  }
  if (left_ != 0) {
    return Fail(MakeStatus(Code::kRemoteError, "%s left after %d exchanges, but %s takes part in another",
                           ListRanks([](const Seat& each) { return each.left; }).c_str(), exchanges_,
                           Name(rank).c_str()));
  }
  if (contributed_ == 0) {
    contribution_bytes_ = payload.size();
    contribution_first_ = rank;
    gathered_.resize(payload.size() * seats_.size());
  } else if (payload.size() != contribution_bytes_) {
    return Fail(MakeStatus(Code::kInternalError, "exchange %d: %s contributed %zu bytes, %s %zu", exchanges_,
                           Name(rank).c_str(), payload.size(), Name(contribution_first_).c_str(), contribution_bytes_));
  }
  seat.contributed = true;
  std::copy(payload.begin(), payload.end(), gathered_.begin() + static_cast<ptrdiff_t>(rank * contribution_bytes_));
  if (++contributed_ < nranks_) return;
  ++exchanges_;
  contributed_ = 0;
  for (Seat& each : seats_) each.contributed = false;
  ForEachSeat([this](Seat* each) { each->link->Send(FrameType::kGathered, gathered_); });
}

void Rendezvous::Leave(int rank) {
  Seat& seat = seats_[rank];
  if (!started()) {
    return Fail(MakeStatus(Code::kRemoteError, "%s left before all ranks had joined", Name(rank).c_str()));
  }
  loop_->Cancel(std::exchange(seat.timer, 0));
  seat.left = true;
  ++left_;
  const std::shared_ptr<Link> link = std::move(seat.link);
  link->Close();
  if (contributed_ != 0) {
    return Fail(MakeStatus(Code::kRemoteError, "%s left after %d exchanges, but %s takes part in another",
                           Name(rank).c_str(), exchanges_, Name(contribution_first_).c_str()));
  }
  if (left_ == expected_) End(Status());
}

void Rendezvous::OnClosed(int rank, const std::string& reason) {
  const auto keep = shared_from_this();
  if (over_) return;
  seats_[rank].link.reset();
  Fail(CatchAll("rendezvous", [&] {
    return MakeStatus(Code::kRemoteError, "%s is gone: %s %s", Name(rank).c_str(), reason.c_str(),
                      started() ? "during the exchange of addresses" : "before all ranks had joined");
  }));
}

void Rendezvous::OnDeadline(int rank) {
  const auto keep = shared_from_this();
  const double seconds = static_cast<double>(seats_[rank].join.patience_ns) * 1e-9;
  if (!started()) {
    return Fail(MakeStatus(Code::kTimeout,
                           "rendezvous: %s waited %.3g s for %s of %d; start them sooner, or set AXCCL_INIT_TIMEOUT",
                           Name(rank).c_str(), seconds,
                           ListRanks([](const Seat& seat) { return seat.expected && !seat.came; }).c_str(), nranks_));
  }
  if (!seats_[rank].contributed) return;  // it waits for no rank; its own next call sees the deadline
  Fail(MakeStatus(Code::kTimeout, "rendezvous: %s waited until its deadline (%.3g s) for the addresses of %s",
                  Name(rank).c_str(), seconds, ListRanks([](const Seat& seat) { return !seat.contributed; }).c_str()));
}

// The deadline of a rank of the tree has passed. If ranks have not come here, they are the reason. Otherwise the ranks
// that still miss neighbours may know it.
void Rendezvous::Expired(int rank, std::span<const std::byte> payload) {
  if (roots_ == 0 || payload.size() < sizeof(uint32_t)) {
    return Fail(MakeStatus(Code::kRemoteError, "%s sent a question at the wrong time", Name(rank).c_str()));
  }
  if (started()) {
    for (size_t other = 0; other < seats_.size(); ++other) {
      if (static_cast<int>(other) != rank && seats_[other].link != nullptr)
        seats_[other].link->Send(FrameType::kExpired, payload);
    }
    return;
  }
  const std::span<const std::byte> text = payload.subspan(sizeof(uint32_t));
  Fail(MakeStatus(Code::kTimeout, "rendezvous: %s for %s of %d",
                  Printable(std::string_view(reinterpret_cast<const char*>(text.data()), text.size())).c_str(),
                  ListRanks([](const Seat& seat) { return seat.expected && !seat.came; }).c_str(), nranks_));
}

void Rendezvous::Fail(const Status& reason) {
  if (over_) return;
  const auto keep = shared_from_this();
  ForEachSeat([&](Seat* seat) { std::exchange(seat->link, nullptr)->End(reason); });
  End(reason);
}

void Rendezvous::End(const Status& status) {
  over_ = true;
  loop_->Cancel(std::exchange(duplicate_timer_, 0));
  for (Seat& seat : seats_) loop_->Cancel(std::exchange(seat.timer, 0));
  on_over_(this, status);
}

}  // namespace axccl::boot
