// Every transform, and their combinations, gives the results of the program before, bit for bit with integers.
#include "src/program/transform.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "src/program/builder.h"
#include "src/program/facts.h"
#include "src/program/make.h"
#include "src/program/search.h"
#include "src/program/simulate.h"
#include "src/program/simulate/on_machines.h"
#include "src/program/text.h"
#include "src/program/transform/stages.h"
#include "tests/program/transformed_run.h"

namespace axccl::program {
namespace {

Program Mlp() { return MakeMlp({4, 8, 16, DataType::kInt32}).value(); }
Program Transformer() { return MakeTransformer({2, 8, 4, 4, 16, DataType::kInt32}).value(); }

TEST(Transform, EveryCombinationGivesTheSameBits) {
  for (const bool is_mlp : {true, false}) {
    const Program program = is_mlp ? Mlp() : Transformer();
    uint64_t seed = 1;
    for (const Parallelism& way : std::vector<Parallelism>{
             {1, 1, 0, 0, 1, 1, PipelineOrder::kFifo, -1},  {2, 1, 0, 0, 1, 1, PipelineOrder::kFifo, -1},
             {4, 1, 0, 0, 1, 1, PipelineOrder::kFifo, -1},  {1, 2, 0, 0, 1, 1, PipelineOrder::kFifo, -1},
             {1, 8, 0, 0, 1, 1, PipelineOrder::kFifo, -1},  {1, 2, 1, 0, 1, 1, PipelineOrder::kFifo, -1},
             {1, 2, 2, 0, 1, 1, PipelineOrder::kFifo, -1},  {1, 4, 3, 0, 1, 1, PipelineOrder::kFifo, -1},
             {2, 2, 0, 0, 1, 1, PipelineOrder::kFifo, -1},  {2, 4, 1, 0, 1, 1, PipelineOrder::kFifo, -1},
             {4, 2, 2, 0, 1, 1, PipelineOrder::kFifo, -1},  {2, 2, 3, 0, 1, 1, PipelineOrder::kFifo, -1},
             {1, 1, 0, 0, 1, 2, PipelineOrder::kFifo, -1},  {1, 1, 0, 0, 2, 1, PipelineOrder::kFifo, -1},
             {1, 1, 0, 0, 2, 4, PipelineOrder::kFifo, -1},  {1, 1, 0, 0, 2, 4, PipelineOrder::k1F1B, -1},
             {1, 1, 0, 0, 4, 8, PipelineOrder::k1F1B, -1},  {2, 1, 0, 0, 2, 2, PipelineOrder::k1F1B, -1},
             {1, 2, 0, 0, 2, 4, PipelineOrder::k1F1B, -1},  {2, 2, 0, 0, 2, 4, PipelineOrder::k1F1B, -1},
             {2, 2, 1, 0, 2, 2, PipelineOrder::k1F1B, -1},  {1, 4, 2, 0, 2, 4, PipelineOrder::kFifo, -1},
             {2, 2, 3, 0, 2, 4, PipelineOrder::k1F1B, -1},  {1, 1, 0, 1, 1, 1, PipelineOrder::kFifo, -1},
             {1, 1, 0, 2, 1, 1, PipelineOrder::kFifo, -1},  {2, 1, 0, 1, 1, 1, PipelineOrder::kFifo, -1},
             {1, 2, 3, 1, 1, 1, PipelineOrder::kFifo, -1},  {2, 2, 1, 2, 2, 2, PipelineOrder::k1F1B, -1},
             {2, 1, 0, 1, 2, 4, PipelineOrder::k1F1B, -1},  {1, 4, 0, 0, 1, 1, PipelineOrder::kFifo, 600},
             {1, 4, 1, 0, 1, 1, PipelineOrder::kFifo, 600}, {1, 4, 2, 0, 1, 1, PipelineOrder::kFifo, 600},
             {1, 4, 3, 0, 1, 1, PipelineOrder::kFifo, 600}, {2, 4, 3, 1, 1, 1, PipelineOrder::kFifo, 600},
             {2, 2, 0, 0, 2, 4, PipelineOrder::k1F1B, 600}, {1, 2, 3, 1, 4, 4, PipelineOrder::k1F1B, 600},
             {2, 1, 0, 1, 2, 4, PipelineOrder::k1F1B, 600}, {1, 2, 1, 0, 4, 8, PipelineOrder::kFifo, 600},
             {4, 1, 0, 2, 2, 2, PipelineOrder::kFifo, 600}, {2, 1, 0, 1, 4, 8, PipelineOrder::k1F1B, -1},
         }) {
      SCOPED_TRACE((is_mlp ? "mlp" : "transformer") + std::string(" t") + std::to_string(way.tensor) + " d" +
                   std::to_string(way.data) + " z" + std::to_string(way.zero) + " p" + std::to_string(way.stages) +
                   " k" + std::to_string(way.microbatches) + " r" + std::to_string(way.recompute) +
                   (way.bucket_bytes >= 0 ? " overlap" : ""));
      const Result<Transformed> after = Parallelize(program, way);
      ASSERT_TRUE(after.ok()) << after.status().message();
      EXPECT_TRUE(GivesTheSame(program, after.value(), seed++)) << Print(after.value().program);
    }
  }
}

std::map<OpKind, int> CountsOf(const Program& program) {
  std::map<OpKind, int> counts;
  for (const Part& part : program.parts) {
    for (const Operation& operation : part.function.operations) {
      if (IsCommunication(operation.kind)) ++counts[operation.kind];
    }
  }
  return counts;
}

TEST(Transform, CommunicatesNoMoreThanIsNeeded) {
  using Counts = std::map<OpKind, int>;
  const auto counts = [](const Program& program, const Parallelism& p) {
    return CountsOf(Parallelize(program, p).value().program);
  };
  // Of two products, the second one is summed; of the gradients for inputs likewise, and the first layer has none.
  EXPECT_EQ(counts(Mlp(), {.tensor = 2}), (Counts{{OpKind::kAllReduce, 3}}));
  // Attention and layers of a block once each, there and back; the first block's attention has no gradient for inputs.
  EXPECT_EQ(counts(Transformer(), {.tensor = 2}), (Counts{{OpKind::kAllReduce, 7}}));
  EXPECT_EQ(counts(Mlp(), {.data = 4}), (Counts{{OpKind::kAllReduce, 4 + 1}}));  // weights, loss
  const Counts sharded{{OpKind::kAllReduce, 1}, {OpKind::kReduceScatter, 4}, {OpKind::kAllGather, 4}};
  EXPECT_EQ(counts(Mlp(), {.data = 4, .zero = 1}), sharded);
  EXPECT_EQ(counts(Mlp(), {.data = 4, .zero = 2}), sharded);
  EXPECT_EQ(counts(Mlp(), {.data = 4, .zero = 3}),
            (Counts{{OpKind::kAllReduce, 1}, {OpKind::kReduceScatter, 4}, {OpKind::kAllGather, 4 + 3}}));
  EXPECT_EQ(counts(Mlp(), {.stages = 2, .microbatches = 4}), (Counts{{OpKind::kSend, 8}, {OpKind::kRecv, 8}}));
  // The loss and two gradients of 256 bytes, then the other two, in calls of at least 512.
  EXPECT_EQ(counts(Mlp(), {.data = 4, .bucket_bytes = 512}), (Counts{{OpKind::kAllReduce, 2}}));
}

uint64_t PeakOf(const Program& program, const Parallelism& p) {
  MachinesModel model({});
  const Result<Transformed> transformed = Parallelize(program, p);
  EXPECT_TRUE(transformed.ok()) << transformed.status().message();
  return Simulate(transformed.value().program, &model).value().parts[0].peak;
}

TEST(Transform, SavesTheMemoryThatItIsFor) {
  const Program wide = MakeMlp({8, 64, 16, DataType::kFloat32}).value();  // weights of 16 KiB, activations of 4
  const uint64_t whole = PeakOf(wide, {.data = 4});
  const uint64_t updates = PeakOf(wide, {.data = 4, .zero = 1}), gradients = PeakOf(wide, {.data = 4, .zero = 2}),
                 weights = PeakOf(wide, {.data = 4, .zero = 3});
  EXPECT_LT(updates, whole);
  EXPECT_LT(gradients, updates - 4 * 12'288);
  EXPECT_LT(weights, gradients - 6 * 12'288);
  const Program deep = MakeTransformer({8, 8, 4, 16, 16, DataType::kFloat32}).value();
  EXPECT_LT(PeakOf(deep, {.recompute = 2}), PeakOf(deep, {}) / 2);
  const Parallelism first{.stages = 4, .microbatches = 16, .order = PipelineOrder::kFifo};
  Parallelism alternating = first;
  alternating.order = PipelineOrder::k1F1B;
  EXPECT_LT(PeakOf(deep, alternating), PeakOf(deep, first) * 2 / 3);
}

std::string TextOf(const std::vector<std::vector<Pass>>& steps) {
  std::string text;
  for (const std::vector<Pass>& step : steps) {
    for (const Pass& pass : step)
      text += pass.microbatch < 0 ? " -" : (pass.is_forward ? " F" : " B") + std::to_string(pass.microbatch);
    text += ";";
  }
  return text;
}

TEST(Transform, SchedulesOfPipelines) {
  EXPECT_EQ(TextOf(ScheduleOf(2, 3, PipelineOrder::kFifo)), " F0 -; F1 F0; F2 F1; - F2; - B0; B0 B1; B1 B2; B2 -;");
  EXPECT_EQ(TextOf(ScheduleOf(2, 3, PipelineOrder::k1F1B)), " F0 -; F1 F0; F2 B0; B0 F1; - B1; B1 F2; - B2; B2 -;");
  EXPECT_EQ(TextOf(ScheduleOf(1, 2, PipelineOrder::k1F1B)), " F0; B0; F1; B1;");
}

// One layer with a bias, and what `between` makes of its output, for a batch of 8 samples of 4.
template <class Between>
Program WithBias(Between&& between) {
  Builder b("main");
  const TensorType activation{DataType::kInt32, {8, 4}};
  const Id weight = b.Argument({DataType::kInt32, {4, 4}}, true), bias = b.Argument({DataType::kInt32, {4}}, true);
  const Id x = b.Argument(activation);
  const Id product = b.Dot(x, weight, {1}, {0});
  const Id output = between(&b, b.Elementwise(OpKind::kAdd, {product, b.Broadcast(bias, {8, 4}, {1})}));
  const Id gradient = b.Dot(x, output, {0}, {0});
  const Id next = b.Elementwise(OpKind::kSubtract, {weight, gradient});
  const Id bias_gradient = b.Reduce(Combine::kSum, output, {0});
  const Id next_bias = b.Elementwise(OpKind::kSubtract, {bias, bias_gradient});
  const Id loss = b.Reduce(Combine::kSum, output, {0, 1});
  Program program;
  program.parts.push_back({{0}, b.Finish({next, next_bias, loss})});
  return program;
}

TEST(Transform, BiasesAreCutAsWhatTheyAreAddedTo) {
  const Program program = WithBias([](Builder*, Id value) { return value; });
  for (const Parallelism& p : {Parallelism{.tensor = 2}, Parallelism{.tensor = 4, .data = 2, .zero = 1},
                               Parallelism{.data = 4, .zero = 3}, Parallelism{.tensor = 2, .microbatches = 4}}) {
    const Result<Transformed> after = Parallelize(program, p);
    ASSERT_TRUE(after.ok()) << after.status().message();
    EXPECT_TRUE(GivesTheSame(program, after.value(), 7)) << Print(after.value().program);
    const TensorType& bias = after.value().program.parts[0].function.arguments[1].type;
    EXPECT_EQ(bias.dims[0], 4 / p.tensor / (p.zero == 3 ? p.data : 1));
  }
}

TEST(Transform, RefusesWhatCannotBeCut) {
  const auto error = [](const Program& program, const Parallelism& p) {
    const Result<Transformed> after = Parallelize(program, p);
    return after.ok() ? std::string("right") : std::string(after.status().message());
  };
  const Program turned = WithBias([](Builder* b, Id value) {
    return b->Add(OpKind::kReverse, {value}, b->TypeOf(value), {{Attr::kDims, Ints{0}}});
  });
  EXPECT_EQ(error(turned, {.data = 2}),
            "transform data 2: %6 reverse: dimension 0 of operand %5, which is split, cannot pass through it");
  EXPECT_EQ(error(turned, {.tensor = 2}), "right");
  EXPECT_EQ(error(turned, {.microbatches = 2}),
            "transform pipeline, microbatches 2: %6 reverse: dimension 0 of operand %5, which is split, cannot pass "
            "through it");
  EXPECT_EQ(error(Mlp(), {.data = 3}), "transform data: dimension 0 of the batch %4, of size 16, cannot be cut into 3");
  EXPECT_EQ(error(Mlp(), {.tensor = 3}),
            "transform tensor 3: %6 dot_general: no dimension of the weight %0 can be cut into 3");
  EXPECT_EQ(error(Mlp(), {.stages = 5}), "transform pipeline: 5 stages, but the program has 4 layers");
  EXPECT_EQ(error(Mlp(), {.data = 2, .zero = 4}), "transform zero: stage 4, must be 0, 1, 2 or 3");
  EXPECT_EQ(error(Mlp(), {.recompute = -1}), "transform recompute: every -1 layers, must be at least 1");
  EXPECT_NE(error(Mlp(), {.data = 0}).find("0 ranks, must be 1 to"), std::string::npos);
  const Result<Transformed> stages = Parallelize(Mlp(), {.stages = 2, .microbatches = 2});
  EXPECT_EQ(SplitBatch(stages.value(), 2).status().message(),
            "transform data: the program has stages already; make the pipeline last");
  Program without_loss = Mlp();
  without_loss.parts[0].function.results.pop_back();
  EXPECT_EQ(error(without_loss, {}).rfind("transform: 4 results for 4 donated arguments", 0), 0u);
}

TEST(Search, ListsWhatIsPossibleFirst) {
  MachinesModel model({});
  SearchSpace space;
  space.devices = 8;
  space.microbatches = {2, 4};
  const Program program = MakeMlp({4, 256, 64, DataType::kFloat32}).value();
  const auto all = Search(program, space, &model);
  ASSERT_TRUE(all.ok()) << all.status().message();
  // Tensor and stages of 1, 2, 4 and 8; the rest are copies, with four ways of ZeRO if there is more than one; twice
  // with recomputation; two numbers of microbatches for stages.
  EXPECT_EQ(all.value().size(), 2u * (3 * 4 + 1 + 2 * (3 * 4 + 3)));
  double before = 0;
  uint64_t least = ~uint64_t{0};
  size_t impossible = 0;
  for (const Candidate& candidate : all.value()) {
    EXPECT_EQ(candidate.parallelism.ranks(), 8);
    if (!candidate.left_out.empty()) {
      EXPECT_EQ(candidate.parallelism.stages, 8) << candidate.left_out;
      ++impossible;
      continue;
    }
    EXPECT_GE(candidate.seconds, before);
    before = candidate.seconds;
    least = std::min(least, candidate.peak_bytes);
    EXPECT_EQ(impossible, 0u);
  }
  EXPECT_EQ(impossible, 4u);
  space.memory_bytes = least;
  const auto small = Search(program, space, &model);
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(small.value()[0].peak_bytes, least);
  EXPECT_EQ(small.value()[0].left_out, "");
  EXPECT_EQ(small.value().back().parallelism.stages, 8);
  space.memory_bytes = 2 * least;
  space.threads = 1;
  const auto alone = Search(program, space, &model).value();
  space.threads = 3;
  const auto together = Search(program, space, &model).value();
  ASSERT_EQ(together.size(), alone.size());
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(together[i].parallelism, alone[i].parallelism) << i;
    EXPECT_EQ(together[i].seconds, alone[i].seconds) << i;
    EXPECT_EQ(together[i].peak_bytes, alone[i].peak_bytes) << i;
    EXPECT_EQ(together[i].left_out, alone[i].left_out) << i;
    // Those that can be used are as without a limit.
    const auto free = std::find_if(all.value().begin(), all.value().end(),
                                   [&](const Candidate& c) { return c.parallelism == alone[i].parallelism; });
    EXPECT_EQ(alone[i].seconds, alone[i].left_out.empty() ? free->seconds : 0) << i;
    EXPECT_EQ(alone[i].peak_bytes, free->peak_bytes) << i;
  }
}

}  // namespace
}  // namespace axccl::program
