// Files of tensors. A file is replaced as a whole, or stays as it was.
#pragma once

#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/program/tensor.h"

namespace axccl::tools {

// The inputs and outputs of all ranks, or of some: the JSON file has types and offsets, and names the file beside it
// that has the data (docs/programs.md, "Files of tensors").
struct TensorFile {
  using ByRank = std::vector<std::vector<program::Tensor>>;
  ByRank inputs, outputs;
  int first_rank = 0;  // of a file of one process of a job, which has only its ranks
};
Result<TensorFile> ReadTensors(const std::string& file);
Status WriteTensors(const std::string& file, const TensorFile& tensors);

}  // namespace axccl::tools
