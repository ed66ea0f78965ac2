#include "src/verify/verify.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "src/plan/text.h"
#include "src/verify/concurrency.h"
#include "src/verify/dataflow.h"
#include "src/verify/size.h"
#include "src/verify/structure.h"
#include "src/verify/together.h"

namespace axccl::verify {

using plan::Op;
using plan::OpKind;
using plan::Schedule;

namespace {

// Sets of lanes that can be examined on their own: lanes synchronise only through tokens, and in the joined turns of a
// direct schedule. Each lane has its own scratch, endpoints and user data.
std::vector<std::vector<int>> IndependentLanes(const Schedule& s) {
  std::vector<int> leader(s.lanes);
  std::iota(leader.begin(), leader.end(), 0);
  const auto find = [&leader](int l) {
    while (leader[l] != l) l = leader[l] = leader[leader[l]];
    return l;
  };
  for (const auto& lanes : s.program) {
    for (int l = 0; l < s.lanes; ++l) {
      if (plan::MovesAllInOneTurn(s)) leader[find(l)] = find(0);
      for (const Op& op : lanes[l].ops) {
        if (op.kind == OpKind::kWait) leader[find(l)] = find(op.from_lane);
      }
    }
  }
  std::vector<std::vector<int>> groups(s.lanes);
  for (int l = 0; l < s.lanes; ++l) groups[find(l)].push_back(l);
  std::erase_if(groups, [](const auto& group) { return group.empty(); });
  return groups;
}

bool SameButForIds(const Op& a, const Op& b) {
  return a.kind == b.kind && a.finish == b.finish && a.peer == b.peer && a.endpoint == b.endpoint &&
         a.value == b.value && a.chunk == b.chunk && a.dst == b.dst && a.src == b.src;
}

// Whether two lanes that use no tokens have the same program on every rank.
bool Twins(const Schedule& s, int a, int b) {
  return std::all_of(s.program.begin(), s.program.end(), [&](const auto& lanes) {
    return std::equal(lanes[a].ops.begin(), lanes[a].ops.end(), lanes[b].ops.begin(), lanes[b].ops.end(),
                      SameButForIds);
  });
}

Status CheckLanes(const Schedule& s, const SignalTable& signals, const std::vector<int>& lanes, Facts* facts) {
  Order order;
  AXCCL_RETURN_IF_ERROR(CheckConcurrency(s, signals, lanes, &order));
  facts->complete &= order.complete;
  for (int l : lanes) {
    bool group_order = false;
    AXCCL_RETURN_IF_ERROR(CheckDataflow(s, order, l, &group_order));
    facts->group_order &= group_order;
    if (s.slices != 0) break;  // all lanes at once
  }
  return Status();
}

Status Check(const Schedule& s, Facts* facts) {
  SignalTable signals;
  AXCCL_RETURN_IF_ERROR(CheckStructure(s, &signals));
  AXCCL_RETURN_IF_ERROR(CheckTogether(s));
  Facts found{true, true};
  int proved = -1;  // an independent lane that has passed
  int lanes_to_prove = 0;
  for (const auto& lanes : IndependentLanes(s)) {
    const bool alone = lanes.size() == 1;
    if (alone && proved >= 0 && Twins(s, proved, lanes[0])) continue;
    lanes_to_prove += static_cast<int>(lanes.size());
    if (!Fits(s, s.lanes, lanes_to_prove)) return TooLarge();
    AXCCL_RETURN_IF_ERROR(CheckLanes(s, signals, lanes, &found));
    if (alone) proved = lanes[0];
  }
  if (s.contract.kind == plan::Kind::kBarrier && !found.complete) {
    return MakeStatus(Code::kInvalidArgument, "order: a rank may end the barrier before another has begun it");
  }
  *facts = found;
  return Status();
}

}  // namespace

Status Verify(const Schedule& schedule, Facts* facts) {
  const Status status = Check(schedule, facts);
  if (status.ok()) return status;
  return MakeStatus(status.code(), "plan %s %s of %d ranks rejected: %s", schedule.algorithm.c_str(),
                    plan::KindName(schedule.contract.kind), schedule.contract.ranks,
                    std::string(status.message()).c_str());
}

Result<std::shared_ptr<const plan::Plan>> MakePlan(Schedule schedule) {
  Facts facts;
  // Plans come from generators, so the caller did not cause a rejection.
  if (const Status status = Verify(schedule, &facts); !status.ok()) {
    return MakeStatus(Code::kInternalError, "%s", std::string(status.message()).c_str());
  }
  auto plan = std::make_shared<plan::Plan>();
  plan->hash = plan::HashOf(plan::Print(schedule));
  plan->complete = facts.complete;
  plan->group_order = facts.group_order;
  plan->pushes = plan::Pushes(schedule);
  plan->sends_ahead = plan::SendsAhead(schedule);
  plan->schedule = std::move(schedule);
  return std::shared_ptr<const plan::Plan>(std::move(plan));
}

}  // namespace axccl::verify
