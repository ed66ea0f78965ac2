#include "src/exec/channel/call_log.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "src/base/format.h"
#include "src/base/rank_list.h"
#include "src/exec/channel/start_stamps.h"
#include "src/tune/tune.h"

namespace axccl::exec {
namespace {

// Describes a plan word; a peer may have written it.
std::string PlanText(uint64_t word) {
  const auto lanes = static_cast<unsigned>(word >> 8 & 0xff);
  const std::string_view algorithm = tune::AlgorithmOf(static_cast<unsigned>(word & 0xff) - 1);
  char text[96];
  std::snprintf(text, sizeof(text), "%.*s in %u %s (plan %012llx)", static_cast<int>(algorithm.size()),
                algorithm.data(), lanes, lanes == 1 ? "lane" : "lanes", static_cast<unsigned long long>(word >> 16));
  return text;
}

}  // namespace

void CallLog::Record(const Call& call) { Record(call, RecordedStamps()); }

void CallLog::Record(const Call& call, const RecordedStamps& stamps) {
  const uint64_t sequence = TakeNumber();
  OpRecord* const record = Open(sequence, call, call.views != nullptr ? call.views->Hash() : 0, 0);
  stamps.Write(record->word);
  record->progress.store(OpRecord::kEnqueued, std::memory_order_relaxed);
  Close(record, sequence);
}

Status CallLog::Compare(int position, uint64_t seq) const {
  if (members_[position].block == nullptr) return Status();
  const OpRecord* mine = RecordOf(members_.own(), seq);
  const OpRecord* theirs = RecordOf(members_[position], seq);
  if (mine->sequence.load(std::memory_order_relaxed) != seq + 1) return Status();
  if (theirs->sequence.load(std::memory_order_acquire) != seq + 1) return Status();
  const RecordedCall my_call(mine->word);
  const RecordedCall call(theirs->word);
  std::atomic_thread_fence(std::memory_order_acquire);
  // Rewritten meanwhile: the peer is far ahead, so this operation matched on that rank.
  if (theirs->sequence.load(std::memory_order_relaxed) != seq + 1) return Status();
  const bool same_call = call == my_call;
  if (same_call && !call.RunsOtherPlan(my_call)) return Status();
  const std::string mine_text = my_call.Text(), their_text = call.Text();
  if (same_call)
    return MakeStatus(
        Code::kInternalError,
        "mismatch at operation %llu: ranks %d and %d both called %s, but rank %d does it by %s and rank %d by "
        "%s; ranks choose by the settings of rank 0 (NCCL_ALGO and the figures of its machine), so only "
        "different builds of the library choose differently: let all ranks load the same libaxccl",
        static_cast<unsigned long long>(seq), members_.own().rank, members_[position].rank, mine_text.c_str(),
        members_.own().rank, PlanText(my_call.plan).c_str(), members_[position].rank, PlanText(call.plan).c_str());
  const bool message = my_call.IsMessage() && call.IsMessage();
  return MakeStatus(
      Code::kInvalidUsage, "mismatch at operation %llu: rank %d called %s, rank %d called %s%s%s; %s",
      static_cast<unsigned long long>(seq), members_.own().rank, mine_text.c_str(), members_[position].rank,
      their_text.c_str(), mine_text == their_text ? my_call.Hidden() : "", CountSides(position, seq).c_str(),
      message ? "both sides of a message must pass the same count and datatype, and make their calls in the same order"
              : "all ranks of a communicator must make the same calls in the same order");
}

// For more than two ranks: how many made the same call as this rank, and how many the same as the other.
std::string CallLog::CountSides(int position, uint64_t seq) const {
  if (members_.size() == 2) return "";
  const auto call_of = [&](int p) { return RecordedCall(RecordOf(members_[p], seq)->word); };
  const RecordedCall mine = call_of(members_.self()), theirs = call_of(position);
  int with_me = 0, with_them = 0;
  for (int p = 0; p < members_.size(); ++p) {
    if (members_[p].block == nullptr) continue;
    if (RecordOf(members_[p], seq)->sequence.load(std::memory_order_acquire) != seq + 1) continue;
    const RecordedCall call = call_of(p);
    with_me += call == mine;
    with_them += call == theirs;
  }
  return "; so far, of " + std::to_string(members_.size()) + " ranks " + std::to_string(with_me) +
         " called the former and " + std::to_string(with_them) + " the latter";
}

std::string CallLog::TextOf(int position, uint64_t seq) const {
  const OpRecord* record = RecordOf(members_[position], seq);
  if (record->sequence.load(std::memory_order_acquire) != seq + 1) return "";
  const std::string text = RecordedCall(record->word).Text();
  std::atomic_thread_fence(std::memory_order_acquire);
  return record->sequence.load(std::memory_order_relaxed) == seq + 1 ? text : "";
}

std::string CallLog::LastCallOf(int position) const {
  const Member& peer = members_[position];
  const std::string rank = "rank " + std::to_string(peer.rank);
  uint64_t newest = 0;  // newest + 1
  for (uint64_t i = 0; i < peer.layout.num_records && peer.block != nullptr; ++i)
    newest = std::max(newest, RecordOf(peer, i)->sequence.load(std::memory_order_acquire));
  if (newest == 0) return rank + " has called nothing like it yet";
  const std::string text = TextOf(position, newest - 1);
  return rank + " last called " + (text.empty() ? "one" : text) + " (operation " + std::to_string(newest - 1) + ")";
}

std::string CallLog::Absent(uint64_t sequence) const {
  std::set<int> absent, silent;
  for (int p = 0; p < members_.size(); ++p) {
    if (!HasRecorded(p, sequence)) (IsMirror(members_[p]) ? silent : absent).insert(members_[p].rank);
  }
  const auto list = [](const std::set<int>& ranks) {
    return ListRanks(*ranks.rbegin() + 1, [&](int rank) { return ranks.contains(rank); });
  };
  std::string text;
  if (!absent.empty()) text += "; not called by " + list(absent) + ", or held up there by earlier work on its stream";
  if (!silent.empty()) text += "; nothing of it has come from " + list(silent) + " of other machines";
  return text;
}

bool CallLog::HasRecorded(int position, uint64_t seq) const {
  const Member& peer = members_[position];
  if (peer.block == nullptr) return false;
  return RecordOf(peer, seq)->sequence.load(std::memory_order_acquire) > seq;
}

Status CallLog::FindMismatch() const {
  for (uint64_t seq = Oldest(); seq < next_; ++seq) {
    for (int p = 0; p < members_.size(); ++p) {
      if (p != members_.self()) AXCCL_RETURN_IF_ERROR(Compare(p, seq));
    }
  }
  return Status();
}

Status CallLog::CompareWith(int position) const {
  for (uint64_t seq = Oldest(); seq < next_; ++seq) AXCCL_RETURN_IF_ERROR(Compare(position, seq));
  return Status();
}

}  // namespace axccl::exec
