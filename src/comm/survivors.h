// How the ranks that shrink a communicator agree on which of them are left.
//
// Every rank writes into its log (control_log.h) which group it attempts to form. It forms the group with all ranks of
// it, in some rounds of exchange, of which the last one carries no data: who has everybody's contribution to that is
// done, and never goes back. As long as a rank still misses a contribution, it looks at the logs of the ranks that it
// waits for. It abandons its attempt for a smaller group if one of them has died, or attempts a smaller group itself.
// It then waits for the ranks of that group, one of which may be done with the attempt that this rank has abandoned:
// such a rank never comes to the smaller group, so nobody can form that, and this rank adopts what it has abandoned, of
// which it misses nothing but the last contribution of a dead rank. So living ranks never form different groups
// (survivors_model_test tries all interleavings of deaths, messages and steps for small numbers of ranks).
//
// Ranks that are alive may also disagree on whom to leave out, because each lists what it takes for dead. A rank that
// another one of its group leaves out goes on with nobody.
//
// Pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace axccl::comm {

// Ascending.
using RankSet = std::vector<int>;
inline bool Contains(const RankSet& group, int rank) { return std::binary_search(group.begin(), group.end(), rank); }

struct Attempt {
  uint64_t ordinal = 0;  // of the call, among the shrinks of a communicator
  RankSet group;

  bool operator==(const Attempt&) const = default;
};

// As a rank's log shows it. Abandoned attempts are not shown.
struct SeenAttempt {
  enum State { kUnderWay, kDone, kGivenUp };
  Attempt attempt;
  State state = kUnderWay;
};

struct SeenRank {
  int rank = 0;
  bool gone = false;                  // it will never write anything again
  std::vector<SeenAttempt> attempts;  // in their order
};

struct NextStep {
  enum What {
    kWait,
    kRegroup,  // abandon the attempt for `attempt`
    kAdopt,    // abandon it, as mine[`index`] has been formed
    kLeftOut,  // `rank` has left this one out; that stays so, unless it calls again
    kFail,     // `rank` has given up
  };
  What what = kWait;
  Attempt attempt;
  size_t index = 0;
  int rank = -1;
};

// What rank `self` is to do, whose attempts of a call are `mine`, of which the last one is under way. `missing`: ranks
// of that group whose contributions it still misses.
NextStep NextOf(int self, std::span<const Attempt> mine, std::span<const SeenRank> missing);

// Whether `group` may go on although `others` cannot be reached and may be alive: there are at most as many of these,
// and if as many, the lowest rank of all is in the group. Of two groups that cannot reach each other, at most one may.
bool HasQuorum(const RankSet& group, const RankSet& others);

}  // namespace axccl::comm
