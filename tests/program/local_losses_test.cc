// LocalLosses gives what models trained one after the other give, each on what the one before puts out, and no gradient
// goes between them, however the step is spread.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "src/program/builder.h"
#include "src/program/check.h"
#include "src/program/make.h"
#include "src/program/make/step.h"
#include "src/program/reference.h"
#include "src/program/simulate.h"
#include "src/program/simulate/on_machines.h"
#include "src/program/text.h"
#include "src/program/transform.h"
#include "src/program/transform/stages.h"
#include "tests/program/transformed_run.h"

namespace axccl::program {
namespace {

const TensorType kSamples{DataType::kInt32, {16, 8}};

// Layers of a model, with a loss and a training step of their own; the last result is what they put out.
Program MlpBlock(int layers, bool is_last) {
  TrainingStep step(DataType::kInt32);
  Builder& b = step.builder();
  std::vector<Id> weights, inputs;
  for (int i = 0; i < layers; ++i) weights.push_back(step.Weight({8, 8}));
  inputs.push_back(step.Batch(kSamples.dims));
  const Id labels = step.Batch(kSamples.dims);
  const auto is_bare = [&](size_t i) { return is_last && i + 1 == weights.size(); };
  for (size_t i = 0; i < weights.size(); ++i) {
    const Id product = b.Dot(inputs[i], weights[i], {1}, {0});
    inputs.push_back(is_bare(i) ? product : step.Positive(product));
  }
  Id gradient = step.Loss(inputs.back(), labels);
  for (size_t i = weights.size(); i-- > 0;) {
    if (!is_bare(i)) gradient = step.PositiveGradient(inputs[i + 1], gradient);
    step.SetGradient(weights[i], b.Dot(inputs[i], gradient, {0}, {0}));
    gradient = b.Dot(gradient, weights[i], {1}, {1});
  }
  Program program = step.Finish();
  program.parts[0].function.results.push_back(inputs.back());
  return program;
}

Program TransformerBlock(DataType type) {
  Program program = MakeTransformer({1, 8, 4, 4, 16, type}).value();
  Function& function = program.parts[0].function;
  const auto difference =
      std::find_if(function.operations.begin(), function.operations.end(), [&](const Operation& operation) {
        return operation.kind == OpKind::kSubtract && operation.operands[1] == function.arguments.back().id;
      });
  function.results.push_back(difference->operands[0]);
  return program;
}

Program SmallMlp() { return MakeMlp({4, 8, 16, DataType::kInt32}).value(); }
Program SmallTransformer(DataType type = DataType::kInt32) { return MakeTransformer({2, 8, 4, 4, 16, type}).value(); }

Id SquaresOf(Builder* b, Id difference) {
  return b->Reduce(Combine::kSum, b->Elementwise(OpKind::kMultiply, {difference, difference}), {0, 1});
}

// Layers with a bias, and half the sum of squares: the gradient of its loss is the difference itself.
Program Biased(size_t layers) {
  Builder b("main");
  std::vector<Id> state;
  for (size_t i = 0; i < layers; ++i) {
    state.push_back(b.Argument({DataType::kInt32, {8, 8}}, true));
    state.push_back(b.Argument({DataType::kInt32, {8}}, true));
  }
  std::vector<Id> inputs{b.Argument(kSamples)};
  const Id labels = b.Argument(kSamples);
  for (size_t i = 0; i < layers; ++i) {
    const Id product = b.Dot(inputs[i], state[2 * i], {1}, {0});
    inputs.push_back(b.Elementwise(OpKind::kAdd, {product, b.Broadcast(state[2 * i + 1], kSamples.dims, {1})}));
  }
  const Id difference = b.Elementwise(OpKind::kSubtract, {inputs.back(), labels});
  std::vector<Id> results(state.size());
  Id gradient = difference;
  for (size_t i = layers; i-- > 0;) {
    results[2 * i] = b.Elementwise(OpKind::kSubtract, {state[2 * i], b.Dot(inputs[i], gradient, {0}, {0})});
    const Id of_bias = b.Reduce(Combine::kSum, gradient, {0});
    results[2 * i + 1] = b.Elementwise(OpKind::kSubtract, {state[2 * i + 1], of_bias});
    if (i > 0) gradient = b.Dot(gradient, state[2 * i], {1}, {1});
  }
  results.push_back(SquaresOf(&b, difference));
  if (layers == 1) results.push_back(inputs.back());
  Program program;
  program.parts.push_back({{0}, b.Finish(results)});
  return program;
}

// Two layers; `head` adds the loss, and may change the gradient of the first weight.
struct TwoLayerStep {
  Builder b{"main"};
  Id first, second, x, labels, middle, output, difference, of_first;
};
template <class Head>
Program TwoLayers(int64_t inner, Head&& head) {
  TwoLayerStep s;
  Builder& b = s.b;
  s.first = b.Argument({DataType::kInt32, {8, inner}}, true);
  s.second = b.Argument({DataType::kInt32, {inner, 8}}, true);
  s.x = b.Argument(kSamples);
  s.labels = b.Argument(kSamples);
  s.middle = b.Dot(s.x, s.first, {1}, {0});
  s.output = b.Dot(s.middle, s.second, {1}, {0});
  s.difference = b.Elementwise(OpKind::kSubtract, {s.output, s.labels});
  s.of_first = b.Dot(s.x, b.Dot(s.difference, s.second, {1}, {1}), {0}, {0});
  const Id of_second = b.Dot(s.middle, s.difference, {0}, {0});
  const Id loss = head(&s);
  const Id next_first = b.Elementwise(OpKind::kSubtract, {s.first, s.of_first});
  const Id next_second = b.Elementwise(OpKind::kSubtract, {s.second, of_second});
  Program program;
  program.parts.push_back({{0}, b.Finish({next_first, next_second, loss})});
  return program;
}
Id Squares(TwoLayerStep* s) { return SquaresOf(&s->b, s->difference); }

Program WithLocalLosses(const Program& program, int64_t blocks) {
  const Result<Transformed> local = LocalLosses(Untransformed(program).value(), blocks);
  EXPECT_TRUE(local.ok()) << local.status().message();
  return local.ok() ? local.value().program : Program();
}

// New weights of all blocks, then their losses. `arguments`: weights, inputs, labels.
Tensors TrainOneAfterTheOther(const std::vector<Program>& blocks, const Tensors& arguments) {
  Tensors weights, losses;
  Tensor passed = arguments[arguments.size() - 2];
  size_t used = 0;
  for (const Program& block : blocks) {
    Tensors inputs;
    const size_t count = block.parts[0].function.arguments.size() - 2;
    for (size_t i = 0; i < count; ++i) inputs.push_back(arguments[used++]);
    inputs.push_back(passed);
    inputs.push_back(arguments.back());
    Tensors results = RunReference(block, {inputs}).value()[0];
    weights.insert(weights.end(), results.begin(), results.begin() + static_cast<ptrdiff_t>(count));
    losses.push_back(results[count]);
    passed = results.back();
  }
  weights.insert(weights.end(), losses.begin(), losses.end());
  return weights;
}

TEST(LocalLosses, GivesWhatSeparateModelsGive) {
  const struct {
    const char* name;
    Program program;
    int64_t blocks;
    std::vector<Program> models;
  } cases[] = {
      {"mlp, two stages", SmallMlp(), 2, {MlpBlock(2, false), MlpBlock(2, true)}},
      {"mlp, layers", SmallMlp(), 0, {MlpBlock(1, false), MlpBlock(1, false), MlpBlock(1, false), MlpBlock(1, true)}},
      {"mlp, one stage", SmallMlp(), 1, {MlpBlock(4, true)}},
      {"biases, and the loss leaves its gradient", Biased(3), 3, {Biased(1), Biased(1), Biased(1)}},
      {"transformer", SmallTransformer(), 2, {TransformerBlock(DataType::kInt32), TransformerBlock(DataType::kInt32)}},
      {"transformer of floats",
       SmallTransformer(DataType::kFloat32),
       2,
       {TransformerBlock(DataType::kFloat32), TransformerBlock(DataType::kFloat32)}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const Program local = WithLocalLosses(c.program, c.blocks);
    ASSERT_TRUE(Check(local).ok()) << Check(local).message();
    const Tensors arguments = RandomArguments(c.program.parts[0].function, 5);
    const Tensors actual = RunReference(local, {arguments}).value()[0];
    EXPECT_EQ(actual, TrainOneAfterTheOther(c.models, arguments)) << Print(local);
  }
}

// Transformed steps give the bits of the step with local losses that one rank executes.
TEST(LocalLosses, GoesWithEveryTransform) {
  using Order = PipelineOrder;
  constexpr LocalLoss kStages = LocalLoss::kStages, kLayers = LocalLoss::kLayers;
  for (const bool is_mlp : {true, false}) {
    const Program program = is_mlp ? SmallMlp() : SmallTransformer();
    uint64_t seed = 1;
    for (const Parallelism& way : std::vector<Parallelism>{
             {1, 1, 0, 0, 2, 1, Order::kFifo, -1, kStages},
             {1, 1, 0, 0, 2, 4, Order::kFifo, -1, kStages},
             {1, 1, 0, 0, 2, 4, Order::k1F1B, -1, kStages},
             {1, 1, 0, 0, 4, 8, Order::k1F1B, -1, kStages},
             {1, 1, 0, 0, 4, 2, Order::kFifo, -1, kLayers},
             {1, 1, 0, 0, 1, 4, Order::k1F1B, -1, kLayers},
             {2, 1, 0, 0, 1, 1, Order::kFifo, -1, kLayers},
             {1, 4, 3, 0, 1, 1, Order::kFifo, 600, kLayers},
             {2, 1, 0, 0, 2, 4, Order::k1F1B, -1, kStages},
             {2, 1, 0, 0, 4, 2, Order::k1F1B, -1, kStages},
             {1, 2, 1, 0, 4, 4, Order::k1F1B, 600, kStages},
             {2, 2, 2, 0, 2, 4, Order::kFifo, -1, kStages},
             {1, 2, 3, 0, 2, 2, Order::k1F1B, -1, kLayers},
             {1, 1, 0, 1, 2, 4, Order::k1F1B, -1, kStages},
             {2, 2, 1, 2, 2, 2, Order::k1F1B, 600, kLayers},
         }) {
      SCOPED_TRACE((is_mlp ? "mlp" : "transformer") + std::string(", way ") + std::to_string(seed));
      const Program local = WithLocalLosses(program, way.local == kStages ? way.stages : 0);
      const Result<Transformed> after = Parallelize(program, way);
      ASSERT_TRUE(after.ok()) << after.status().message();
      EXPECT_TRUE(GivesTheSame(local, after.value(), seed++)) << Print(after.value().program);
    }
  }
}

size_t CountIn(const Part& part, OpKind kind) {
  const std::vector<Operation>& operations = part.function.operations;
  return static_cast<size_t>(
      std::count_if(operations.begin(), operations.end(), [&](const Operation& o) { return o.kind == kind; }));
}

TEST(LocalLosses, ComputesNoGradientThatStops) {
  EXPECT_EQ(CountIn(SmallMlp().parts[0], OpKind::kDotGeneral), 4u + 4 + 3);  // forward, weights, inputs of layers
  EXPECT_EQ(CountIn(WithLocalLosses(SmallMlp(), 2).parts[0], OpKind::kDotGeneral), 4u + 4 + 2);
  EXPECT_EQ(CountIn(WithLocalLosses(SmallMlp(), 4).parts[0], OpKind::kDotGeneral), 4u + 4);
}

TEST(LocalLosses, OnlyActivationsGoBetweenStages) {
  for (const Program& program : {SmallMlp(), SmallTransformer(), SmallTransformer(DataType::kFloat32)}) {
    for (const PipelineOrder order : {PipelineOrder::kFifo, PipelineOrder::k1F1B}) {
      for (const int64_t recompute : {0, 1}) {
        Parallelism p{.recompute = recompute, .stages = 4, .microbatches = 8, .order = order};
        p.local = LocalLoss::kStages;
        const Result<Transformed> after = Parallelize(program, p);
        ASSERT_TRUE(after.ok()) << after.status().message();
        for (size_t stage = 0; stage < 4; ++stage)
          EXPECT_EQ(CountIn(after.value().program.parts[stage], OpKind::kSend), stage < 3 ? 8u : 0u)
              << Print(after.value().program);
      }
    }
  }
}

std::string PassesOf(const std::vector<std::vector<Pass>>& steps) {
  std::string text;
  for (const std::vector<Pass>& step : steps) {
    for (const Pass& pass : step)
      text += pass.microbatch < 0 ? " -" : (pass.is_forward ? " F" : " B") + std::to_string(pass.microbatch);
    text += ";";
  }
  return text;
}

TEST(LocalLosses, NoStageWaitsForAGradient) {
  EXPECT_EQ(PassesOf(ScheduleOf(3, 2, PipelineOrder::k1F1B, true)),
            " F0 - -; B0 F0 -; F1 B0 F0; B1 F1 B0; - B1 F1; - - B1;");
  EXPECT_EQ(PassesOf(ScheduleOf(3, 2, PipelineOrder::kFifo, true)),
            " F0 - -; F1 F0 -; B0 F1 F0; B1 B0 F1; - B1 B0; - - B1;");
  const Program deep = MakeMlp({8, 512, 8192, DataType::kFloat32}).value();
  const auto simulated = [&](LocalLoss local) {
    MachinesModel model({});
    Parallelism p{.stages = 4, .microbatches = 8};
    p.local = local;
    return Simulate(Parallelize(deep, p).value().program, &model).value();
  };
  const Simulation alone = simulated(LocalLoss::kStages), together = simulated(LocalLoss::kNone);
  // Of 2 (k + p - 1) passes, 2k + p - 1 are left one after the other.
  EXPECT_LT(alone.seconds, together.seconds * 0.85);
  // The first stage keeps the activations of one microbatch, and not of four, beside the labels that it has now, too.
  EXPECT_LT(alone.parts[0].peak, together.parts[0].peak);
}

TEST(LocalLosses, NamesWhatItCannotCut) {
  const auto error = [](const Program& program, Parallelism p = {}) {
    p.local = p.stages > 1 ? LocalLoss::kStages : LocalLoss::kLayers;
    EXPECT_TRUE(Check(program).ok()) << Check(program).message();
    const Result<Transformed> after = Parallelize(program, p);
    return after.ok() ? std::string("right") : std::string(after.status().message());
  };
  EXPECT_EQ(error(TwoLayers(4, Squares)),
            "transform local-layer: a stage ends with %4 of type i32[16,4], but the loss is that of %5 of type "
            "i32[16,8]; they must be equal");
  EXPECT_EQ(error(TwoLayers(8,
                            [](TwoLayerStep* s) {
                              const Id other = s->b.Elementwise(OpKind::kMultiply, {s->output, s->difference});
                              const Id term = s->b.Dot(s->x, other, {0}, {0});
                              s->of_first = s->b.Elementwise(OpKind::kAdd, {s->of_first, term});
                              return Squares(s);
                            })),
            "transform local-layer: more than one tensor of the backward pass goes from later stages to those that end "
            "with %4, or none");
  EXPECT_EQ(error(TwoLayers(8,
                            [](TwoLayerStep* s) {
                              const Id turned = s->b.Dot(s->second, s->difference, {1}, {1});
                              s->of_first = s->b.Dot(s->x, turned, {0}, {1});
                              return Squares(s);
                            })),
            "transform local-layer: what later stages give to those that end with %4 is %10 of type i32[8,16], and no "
            "gradient of type i32[16,8]");
  EXPECT_EQ(error(TwoLayers(8,
                            [](TwoLayerStep* s) {
                              const Id square = s->b.Elementwise(OpKind::kMultiply, {s->second, s->second});
                              const Id decay = s->b.Reduce(Combine::kSum, square, {0, 1});
                              return s->b.Elementwise(OpKind::kAdd, {Squares(s), decay});
                            })),
            "transform local-layer: the loss takes %12, which follows from weights, in %16; it must be one of %5 and "
            "the batch alone");
  // The gradient is there before the stage's output: a loss of that could not follow.
  Program early = TwoLayers(8, Squares);
  Function& function = early.parts[0].function;
  const Id doubled = 100;
  const Value& labels = function.arguments[3];
  function.operations.insert(function.operations.begin(),
                             {OpKind::kAdd, doubled, {labels.id, labels.id}, {{doubled, labels.type}}, {}, {}});
  for (Operation& operation : function.operations) {
    for (Id& operand : operation.operands) {
      if (operand == 6 && operation.kind == OpKind::kDotGeneral) operand = doubled;
    }
  }
  EXPECT_NE(error(early).find("or none"), std::string::npos) << error(early);
  Builder b("main");
  const Id weight = b.Argument(kSamples, true), x = b.Argument(kSamples);
  Program folded;
  const Id next = b.Elementwise(OpKind::kSubtract, {weight, x});
  folded.parts.push_back({{0}, b.Finish({next, b.Dot(x, weight, {0, 1}, {0, 1})})});
  EXPECT_EQ(error(folded),
            "transform local-layer: after the last use of weights, no single tensor of the batch goes on to the loss");
  EXPECT_EQ(error(SmallMlp(), {.stages = 5}), "transform local-layer: 5 stages, but the program has 4 layers");
  Parallelism one;
  one.local = LocalLoss::kStages;
  EXPECT_EQ(
      Parallelize(SmallMlp(), one).status().message(),
      "transform local-layer: a loss for each stage, but 1 stages; give a pipeline of at least 2, or each layer a "
      "loss");
  const Transformed local = LocalLosses(Untransformed(SmallMlp()).value(), 2).value();
  EXPECT_EQ(LocalLosses(local, 2).status().message(),
            "transform local-layer: the program has stages or several losses already; make it the first transform");
}

}  // namespace
}  // namespace axccl::program
