#include "src/program/stablehlo/lower.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "src/program/kinds.h"
#include "src/program/stablehlo/groups.h"
#include "src/program/stablehlo/names.h"
#include "src/program/stablehlo/read.h"
#include "src/program/stablehlo/sharding.h"
#include "src/program/text.h"

namespace axccl::program::stablehlo {
namespace {

// What an operation, a value, an attribute take of the budget besides their numbers.
constexpr size_t kOpWords = 32, kValueWords = 12, kAttributeWords = 8;

class Lowering {
 public:
  Lowering(const Module* module, std::string_view text)
      : module_(*module), errors_(text), budget_(text.size()), communication_(module, &grid_, &budget_, &errors_) {}

  Result<Program> Run() {
    if (LowerModule()) return std::move(program_);
    return errors_.status();
  }

 private:
  // A function that is being inlined, and the ids of its values.
  struct Frame {
    const Func& func;
    std::vector<Id> ids;
  };

  bool LowerModule() {
    if (!GridOf(module_, &errors_, &grid_)) return false;
    states_.resize(module_.funcs.size());
    for (size_t i = 0; i < module_.funcs.size(); ++i) index_[module_.funcs[i].name] = i;
    const auto main = index_.find("main");
    if (main == index_.end()) return errors_.Fail(0, "expected a function with the name main in the module");
    program_.ranks = static_cast<int>(grid_.Ranks());
    if (!budget_.Take(static_cast<size_t>(program_.ranks))) return FailBudget(0, &errors_);
    Part& part = program_.parts.emplace_back();
    part.function.name = "main";
    for (int rank = 0; rank < program_.ranks; ++rank) part.ranks.push_back(rank);
    if (!LowerRoot(main->second, &part.function)) return false;
    for (size_t i = 0; i < module_.funcs.size(); ++i) {
      Function unused;
      if (states_[i] == State::kNew && !LowerRoot(i, &unused)) return false;
    }
    return true;
  }

  // Lowers a function that is not called, with ids from 0.
  bool LowerRoot(size_t index, Function* function) {
    const Func& func = module_.funcs[index];
    next_ = 0;
    if (const Op* const manual = ManualOf(func)) return LowerManual(index, *manual, function);
    std::vector<Id> inputs;
    for (size_t i = 0; i < func.body.arguments; ++i) {
      if (!NewValue(func.at, func.types[i], &function->arguments)) return false;
      function->arguments.back().donated = func.donated[i];
      inputs.push_back(function->arguments.back().id);
    }
    return LowerCall(func.at, index, 0, inputs, &function->operations, &function->results);
  }

  // Lowers a function that is an sdy.manual_computation: its arguments are the shards.
  bool LowerManual(size_t index, const Op& op, Function* function) {
    const Func& func = module_.funcs[index];
    if (!CheckManual(module_, func, grid_, &errors_)) return false;
    if (!budget_.Take(kOpWords + func.types.size())) return FailBudget(op.at, &errors_);
    states_[index] = State::kActive;
    Frame frame{func, std::vector<Id>(func.types.size())};
    if (!LowerRegion(op.regions[0], 0, &frame, function)) return false;
    for (size_t i = 0; i < function->arguments.size(); ++i) function->arguments[i].donated = func.donated[i];
    states_[index] = State::kDone;
    return true;
  }

  bool NewValue(size_t at, const TensorType& type, std::vector<Value>* values) {
    if (!budget_.Take(kValueWords + type.dims.size())) return FailBudget(at, &errors_);
    values->push_back({.id = next_++, .type = type});
    return true;
  }

  // Appends the operations of a function to `operations`.
  bool LowerCall(size_t at, size_t index, int depth, const std::vector<Id>& inputs, std::vector<Operation>* operations,
                 std::vector<Id>* results) {
    const Func& func = module_.funcs[index];
    if (states_[index] == State::kActive)
      return errors_.Fail(at, Quote(func.name) + " calls itself, which is not supported");
    if (calls_ == kMaxCalls)
      return errors_.Fail(at, "expected at most " + std::to_string(kMaxCalls) + " calls within each other");
    if (!budget_.Take(kOpWords + func.types.size())) return FailBudget(at, &errors_);
    states_[index] = State::kActive;
    ++calls_;
    Frame frame{func, std::vector<Id>(func.types.size())};
    std::copy(inputs.begin(), inputs.end(), frame.ids.begin());
    if (!LowerOps(func.body.ops, depth, &frame, operations)) return false;
    for (const ValueId value : func.body.results) results->push_back(frame.ids[value]);
    --calls_;
    states_[index] = State::kDone;
    return true;
  }

  bool LowerOps(const std::vector<Op>& ops, int depth, Frame* frame, std::vector<Operation>* operations) {
    for (const Op& op : ops) {
      if (op.name == "func.call") {
        if (!InlineCall(op, depth, frame, operations)) return false;
        continue;
      }
      if (op.name == "sdy.manual_computation")
        return errors_.Fail(op.at, "expected sdy.manual_computation only where it is all that main does");
      Operation operation;
      if (!LowerOp(op, depth, frame, &operation)) return false;
      operations->push_back(std::move(operation));
      if (!LowerId(op, frame, operations)) return false;
    }
    return true;
  }

  // A program knows only ranks: `partition_id` is that of the rank, and `replica_id` 0. Makes of the last operation, if
  // it is one of these, what it is on a grid of several replicas.
  bool LowerId(const Op& op, Frame* frame, std::vector<Operation>* operations) {
    const OpKind kind = operations->back().kind;
    if ((kind != OpKind::kPartitionId && kind != OpKind::kReplicaId) || grid_.num_replicas == 1) return true;
    if (grid_.num_partitions == 1) {
      operations->back().kind = kind == OpKind::kPartitionId ? OpKind::kReplicaId : OpKind::kPartitionId;
      return true;
    }
    if (!budget_.Take(2 * kOpWords + kAttributeWords)) return FailBudget(op.at, &errors_);
    operations->back().kind = OpKind::kPartitionId;
    const TensorType type = operations->back().results[0].type;
    if (type != TensorType{DataType::kUint32, {}}) return errors_.Fail(op.at, "expected a result of tensor<ui32>");
    const Id rank = operations->back().id;
    Literal partitions;
    for (int shift = 0; shift < 32; shift += 8)
      partitions.bytes.push_back(static_cast<uint8_t>(static_cast<uint64_t>(grid_.num_partitions) >> shift));
    Operation constant{OpKind::kConstant, next_, {}, {}, {{Attr::kValue, partitions}}, {}};
    if (!NewValue(op.at, type, &constant.results)) return false;
    Operation place{
        kind == OpKind::kPartitionId ? OpKind::kRemainder : OpKind::kDivide, next_, {rank, constant.id}, {}, {}, {}};
    if (!NewValue(op.at, type, &place.results)) return false;
    frame->ids[op.first_result] = place.id;
    operations->push_back(std::move(constant));
    operations->push_back(std::move(place));
    return true;
  }

  bool InlineCall(const Op& op, int depth, Frame* frame, std::vector<Operation>* operations) {
    const NamedAttr* const callee = Find(op.attributes, "callee");
    if (callee == nullptr || callee->value.form != AttrNode::Form::kSymbol)
      return errors_.Fail(op.at, "expected callee = @name of func.call");
    const auto found = index_.find(callee->value.word);
    if (found == index_.end())
      return errors_.Fail(callee->value.at, "expected the name of a function, found " + Quote(callee->value.word));
    const Func& func = module_.funcs[found->second];
    std::vector<Id> inputs, results;
    bool agree = op.operands.size() == func.body.arguments && op.results == func.results.size();
    for (size_t i = 0; agree && i < op.operands.size(); ++i) {
      agree = frame->func.types[op.operands[i]] == func.types[i];
      inputs.push_back(frame->ids[op.operands[i]]);
    }
    for (size_t i = 0; agree && i < op.results; ++i) agree = frame->func.types[op.first_result + i] == func.results[i];
    if (!agree) return errors_.Fail(op.at, "expected the types of the arguments and results of " + Quote(func.name));
    if (!LowerCall(op.at, found->second, depth, inputs, operations, &results)) return false;
    for (size_t i = 0; i < results.size(); ++i) frame->ids[op.first_result + i] = results[i];
    return true;
  }

  bool LowerOp(const Op& op, int depth, Frame* frame, Operation* operation) {
    FindKind(op, &operation->kind);
    const KindInfo& info = InfoOf(operation->kind);
    if (!budget_.Take(kOpWords + op.operands.size() + op.attributes.size())) return FailBudget(op.at, &errors_);
    for (const ValueId value : op.operands) operation->operands.push_back(frame->ids[value]);
    operation->id = next_;
    if (op.results == 0) ++next_;
    for (size_t i = 0; i < op.results; ++i) {
      frame->ids[op.first_result + i] = next_;
      if (!NewValue(op.at, frame->func.types[op.first_result + i], &operation->results)) return false;
    }
    if (!CheckFields(op, operation->kind, &errors_)) return false;
    for (const Attr attr : info.attributes()) {
      Attribute& attribute = operation->attributes.emplace_back(Attribute{.attr = attr, .value = {}});
      if (!LowerAttribute(op, *operation, frame->func, &attribute)) return false;
    }
    for (size_t i = 0; i < info.regions().size(); ++i) {
      Function& function = operation->regions.emplace_back();
      function.name = info.regions()[i];
      if (!LowerRegion(op.regions[i], depth + 1, frame, &function)) return false;
    }
    return true;
  }

  bool LowerRegion(const Region& region, int depth, Frame* frame, Function* function) {
    if (depth > kMaxNesting)
      return errors_.Fail(region.at, "expected at most 16 regions within each other, calls included");
    for (size_t i = 0; i < region.arguments; ++i) {
      const size_t value = region.first_argument + i;
      frame->ids[value] = next_;
      if (!NewValue(region.at, frame->func.types[value], &function->arguments)) return false;
    }
    if (!LowerOps(region.ops, depth, frame, &function->operations)) return false;
    for (const ValueId value : region.results) function->results.push_back(frame->ids[value]);
    return true;
  }

  bool LowerAttribute(const Op& op, const Operation& operation, const Func& func, Attribute* attribute) {
    switch (attribute->attr) {
      case Attr::kFold:
        return ReadFold(op, func, &errors_, &attribute->value.emplace<Combine>());
      case Attr::kGroups:
        return communication_.ReadGroups(op, &attribute->value.emplace<Groups>());
      case Attr::kPairs:
        return communication_.ReadPairs(op, &attribute->value.emplace<Groups>());
      case Attr::kChannel:
        return communication_.ReadChannel(op, &attribute->value.emplace<int64_t>());
      default:
        break;
    }
    size_t words = 0;
    if (!ReadAttribute(op, operation, &errors_, attribute, &words)) return false;
    return budget_.Take(kAttributeWords + words) || FailBudget(op.at, &errors_);
  }

  enum class State : uint8_t { kNew, kActive, kDone };

  const Module& module_;
  Scanner errors_;
  Budget budget_;
  tensor::Grid grid_;
  Communication communication_;
  Program program_;
  std::unordered_map<std::string_view, size_t> index_;  // of functions, by name
  std::vector<State> states_;                           // of functions
  int calls_ = 0;                                       // that are being inlined
  Id next_ = 0;
};

}  // namespace

Result<Program> Lower(const Module& module, std::string_view text) { return Lowering(&module, text).Run(); }

}  // namespace axccl::program::stablehlo
