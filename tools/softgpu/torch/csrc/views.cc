#include "views.h"

#include <ATen/EmptyTensor.h>
#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <optional>

namespace softgpu::aten {
namespace {

bool IsCompressed(const at::Tensor& tensor) { return at::sparse_csr::is_sparse_compressed(tensor); }

// The same sparse tensor, with parts that `move` has moved.
template <typename Move>
at::Tensor MapSparse(const at::Tensor& tensor, c10::Device device, const Move& move) {
  const at::TensorOptions options = tensor.options().device(device);
  if (!IsCompressed(tensor)) {
    return at::_sparse_coo_tensor_unsafe(move(tensor._indices()), move(tensor._values()), tensor.sizes(), options,
                                         tensor.is_coalesced());
  }
  const auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(tensor);
  return at::_sparse_compressed_tensor_unsafe(move(compressed), move(plain), move(tensor.values()), tensor.sizes(),
                                              options);
}

// The same nested tensor, on memory that `move` has moved. Where its parts are in it is on the host, wherever it is.
template <typename Move>
at::Tensor MapNested(const at::Tensor& tensor, const Move& move) {
  const at::native::NestedTensorImpl& nested = *at::native::get_nested_tensor_impl(tensor);
  return at::detail::make_tensor<at::native::NestedTensorImpl>(move(nested.get_unsafe_storage_as_tensor()),
                                                               nested.get_nested_sizes(), nested.get_nested_strides(),
                                                               nested.get_storage_offsets());
}

// From the first to the last byte of a tensor.
size_t SpanBytes(const at::Tensor& tensor) {
  return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize());
}

// What a tensor is apart from its bytes.
void CopyMarks(const at::Tensor& to, const at::Tensor& from) {
  if (from.is_conj()) to._set_conj(true);
  if (from.is_neg()) to._set_neg(true);
  if (from.unsafeGetTensorImpl()->is_wrapped_number()) to.unsafeGetTensorImpl()->set_wrapped_number(true);
}

}  // namespace

at::Tensor EmptyOnDevice(const at::Tensor& like, c10::Device device) {
  return at::empty_strided(like.sizes(), like.strides(), like.options().device(device).requires_grad(false));
}

void CopySpan(const at::Tensor& to, const at::Tensor& from) {
  const size_t bytes = SpanBytes(from);
  if (bytes > 0) std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), bytes);
}

c10::Storage Views::StorageToHost(const c10::Storage& storage) {
  for (const auto& [device, host] : storages_) {
    if (device.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl()) return host;
  }
  // May be made larger by an operator: it then owns other memory, which TakeOver copies.
  c10::Storage host(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), storage.nbytes(),
      c10::DataPtr(const_cast<void*>(storage.data()), c10::Device(c10::kCPU)), c10::GetCPUAllocator(), true));
  storages_.emplace_back(storage, host);
  return host;
}

at::Tensor Views::StridedToHost(const at::Tensor& tensor) {
  at::Tensor host = at::detail::make_tensor<c10::TensorImpl>(
      StorageToHost(tensor.storage()), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  host.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  CopyMarks(host, tensor);
  return host;
}

at::Tensor Views::ToHost(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda()) return tensor;
  for (const auto& [device, host] : tensors_) {
    if (device.is_same(tensor)) return host;
  }
  const auto move = [this](const at::Tensor& part) { return StridedToHost(part); };
  const auto make = [&] {
    if (tensor.is_nested()) return MapNested(tensor, move);
    return tensor.layout() == at::kStrided ? StridedToHost(tensor) : MapSparse(tensor, at::kCPU, move);
  };
  return tensors_.emplace_back(tensor, make()).second;
}

at::Tensor Views::ToDevice(const at::Tensor& result, c10::Device device) const {
  if (!result.defined() || !result.is_cpu()) return result;
  const auto move = [&](const at::Tensor& part) { return ToDevice(part, device); };
  if (result.is_nested()) return MapNested(result, move);
  if (result.layout() != at::kStrided) return MapSparse(result, device, move);
  for (const auto& [storage, host] : storages_) {
    if (host.unsafeGetStorageImpl() != result.storage().unsafeGetStorageImpl()) continue;
    at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
        c10::TensorImpl::VIEW, c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA), result.dtype());
    view.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes(), result.strides(), result.storage_offset());
    CopyMarks(view, result);
    return view;
  }
  const at::Tensor copy = EmptyOnDevice(result, device);
  CopySpan(copy, result);
  CopyMarks(copy, result);
  return copy;
}

void Views::TakeOver(const at::Tensor& tensor) const {
  for (const auto& [device, host] : tensors_) {
    if (!device.is_same(tensor)) continue;
    if (tensor.is_nested()) return;  // has no operator that makes it larger
    if (tensor.layout() != at::kStrided) {
      const at::Tensor moved = ToDevice(host, tensor.device());
      if (IsCompressed(tensor)) {
        const auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(moved);
        at::sparse_csr::get_sparse_csr_impl(tensor)->set_member_tensors(compressed, plain, moved.values(),
                                                                        moved.sizes());
      } else {
        auto* const impl = static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
        impl->raw_resize_(host.sparse_dim(), host.dense_dim(), host.sizes());
        impl->set_indices_and_values_unsafe(moved._indices(), moved._values());
        impl->set_coalesced(host.is_coalesced());
      }
      return;
    }
    const bool moved = host.storage().data() != tensor.storage().data();
    if (moved) tensor.resize_(static_cast<int64_t>(SpanBytes(host) / host.itemsize()));
    if (host.sizes() != tensor.sizes() || host.strides() != tensor.strides()) {
      tensor.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides());
    }
    if (moved) CopySpan(tensor, host);
    return;
  }
}

}  // namespace softgpu::aten
