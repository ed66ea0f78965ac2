#include "src/exec/host/handover.h"

#include <sched.h>

#include "src/base/processors.h"
#include "src/base/status.h"

namespace axccl::exec {

void Handover::NotePlace(const Members& members) {
  const auto here = static_cast<uint32_t>(sched_getcpu() + 1);
  std::atomic<uint32_t>& published = members.own().header->processor;
  if (published.load(std::memory_order_relaxed) != here) published.store(here, std::memory_order_relaxed);
}

// The thread may run elsewhere afterwards.
bool Handover::GiveUpCore(const Members& members) {
  if (!device::host::GiveUpCore()) return false;
  NotePlace(members);
  if (++rounds_ % kRoundsBetweenChecks == 0) SpreadOut(members);
  return true;
}

// Of the ranks that share a core, the last one moves, so that they do not all. What the ranks publish may be late, and
// the kernel may have reasons of its own to bring a thread back: each time, a move takes twice as many looks.
void Handover::SpreadOut(const Members& members) {
  const auto load = [&](int processor) {
    int ranks = 0;
    for (int p = 0; p < members.size(); ++p)
      ranks += members[p].header->processor.load(std::memory_order_relaxed) == static_cast<uint32_t>(processor + 1);
    return ranks;
  };
  int last = 0, here = 0;
  for (int p = 0; p < members.size(); ++p) {
    if (!IsNeighbour(members, p)) continue;
    last = p;
    ++here;
  }
  if (here <= device::host::Crowding()) {
    crowded_ = 0;
    patience_ = std::max(patience_ - 1, kFirstPatience);
    return;
  }
  if (last != members.self() || ++crowded_ < patience_) return;
  crowded_ = 0;
  patience_ = std::min(2 * patience_, kLongestPatience);
  (void)CatchAll("moving a thread", [&] {
    // One more than where it is now: this rank would be there, too.
    const int own = sched_getcpu();
    MoveToLeastLoaded([&](int processor) { return load(processor) + (processor != own ? 1 : 0); });
    return Status();
  });
  NotePlace(members);
}

}  // namespace axccl::exec
