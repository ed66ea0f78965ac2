#include "tests/program/distir_step.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "src/program/builder.h"
#include "src/program/facts.h"

namespace axccl::program {
namespace {

// Both, unchanged, once both are there.
std::vector<Id> Together(Builder* b, Id first, Id second) {
  Operation barrier;
  barrier.kind = OpKind::kOptimizationBarrier;
  barrier.operands = {first, second};
  barrier.results = {{0, b->TypeOf(first)}, {0, b->TypeOf(second)}};
  const Operation& written = b->operations()[b->Append(barrier)];
  return {written.results[0].id, written.results[1].id};
}

class PipelineOfDistir {
 public:
  explicit PipelineOfDistir(Function function) : before_(std::move(function)) {
    for (const Value& argument : before_.arguments) arguments_.insert(argument.id);
    for (const Operation& operation : before_.operations) {
      for (const Value& result : operation.results) next_ = std::max(next_, result.id + 1);
      next_ = std::max(next_, operation.id + 1);
      if (operation.kind == OpKind::kConcatenate) FindJoins(operation);
    }
  }

  Function Run() {
    Function after{before_.name, {}, {}, before_.results};
    std::set<Id> sliced;
    std::vector<Operation> joins, sums;  // that wait
    for (const Operation& operation : before_.operations) {
      if (operation.kind == OpKind::kConcatenate) continue;
      if (operation.kind == OpKind::kSlice && arguments_.count(operation.operands[0]) > 0) {
        after.arguments.push_back(operation.results[0]);
        sliced.insert(operation.operands[0]);
        continue;
      }
      if (!GoesFirst(operation, sums)) {
        Move(&joins, &after.operations);
        Move(&sums, &after.operations);
      }
      (operation.kind == OpKind::kAdd ? sums : after.operations).push_back(operation);
      for (const Value& result : operation.results) {
        const auto join = joins_.find(result.id);
        if (join != joins_.end()) joins.push_back(join->second);
      }
    }
    Move(&joins, &after.operations);
    Move(&sums, &after.operations);
    for (const Value& argument : before_.arguments) {
      if (sliced.count(argument.id) == 0) after.arguments.push_back(argument);
    }
    return after;
  }

 private:
  // Both products of a gradient are one operation there; what is reduced between ranks of it comes next, then joins and
  // sums.
  static bool GoesFirst(const Operation& operation, const std::vector<Operation>& sums) {
    if (operation.kind == OpKind::kAdd || operation.kind == OpKind::kDotGeneral) return true;
    return operation.kind == OpKind::kAllReduce && std::none_of(sums.begin(), sums.end(), [&](const Operation& sum) {
             return sum.id == operation.operands[0];
           });
  }

  static void Move(std::vector<Operation>* from, std::vector<Operation>* to) {
    to->insert(to->end(), from->begin(), from->end());
    from->clear();
  }

  // Of the operands of one concatenation; the last one has its id.
  void FindJoins(const Operation& all) {
    TensorType type = TypesOf(before_).Find(all.operands[0])[0];
    Id joined = all.operands[0];
    for (size_t i = 1; i < all.operands.size(); ++i) {
      Operation join = all;
      join.operands = {joined, all.operands[i]};
      type.dims[0] = all.results[0].type.dims[0] / static_cast<int64_t>(all.operands.size()) * int64_t(i + 1);
      joined = i + 1 == all.operands.size() ? all.id : next_++;
      join.id = joined;
      join.results = {{joined, type}};
      joins_.emplace(all.operands[i], join);
    }
  }

  const Function before_;
  std::set<Id> arguments_;
  std::map<Id, Operation> joins_;  // after the operation that makes the value
  Id next_ = 0;
};

}  // namespace

Program AsDistirPipeline(Program program) {
  for (Part& part : program.parts) part.function = PipelineOfDistir(part.function).Run();
  return program;
}

Program MakeDistirStep(const DistirStep& step) {
  Builder b("main");
  const TensorType activation{DataType::kFloat32, {step.batch, step.dim}};
  std::vector<Id> weights, products, inputs, results;
  for (int64_t i = 0; i < step.layers; ++i)
    weights.push_back(b.Argument({DataType::kFloat32, {step.dim, step.dim}}, true));
  inputs.push_back(b.Argument(activation));
  const Id labels = b.Argument(activation);
  b.Argument({DataType::kInt32, {}});
  for (const Id weight : weights) {
    products.push_back(b.Dot(inputs.back(), weight, {1}, {0}));
    inputs.push_back(b.Elementwise(OpKind::kTanh, {products.back()}));
  }
  // The loss and its gradient belong to the last forward pass.
  const Id output = Together(&b, inputs.back(), labels)[0];
  const std::vector<Id> outputs = Together(&b, output, b.Elementwise(OpKind::kSign, {output}));
  const Id loss = b.Elementwise(OpKind::kAbs, {outputs[0]});
  Id gradient = outputs[1];
  results.resize(weights.size());
  for (size_t i = weights.size(); i-- > 0;) {
    const Id product = b.Elementwise(OpKind::kMultiply, {products[i], gradient});
    gradient = b.Dot(product, weights[i], {1}, {1});
    results[i] = b.Dot(inputs[i], product, {0}, {0});
  }
  if (step.keeps_input_gradient) {
    const std::vector<Id> both = Together(&b, gradient, results[0]);
    gradient = both[0];
    results[0] = both[1];
  }
  for (int64_t s = 1; s <= step.stages_with_optimizer; ++s) {
    const auto last = static_cast<size_t>(s * step.layers / step.stages_with_optimizer - 1);
    results[last] = b.Elementwise(OpKind::kSubtract, {weights[last], results[last]});
  }
  results.push_back(gradient);
  results.push_back(loss);
  Program program;
  program.parts.push_back({{0}, b.Finish(results)});
  return program;
}

}  // namespace axccl::program
