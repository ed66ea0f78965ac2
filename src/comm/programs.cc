#include "src/comm/programs.h"

#include <chrono>
#include <utility>

#include "src/algo/algo.h"
#include "src/base/log.h"
#include "src/exec/prepared/outbound.h"
#include "src/verify/verify.h"

namespace axccl::comm {
namespace {

// Plans stay for ranks of the process that call a little later than the first; one of 256 ranks takes up to 36 MiB.
// Programs stay for later communicators.
constexpr size_t kMostPlanBytes = size_t{64} << 20, kMostProgramBytes = size_t{8} << 20;

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
  const PlanKey plan_key{
      contract.kind,         contract.ranks,    contract.root,           std::string(request.algorithm),
      request.lanes,         request.placement, request.chunking.slices, request.chunking.produced,
      request.chunking.order};
  const Key key{plan_key, request.rank, request.whole, request.messages};
  if (auto used = FindUsed(key); used != nullptr) return used;
  AXCCL_ASSIGN_OR_RETURN(Known* const known, GetPlan(plan_key, request));
  const plan::Schedule& schedule = known->maker.plan()->schedule;
  const std::shared_ptr<exec::Program> program = known->maker.Make(request.rank);
  program->plan = request.whole ? known->maker.plan() : known->head;
  if (!request.whole && (request.messages || !request.placement.is_flat())) {
    AXCCL_ASSIGN_OR_RETURN(exec::Outbound outbound, exec::Outbound::Make(schedule, request.rank));
    program->outbound = std::make_shared<const exec::Outbound>(std::move(outbound));
  }
  NoteUsed(key, program);
  programs_.Insert(key, program, program->bytes() + (request.whole ? BytesOf(schedule) : 0));
  known->served.insert(request.rank);
  if (known->served.size() >= static_cast<size_t>(request.sharers)) plans_.Erase(plan_key);
  return std::shared_ptr<const exec::Program>(program);
}

Result<Programs::Known*> Programs::GetPlan(const PlanKey& key, const Request& request) {
  if (Known* known = plans_.Find(key); known != nullptr) return known;
  const plan::Contract& contract = request.contract;
  AXCCL_ASSIGN_OR_RETURN(plan::Schedule schedule,
                         request.chunking.slices == 0
                             ? algo::Generate(contract, request.algorithm, request.lanes, request.placement)
                             : algo::GenerateChunked(contract, request.algorithm, request.chunking));
  const auto start = std::chrono::steady_clock::now();
  AXCCL_ASSIGN_OR_RETURN(const std::shared_ptr<const plan::Plan> plan, verify::MakePlan(std::move(schedule)));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  verify_seconds_ += seconds;
  ++made_;
  AXCCL_INFO(kTuning, "plan %s: %s of %d ranks, root %d, %d lanes: verified in %.3f ms",
             plan::ToString(plan->hash).c_str(), plan->schedule.algorithm.c_str(), contract.ranks, contract.root,
             request.lanes, seconds * 1e3);
  AXCCL_ASSIGN_OR_RETURN(exec::ProgramMaker maker, exec::ProgramMaker::Of(plan));
  const size_t bytes = BytesOf(plan->schedule) + maker.bytes();
  return plans_.Insert(key, Known{std::move(maker), WithoutOperations(*plan), {}}, bytes);
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
