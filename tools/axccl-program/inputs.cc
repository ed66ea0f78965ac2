#include "tools/axccl-program/inputs.h"

#include "src/base/hash.h"
#include "src/program/reference/scalar.h"

namespace axccl::tools {

using program::Tensor;
using program::Tensors;

namespace {

Tensor RandomTensor(const program::TensorType& type, uint64_t seed) {
  Tensor tensor = Tensor::Zeros(type);
  program::VisitScalar(type.data_type, [&](auto scalar) {
    using Number = typename decltype(scalar)::Number;
    for (int64_t i = 0; i < Elements(type); ++i) {
      const uint64_t random = Mix(seed, static_cast<uint64_t>(i)) >> 32;
      if constexpr (std::is_floating_point_v<Number>) {
        scalar.Store(static_cast<Number>(static_cast<double>(random % 17) / 8 - 1), tensor.at(i));
      } else {
        scalar.Store(static_cast<Number>(random % 4), tensor.at(i));
      }
    }
  });
  return tensor;
}

}  // namespace

std::vector<Tensors> RandomInputs(const program::Program& program, uint64_t seed) {
  std::vector<Tensors> inputs(static_cast<size_t>(program.ranks));
  for (const program::Part& part : program.parts) {
    for (const int64_t rank : part.ranks) {
      for (const program::Value& argument : part.function.arguments) {
        const int64_t of = argument.type.dims.empty() ? part.ranks[0] : rank;
        inputs[static_cast<size_t>(rank)].push_back(
            RandomTensor(argument.type, Mix(Mix(Mix(kHashSeed, seed), static_cast<uint64_t>(of)), argument.id)));
      }
    }
  }
  return inputs;
}

}  // namespace axccl::tools
