// Tensors as the library sees them: types, views, reductions, and dense stand-ins for strided tensors.
#pragma once

#include <axccl/axccl.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace axccl::torch {

// Throws c10::DistBackendError with the library's text unless `result` is success, or work in progress.
void Check(ncclResult_t result, const char* call, ncclComm_t comm = nullptr);

// Complex halves and types that only PyTorch has are opaque elements, which cannot be reduced.
ncclDataType_t TypeOf(const at::Tensor& tensor);

// Throws unless the tensor is dense and on the CPU.
void CheckTensor(const char* call, const at::Tensor& tensor);

// The memory of operands while a call runs on them. Ranks may pass tensors of one shape with different strides, and
// shapes that differ, as long as there are as many elements: the library gets one dense row of elements. A strided
// tensor gets a stand-in, which is copied before the call or after it.
class Operands {
 public:
  explicit Operands(const char* call) : call_(call) {}

  // The elements of an input, of an output, or of both.
  at::Tensor Input(const at::Tensor& tensor);
  at::Tensor Output(const at::Tensor& tensor);
  at::Tensor Both(const at::Tensor& tensor);
  // A view of a tensor that one of these returned.
  axcclView_t View(const at::Tensor& dense);
  std::vector<axcclView_t> Views(const std::vector<at::Tensor>& tensors,
                                 at::Tensor (Operands::*side)(const at::Tensor&));

  // Takes over what another object holds.
  void Take(Operands&& other);

  // What must live until the work is done, and what is to be copied then.
  std::vector<at::Tensor> keep;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // to, from

 private:
  at::Tensor Hold(const at::Tensor& tensor, bool copies_in, bool copies_out);

  const char* call_;
  std::vector<std::unique_ptr<int64_t>> sizes_;
};

// Copies stand-ins of outputs to where they belong: memory alone, without autograd.
void CopyBack(const std::vector<std::pair<at::Tensor, at::Tensor>>& copies);

// A reduction for tensors of a type; one that was made for the call is destroyed with this.
class Reduction {
 public:
  Reduction(const char* call, const c10d::ReduceOp& op, const at::Tensor& tensor, ncclComm_t comm);
  ~Reduction();
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;
  ncclRedOp_t op() const { return op_; }

 private:
  ncclRedOp_t op_ = ncclSum;
  ncclComm_t made_on_ = nullptr;
};

}  // namespace axccl::torch
