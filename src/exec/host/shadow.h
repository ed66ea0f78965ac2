// Memory that peers of other processes reach, in place of buffers of a pipeline that they do not reach.
//
// Peers only read from a rank: its input, and in some plans its output. An input chunk is copied in before peers
// learn that they may read it; an output chunk is copied out before the caller learns that it is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "src/base/status.h"
#include "src/exec/call/call.h"
#include "src/exec/platform/pipeline.h"
#include "src/exec/prepared/program.h"

namespace axccl::exec {

class Shadow {
 public:
  // Replaces the buffers in `part->call` that need it. Null: none does.
  static Result<std::unique_ptr<Shadow>> For(PipelinePart* part);

  bool has_input() const { return input_.memory != nullptr; }
  bool has_output() const { return output_.memory != nullptr; }
  // Copies a chunk of the caller's input into the shadow.
  void CopyIn(uint32_t chunk) const { Copy(input_, chunk, true); }
  // Copies a chunk of the shadow to the caller's output.
  void CopyOut(uint32_t chunk) const { Copy(output_, chunk, false); }
  size_t bytes() const { return bytes_; }

 private:
  struct Side {
    std::shared_ptr<std::byte> memory;
    const std::byte* caller = nullptr;
    int64_t caller_strides[tensor::kMaxDims] = {}, strides[tensor::kMaxDims] = {};  // elements
    int64_t caller_step = 0, step = 0;                                              // bytes from one block to the next
  };

  Status Replace(const Channel& channel, int blocks, int dim, int64_t* strides, std::byte** data, Side* side);
  void Copy(const Side& side, uint32_t chunk, bool in) const;

  Side input_, output_;
  size_t bytes_ = 0;
  ViewOperand operand_;
  plan::Slicing slicing_;
};

}  // namespace axccl::exec
