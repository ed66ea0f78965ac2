// Files that axccl-program reads and writes.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/program/tensor.h"

namespace axccl::tools {

// "-": standard input.
Result<std::string> ReadAll(const std::string& file);
// Under another name first, so that the file is whole or as it was.
Status WriteAll(const std::string& file, std::string_view contents);

// The inputs and outputs of all ranks: the JSON file has types and offsets, and names the file beside it that has the
// data (docs/programs.md, "Files of tensors").
struct TensorFile {
  using ByRank = std::vector<std::vector<program::Tensor>>;
  ByRank inputs, outputs;
};
Result<TensorFile> ReadTensors(const std::string& file);
Status WriteTensors(const std::string& file, const TensorFile& tensors);

}  // namespace axccl::tools
