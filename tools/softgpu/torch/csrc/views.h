// Tensors of the software GPU as tensors of the CPU on the same bytes, and back. Memory of the software GPU is memory
// of the host, so nothing is copied on the way there.
//
// One object serves one call of one operator, on one thread. Tensors that it makes do not own the device's memory,
// which must live as long as they are used.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace softgpu::aten {

class Views {
 public:
  // The same bytes on the CPU. One tensor of the device has one view, and tensors of one storage have views of one
  // storage, so that operators see which of their arguments overlap. Tensors of the CPU and undefined ones are returned
  // as they are.
  at::Tensor ToHost(const at::Tensor& tensor);

  // A result of the CPU on the device: a view of the tensor that it is a view of, or a copy.
  at::Tensor ToDevice(const at::Tensor& result, c10::Device device) const;

  // After an operator wrote to the view of `tensor`: takes over its shape, and the bytes if it had to become larger.
  void TakeOver(const at::Tensor& tensor) const;

 private:
  at::Tensor StridedToHost(const at::Tensor& tensor);
  c10::Storage StorageToHost(const c10::Storage& storage);

  std::vector<std::pair<at::Tensor, at::Tensor>> tensors_;  // on the device, on the host
  std::vector<std::pair<c10::Storage, c10::Storage>> storages_;
};

// A new tensor of the device with the shape and strides of `like`.
at::Tensor EmptyOnDevice(const at::Tensor& like, c10::Device device);

// Copies all bytes that a tensor spans, which both have alike.
void CopySpan(const at::Tensor& to, const at::Tensor& from);

}  // namespace softgpu::aten
