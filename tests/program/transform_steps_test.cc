// Training steps that `make` does not write: with scalar arguments, weight decay, and sums over the whole batch in a
// pass. Their transforms give the results of the program before, bit for bit.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "src/program/builder.h"
#include "src/program/search.h"
#include "src/program/simulate/on_machines.h"
#include "src/program/text.h"
#include "src/program/transform.h"
#include "tests/program/transformed_run.h"

namespace axccl::program {
namespace {

// Three layers for a batch of 8, and what is beside them.
struct Extras {
  bool rate = false;      // the learning rate is a scalar argument, and so is a factor of the error
  bool decay = false;     // the loss has the squares of all weights
  bool shared = false;    // the second layer adds the bias of the first one once more
  bool centered = false;  // the first layer's output less its sum over the batch
  bool counted = false;   // the error times the sum of the labels
};

class StepBuilder {
 public:
  explicit StepBuilder(const Extras& extras) : extras_(extras) {}

  Program Make() {
    for (int layer = 0; layer < kLayers; ++layer) weights_.push_back(b_.Argument({DataType::kInt32, {4, 4}}, true));
    const Id bias = b_.Argument({DataType::kInt32, {4}}, true);
    inputs_.push_back(b_.Argument({DataType::kInt32, {8, 4}}));
    const Id labels = b_.Argument({DataType::kInt32, {8, 4}});
    const Id rate = b_.Argument({DataType::kInt32, {}});
    for (int layer = 0; layer < kLayers; ++layer) Forward(layer, bias);
    Id error = Do(OpKind::kSubtract, inputs_.back(), labels);
    if (extras_.rate) error = Do(OpKind::kMultiply, error, b_.Broadcast(rate, {8, 4}, {}));
    Id loss = SumOf(Do(OpKind::kMultiply, error, error));
    for (const Id weight : weights_) {
      if (extras_.decay) loss = Do(OpKind::kAdd, loss, SumOf(Do(OpKind::kMultiply, weight, weight)));
    }
    if (extras_.counted) error = Do(OpKind::kMultiply, error, b_.Broadcast(SumOf(labels), {8, 4}, {}));
    std::vector<Id> results = Backward(error, rate);
    results.push_back(Do(OpKind::kSubtract, bias, b_.Reduce(Combine::kSum, error, {0})));
    results.push_back(loss);
    Program program;
    program.parts.push_back({{0}, b_.Finish(results)});
    return program;
  }

 private:
  static constexpr int kLayers = 3;

  Id Do(OpKind kind, Id left, Id right) { return b_.Elementwise(kind, {left, right}); }
  Id SumOf(Id value) { return b_.Reduce(Combine::kSum, value, {0, 1}); }
  Id Zeros() { return b_.Broadcast(b_.Constant({DataType::kInt32, {}}, 0), {8, 4}, {}); }

  void Forward(int layer, Id bias) {
    Id output = b_.Dot(inputs_.back(), weights_[static_cast<size_t>(layer)], {1}, {0});
    if (layer == 0 || (layer == 1 && extras_.shared))
      output = Do(OpKind::kAdd, output, b_.Broadcast(bias, {8, 4}, {1}));
    if (layer == 0 && extras_.centered)
      output = Do(OpKind::kSubtract, output, b_.Broadcast(b_.Reduce(Combine::kSum, output, {0}), {8, 4}, {1}));
    if (layer + 1 < kLayers) output = Do(OpKind::kMaximum, output, Zeros());
    inputs_.push_back(output);
  }

  // The next weights.
  std::vector<Id> Backward(Id error, Id rate) {
    std::vector<Id> next(kLayers);
    for (size_t layer = kLayers; layer-- > 0;) {
      Id gradient = b_.Dot(inputs_[layer], error, {0}, {0});
      if (extras_.decay) gradient = Do(OpKind::kAdd, gradient, weights_[layer]);
      if (extras_.rate) gradient = Do(OpKind::kMultiply, gradient, b_.Broadcast(rate, {4, 4}, {}));
      next[layer] = Do(OpKind::kSubtract, weights_[layer], gradient);
      if (layer == 0) break;
      const Id through = b_.Dot(error, weights_[layer], {1}, {1});
      error = b_.Elementwise(OpKind::kSelect, {b_.Greater(inputs_[layer], Zeros()), through, Zeros()});
    }
    return next;
  }

  const Extras extras_;
  Builder b_{"main"};
  std::vector<Id> weights_, inputs_;  // [layer]
};

Program StepWith(const Extras& extras) { return StepBuilder(extras).Make(); }

void ExpectTheSame(const Program& program, const Parallelism& way) {
  SCOPED_TRACE("tensor " + std::to_string(way.tensor) + ", data " + std::to_string(way.data) + ", zero " +
               std::to_string(way.zero) + ", recompute " + std::to_string(way.recompute) + ", stages " +
               std::to_string(way.stages) + ", microbatches " + std::to_string(way.microbatches));
  const Result<Transformed> after = Parallelize(program, way);
  ASSERT_TRUE(after.ok()) << after.status().message();
  EXPECT_TRUE(GivesTheSame(program, after.value(), 5)) << Print(after.value().program);
}

TEST(TransformSteps, ScalarArgumentsAndStateAreWhereTheyAreNeeded) {
  for (const Extras& extras : {Extras{.rate = true}, Extras{.decay = true}, Extras{.shared = true},
                               Extras{.rate = true, .decay = true, .shared = true}}) {
    SCOPED_TRACE(std::string(extras.rate ? "rate " : "") + (extras.decay ? "decay " : "") +
                 (extras.shared ? "shared" : ""));
    for (const int64_t stages : {1, 2, 3}) {
      for (const int64_t microbatches : {1, 2, 4}) {
        for (const PipelineOrder order : {PipelineOrder::kFifo, PipelineOrder::k1F1B})
          ExpectTheSame(StepWith(extras), {.stages = stages, .microbatches = microbatches, .order = order});
      }
    }
    if (!extras.shared)
      ExpectTheSame(StepWith(extras), {.tensor = 2, .data = 2, .zero = 1, .stages = 3, .microbatches = 2});
    ExpectTheSame(StepWith(extras), {.data = 2, .zero = 3, .recompute = 1, .stages = 2, .microbatches = 2});
  }
}

TEST(TransformSteps, SearchTriesSteps) {
  MachinesModel model({});
  SearchSpace space;
  space.devices = 4;
  space.microbatches = {2};
  const auto found = Search(StepWith({.rate = true, .decay = true}), space, &model);
  ASSERT_TRUE(found.ok()) << found.status().message();
  for (const Candidate& candidate : found.value()) {
    if (candidate.parallelism.stages <= 3) {
      EXPECT_EQ(candidate.left_out, "");
    }
  }
}

// A pass of a microbatch cannot wait for the sum over the whole batch; that of the whole batch can.
TEST(TransformSteps, SumsOverTheBatchNeedOneMicrobatch) {
  for (const Extras& extras : {Extras{.centered = true}, Extras{.counted = true}}) {
    const Program program = StepWith(extras);
    for (const int64_t stages : {2, 3}) ExpectTheSame(program, {.stages = stages});
    ExpectTheSame(program, {.tensor = 2, .data = 2, .zero = 1});
    ExpectTheSame(program, {.data = 2, .stages = 3});
    for (const int64_t stages : {1, 2}) {
      EXPECT_EQ(Parallelize(program, {.stages = stages, .microbatches = 2}).status().message(),
                extras.centered
                    ? "transform pipeline, microbatches 2: %13 subtract needs the result of %11 reduce for the whole "
                      "batch, which is there only when all microbatches have run; give 1 microbatch"
                    : "transform pipeline, microbatches 2: %24 multiply needs the result of %22 reduce for the whole "
                      "batch, which is there only when all microbatches have run; give 1 microbatch");
    }
  }
}

// What a later stage takes in its backward pass is not made on an earlier one. Here %20 takes %3, which the forward
// pass has on the first stage alone, and %22, beside the weights of a later stage, takes %20.
TEST(TransformSteps, BackwardPassesGoFromTheLastStageToTheFirst) {
  const std::string of_rows =
      " lhs_batching_dims=[] rhs_batching_dims=[] lhs_contracting_dims=[0] rhs_contracting_dims=[0]\n";
  const std::string of_columns =
      " lhs_batching_dims=[] rhs_batching_dims=[] lhs_contracting_dims=[1] rhs_contracting_dims=[1]\n";
  const auto program = Parse(
      "axccl-program 1\n"
      "ranks 1\n"
      "part main on [0]\n"
      "  argument %0 i32[4,4] donated\n"
      "  argument %1 i32[4,4] donated\n"
      "  argument %2 i32[4,4] donated\n"
      "  argument %3 i32[4,4]\n"
      "  argument %4 i32[4,4]\n"
      "  %5 i32[4,4] = dot %3 %0\n"
      "  %6 i32[4,4] = constant value=0\n"
      "  %7 i32[4,4] = maximum %5 %6\n"
      "  %8 i32[4,4] = dot %7 %1\n"
      "  %9 i32[4,4] = maximum %8 %6\n"
      "  %10 i32[4,4] = dot %9 %2\n"
      "  %11 i32[4,4] = subtract %10 %4\n"
      "  %12 i32[4,4] = multiply %11 %11\n"
      "  %13 i32[] = constant value=0\n"
      "  %14 i32[] = reduce %12 %13 fold=add dims=[0,1]\n"
      "  %17 i32[4,4] = dot_general %9 %11" +
      of_rows +
      "  %19 i1[4,4] = compare %9 %6 direction=GT\n"
      "  %20 i32[4,4] = select %19 %3 %6\n"
      "  %21 i32[4,4] = dot_general %7 %20" +
      of_rows + "  %22 i32[4,4] = dot_general %20 %1" + of_columns +
      "  %23 i1[4,4] = compare %7 %6 direction=GT\n"
      "  %24 i32[4,4] = select %23 %22 %6\n"
      "  %25 i32[4,4] = dot_general %8 %24" +
      of_rows +
      "  %26 i32[4,4] = subtract %0 %25\n"
      "  %27 i32[4,4] = subtract %1 %21\n"
      "  %28 i32[4,4] = subtract %2 %17\n"
      "  return %26 %27 %28 %14\n");
  ASSERT_TRUE(program.ok()) << program.status().message();
  for (const int64_t stages : {2, 3}) {
    for (const int64_t microbatches : {1, 2, 4}) {
      for (const PipelineOrder order : {PipelineOrder::kFifo, PipelineOrder::k1F1B})
        ExpectTheSame(program.value(), {.stages = stages, .microbatches = microbatches, .order = order});
    }
  }
}

}  // namespace
}  // namespace axccl::program
