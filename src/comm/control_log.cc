#include "src/comm/control_log.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/base/format.h"
#include "src/base/hash.h"
#include "src/base/rank_list.h"

namespace axccl::comm {
namespace {

using exec::ControlEntry;

// How long a rank whose last call is a different one may still be about to make this one: that call left this rank out,
// or the rank's threads are not as fast as this rank's.
constexpr std::chrono::milliseconds kGrace(600);

// Of a rank's running calls, this many contribute, the oldest first. If any call could take a slot, all slots of one
// rank might be used by calls that its peers reach later, and theirs by others. The remaining slots are for calls that
// have ended here but that other ranks must still read.
constexpr size_t kAtATime = exec::kControlSlots / 2;
// Limit on running calls. Those that contribute take a second entry of the log for a moment, when a split continues.
constexpr size_t kMostUnderWay = exec::kControlCalls - kAtATime;

constexpr uint64_t NameIn(uint64_t word) { return word & ~uint64_t{ControlEntry::kStateBits}; }
constexpr uint64_t StateIn(uint64_t word) { return word & ControlEntry::kStateBits; }

// The name of the `count`-th call of a group; never 0.
uint64_t NameCall(uint64_t seed, const std::vector<int>& group, uint64_t count) {
  uint64_t name = Mix(Mix(Mix(kHashSeed, seed), count), group.size());
  for (const int rank : group) name = Mix(name, static_cast<uint64_t>(rank));
  return NameIn(name | 1ull << 63);
}

bool IsShrink(uint64_t kind) { return kind == static_cast<uint64_t>(Making::kShrink); }

// Of the names of calls that are no colours.
constexpr uint64_t kShrinks = 1;
uint64_t SeedOf(uint64_t kind) { return IsShrink(kind) ? kShrinks : 0; }

template <size_t n>
void StoreText(std::string_view from, std::atomic<uint64_t> (&words)[n]) {
  uint64_t plain[n] = {};
  from.copy(reinterpret_cast<char*>(plain), sizeof(plain) - 1);
  for (size_t i = 0; i < n; ++i) words[i].store(plain[i], std::memory_order_relaxed);
}

// Loads another rank's text; keeps only printable characters.
template <size_t n>
std::string LoadText(const std::atomic<uint64_t> (&words)[n]) {
  char plain[n * sizeof(uint64_t) + 1] = {};
  for (size_t i = 0; i < n; ++i) {
    const uint64_t word = words[i].load(std::memory_order_relaxed);
    std::memcpy(plain + i * sizeof(word), &word, sizeof(word));
  }
  return Printable(plain);
}

Code CodeIn(const ControlEntry& entry) {
  const uint64_t code = entry.code.load(std::memory_order_relaxed);
  return code > 0 && code <= static_cast<uint64_t>(Code::kTimeout) ? static_cast<Code>(code) : Code::kRemoteError;
}

}  // namespace

const char* NameOf(Making what) {
  switch (what) {
    case Making::kShrink:
      return "ncclCommShrink";
    case Making::kGrow:
      return "ncclCommGrow";
    case Making::kWindow:
      return "ncclCommWindowRegister";
    case Making::kDeviceComm:
      return "ncclDevCommCreate";
    case Making::kSplit:
    case Making::kColor:
      break;
  }
  return "ncclCommSplit";
}

const char* ProductOf(Making what) {
  if (what == Making::kWindow) return "a window";
  return what == Making::kDeviceComm ? "a device communicator" : "a new communicator";
}

ControlLog::ControlLog(const std::vector<exec::Member>* members, std::byte* block, const exec::BlockLayout& layout,
                       int self)
    : members_(members), block_(block), layout_(layout), self_(self) {}

ControlEntry* ControlLog::EntryOf(int rank, uint64_t place) const {
  std::byte* const block = rank == self_ ? block_ : (*members_)[static_cast<size_t>(rank)].block;
  return layout_.ControlCall(block, place);
}

// Calls fn(entry, word) for the entries that are not being written. Entries are filled in their order, so entries after
// one that was never used occupy no memory.
template <class Fn>
void ControlLog::ForEachEntry(int rank, const Fn& fn) const {
  for (uint64_t place = 0; place < exec::kControlCalls; ++place) {
    ControlEntry* const entry = EntryOf(rank, place);
    const uint64_t word = entry->name.load(std::memory_order_seq_cst);
    if (word != 0) {
      fn(entry, word);
    } else if (entry->number.load(std::memory_order_relaxed) == 0) {
      return;
    }
  }
}

// ---- this rank's log ----

// A shrink may leave out a rank that is stopped, so only ranks of its group pass on what belongs to it.
void ControlLog::Tell(const exec::Member& member, const LoggedCall& call,
                      std::span<const transport::Reach::Stretch> stretches, uint64_t line) const {
  if (member.rank != self_) exec::WakeMember(member);
  const bool passes = call.what != Making::kShrink || Contains(call.group, member.reach->relay());
  member.reach->PublishAside(stretches, line, passes);
}

// Publishes bytes of its entry, and then that one's first word, to the other ranks.
void ControlLog::Publish(const LoggedCall& call, const void* from, size_t bytes) const {
  const auto offset_of = [&](const void* p) {
    return static_cast<uint64_t>(static_cast<const std::byte*>(p) - block_);
  };
  const transport::Reach::Stretch stretch{offset_of(from), static_cast<uint32_t>(bytes), false, false};
  const uint64_t line = offset_of(EntryOf(self_, call.place));
  for (const exec::Member& member : *members_) Tell(member, call, {&stretch, bytes == 0 ? 0u : 1u}, line);
}

Result<LoggedCall> ControlLog::Begin(Making what, Group group) {
  std::lock_guard lock(mutex_);
  if (under_way_.size() >= kMostUnderWay)
    return MakeStatus(Code::kInvalidUsage,
                      "%zu calls that make communicators from this one, or windows of it, are under way; wait for the "
                      "first of them to end",
                      kMostUnderWay);
  if (what == Making::kShrink) {
    LoggedCall call = WriteShrink(shrinks_ + 1, std::move(group), calls_ + 1);
    ++shrinks_;
    return call;
  }
  uint64_t& count = counts_[group];
  const uint64_t name = NameCall(0, group, count + 1);
  LoggedCall call = Write(what, std::move(group), name, count + 1, 0, calls_ + 1);
  ++count;
  return call;
}

LoggedCall ControlLog::Continue(const LoggedCall& call, Group group) {
  std::lock_guard lock(mutex_);
  const uint64_t name = NameCall(call.name, group, 0);
  return Write(Making::kColor, std::move(group), name, 0, call.name, call.order);
}

LoggedCall ControlLog::WriteShrink(uint64_t ordinal, Group group, uint64_t order) {
  const uint64_t name = NameCall(kShrinks, group, ordinal);
  LoggedCall call = Write(Making::kShrink, std::move(group), name, ordinal, 0, order);
  call.ordinal = ordinal;
  return call;
}

LoggedCall ControlLog::Attempt(const LoggedCall& call, const comm::Attempt& next) {
  std::lock_guard lock(mutex_);
  shrinks_ = std::max(shrinks_, next.ordinal);
  return WriteShrink(next.ordinal, next.group, call.order);
}

void ControlLog::Adopt(const LoggedCall& call) {
  std::lock_guard lock(mutex_);
  const LoggedCall again = WriteShrink(call.ordinal, call.group, call.order);
  End(again, ControlEntry::kDone);
  Publish(again, nullptr, 0);
}

// The oldest entry that has ended; unused ones come first, in their order.
uint64_t ControlLog::PlaceForNext() const {
  uint64_t oldest = 0, least = UINT64_MAX;
  for (uint64_t place = 0; place < exec::kControlCalls; ++place) {
    const ControlEntry* const entry = EntryOf(self_, place);
    if (StateIn(entry->name.load(std::memory_order_relaxed)) == ControlEntry::kUnderWay) continue;
    const uint64_t number = entry->number.load(std::memory_order_relaxed);
    if (number < least) oldest = place, least = number;
  }
  return oldest;
}

LoggedCall ControlLog::Write(Making what, Group group, uint64_t name, uint64_t count, uint64_t split, uint64_t order) {
  ++under_way_[order];
  LoggedCall call{what, name, PlaceForNext(), std::move(group), split, order};
  ControlEntry* const entry = EntryOf(self_, call.place);
  entry->name.store(0, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_release);  // before what follows, because other ranks may be reading
  Publish(call, nullptr, 0);
  entry->number.store(++calls_, std::memory_order_relaxed);
  entry->count.store(count, std::memory_order_relaxed);
  entry->kind.store(static_cast<uint64_t>(what), std::memory_order_relaxed);
  entry->code.store(0, std::memory_order_relaxed);
  entry->against.store(0, std::memory_order_relaxed);
  const uint64_t words = ControlEntry::Words(layout_.ranks);
  for (uint64_t i = 0; i < words; ++i) {
    uint64_t word = 0;
    for (const int rank : call.group) {
      const auto bit = static_cast<uint64_t>(rank);
      if (bit / ControlEntry::kMemberBits == i) word |= uint64_t{1} << bit % ControlEntry::kMemberBits;
    }
    entry->Members()[i].store(word, std::memory_order_relaxed);
  }
  entry->name.store(name | ControlEntry::kUnderWay, std::memory_order_seq_cst);
  Publish(call, entry->Members(), words * sizeof(uint64_t));
  return call;
}

void ControlLog::End(const LoggedCall& call, ControlEntry::State state) {
  EntryOf(self_, call.place)->name.store(call.name | state, std::memory_order_seq_cst);
  const auto entries = under_way_.find(call.order);
  if (--entries->second == 0) under_way_.erase(entries);
}

bool ControlLog::IsTurnOf(const LoggedCall& call) {
  std::lock_guard lock(mutex_);
  return std::distance(under_way_.begin(), under_way_.find(call.order)) < ptrdiff_t{kAtATime};
}

void ControlLog::Finish(const LoggedCall& call) {
  std::lock_guard lock(mutex_);
  End(call, ControlEntry::kDone);
  Publish(call, nullptr, 0);
}

void ControlLog::Abandon(const LoggedCall& call) {
  std::lock_guard lock(mutex_);
  End(call, ControlEntry::kAbandoned);
  Publish(call, nullptr, 0);
}

void ControlLog::Fail(const LoggedCall& call, const Trouble& trouble) {
  std::lock_guard lock(mutex_);
  ControlEntry* const entry = EntryOf(self_, call.place);
  StoreText(trouble.why.message(), entry->text);
  entry->code.store(static_cast<uint64_t>(trouble.why.code()), std::memory_order_relaxed);
  entry->against.store(trouble.against, std::memory_order_relaxed);
  End(call, trouble.refused ? ControlEntry::kRefused : ControlEntry::kFailed);
  Publish(call, entry->text, sizeof(entry->text));
  if (trouble.refused) CatchUp();
}

Trouble ControlLog::GivenUp(const Status& reason) const {
  return {MakeStatus(Code::kRemoteError, "rank %d gave up: %.*s", self_, static_cast<int>(reason.message().size()),
                     reason.message().data())};
}

bool ControlLog::Made(uint64_t kind, const Group& group, uint64_t count) {
  std::lock_guard lock(mutex_);
  if (IsShrink(kind)) return shrinks_ >= count;
  const auto found = counts_.find(group);
  return found != counts_.end() && found->second >= count;
}

// After a refusal, ranks have made different calls. This rank now counts the calls of every other rank, of any group,
// as its own, so they match when the ranks agree and call again.
void ControlLog::CatchUp() {
  for (int rank = 0; rank < ranks(); ++rank) {
    ForEachEntry(rank, [&](ControlEntry* entry, uint64_t word) {
      const Group group = MembersOf(entry);
      const uint64_t count = entry->count.load(std::memory_order_relaxed);
      const uint64_t kind = entry->kind.load(std::memory_order_relaxed);
      // Otherwise it belongs to a colour, or is becoming another call's entry.
      if (NameCall(SeedOf(kind), group, count) != NameIn(word)) return;
      if (IsShrink(kind)) {
        shrinks_ = std::max(shrinks_, count);
      } else if (Contains(group, self_)) {
        counts_[group] = std::max(counts_[group], count);
      }
    });
  }
}

// ---- the others' logs ----

ControlLog::Group ControlLog::MembersOf(ControlEntry* entry) const {
  Group group;
  for (uint64_t i = 0; i < ControlEntry::Words(layout_.ranks); ++i) {
    const uint64_t word = entry->Members()[i].load(std::memory_order_relaxed);
    for (uint64_t bit = 0; bit < ControlEntry::kMemberBits; ++bit) {
      const int rank = static_cast<int>(i * ControlEntry::kMemberBits + bit);
      if ((word >> bit & 1) != 0 && rank < ranks()) group.push_back(rank);
    }
  }
  return group;
}

bool ControlLog::Ended(int rank, uint64_t name) const {
  bool ended = true;  // so long ago that the log no longer has it
  ForEachEntry(rank, [&](ControlEntry*, uint64_t word) {
    if (NameIn(word) == name) ended = StateIn(word) != ControlEntry::kUnderWay;
  });
  return ended;
}

bool ControlLog::Finished(int rank, uint64_t name) const {
  bool finished = true;
  ForEachEntry(rank, [&](ControlEntry*, uint64_t word) {
    if (NameIn(word) == name) finished = StateIn(word) == ControlEntry::kDone;
  });
  return finished;
}

ControlLog::Sight ControlLog::LookAt(int rank, const LoggedCall& call) {
  Sight sight;
  uint64_t last = 0;
  ForEachEntry(rank, [&](ControlEntry* entry, uint64_t word) {
    const uint64_t state = StateIn(word);
    const bool refused = state == ControlEntry::kRefused;
    if (refused && entry->against.load(std::memory_order_relaxed) == call.name) sight.refuses = entry;
    // A rank may fail in a split when the others have read its contribution there and continue.
    if (NameIn(word) == call.name || NameIn(word) == call.split) {
      if (NameIn(word) == call.name) sight.same = entry;
      if (state == ControlEntry::kFailed || refused) sight.failed = entry;
      return;
    }
    const uint64_t number = entry->number.load(std::memory_order_relaxed);
    const uint64_t kind = entry->kind.load(std::memory_order_relaxed);
    if (number < last || kind == static_cast<uint64_t>(Making::kColor)) return;
    const Group group = MembersOf(entry);
    const uint64_t count = entry->count.load(std::memory_order_relaxed);
    // Otherwise it is becoming another call's entry.
    if (NameCall(SeedOf(kind), group, count) != NameIn(word)) return;
    last = number;
    // A call that this rank should also have made.
    const bool apart = Contains(group, self_) && (state == ControlEntry::kUnderWay || refused) &&
                       !(IsShrink(kind) && call.what == Making::kShrink) && !Made(kind, group, count);
    sight.instead = apart ? entry : nullptr;
  });
  return sight;
}

Trouble ControlLog::FindTrouble(LoggedCall* call, std::span<const int> missing) {
  bool apart = false;
  for (int rank = 0; rank < ranks(); ++rank) {
    if (rank == self_) continue;
    const Sight sight = LookAt(rank, *call);
    const bool member = Contains(call->group, rank);
    if (member && sight.failed != nullptr && call->what != Making::kShrink) return Repeated(*sight.failed);
    if (sight.refuses != nullptr) return Refusal(*call, rank, sight.refuses);
    if (call->what == Making::kColor || !member) continue;
    if (sight.same != nullptr) {
      const bool alike = sight.same->kind.load(std::memory_order_relaxed) == static_cast<uint64_t>(call->what);
      if (!alike) return Refusal(*call, rank, sight.same);
      continue;
    }
    if (std::find(missing.begin(), missing.end(), rank) == missing.end()) continue;
    if (sight.instead == nullptr) continue;
    apart = true;
    if (IsApart(true, &call->apart_since)) return Refusal(*call, rank, sight.instead);
  }
  if (!apart) (void)IsApart(false, &call->apart_since);
  return {};
}

bool ControlLog::IsApart(bool apart, LoggedCall::Clock::time_point* since) {
  const auto now = LoggedCall::Clock::now();
  if (!apart || *since == LoggedCall::Clock::time_point::max())
    *since = apart ? now : LoggedCall::Clock::time_point::max();
  return apart && now - *since >= kGrace;
}

std::vector<SeenAttempt> ControlLog::AttemptsOf(int rank) const {
  std::map<uint64_t, SeenAttempt> in_order;
  ForEachEntry(rank, [&](ControlEntry* entry, uint64_t word) {
    const uint64_t state = StateIn(word);
    if (!IsShrink(entry->kind.load(std::memory_order_relaxed)) || state == ControlEntry::kAbandoned) return;
    SeenAttempt seen{{entry->count.load(std::memory_order_relaxed), MembersOf(entry)}, SeenAttempt::kGivenUp};
    // Otherwise it is becoming another call's entry.
    if (NameCall(kShrinks, seen.attempt.group, seen.attempt.ordinal) != NameIn(word)) return;
    if (state == ControlEntry::kUnderWay) seen.state = SeenAttempt::kUnderWay;
    if (state == ControlEntry::kDone) seen.state = SeenAttempt::kDone;
    in_order[entry->number.load(std::memory_order_relaxed)] = std::move(seen);
  });
  std::vector<SeenAttempt> attempts;
  for (auto& [number, seen] : in_order) attempts.push_back(std::move(seen));
  return attempts;
}

Trouble ControlLog::TroubleWith(const LoggedCall& call, int rank) const {
  ControlEntry* last = nullptr;
  uint64_t state = 0;
  ForEachEntry(rank, [&](ControlEntry* entry, uint64_t word) {
    if (!IsShrink(entry->kind.load(std::memory_order_relaxed)) || StateIn(word) == ControlEntry::kAbandoned) return;
    if (entry->count.load(std::memory_order_relaxed) != call.ordinal) return;
    if (last != nullptr && entry->number.load(std::memory_order_relaxed) < last->number.load(std::memory_order_relaxed))
      return;
    last = entry;
    state = StateIn(word);
  });
  if (last == nullptr) return {};  // it has just been overwritten
  const bool given_up = state == ControlEntry::kFailed || state == ControlEntry::kRefused;
  return given_up ? Repeated(*last) : Refusal(call, rank, last);
}

Trouble ControlLog::NotInTime(const LoggedCall& call, std::span<const int> missing) const {
  const auto in = [&](int rank) { return std::find(missing.begin(), missing.end(), rank) != missing.end(); };
  return {MakeStatus(Code::kTimeout,
                     "rank %d has waited for %s of %d for as long as AXCCL_INIT_TIMEOUT says; all ranks that take part "
                     "must make the call",
                     self_, ListRanks(ranks(), in).c_str(), ranks())};
}

std::string ControlLog::Describe(int rank, uint64_t what, const Group& group) const {
  const auto out = [&](int other) { return !Contains(group, other); };
  std::string text = "rank " + std::to_string(rank) + " called " + NameOf(static_cast<Making>(what));
  if (static_cast<int>(group.size()) < ranks()) text += " without " + ListRanks(ranks(), out);
  return text;
}

// The refusal because of an entry of `rank`.
Trouble ControlLog::Refusal(const LoggedCall& call, int rank, ControlEntry* entry) const {
  return {
      MakeStatus(Code::kInvalidUsage,
                 "%s and %s; ranks that stay together make the same calls in the same order, and leave out the same "
                 "ranks",
                 Describe(self_, static_cast<uint64_t>(call.what), call.group).c_str(),
                 Describe(rank, entry->kind.load(std::memory_order_relaxed), MembersOf(entry)).c_str()),
      true, NameIn(entry->name.load(std::memory_order_acquire))};
}

// Repeats the text of another rank of the call, so that ranks that read this rank's log get the same.
Trouble ControlLog::Repeated(const ControlEntry& entry) {
  const bool refused = StateIn(entry.name.load(std::memory_order_acquire)) == ControlEntry::kRefused;
  return {Status(CodeIn(entry), LoadText(entry.text)), refused,
          refused ? entry.against.load(std::memory_order_relaxed) : uint64_t{0}};
}

}  // namespace axccl::comm
