#include "src/comm/survivors.h"

#include <algorithm>
#include <iterator>

namespace axccl::comm {
namespace {

RankSet Common(const RankSet& a, const RankSet& b) {
  RankSet common;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(common));
  return common;
}

// The rank's part in the call with that ordinal: what has come of it, else its last attempt.
const SeenAttempt* PartIn(const SeenRank& seen, uint64_t ordinal) {
  const SeenAttempt* part = nullptr;
  for (const SeenAttempt& other : seen.attempts) {
    if (other.attempt.ordinal != ordinal || (part != nullptr && part->state == SeenAttempt::kDone)) continue;
    part = &other;
  }
  return part;
}

// A later call of the rank that this one is to take part in.
const SeenAttempt* LaterWith(const SeenRank& seen, uint64_t ordinal, int self) {
  const auto later = std::find_if(seen.attempts.begin(), seen.attempts.end(), [&](const SeenAttempt& other) {
    return other.attempt.ordinal > ordinal && other.state == SeenAttempt::kUnderWay &&
           Contains(other.attempt.group, self);
  });
  return later == seen.attempts.end() ? nullptr : &*later;
}

bool IsDoneWith(const SeenRank& seen, const Attempt& attempt) {
  return std::any_of(seen.attempts.begin(), seen.attempts.end(), [&](const SeenAttempt& other) {
    return other.attempt == attempt && other.state == SeenAttempt::kDone;
  });
}

// What one missing rank means for the attempt; changes `next` to what follows with kRegroup.
NextStep::What Heed(int self, const Attempt& now, const SeenRank& seen, Attempt* next) {
  if (seen.gone) {
    std::erase(next->group, seen.rank);
    return NextStep::kRegroup;
  }
  const SeenAttempt* part = PartIn(seen, now.ordinal);
  const bool over = part == nullptr || (part->state == SeenAttempt::kDone && !Contains(part->attempt.group, self));
  // A call that left this rank out is not one that this rank knows.
  if (const SeenAttempt* later = over ? LaterWith(seen, now.ordinal, self) : nullptr; later != nullptr) part = later;
  if (part == nullptr || part->attempt == now)
    return part != nullptr && part->state == SeenAttempt::kGivenUp ? NextStep::kFail : NextStep::kWait;
  if (part->state == SeenAttempt::kGivenUp) return NextStep::kFail;
  if (!Contains(part->attempt.group, self)) return NextStep::kLeftOut;
  next->ordinal = std::max(next->ordinal, part->attempt.ordinal);
  next->group = Common(next->group, part->attempt.group);
  return NextStep::kRegroup;
}

}  // namespace

NextStep NextOf(int self, std::span<const Attempt> mine, std::span<const SeenRank> missing) {
  const Attempt& now = mine.back();
  for (size_t i = 0; i + 1 < mine.size(); ++i) {
    for (const SeenRank& seen : missing) {
      if (IsDoneWith(seen, mine[i])) return {NextStep::kAdopt, mine[i], i, seen.rank};
    }
  }
  NextStep step{.attempt = now};
  for (const SeenRank& seen : missing) {
    const NextStep::What what = Heed(self, now, seen, &step.attempt);
    if (what == NextStep::kLeftOut) return {.what = what, .attempt = now, .rank = seen.rank};
    if (what == NextStep::kFail) step.what = what, step.rank = seen.rank;
  }
  // Those that have given up may not be in the smaller group.
  if (step.attempt != now) step.what = NextStep::kRegroup;
  return step;
}

bool HasQuorum(const RankSet& group, const RankSet& others) {
  if (group.size() != others.size()) return group.size() > others.size();
  return group.empty() || group.front() < others.front();
}

}  // namespace axccl::comm
