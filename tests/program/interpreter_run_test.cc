// The vectors of StableHLO's reference interpreter on host ranks, by the library.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/program/stablehlo.h"
#include "src/program/text.h"
#include "tests/harness/vectors.h"
#include "tests/program/interpreter_vectors.h"
#include "tools/axccl-program/run.h"

namespace axccl::program {
namespace {

TEST(InterpreterVectors, RunOnHostRanks) {
  if (const std::string missing = harness::VectorsMissing(); !missing.empty()) GTEST_SKIP() << missing;
  const std::vector<InterpreterVector> vectors = InterpreterVectors();
  EXPECT_EQ(vectors.size(), kInterpreterVectors);
  for (const InterpreterVector& vector : vectors) {
    SCOPED_TRACE(vector.name);
    const Program program = ImportStablehlo(vector.module).value();
    const Result<std::vector<Tensors>> outputs = tools::RunOnThreads(program, vector.inputs);
    ASSERT_TRUE(outputs.ok()) << outputs.status().message();
    EXPECT_EQ(outputs.value(), vector.outputs);
  }
}

// Ranks give back what they put in, as the roots say, which are not known before.
constexpr char kRoots[] =
    "axccl-program 1\nranks 3\npart main on [0,1,2]\n  argument %0 i32[2]\n  argument %1 i32[2]\n"
    "  argument %2 i32[2]\n  %3 i32[2], %4 i32[2] = collective_broadcast_from %0 %1 %2 groups=[[2,0]] channel=1\n"
    "  %5 i32[2], %6 i32[2] = collective_reduce_to %0 %1 %2 fold=add groups=[[2,0]] channel=1\n"
    "  %7 i32[2] = collective_reduce %0 fold=max groups=[[1,2]] channel=2\n  return %3 %4 %5 %6 %7\n";

Tensor TensorOf(int32_t a, int32_t b) {
  Tensor tensor = Tensor::Zeros({DataType::kInt32, {2}});
  *reinterpret_cast<int32_t*>(tensor.at(0)) = a;
  *reinterpret_cast<int32_t*>(tensor.at(1)) = b;
  return tensor;
}

// The roots of rank 0, and of all others.
std::vector<Tensors> RootInputs(const Tensor& of_first, const Tensor& of_others) {
  return {{TensorOf(1, 2), TensorOf(3, 4), of_first},
          {TensorOf(10, 20), TensorOf(30, 40), of_others},
          {TensorOf(100, 200), TensorOf(300, 400), of_others}};
}

TEST(Roots, AreValues) {
  const Program program = Parse(kRoots).value();
  const Tensor zeros = TensorOf(0, 0);
  const std::vector<Tensors> inputs = RootInputs(TensorOf(1, 0), TensorOf(1, 0));
  const std::vector<Tensors> expected = {{TensorOf(1, 2), TensorOf(300, 400), TensorOf(101, 202), zeros, zeros},
                                         {zeros, zeros, zeros, zeros, TensorOf(100, 200)},
                                         {TensorOf(1, 2), TensorOf(300, 400), zeros, TensorOf(303, 404), zeros}};
  EXPECT_EQ(RunReference(program, inputs).value(), expected);
  const Result<std::vector<Tensors>> run = tools::RunOnThreads(program, inputs);
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(run.value(), expected);
}

TEST(Roots, ThatAreWrongAreErrors) {
  const Program program = Parse(kRoots).value();
  for (const auto& [first, others, text] :
       {std::tuple(TensorOf(2, 0), TensorOf(2, 0), "root 2 of operand 0 is not in the group, which has 2 ranks"),
        std::tuple(TensorOf(0, -1), TensorOf(0, -1), "root -1 of operand 1 is not in the group"),
        std::tuple(TensorOf(0, 0), TensorOf(0, 1),
                   "rank 0 in %3 collective_broadcast_from: its roots are not those of rank 2")}) {
    const std::vector<Tensors> inputs = RootInputs(first, others);
    const Result<std::vector<Tensors>> reference = RunReference(program, inputs);
    ASSERT_FALSE(reference.ok());
    EXPECT_NE(reference.status().message().find(text), std::string::npos) << reference.status().message();
    const Result<std::vector<Tensors>> run = tools::RunOnThreads(program, inputs);
    ASSERT_FALSE(run.ok());
    // Operations follow the program's calls, so a rank may hear of the error, which names the call, in a later one.
    EXPECT_NE(run.status().message().find("axcclBroadcastFrom"), std::string::npos) << run.status().message();
  }
}

}  // namespace
}  // namespace axccl::program
