#include "src/program/tensor.h"

#include <cstring>

#include "src/program/buffer_pool.h"

namespace axccl::program {

Tensor Tensor::Zeros(const TensorType& type) {
  const size_t bytes = static_cast<size_t>(Elements(type)) * ElementSize(type.data_type);
  BufferPool* const pool = BufferPool::OfThread();
  return {type, pool != nullptr ? pool->Take(bytes) : std::vector<uint8_t>(bytes)};
}

Tensor Tensor::Of(uint32_t value) {
  Tensor tensor = Zeros({DataType::kUint32, {}});
  std::memcpy(tensor.bytes.data(), &value, sizeof value);
  return tensor;
}

Ints RowMajorStrides(const Ints& dims) {
  Ints strides(dims.size());
  int64_t stride = 1;
  for (size_t d = dims.size(); d-- > 0; stride *= dims[d]) strides[d] = stride;
  return strides;
}

int64_t OffsetOf(const Ints& index, const Ints& strides) {
  int64_t offset = 0;
  for (size_t d = 0; d < index.size(); ++d) offset += index[d] * strides[d];
  return offset;
}

void CopyElement(const Tensor& from, int64_t from_offset, Tensor* to, int64_t to_offset) {
  std::memcpy(to->at(to_offset), from.at(from_offset), from.element());
}

}  // namespace axccl::program
