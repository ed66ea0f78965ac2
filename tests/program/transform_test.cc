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

TEST(Transform, EveryCombinationGivesTheSameBits) {
  for (const bool is_mlp : {true, false}) {
    const Program program = is_mlp ? Mlp() : Transformer();
    uint64_t seed = 1;
    for (const Parallelism& way : std::vector<Parallelism>{
             {1, 1, 0, 0, 1, 1, PipelineOrder::kFifo, -1},
             {2, 1, 0, 0, 1, 1, PipelineOrder::kFifo, -1},
             {4, 1, 0, 0, 1, 1, PipelineOrder::kFifo, -1},
             {1, 2, 0, 0, 1, 1, PipelineOrder::kFifo, -1},
             {1, 8, 0, 0, 1, 1, PipelineOrder::kFifo, -1},
             {1, 2, 1, 0, 1, 1, PipelineOrder::kFifo, -1},
             {1, 2, 2, 0, 1, 1, PipelineOrder::kFifo, -1},
             {1, 4, 3, 0, 1, 1, PipelineOrder::kFifo, -1},
             {2, 2, 0, 0, 1, 1, PipelineOrder::kFifo, -1},
             {2, 4, 1, 0, 1, 1, PipelineOrder::kFifo, -1},
             {4, 2, 2, 0, 1, 1, PipelineOrder::kFifo, -1},
             {2, 2, 3, 0, 1, 1, PipelineOrder::kFifo, -1},
             {1, 1, 0, 0, 1, 2, PipelineOrder::kFifo, -1},
             {1, 1, 0, 0, 2, 1, PipelineOrder::kFifo, -1},
             {1, 1, 0, 0, 2, 4, PipelineOrder::kFifo, -1},
             {1, 1, 0, 0, 2, 4, PipelineOrder::k1F1B, -1},
             {1, 1, 0, 0, 4, 8, PipelineOrder::k1F1B, -1},
             {2, 1, 0, 0, 2, 2, PipelineOrder::k1F1B, -1},
             {1, 2, 0, 0, 2, 4, PipelineOrder::k1F1B, -1},
             {2, 2, 0, 0, 2, 4, PipelineOrder::k1F1B, -1},
             {2, 2, 1, 0, 2, 2, PipelineOrder::k1F1B, -1},
             {1, 4, 2, 0, 2, 4, PipelineOrder::kFifo, -1},
             {2, 2, 3, 0, 2, 4, PipelineOrder::k1F1B, -1},
             {1, 1, 0, 1, 1, 1, PipelineOrder::kFifo, -1},
             {1, 1, 0, 2, 1, 1, PipelineOrder::kFifo, -1},
             {2, 1, 0, 1, 1, 1, PipelineOrder::kFifo, -1},
             {1, 2, 3, 1, 1, 1, PipelineOrder::kFifo, -1},
             {2, 2, 1, 2, 2, 2, PipelineOrder::k1F1B, -1},
             {2, 1, 0, 1, 2, 4, PipelineOrder::k1F1B, -1},
             {1, 4, 0, 0, 1, 1, PipelineOrder::kFifo, 600},
             {1, 4, 1, 0, 1, 1, PipelineOrder::kFifo, 600},
             {1, 4, 2, 0, 1, 1, PipelineOrder::kFifo, 600},
             {1, 4, 3, 0, 1, 1, PipelineOrder::kFifo, 600},
             {2, 4, 3, 1, 1, 1, PipelineOrder::kFifo, 600},
             {2, 2, 0, 0, 2, 4, PipelineOrder::k1F1B, 600},
             {1, 2, 3, 1, 4, 4, PipelineOrder::k1F1B, 600},
             {2, 1, 0, 1, 2, 4, PipelineOrder::k1F1B, 600},
             {1, 2, 1, 0, 4, 8, PipelineOrder::kFifo, 600},
             {4, 1, 0, 2, 2, 2, PipelineOrder::kFifo, 600},
         }) {
      SCOPED_TRACE((is_mlp ? "mlp" : "transformer") + std::string(" t") + std::to_string(way.tensor) + " d" +
                   std::to_string(way.data) + " z" + std::to_string(way.zero) + " p" +
                   std::to_string(way.stages) + " k" + std::to_string(way.microbatches) + " r" +
                   std::to_string(way.recompute) + (way.bucket_bytes >= 0 ? " overlap" : ""));
      const Result<Transformed> after = Parallelize(program, way);
      ASSERT_TRUE(after.ok()) << after.status().message();
      EXPECT_TRUE(GivesTheSame(program, after.value(), seed++)) << Print(after.value().program);
    }
  }
}

}  // namespace
}  // namespace axccl::program
