// The vectors of StableHLO's reference interpreter as programs: imported, checked, and run by the reference executor.
#include "tests/program/interpreter_vectors.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "src/program/check.h"
#include "src/program/reference.h"
#include "src/program/stablehlo.h"
#include "tests/harness/vectors.h"

namespace axccl::program {
namespace {

// Every rank of a grid returns its partition_id and replica_id.
TEST(Ids, OfAGrid) {
  for (const auto& [replicas, partitions] : {std::pair{1, 3}, {3, 1}, {2, 3}, {1, 1}}) {
    const std::string grid = "mhlo.num_partitions = " + std::to_string(partitions) +
                             " : i32, mhlo.num_replicas = " + std::to_string(replicas) + " : i32";
    const Result<Program> program = ImportStablehlo(
        "module attributes {" + grid +
        "} {\nfunc.func @main() -> (tensor<ui32>, tensor<ui32>) {\n  %0 = stablehlo.partition_id : tensor<ui32>\n"
        "  %1 = stablehlo.replica_id : tensor<ui32>\n  return %0, %1 : tensor<ui32>, tensor<ui32>\n}\n}\n");
    ASSERT_TRUE(program.ok()) << program.status().message();
    ASSERT_TRUE(Check(program.value()).ok());
    const auto ranks = static_cast<size_t>(replicas * partitions);
    const auto outputs = RunReference(program.value(), std::vector<Tensors>(ranks));
    ASSERT_TRUE(outputs.ok());
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const auto of = static_cast<uint32_t>(partitions);
      EXPECT_EQ(outputs.value()[rank], (Tensors{Tensor::Of(rank % of), Tensor::Of(rank / of)})) << grid;
    }
  }
}

TEST(InterpreterVectors, AreWhatTheReferenceGives) {
  if (const std::string missing = harness::VectorsMissing(); !missing.empty()) GTEST_SKIP() << missing;
  const std::vector<InterpreterVector> vectors = InterpreterVectors();
  EXPECT_EQ(vectors.size(), kInterpreterVectors);
  for (const InterpreterVector& vector : vectors) {
    SCOPED_TRACE(vector.name);
    const Result<Program> program = ImportStablehlo(vector.module);
    ASSERT_TRUE(program.ok()) << program.status().message() << "\n" << vector.module;
    ASSERT_TRUE(Check(program.value()).ok()) << Check(program.value()).message();
    const Result<std::vector<Tensors>> outputs = RunReference(program.value(), vector.inputs);
    ASSERT_TRUE(outputs.ok()) << outputs.status().message();
    EXPECT_EQ(outputs.value(), vector.outputs);
  }
}

}  // namespace
}  // namespace axccl::program
