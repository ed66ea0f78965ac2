// Training steps to start from: a forward pass, its gradients and plain gradient descent, for one rank.
//
// The weights are the program's state: donated arguments, of which the first results are the next values, in their
// order. The batch follows: inputs and labels, with one sample along dimension 0. The last result is the loss, the sum
// of the squared differences to the labels; floats are divided by the number of elements. The rate of learning is 0.01;
// for integers 1, so that all ways to split the sums give the same bits.
#pragma once

#include <cstdint>

#include "src/base/status.h"
#include "src/program/program.h"

namespace axccl::program {

// Layers [dim,dim] with max(x, 0) between them. Inputs and labels are [batch,dim].
struct MlpShape {
  int64_t layers = 4, dim = 64, batch = 32;
  DataType type = DataType::kFloat32;
};

// Blocks of attention and two layers, each added to its input. Inputs and labels are [batch,sequence,dim]; the inner
// layer has 4 dim columns. Floats: softmax, and inputs of attention and layers are divided by their root mean square.
// Integers have no quotients: max(x, 0) is in the place of softmax, and nothing is normalized.
struct TransformerShape {
  int64_t layers = 2, dim = 64, heads = 4, sequence = 16, batch = 8;
  DataType type = DataType::kFloat32;
};

// kInvalidArgument, which names the size and what it must be.
Result<Program> MakeMlp(const MlpShape& shape);
Result<Program> MakeTransformer(const TransformerShape& shape);

}  // namespace axccl::program
