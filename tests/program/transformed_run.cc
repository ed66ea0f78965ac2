#include "tests/program/transformed_run.h"

#include <random>
#include <vector>

#include "src/program/check.h"
#include "src/program/reference.h"
#include "src/program/reference/scalar.h"
#include "src/program/tensor.h"

namespace axccl::program {

std::vector<Tensor> RandomArguments(const Function& function, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Tensor> arguments;
  for (const Value& argument : function.arguments) {
    arguments.push_back(Tensor::Zeros(argument.type));
    Tensor& tensor = arguments.back();
    VisitScalar(argument.type.data_type, [&](auto scalar) {
      using Number = typename decltype(scalar)::Number;
      for (int64_t i = 0; i < Elements(argument.type); ++i)
        scalar.Store(static_cast<Number>(static_cast<int>(random() % 7) - 3), tensor.at(i));
    });
  }
  return arguments;
}

namespace {

Tensor PieceOf(const Tensor& whole, const TensorType& type, const Ints& starts) {
  Tensor piece = Tensor::Zeros(type);
  const Ints from = RowMajorStrides(whole.type.dims), to = RowMajorStrides(type.dims);
  ForEachIndex(type.dims, [&](const Ints& index) {
    int64_t offset = 0;
    for (size_t d = 0; d < index.size(); ++d) offset += (index[d] + starts[d]) * from[d];
    CopyElement(whole, offset, &piece, OffsetOf(index, to));
  });
  return piece;
}

const TensorType& TypeOf(const Function& function, Id value) {
  for (const Value& argument : function.arguments) {
    if (argument.id == value) return argument.type;
  }
  for (const Operation& operation : function.operations) {
    for (const Value& result : operation.results) {
      if (result.id == value) return result.type;
    }
  }
  static const TensorType none;
  return none;
}

}  // namespace

testing::AssertionResult GivesTheSame(const Program& before, const Transformed& after, uint64_t seed) {
  if (const Status right = Check(after.program); !right.ok())
    return testing::AssertionFailure() << "the result is not a program: " << right.message();
  const std::vector<Tensor> whole = RandomArguments(before.parts[0].function, seed);
  const auto expected = RunReference(before, {whole});
  if (!expected.ok()) return testing::AssertionFailure() << expected.status().message();
  std::vector<Tensors> inputs(static_cast<size_t>(after.program.ranks));
  for (size_t p = 0; p < after.program.parts.size(); ++p) {
    const Part& part = after.program.parts[p];
    for (const int64_t rank : part.ranks) {
      for (size_t i = 0; i < part.function.arguments.size(); ++i) {
        const Origin& origin = after.arguments[p][i];
        const Tensor& from = whole[origin.index];
        inputs[static_cast<size_t>(rank)].push_back(
            PieceOf(from, part.function.arguments[i].type, StartsOf(origin, from.type.dims, rank)));
      }
    }
  }
  const auto outputs = RunReference(after.program, inputs);
  if (!outputs.ok()) return testing::AssertionFailure() << outputs.status().message();
  std::vector<bool> seen(expected.value()[0].size());
  for (size_t p = 0; p < after.program.parts.size(); ++p) {
    const Part& part = after.program.parts[p];
    for (const int64_t rank : part.ranks) {
      for (size_t i = 0; i < part.function.results.size(); ++i) {
        const Origin& origin = after.results[p][i];
        seen[origin.index] = true;
        const Tensor& from = expected.value()[0][origin.index];
        const TensorType& type = TypeOf(part.function, part.function.results[i]);
        if (!(outputs.value()[static_cast<size_t>(rank)][i] ==
              PieceOf(from, type, StartsOf(origin, from.type.dims, rank))))
          return testing::AssertionFailure() << "result " << origin.index << " differs on rank " << rank;
      }
    }
  }
  for (size_t i = 0; i < seen.size(); ++i) {
    if (!seen[i]) return testing::AssertionFailure() << "no rank returns result " << i;
  }
  return testing::AssertionSuccess();
}

}  // namespace axccl::program
