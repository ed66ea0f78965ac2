// What a local operation computes and moves, for models of its time. Pure functions.
#pragma once

#include <vector>

#include "src/program/program.h"

namespace axccl::program {

double BytesOf(const TensorType& type);

struct Work {
  double flops = 0;
  double read = 0, written = 0;  // bytes
  bool product = false;          // dot or dot_general
};

// Parts of operands that are not looked at, such as what a slice leaves out, do not count.
Work WorkOf(const Operation& operation, const std::vector<const TensorType*>& operands);

// Whether the operation only gives a value that is there, or a new name: constant, partition_id, replica_id,
// optimization_barrier, free.
bool IsIdle(OpKind kind);

}  // namespace axccl::program
