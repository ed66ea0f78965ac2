#include "src/exec/host/standstill.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <deque>
#include <string>

#include "src/base/hash.h"

namespace axccl::exec {
namespace {

enum WaitKind : uint64_t { kCollective, kSend, kReceive, kPipeline };

// A copy of a board in private memory: complete, or not taken.
struct Copy {
  explicit Copy(const WaitBoard& board) {
    for (size_t w = 0; w < WaitBoard::kWords; ++w) words[w] = board.word[w].load(std::memory_order_relaxed);
  }
  Copy() = default;
  uint64_t Checksum() const {
    uint64_t hash = kHashSeed;
    for (size_t w = 1; w < WaitBoard::kWords; ++w) hash = Mix(hash, words[w]);
    return hash | 1;
  }
  bool IsOf(uint64_t order) const {
    return words[WaitBoard::kOrder] == order && words[WaitBoard::kEntries] <= WaitBoard::kMost &&
           words[WaitBoard::kWaits] <= WaitBoard::kMostWaits && words[WaitBoard::kChecksum] == Checksum();
  }
  uint64_t* WaitAt(size_t i) { return words + WaitBoard::kFirstWait + i * WaitBoard::kWaitWords; }
  const uint64_t* WaitAt(size_t i) const { return words + WaitBoard::kFirstWait + i * WaitBoard::kWaitWords; }
  uint64_t* Entry(size_t i) { return words + WaitBoard::kFirst + i * WaitBoard::kEntryWords; }
  const uint64_t* Entry(size_t i) const { return words + WaitBoard::kFirst + i * WaitBoard::kEntryWords; }
  // The text was written by a peer.
  static std::string TextOf(const uint64_t* entry) {
    char text[WaitBoard::kTextBytes];
    std::memcpy(text, entry + WaitBoard::kText, sizeof(text));
    text[sizeof(text) - 1] = 0;
    std::string printable = text;
    for (char& c : printable) {
      if (c < ' ' || c > '~') c = '?';
    }
    return printable;
  }

  uint64_t words[WaitBoard::kWords] = {};
};

bool IsMessage(const Channel& channel) { return channel.main() != &channel && channel.pipeline_key() == 0; }
bool Sends(const Channel& pair) { return pair.self() == 0; }
const Member& PeerOf(const Channel& pair) { return pair.member(1 - pair.self()); }

WaitKind KindOf(const Channel& channel) {
  if (channel.pipeline_key() != 0) return kPipeline;
  return !IsMessage(channel) ? kCollective : Sends(channel) ? kSend : kReceive;
}
// With the kind, identifies a channel among those of an order: the peer of messages, the key of a pipeline.
uint64_t PeerWordOf(const Channel& channel) {
  return IsMessage(channel) ? static_cast<uint64_t>(PeerOf(channel).rank) : channel.pipeline_key();
}

std::string TextOf(const Channel& channel, const Call& call) {
  std::string text = DescribeCall(call);
  if (KindOf(channel) == kPipeline) return channel.members().Name() + ", " + text;
  if (IsMessage(channel)) text += (Sends(channel) ? " to rank " : " from rank ") + std::to_string(PeerOf(channel).rank);
  return text;
}

// Whether some member has not reached the first of the calls, as far as this rank knows.
template <class Calls>
bool Lacks(const Calls& calls) {
  for (int p = 0; p < calls.channel->size(); ++p) {
    if (p != calls.channel->self() && !calls.channel->log().HasRecorded(p, calls.begin)) return true;
  }
  return false;
}

}  // namespace

Standstill::Calls Standstill::CallsOf(const Operation& first, size_t count) {
  Channel* const channel = first.channel();
  const uint64_t begin = channel->log().next() - (first.begun() ? 1 : 0);
  return Calls{channel, &first.call(), begin, begin + count};
}

void Standstill::Leave() {
  for (const Held& held : held_) held.board->word[WaitBoard::kOrder].store(0, std::memory_order_release);
  held_.clear();
}

Standstill::Held* Standstill::BoardFor(const Step& step) {
  static std::atomic<uint64_t> steps{0};
  const auto held = std::find_if(held_.begin(), held_.end(), [&](const Held& h) { return h.main == step.main; });
  if (held != held_.end()) return &*held;
  held_.reserve(held_.size() + 1);  // before taking a board, which would otherwise not be given back after an exception
  for (WaitBoard& board : step.main->own().header->boards) {
    uint64_t unused = 0;
    if (!board.word[WaitBoard::kOrder].compare_exchange_strong(unused, step.main->order_key())) continue;
    return &held_.emplace_back(Held{step.main, &board, steps.fetch_add(1, std::memory_order_relaxed) + 1, 0});
  }
  return nullptr;  // as many orders stand still already as can be published
}

// Peers that read a board after it became outdated draw no wrong conclusion from it: see above. Null: there is none.
const WaitBoard* Standstill::PublishBoard(const Step& step, const Waits& waits) {
  Copy copy;
  copy.words[WaitBoard::kOrder] = step.main->order_key();
  copy.words[WaitBoard::kCollectives] = step.main->log().next();
  uint64_t entries = 0;
  for (const Calls& calls : step.left) {
    // A member with a mirror of this rank may not know yet that a start of a pipeline has reached it.
    const bool alone = calls.end - calls.begin == 1 && KindOf(*calls.channel) != kPipeline;
    if (!step.Has(calls) || (alone && !Lacks(calls))) continue;
    if (entries == WaitBoard::kMost) return nullptr;  // half of the board could mislead
    for (const Wait& wait : waits) {
      uint64_t& noted = copy.words[WaitBoard::kWaits];
      if (wait.calls != &calls || noted == WaitBoard::kMostWaits) continue;
      uint64_t* const words = copy.WaitAt(noted++);
      words[WaitBoard::kEntry] = entries;
      words[WaitBoard::kRank] = static_cast<uint64_t>(wait.rank);
      words[WaitBoard::kTheirStep] = wait.their_step;
    }
    uint64_t* const entry = copy.Entry(entries++);
    entry[WaitBoard::kKind] = KindOf(*calls.channel);
    entry[WaitBoard::kPeer] = PeerWordOf(*calls.channel);
    entry[WaitBoard::kBegin] = calls.begin;
    entry[WaitBoard::kEnd] = calls.end;
    std::string made;
    if (calls.text.empty()) made = TextOf(*calls.channel, *calls.first);
    const std::string_view text = calls.text.empty() ? made : calls.text;
    std::memcpy(entry + WaitBoard::kText, text.data(), std::min(text.size(), WaitBoard::kTextBytes - 1));
  }
  copy.words[WaitBoard::kEntries] = entries;
  Held* const held = BoardFor(step);
  if (held == nullptr) return nullptr;
  copy.words[WaitBoard::kStep] = held->step;
  const uint64_t checksum = copy.words[WaitBoard::kChecksum] = copy.Checksum();
  if (std::exchange(held->checksum, checksum) == checksum) return held->board;
  for (size_t w = 0; w < WaitBoard::kWords; ++w) held->board->word[w].store(copy.words[w], std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const Member& own = step.main->own();
  const auto at =
      static_cast<uint64_t>(reinterpret_cast<std::byte*>(held->board) - reinterpret_cast<std::byte*>(own.header));
  // Readers may look at it meanwhile; its checksum is the first word.
  static_assert(WaitBoard::kChecksum == 0);
  const transport::Reach::Stretch all{at, sizeof(WaitBoard), false, true};
  for (int p = 0; p < step.main->size(); ++p)
    step.main->member(p).reach->PublishState({&all, 1}, transport::Reach::kNoLine);
  return held->board;
}

// Whether this rank's step and that of the member of `mine` at `position` each have something that the other one lacks.
// Records that the other one lacks `mine`.
Status Standstill::CompareWith(const Step& step, const Calls& mine, int position, Waits* waits) {
  const Channel& channel = *mine.channel;
  const Member& peer = channel.member(position);
  const auto self = static_cast<uint64_t>(channel.own().rank);
  for (const WaitBoard& board : peer.header->boards) {
    const Copy theirs(board);
    if (!theirs.IsOf(step.main->order_key())) continue;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (channel.log().HasRecorded(position, mine.begin)) return Status();
    const WaitKind kind = KindOf(channel);
    const WaitKind counterpart = kind == kSend ? kReceive : kind == kReceive ? kSend : kind;
    bool comes_to_it = kind == kCollective && theirs.words[WaitBoard::kCollectives] > mine.begin;
    const uint64_t* lacking = nullptr;
    for (size_t i = 0; i < theirs.words[WaitBoard::kEntries]; ++i) {
      const uint64_t* const entry = theirs.Entry(i);
      const uint64_t their_kind = entry[WaitBoard::kKind];
      const Channel* const here = their_kind == kCollective ? step.main
                                  : their_kind == kPipeline ? step.main->FindPipeline(entry[WaitBoard::kPeer])
                                                            : step.main->FindPair(peer.rank, their_kind == kReceive);
      const bool with_me =
          their_kind == kCollective || their_kind == kPipeline ? here != nullptr : entry[WaitBoard::kPeer] == self;
      if (!with_me) continue;
      const bool same = their_kind == counterpart && (kind != kPipeline || here == &channel);
      comes_to_it |= same && entry[WaitBoard::kBegin] <= mine.begin && mine.begin < entry[WaitBoard::kEnd];
      uint64_t come_to = here == nullptr ? 0 : here->log().next();
      for (const Calls& calls : step.left) {
        if (calls.channel == here) come_to = calls.end;
      }
      if (entry[WaitBoard::kBegin] >= come_to) lacking = entry;
    }
    if (comes_to_it) continue;
    waits->push_back({&mine, peer.rank, theirs.words[WaitBoard::kStep]});
    if (lacking == nullptr) continue;
    return MakeStatus(
        Code::kInvalidUsage,
        "mismatch: rank %d called %s and waits for rank %d, which called %s and waits for rank %d; ranks must "
        "make the same calls in the same order, and the two ends of a message between the same collectives",
        channel.own().rank, TextOf(channel, *mine.first).c_str(), peer.rank, Copy::TextOf(lacking).c_str(),
        channel.own().rank);
  }
  return Status();
}

Status Standstill::Compare(const Step& step, Waits* waits) {
  for (const Calls& mine : step.left) {
    if (!step.Has(mine)) continue;
    for (int p = 0; p < mine.channel->size(); ++p) {
      if (p != mine.channel->self() && !mine.channel->log().HasRecorded(p, mine.begin))
        AXCCL_RETURN_IF_ERROR(CompareWith(step, mine, p, waits));
    }
  }
  return Status();
}

namespace {

// A rank on the path from one rank to the next that it waits for.
struct Stop {
  Copy board;
  int rank;
  const Stop* before;     // null: this rank
  const uint64_t* entry;  // entry of the board before: what that rank waits in
};

// "rank 0 called ncclSend count 4 float to rank 1 and waits for rank 1, which called ... and waits for rank 0": from
// this rank's stop to `last`, which waits in `entry` for this rank.
std::string DescribeCircle(const Stop& last, const uint64_t* entry) {
  constexpr size_t kShown = 3;  // besides the last: texts are short
  std::vector<std::string> calls;
  for (const Stop* at = &last; at != nullptr; entry = at->entry, at = at->before)
    calls.push_back("rank " + std::to_string(at->rank) + (at->before == nullptr ? " called " : ", which called ") +
                    Copy::TextOf(entry) + " and waits for ");
  const size_t left_out = calls.size() > kShown + 1 ? calls.size() - kShown - 1 : 0;
  const std::string self = calls.back().substr(0, calls.back().find(" called "));
  std::string text;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (i == kShown && left_out != 0) text += std::to_string(left_out) + " more like it, the last of which waits for ";
    if (i < kShown || i >= kShown + left_out) text += calls[calls.size() - 1 - i];
  }
  return text + self;
}

const Member* MemberOf(const Channel& main, uint64_t rank) {
  for (int p = 0; p < main.size(); ++p) {
    if (static_cast<uint64_t>(main.member(p).rank) == rank) return &main.member(p);
  }
  return nullptr;
}

}  // namespace

// Follows the boards from step to step, until a rank waits for this one.
Status Standstill::FindCircle(const Step& step, const WaitBoard& own) {
  constexpr size_t kMostStops = 64;
  const auto self = static_cast<uint64_t>(step.main->own().rank);
  std::deque<Stop> stops;
  stops.push_back({Copy(own), step.main->own().rank, nullptr, nullptr});
  const uint64_t own_step = stops[0].board.words[WaitBoard::kStep];
  for (size_t at = 0; at < stops.size(); ++at) {
    const Stop& stop = stops[at];
    for (size_t w = 0; w < stop.board.words[WaitBoard::kWaits]; ++w) {
      const uint64_t* const wait = stop.board.WaitAt(w);
      const uint64_t rank = wait[WaitBoard::kRank], their_step = wait[WaitBoard::kTheirStep];
      if (wait[WaitBoard::kEntry] >= stop.board.words[WaitBoard::kEntries]) continue;
      const uint64_t* const entry = stop.board.Entry(wait[WaitBoard::kEntry]);
      if (rank == self && their_step == own_step)
        return MakeStatus(
            Code::kInvalidUsage,
            "mismatch: %s; ranks must make the same calls in the same order, and messages that go round in a "
            "circle belong in groups",
            DescribeCircle(stop, entry).c_str());
      const bool known =
          std::any_of(stops.begin(), stops.end(), [&](const Stop& s) { return static_cast<uint64_t>(s.rank) == rank; });
      const Member* const peer = known || stops.size() == kMostStops ? nullptr : MemberOf(*step.main, rank);
      if (peer == nullptr) continue;
      for (const WaitBoard& board : peer->header->boards) {
        const Copy theirs(board);
        if (!theirs.IsOf(step.main->order_key()) || theirs.words[WaitBoard::kStep] != their_step) continue;
        stops.push_back({theirs, peer->rank, &stop, entry});
        break;
      }
    }
  }
  return Status();
}

bool Standstill::CheckStep(const Step& step) {
  const bool lacks = std::any_of(step.left.begin(), step.left.end(),
                                 [&](const Calls& calls) { return step.Has(calls) && Lacks(calls); });
  if (!lacks) return false;
  Waits waits;
  Status status = Compare(step, &waits);
  const WaitBoard* const board = PublishBoard(step, waits);
  if (status.ok() && board != nullptr && !waits.empty()) status = FindCircle(step, *board);
  if (status.ok()) return false;
  step.main->owner()->Fail(status);
  return true;
}

bool Standstill::Check(std::span<const Calls> left) {
  for (size_t i = 0; i < left.size(); ++i) {
    const Step step{left[i].channel->main(), left};
    const auto first = std::find_if(left.begin(), left.end(), [&](const Calls& calls) { return step.Has(calls); });
    if (first - left.begin() == static_cast<ptrdiff_t>(i) && CheckStep(step)) return true;
  }
  return false;
}

}  // namespace axccl::exec
