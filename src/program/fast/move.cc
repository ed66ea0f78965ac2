// Operations that give elements other places are copies between strides.
#include <algorithm>
#include <cstring>
#include <utility>

#include "src/program/fast/fast.h"
#include "src/program/reference/arithmetic.h"
#include "src/program/reference/scalar.h"

namespace axccl::program {
namespace {

// Leaves out dimensions of one element, and joins those that are one in memory on both sides.
void JoinDims(StridedCopy* copy) {
  size_t kept = 0;
  for (size_t d = 0; d < copy->dims.size(); ++d) {
    if (copy->dims[d] == 1) continue;
    const int64_t size = copy->dims[d], from = copy->from_strides[d], to = copy->to_strides[d];
    const size_t last = kept - 1;
    if (kept > 0 && copy->from_strides[last] == from * size && copy->to_strides[last] == to * size) {
      copy->dims[last] *= size, copy->from_strides[last] = from, copy->to_strides[last] = to;
      continue;
    }
    copy->dims[kept] = size, copy->from_strides[kept] = from, copy->to_strides[kept++] = to;
  }
  for (Ints* const list : {&copy->dims, &copy->from_strides, &copy->to_strides}) list->resize(kept);
}

template <class Word>
struct Pointers {
  const Word* from;
  Word* to;
};

template <class Word>
void CopyRow(Pointers<Word> at, int64_t size, int64_t from_stride, int64_t to_stride) {
  if (to_stride == 1 && from_stride == 1) {
    std::memcpy(at.to, at.from, static_cast<size_t>(size) * sizeof(Word));
  } else if (to_stride == 1 && from_stride == 0) {
    std::fill_n(at.to, size, *at.from);
  } else {
    for (int64_t i = 0; i < size; ++i) at.to[i * to_stride] = at.from[i * from_stride];
  }
}

// Two dimensions in tiles, so that what a line of the cache holds is used while it is there.
template <class Word>
void CopyTiled(Pointers<Word> at, const int64_t (&dims)[2], const int64_t (&from)[2], const int64_t (&to)[2]) {
  constexpr int64_t kTile = 32;
  for (int64_t row = 0; row < dims[0]; row += kTile) {
    for (int64_t column = 0; column < dims[1]; column += kTile) {
      const int64_t rows = std::min(kTile, dims[0] - row), columns = std::min(kTile, dims[1] - column);
      for (int64_t r = 0; r < rows; ++r) {
        const Word* const source = at.from + (row + r) * from[0] + column * from[1];
        Word* const target = at.to + (row + r) * to[0] + column * to[1];
        for (int64_t c = 0; c < columns; ++c) target[c * to[1]] = source[c * from[1]];
      }
    }
  }
}

// Moves the dimension to the end.
void MoveToEnd(StridedCopy* copy, size_t dim) {
  for (Ints* const list : {&copy->dims, &copy->from_strides, &copy->to_strides}) {
    const auto at = list->begin() + static_cast<Ints::difference_type>(dim);
    std::rotate(at, at + 1, list->end());
  }
}

template <class Word>
void CopyWords(StridedCopy copy) {
  if (copy.dims.empty()) copy.dims = copy.from_strides = copy.to_strides = {1};
  // If rows are not read in order but others would be, two dimensions are the innermost, the row last.
  size_t inner = 1;
  if (copy.from_strides.back() > 1) {
    const auto ordered = std::find(copy.from_strides.begin(), copy.from_strides.end(), 1);
    if (ordered != copy.from_strides.end()) {
      MoveToEnd(&copy, static_cast<size_t>(ordered - copy.from_strides.begin()));
      const size_t last = copy.dims.size() - 1;
      for (Ints* const list : {&copy.dims, &copy.from_strides, &copy.to_strides})
        std::swap((*list)[last], (*list)[last - 1]);
      inner = 2;
    }
  }
  const size_t outer = copy.dims.size() - inner, row = outer + inner - 1;
  ForEachIndex({copy.dims.begin(), copy.dims.begin() + static_cast<Ints::difference_type>(outer)},
               [&](const Ints& index) {
                 Pointers<Word> at{reinterpret_cast<const Word*>(copy.from), reinterpret_cast<Word*>(copy.to)};
                 at.from += OffsetOf(index, copy.from_strides), at.to += OffsetOf(index, copy.to_strides);
                 if (inner == 1) return CopyRow(at, copy.dims[row], copy.from_strides[row], copy.to_strides[row]);
                 CopyTiled(at, {copy.dims[outer], copy.dims[row]}, {copy.from_strides[outer], copy.from_strides[row]},
                           {copy.to_strides[outer], copy.to_strides[row]});
               });
}

// The result's element at `index` is the operand's at base + the sum of index * stride.
Tensor Restride(const TensorType& type, const Tensor& operand, int64_t base, Ints strides) {
  Tensor result = Tensor::Zeros(type);
  if (result.bytes.empty()) return result;
  CopyStrided({type.dims, operand.at(base), std::move(strides), result.bytes.data(), RowMajorStrides(type.dims)},
              operand.element());
  return result;
}

Tensor FastBroadcastInDim(const Operation& operation, const Tensor& operand) {
  const TensorType& type = operation.results[0].type;
  const Ints &dims = Get<Ints>(operation, Attr::kDims), strides = RowMajorStrides(operand.type.dims);
  Ints from(type.dims.size());
  for (size_t d = 0; d < dims.size(); ++d)
    from[static_cast<size_t>(dims[d])] = operand.type.dims[d] == 1 ? 0 : strides[d];
  return Restride(type, operand, 0, from);
}

Tensor FastTranspose(const Operation& operation, const Tensor& operand) {
  const Ints strides = RowMajorStrides(operand.type.dims);
  Ints from;
  for (const int64_t dim : Get<Ints>(operation, Attr::kDims)) from.push_back(strides[static_cast<size_t>(dim)]);
  return Restride(operation.results[0].type, operand, 0, from);
}

Tensor FastReverse(const Operation& operation, const Tensor& operand) {
  Ints strides = RowMajorStrides(operand.type.dims);
  int64_t base = 0;
  for (const int64_t dim : Get<Ints>(operation, Attr::kDims)) {
    const auto d = static_cast<size_t>(dim);
    base += (operand.type.dims[d] - 1) * strides[d];
    strides[d] = -strides[d];
  }
  return Restride(operation.results[0].type, operand, base, strides);
}

Tensor FastSlice(const Operation& operation, const Tensor& operand) {
  const Ints& by = Get<Ints>(operation, Attr::kStrides);
  Ints strides = RowMajorStrides(operand.type.dims);
  const int64_t base = OffsetOf(Get<Ints>(operation, Attr::kStarts), strides);
  for (size_t d = 0; d < strides.size(); ++d) strides[d] *= by[d];
  return Restride(operation.results[0].type, operand, base, strides);
}

// Where a slice of that shape begins in the operand, which it does not leave.
int64_t OffsetOfSlice(TensorSpan starts, const Ints& operand, const Ints& slice) {
  const Ints strides = RowMajorStrides(operand);
  int64_t offset = 0;
  for (size_t d = 0; d < starts.size(); ++d) {
    VisitScalar(starts[d]->type.data_type, [&](auto scalar) {
      const auto start = IndexOf(scalar.Load(starts[d]->at(0)));
      offset += std::clamp<int64_t>(start, 0, operand[d] - slice[d]) * strides[d];
    });
  }
  return offset;
}

// Copies all of `part` into *whole, from its element `base` on.
void PutInto(const Tensor& part, int64_t base, Tensor* whole) {
  if (part.bytes.empty()) return;
  CopyStrided({part.type.dims, part.bytes.data(), RowMajorStrides(part.type.dims), whole->at(base),
               RowMajorStrides(whole->type.dims)},
              part.element());
}

Tensor FastUpdate(TensorSpan operands) {
  Tensor result = *operands[0];
  PutInto(*operands[1], OffsetOfSlice(operands.subspan(2), result.type.dims, operands[1]->type.dims), &result);
  return result;
}

Tensor FastConcatenate(const Operation& operation, TensorSpan operands) {
  const auto dim = static_cast<size_t>(Get<int64_t>(operation, Attr::kDim));
  Tensor result = Tensor::Zeros(operation.results[0].type);
  const int64_t stride = RowMajorStrides(result.type.dims)[dim];
  int64_t begin = 0;
  for (const Tensor* const operand : operands) {
    PutInto(*operand, begin * stride, &result);
    begin += operand->type.dims[dim];
  }
  return result;
}

bool PadsAround(const Operation& operation) {
  const auto is_negative = [](int64_t n) { return n < 0; };
  for (const Attr attr : {Attr::kLow, Attr::kHigh}) {
    const Ints& sizes = Get<Ints>(operation, attr);
    if (std::any_of(sizes.begin(), sizes.end(), is_negative)) return false;
  }
  const Ints& interior = Get<Ints>(operation, Attr::kInterior);
  return std::all_of(interior.begin(), interior.end(), [](int64_t n) { return n == 0; });
}

Tensor FastPad(const Operation& operation, const Tensor& operand, const Tensor& padding) {
  const TensorType& type = operation.results[0].type;
  Tensor result = Restride(type, padding, 0, Ints(type.dims.size()));
  PutInto(operand, OffsetOf(Get<Ints>(operation, Attr::kLow), RowMajorStrides(type.dims)), &result);
  return result;
}

}  // namespace

void CopyStrided(StridedCopy copy, size_t element_size) {
  JoinDims(&copy);
  switch (element_size) {
    case 1:
      return CopyWords<uint8_t>(std::move(copy));
    case 2:
      return CopyWords<uint16_t>(std::move(copy));
    case 4:
      return CopyWords<uint32_t>(std::move(copy));
    default:
      return CopyWords<uint64_t>(std::move(copy));
  }
}

Tensor FastMove(const Operation& operation, TensorSpan operands) {
  switch (operation.kind) {
    case OpKind::kBroadcastInDim:
      return FastBroadcastInDim(operation, *operands[0]);
    case OpKind::kConcatenate:
      return FastConcatenate(operation, operands);
    case OpKind::kDynamicSlice: {
      const TensorType& type = operation.results[0].type;
      const Ints& dims = operands[0]->type.dims;
      return Restride(type, *operands[0], OffsetOfSlice(operands.subspan(1), dims, type.dims), RowMajorStrides(dims));
    }
    case OpKind::kDynamicUpdateSlice:
      return FastUpdate(operands);
    case OpKind::kPad:
      return PadsAround(operation) ? FastPad(operation, *operands[0], *operands[1]) : ComputeMove(operation, operands);
    case OpKind::kReverse:
      return FastReverse(operation, *operands[0]);
    case OpKind::kSlice:
      return FastSlice(operation, *operands[0]);
    case OpKind::kTranspose:
      return FastTranspose(operation, *operands[0]);
    default:
      return ComputeMove(operation, operands);
  }
}

}  // namespace axccl::program
