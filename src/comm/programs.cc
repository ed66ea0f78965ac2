#include "src/comm/programs.h"

#include <chrono>
#include <utility>

#include "src/algo/algo.h"
#include "src/base/log.h"
#include "src/exec/prepared/outbound.h"
#include "src/verify/verify.h"

namespace axccl::comm {
namespace {

// Plans stay for ranks of the process that call a little later than the first; programs stay for later communicators.
constexpr size_t kMostPlanBytes = size_t{4} << 20, kMostProgramBytes = size_t{8} << 20;

size_t BytesOf(const plan::Schedule& schedule) {
  size_t bytes = sizeof(plan::Plan);
  for (const auto& lanes : schedule.program) {
    for (const plan::Lane& lane : lanes) {
      bytes += sizeof(lane) + lane.ops.size() * sizeof(plan::Op);
      for (const plan::Op& op : lane.ops) bytes += (op.dst.size() + op.src.size()) * sizeof(plan::Operand);
    }
  }
  return bytes;
}

std::shared_ptr<const plan::Plan> WithoutOperations(const plan::Plan& plan) {
  auto head = std::make_shared<plan::Plan>(plan);
  head->schedule.program = {};
  return head;
}

}  // namespace

Programs& Programs::Process() {
  static Programs* const programs = new Programs(kMostPlanBytes, kMostProgramBytes);
  return *programs;
}

Programs::Usage Programs::usage() const {
  const std::lock_guard lock(mutex_);
  return {plans_.size(), plans_.bytes(), programs_.size(), programs_.bytes(), made_, verify_seconds_};
}

Result<std::shared_ptr<const exec::Program>> Programs::Get(const Request& request) {
  const std::lock_guard lock(mutex_);
  const plan::Contract& contract = request.contract;
  const PlanKey plan_key{contract.kind, contract.ranks,   contract.root, std::string(request.algorithm),
                         request.lanes, request.placement};
  const Key key{plan_key, request.rank, request.whole};
  if (auto used = FindUsed(key); used != nullptr) return used;
  AXCCL_ASSIGN_OR_RETURN(Known* const known, GetPlan(plan_key, request));
  AXCCL_ASSIGN_OR_RETURN(auto program, exec::Program::Make(known->plan, request.rank));
  if (!request.whole) {
    auto own = std::make_shared<exec::Program>(*program);
    own->plan = known->head;
    if (!request.placement.is_flat()) {
      AXCCL_ASSIGN_OR_RETURN(exec::Outbound outbound, exec::Outbound::Make(known->plan->schedule, request.rank));
      own->outbound = std::make_shared<const exec::Outbound>(std::move(outbound));
    }
    program = std::move(own);
  }
  NoteUsed(key, program);
  programs_.Insert(key, program, program->bytes() + (request.whole ? BytesOf(known->plan->schedule) : 0));
  known->served.insert(request.rank);
  if (known->served.size() >= static_cast<size_t>(request.sharers)) plans_.Erase(plan_key);
  return program;
}

Result<Programs::Known*> Programs::GetPlan(const PlanKey& key, const Request& request) {
  if (Known* known = plans_.Find(key); known != nullptr) return known;
  const plan::Contract& contract = request.contract;
  AXCCL_ASSIGN_OR_RETURN(plan::Schedule schedule,
                         algo::Generate(contract, request.algorithm, request.lanes, request.placement));
  const auto start = std::chrono::steady_clock::now();
  Known known;
  AXCCL_ASSIGN_OR_RETURN(known.plan, verify::MakePlan(std::move(schedule)));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  verify_seconds_ += seconds;
  ++made_;
  AXCCL_INFO(kTuning, "plan %s: %s of %d ranks, root %d, %d lanes: verified in %.3f ms",
             plan::ToString(known.plan->hash).c_str(), known.plan->schedule.algorithm.c_str(), contract.ranks,
             contract.root, request.lanes, seconds * 1e3);
  known.head = WithoutOperations(*known.plan);
  const size_t bytes = BytesOf(known.plan->schedule);
  return plans_.Insert(key, std::move(known), bytes);
}

// Finds a program that a communicator keeps, for as long as it does.
std::shared_ptr<const exec::Program> Programs::FindUsed(const Key& key) {
  if (auto* kept = programs_.Find(key); kept != nullptr) return *kept;
  const auto it = used_.find(key);
  return it == used_.end() ? nullptr : it->second.lock();
}

void Programs::NoteUsed(const Key& key, const std::shared_ptr<const exec::Program>& program) {
  used_[key] = program;
  if (used_.size() < next_sweep_) return;
  std::erase_if(used_, [](const auto& entry) { return entry.second.expired(); });
  next_sweep_ = 2 * used_.size() + 64;
}

}  // namespace axccl::comm
