#include "operands.h"

namespace axccl::jax {

namespace ffi = xla::ffi;

bool TypeOf(ffi::DataType type, bool reduced, ncclDataType_t* out) {
  const auto is = [out](ncclDataType_t found) {
    *out = found;
    return true;
  };
  switch (type) {
    case ffi::PRED:
      return is(axcclBool);
    case ffi::S8:
      return is(ncclInt8);
    case ffi::U8:
      return is(ncclUint8);
    case ffi::S16:
      return is(axcclInt16);
    case ffi::U16:
      return is(axcclUint16);
    case ffi::S32:
      return is(ncclInt32);
    case ffi::U32:
      return is(ncclUint32);
    case ffi::S64:
      return is(ncclInt64);
    case ffi::U64:
      return is(ncclUint64);
    case ffi::F16:
      return is(ncclFloat16);
    case ffi::BF16:
      return is(ncclBfloat16);
    case ffi::F32:
      return is(ncclFloat32);
    case ffi::F64:
      return is(ncclFloat64);
    case ffi::C64:
      return is(axcclComplex64);
    case ffi::C128:
      return is(axcclComplex128);
    case ffi::F8E4M3FN:
      return is(ncclFloat8e4m3);
    case ffi::F8E5M2:
      return is(ncclFloat8e5m2);
    case ffi::F8E4M3:
    case ffi::F8E4M3B11FNUZ:
    case ffi::F8E4M3FNUZ:
    case ffi::F8E5M2FNUZ:
    case ffi::F8E3M4:
    case ffi::F8E8M0FNU:
      return !reduced && is(axcclBits(1));
    default:
      return false;
  }
}

void Operand::Set(const ffi::AnyBuffer& buffer, ncclDataType_t type, int64_t first_dim, int64_t second_dim) {
  view.data = buffer.untyped_data();
  view.datatype = type;
  view.sizes = sizes;
  int count = 0;
  bool open = false;  // whether the last dimension of the view takes more of the array's
  const auto dimensions = buffer.dimensions();
  for (int64_t d = 0; d < static_cast<int64_t>(dimensions.size()); ++d) {
    if (d == first_dim || d == second_dim) {
      if (d == first_dim) first = count;
      if (d == second_dim) second = count;
      sizes[count++] = dimensions[static_cast<size_t>(d)];
      open = false;
    } else if (open) {
      sizes[count - 1] *= dimensions[static_cast<size_t>(d)];
    } else {
      sizes[count++] = dimensions[static_cast<size_t>(d)];
      open = true;
    }
  }
  view.num_dims = count;
}

}  // namespace axccl::jax
