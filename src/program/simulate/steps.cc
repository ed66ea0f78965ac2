#include "src/program/simulate/steps.h"

#include <algorithm>
#include <string>
#include <utility>

#include "src/program/check/rounds.h"
#include "src/program/check/rules.h"
#include "src/program/facts.h"
#include "src/program/simulate/work.h"

namespace axccl::program {
namespace {

constexpr size_t kSlotsPerStep = 8;  // on average, at most

// Executes the part without data, as an executor on the host does.
class WritingOut {
 public:
  WritingOut(const Part& part, const Liveness& liveness, const Model& model, const SimulateOptions& options,
             size_t most_steps)
      : part_(part),
        liveness_(liveness),
        model_(model),
        options_(options),
        most_(most_steps),
        rounds_(part),
        types_(TypesOf(part.function)) {}

  Result<PartSteps> Run() {
    const Function& function = part_.function;
    for (const Value& argument : function.arguments) values_[argument.id] = New(argument.type) + 1;
    out_.memory.arguments = out_.memory.peak = live_;
    // Without donation, the caller keeps them.
    if (!model_.drops_donated()) {
      for (const Value& argument : function.arguments) ++uses_[values_[argument.id] - 1];
    }
    AXCCL_ASSIGN_OR_RETURN(const Slots results, Execute(function));
    (void)results;
    out_.num_slots = static_cast<uint32_t>(uses_.size());
    return std::move(out_);
  }

 private:
  using Slots = std::vector<uint32_t>;  // each has a use

  // ---- memory ----

  uint32_t New(const TensorType& type) {
    uint32_t slot = static_cast<uint32_t>(uses_.size());
    if (free_.empty()) {
      uses_.push_back(0);
      bytes_.push_back(0);
    } else {
      slot = free_.back();
      free_.pop_back();
    }
    uses_[slot] = 1;
    bytes_[slot] = static_cast<uint64_t>(BytesOf(type));
    live_ += bytes_[slot];
    return slot;
  }
  void Release(uint32_t slot) {
    if (--uses_[slot] != 0) return;
    live_ -= bytes_[slot];
    free_.push_back(slot);
  }
  void Release(const Slots& slots) {
    for (const uint32_t slot : slots) Release(slot);
  }
  Slots Take(const std::vector<Id>& ids) {
    Slots slots;
    for (const Id id : ids) slots.push_back(values_.Find(id) - 1);
    for (const uint32_t slot : slots) ++uses_[slot];
    return slots;
  }
  void Drop(std::span<const Id> ids) {
    for (const Id id : ids) {
      const uint32_t value = values_.Find(id);
      if (value == 0) continue;  // freed by the program
      Release(value - 1);
      values_[id] = 0;
    }
  }
  // Gives the slots to these values.
  void Name(const std::vector<Value>& values, const Slots& slots) {
    for (size_t i = 0; i < slots.size(); ++i) values_[values[i].id] = slots[i] + 1;
  }

  // ---- steps ----

  Status TooMany() const {
    return MakeStatus(Code::kInvalidUsage, "part %s: more operations than can be simulated, loops written out",
                      part_.function.name.c_str());
  }

  Status Add(SimulatedStep::Kind kind, const Operation& operation, const Slots& operands, const Slots& results) {
    if (out_.steps.size() == most_ || out_.slots.size() / kSlotsPerStep > most_) return TooMany();
    SimulatedStep& step = out_.steps.emplace_back();
    step.kind = kind;
    step.operation = &operation;
    step.first = static_cast<uint32_t>(out_.slots.size());
    step.operands = static_cast<uint32_t>(operands.size());
    step.results = static_cast<uint32_t>(results.size());
    step.live = live_;
    if (kind == SimulatedStep::Kind::kLocal) step.seconds = LocalSeconds(operation);
    for (const uint32_t slot : operands) step.operand_bytes += static_cast<double>(bytes_[slot]);
    out_.slots.insert(out_.slots.end(), operands.begin(), operands.end());
    out_.slots.insert(out_.slots.end(), results.begin(), results.end());
    if (live_ > out_.memory.peak) {
      out_.memory.peak = live_;
      out_.memory.at = &operation;
    }
    return Status();
  }
  double LocalSeconds(const Operation& operation) {
    double& known = seconds_[operation.id];
    if (known == 0) {
      std::vector<const TensorType*> operands;
      for (const Id id : operation.operands) operands.push_back(types_.Find(id));
      known = model_.LocalSeconds(operation, operands);
    }
    return known;
  }

  // The arguments have their values.
  Result<Slots> Execute(const Function& function) {
    Drop(liveness_.DroppedAtOnce(function));
    for (const Operation& operation : function.operations) {
      AXCCL_ASSIGN_OR_RETURN(const Slots results, Execute(operation));
      Name(operation.results, results);
      Drop(liveness_.DroppedAfter(function, operation));
    }
    Slots results = Take(function.results);
    Drop(liveness_.DroppedAtEnd(function));
    return results;
  }

  Result<Slots> Execute(const Operation& operation) {
    switch (operation.kind) {
      case OpKind::kFree:
        Drop(operation.operands);
        return Slots();
      case OpKind::kOptimizationBarrier:
        return Take(operation.operands);
      case OpKind::kIf:
        return If(operation);
      case OpKind::kWhile:
        return While(operation);
      default:
        return Simple(operation);
    }
  }

  Result<Slots> Simple(const Operation& operation) {
    using Kind = SimulatedStep::Kind;
    Kind kind = IsCommunication(operation.kind) ? Kind::kCollective : Kind::kLocal;
    if (operation.kind == OpKind::kSend) kind = Kind::kSend;
    if (operation.kind == OpKind::kRecv) kind = Kind::kRecv;
    const Slots operands = Take(operation.operands);
    Slots results;
    for (const Value& result : operation.results) results.push_back(New(result.type));
    AXCCL_RETURN_IF_ERROR(Add(kind, operation, operands, results));
    Release(operands);
    return results;
  }

  Result<Slots> If(const Operation& operation) {
    if (!options_.branch)
      return OperationError(part_, operation, "", "a simulation must be told which branch to take (--branch)");
    const Slots condition = Take(operation.operands);
    AXCCL_RETURN_IF_ERROR(Add(SimulatedStep::Kind::kDecide, operation, condition, {}));
    AXCCL_ASSIGN_OR_RETURN(Slots results, Execute(operation.regions[*options_.branch == 0 ? 0 : 1]));
    Release(condition);
    return results;
  }

  Result<Slots> While(const Operation& loop) {
    const std::optional<int64_t> constant = rounds_.Of(loop);
    if (!constant && !options_.trips)
      return OperationError(part_, loop, "",
                            "the number of rounds does not follow from constants; a simulation must be told (--trips)");
    const int64_t rounds = constant ? *constant : *options_.trips;
    const Function &cond = loop.regions[0], &body = loop.regions[1];
    if (static_cast<uint64_t>(rounds) > most_ - out_.steps.size()) return TooMany();
    Slots carried = Take(loop.operands);
    for (int64_t round = 0;; ++round) {
      for (const uint32_t slot : carried) ++uses_[slot];
      Name(cond.arguments, carried);
      AXCCL_ASSIGN_OR_RETURN(const Slots more, Execute(cond));
      AXCCL_RETURN_IF_ERROR(Add(SimulatedStep::Kind::kDecide, loop, more, {}));
      Release(more);
      if (round == rounds) return carried;
      Name(body.arguments, carried);
      AXCCL_ASSIGN_OR_RETURN(carried, Execute(body));
    }
  }

  const Part& part_;
  const Liveness& liveness_;
  const Model& model_;
  const SimulateOptions& options_;
  const size_t most_;
  const Rounds rounds_;
  const IdTable<const TensorType*> types_;
  IdTable<double> seconds_;     // of operations, by their ids
  IdTable<uint32_t> values_;    // slots, from 1
  std::vector<uint32_t> uses_;  // of slots
  std::vector<uint64_t> bytes_;
  std::vector<uint32_t> free_;
  uint64_t live_ = 0;
  PartSteps out_;
};

}  // namespace

Result<PartSteps> WriteOut(const Part& part, const Liveness& liveness, const Model& model,
                           const SimulateOptions& options, size_t most_steps) {
  return WritingOut(part, liveness, model, options, most_steps).Run();
}

}  // namespace axccl::program
