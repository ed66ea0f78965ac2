// Every transform, and their combinations, gives the results of the program before, bit for bit with integers.
#include "src/program/transform.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "src/program/make.h"
#include "src/program/text.h"
#include "tests/program/transformed_run.h"

namespace axccl::program {
namespace {

Program Mlp() { return MakeMlp({4, 8, 16, DataType::kInt32}).value(); }
Program Transformer() { return MakeTransformer({2, 8, 4, 4, 16, DataType::kInt32}).value(); }

struct Way {
  int64_t tensor, data;
  int zero;
  int64_t recompute, stages, microbatches;
  PipelineOrder order;
  bool overlap;
};

Result<Transformed> Apply(const Program& program, const Way& way) {
  AXCCL_ASSIGN_OR_RETURN(Transformed t, Untransformed(program));
  AXCCL_ASSIGN_OR_RETURN(t, SplitTensors(t, way.tensor));
  if (way.recompute > 0) {
    AXCCL_ASSIGN_OR_RETURN(t, Recompute(t, way.recompute));
  }
  AXCCL_ASSIGN_OR_RETURN(t, SplitBatch(t, way.data, way.zero));
  AXCCL_ASSIGN_OR_RETURN(t, Pipeline(t, way.stages, way.microbatches, way.order));
  if (way.overlap) {
    AXCCL_ASSIGN_OR_RETURN(t, Overlap(t, 600));
  }
  return t;
}

TEST(Transform, EveryCombinationGivesTheSameBits) {
  for (const bool is_mlp : {true, false}) {
    const Program program = is_mlp ? Mlp() : Transformer();
    uint64_t seed = 1;
    for (const Way& way : std::vector<Way>{
             {1, 1, 0, 0, 1, 1, PipelineOrder::kFifo, false},
             {2, 1, 0, 0, 1, 1, PipelineOrder::kFifo, false},
             {4, 1, 0, 0, 1, 1, PipelineOrder::kFifo, false},
             {1, 2, 0, 0, 1, 1, PipelineOrder::kFifo, false},
             {1, 8, 0, 0, 1, 1, PipelineOrder::kFifo, false},
             {1, 2, 1, 0, 1, 1, PipelineOrder::kFifo, false},
             {1, 2, 2, 0, 1, 1, PipelineOrder::kFifo, false},
             {1, 4, 3, 0, 1, 1, PipelineOrder::kFifo, false},
             {2, 2, 0, 0, 1, 1, PipelineOrder::kFifo, false},
             {2, 4, 1, 0, 1, 1, PipelineOrder::kFifo, false},
             {4, 2, 2, 0, 1, 1, PipelineOrder::kFifo, false},
             {2, 2, 3, 0, 1, 1, PipelineOrder::kFifo, false},
             {1, 1, 0, 0, 1, 2, PipelineOrder::kFifo, false},
             {1, 1, 0, 0, 2, 1, PipelineOrder::kFifo, false},
             {1, 1, 0, 0, 2, 4, PipelineOrder::kFifo, false},
             {1, 1, 0, 0, 2, 4, PipelineOrder::k1F1B, false},
             {1, 1, 0, 0, 4, 8, PipelineOrder::k1F1B, false},
             {2, 1, 0, 0, 2, 2, PipelineOrder::k1F1B, false},
             {1, 2, 0, 0, 2, 4, PipelineOrder::k1F1B, false},
             {2, 2, 0, 0, 2, 4, PipelineOrder::k1F1B, false},
             {2, 2, 1, 0, 2, 2, PipelineOrder::k1F1B, false},
             {1, 4, 2, 0, 2, 4, PipelineOrder::kFifo, false},
             {2, 2, 3, 0, 2, 4, PipelineOrder::k1F1B, false},
             {1, 1, 0, 1, 1, 1, PipelineOrder::kFifo, false},
             {1, 1, 0, 2, 1, 1, PipelineOrder::kFifo, false},
             {2, 1, 0, 1, 1, 1, PipelineOrder::kFifo, false},
             {1, 2, 3, 1, 1, 1, PipelineOrder::kFifo, false},
             {2, 2, 1, 2, 2, 2, PipelineOrder::k1F1B, false},
             {2, 1, 0, 1, 2, 4, PipelineOrder::k1F1B, false},
             {1, 4, 0, 0, 1, 1, PipelineOrder::kFifo, true},
             {1, 4, 1, 0, 1, 1, PipelineOrder::kFifo, true},
             {1, 4, 2, 0, 1, 1, PipelineOrder::kFifo, true},
             {1, 4, 3, 0, 1, 1, PipelineOrder::kFifo, true},
             {2, 4, 3, 1, 1, 1, PipelineOrder::kFifo, true},
             {2, 2, 0, 0, 2, 4, PipelineOrder::k1F1B, true},
             {1, 2, 3, 1, 4, 4, PipelineOrder::k1F1B, true},
             {2, 1, 0, 1, 2, 4, PipelineOrder::k1F1B, true},
             {1, 2, 1, 0, 4, 8, PipelineOrder::kFifo, true},
             {4, 1, 0, 2, 2, 2, PipelineOrder::kFifo, true},
         }) {
      SCOPED_TRACE((is_mlp ? "mlp" : "transformer") + std::string(" t") + std::to_string(way.tensor) + " d" +
                   std::to_string(way.data) + " z" + std::to_string(way.zero) + " p" +
                   std::to_string(way.stages) + " k" + std::to_string(way.microbatches) + " r" +
                   std::to_string(way.recompute) + (way.overlap ? " overlap" : ""));
      const Result<Transformed> after = Apply(program, way);
      ASSERT_TRUE(after.ok()) << after.status().message();
      EXPECT_TRUE(GivesTheSame(program, after.value(), seed++)) << Print(after.value().program);
    }
  }
}

}  // namespace
}  // namespace axccl::program
