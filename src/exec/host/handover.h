// Ranks that share cores: a rank that has to wait hands its core to the one that it waits for.
//
// Which one that is decides how to wait. A member on another core goes on while this rank looks. A member on the same
// core cannot go on before this rank gives the core up, and looking is wasted. So where ranks outnumber cores, each
// publishes the processor on which it waits, in its block, and gives up the core at once when a member that shares it
// is missing. Ranks that all call then hand over each core once for every rank that it serves but one, which is the
// least that an operation can take: the last of them to signal goes on into the next operation.
//
// A core gives all its ranks a turn before this one runs again. If a few such rounds bring nothing, the members have
// not called yet, or this very thread has to call for them, and the channel's next calls leave at once for a while.
//
// The kernel balances busy cores a few times a second, and leaves ranks that have just run where they are. So ranks
// whose core serves more than its share spread out by themselves.
//
// Threads of several communicators, or of other programs, outnumber cores as ranks do. A rank that gives up its core
// soon lets the two ranks of another communicator meet on both cores, and these keep them for a time slice. That can
// happen only to communicators whose ranks are not on one core.
//
// Part of a channel; used by the thread that drives its operation.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "src/device/host/scheduler.h"
#include "src/device/host/waiting.h"
#include "src/exec/channel/members.h"

namespace axccl::exec {

// What a call has done when it was given a turn.
enum class Turn : uint8_t { kWaits, kMoved, kEnded };

class Handover {
 public:
  // Runs a call that has to wait to its end, or until nothing has come for a few rounds. Returns whether it has ended.
  // Waiting: Turn TakeTurn(), which continues if what it waits for is there; bool AwaitsNeighbour(), whether a member
  // on this rank's core (IsNeighbour) has to signal first.
  template <class Waiting>
  bool Run(const Members& members, Waiting* call);

  // Whether a member runs on this rank's core, as far as is known.
  static bool IsNeighbour(const Members& members, int position) {
    return members[position].header->processor.load(std::memory_order_relaxed) ==
           members.own().header->processor.load(std::memory_order_relaxed);
  }

 private:
  static constexpr int kRoundsOfCrowds = 4, kRounds = 2;
  // Looks for what comes from other cores: about as long as it takes to hand over this one.
  static constexpr int kLooks = 64;
  static constexpr int kMostSkipped = 63;
  static constexpr uint32_t kRoundsBetweenChecks = 16;
  static constexpr int kFirstPatience = 2, kLongestPatience = 1024;

  bool Pays(const Members& members) { return members.inbox() == nullptr && (skip_ == 0 || --skip_ == 0); }
  static void NotePlace(const Members& members);
  bool GiveUpCore(const Members& members);
  void SpreadOut(const Members& members);
  bool Note(bool paid) {
    skipped_ = paid ? 0 : std::min(2 * skipped_ + 1, kMostSkipped);
    skip_ = skipped_;
    return paid;
  }

  int skipped_ = 0, skip_ = 0;  // calls that leave at once: last time, and still
  uint32_t rounds_ = 0;
  int crowded_ = 0, patience_ = kFirstPatience;  // see SpreadOut
};

template <class Waiting>
bool Handover::Run(const Members& members, Waiting* call) {
  if (!Pays(members)) return false;
  NotePlace(members);
  if (device::host::Crowding() == 1) SpreadOut(members);  // a crowd does so now and then: GiveUpCore
  const int most = device::host::Crowding() == 1 ? kRounds : kRoundsOfCrowds;
  for (int rounds = 0; rounds < most; ++rounds) {
    for (int looks = 0; looks < kLooks && !call->AwaitsNeighbour(); ++looks) {
      device::host::CpuRelax();
      const Turn turn = call->TakeTurn();
      if (turn == Turn::kEnded) return Note(true);
      if (turn == Turn::kMoved) looks = rounds = 0;
    }
    if (!GiveUpCore(members)) break;
    const Turn turn = call->TakeTurn();
    if (turn == Turn::kEnded) return Note(true);
    if (turn == Turn::kMoved) rounds = 0;
  }
  return Note(false);
}

}  // namespace axccl::exec
