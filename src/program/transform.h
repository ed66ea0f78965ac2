// Transforms of programs: a training step in, the same step for more ranks out. docs/transforms.md explains them to
// their users.
//
// A program to transform is one part in which all ranks do the same. Its donated arguments are its state (weights): the
// k-th result is the next value of the k-th donated argument. Other arguments with dimensions are the batch, with one
// sample along dimension 0. The last result is the loss; what it is computed from is the forward pass, all other
// operations are the backward pass. Transforms work on how dimensions of operands
// correspond; an operation through which a split dimension cannot pass is an error that names both.
//
// With integers, all but LocalLosses, which trains differently, give the same bits as the program before; floats are
// added in another order.
//
// Pure functions; thread-safe. Errors are kInvalidArgument. What they return passes Check (check.h) if the program
// before does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/base/status.h"
#include "src/program/program.h"

namespace axccl::program {

// A dimension is cut into `count` equal pieces, of which a rank has the one of number rank / period % count.
struct Cut {
  size_t dim;
  int64_t count, period;
};

// Which argument or result of the first program a value is a piece of: what the cuts, one after the other, leave of it.
struct Origin {
  size_t index;
  std::vector<Cut> cuts;
};

struct Transformed {
  Program program;
  std::vector<std::vector<Origin>> arguments, results;  // [part][argument or result]
  int64_t tensor_ranks = 1;  // that number of neighbours works on the same tensors: they stay together
  size_t losses = 1;         // of one part: the last results; what they are computed from is the forward pass
};

// Where the piece of a rank begins, in a tensor of these sizes.
Ints StartsOf(const Origin& origin, Ints sizes, int64_t rank);

// The start of a chain of transforms. An error if the program is not as above.
Result<Transformed> Untransformed(Program program);

// Local training: the layers are cut into `blocks` of about equal work, 0: each by itself. The output of a block is
// compared with the labels as that of the model is, and the gradient of that loss is in the place of the one that later
// blocks would give. So a backward pass needs nothing of later blocks. The losses of all blocks but the last come
// before the program's loss, which stays; they are results of the program from here on, which Origin counts. First of
// the transforms.
Result<Transformed> LocalLosses(const Transformed& before, int64_t blocks);

// Tensor parallelism: weights are cut. A weight that a product multiplies with what all ranks have is cut along its
// first dimension that the product keeps (columns); one whose sum runs along a cut dimension is cut along that (rows).
// What is added or multiplied element by element is cut as what it meets.
Result<Transformed> SplitTensors(const Transformed& before, int64_t ranks);

// Data parallelism: the batch is cut. Gradients are summed by all_reduce where they are first needed. ZeRO: with 1,
// each rank updates a part of every weight, reduce_scatter gives it that part's gradient, and all_gather follows; with
// 2, reduce_scatter comes as soon as the gradient is there; with 3, ranks keep their part of every weight only, and
// gather it in the forward pass, and once more in the backward pass. Weights without a dimension that can be cut stay
// whole.
Result<Transformed> SplitBatch(const Transformed& before, int64_t ranks, int zero = 0);

// Of every `layers` layers only the input is kept for the backward pass, which computes the rest again. A layer begins
// where a single tensor of the batch goes on, and has weights.
Result<Transformed> Recompute(const Transformed& before, int64_t layers);

enum class PipelineOrder : uint8_t { kFifo, k1F1B };

// Pipeline parallelism: a part for each stage, of about the same work, and the batch in microbatches, one after the
// other. kFifo: all forward passes first; k1F1B: a stage alternates as soon as it can.
Result<Transformed> Pipeline(const Transformed& before, int64_t stages, int64_t microbatches, PipelineOrder order);

// Communication beside computation: gradients are reduced as soon as they are there, several of up to `bucket_bytes` in
// one all_reduce, and weights are gathered one use earlier. Last of the transforms.
Result<Transformed> Overlap(Transformed before, int64_t bucket_bytes);

// All of them, in the order in which they go together: ranks of a tensor group are neighbours, then come the stages,
// and copies of the pipeline last.
enum class LocalLoss : uint8_t { kNone, kStages, kLayers };
struct Parallelism {
  int64_t tensor = 1, data = 1;
  int zero = 0;
  int64_t recompute = 0;  // layers; 0: nothing is computed again
  int64_t stages = 1, microbatches = 1;
  PipelineOrder order = PipelineOrder::k1F1B;
  int64_t bucket_bytes = -1;  // of Overlap; -1: no overlap
  LocalLoss local = LocalLoss::kNone;

  int64_t ranks() const { return tensor * data * stages; }
  friend bool operator==(const Parallelism&, const Parallelism&) = default;
};
Result<Transformed> Parallelize(const Program& program, const Parallelism& parallelism);
// The same in two steps. The first gives the same for all `stages`, `microbatches`, orders and buckets.
Result<Transformed> SpreadOverRanks(const Program& program, const Parallelism& parallelism);
Result<Transformed> PutIntoStages(const Transformed& before, const Parallelism& parallelism);

}  // namespace axccl::program
