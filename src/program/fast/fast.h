// Local operations as fast as plain loops are, for runs whose time matters (`axccl-program run --blas`). The reference
// (src/program/reference/) says what they give: results are equal to its bit for bit, except products of f32 and f64,
// which a library adds up in an order of its own. What has no loop here is left to the reference: gather, scatter,
// iota, padding between or beyond elements, and products of other types.
//
// Programs must have passed Check (check.h). Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/program/reference/compute.h"

namespace axccl::program {

// cblas_sgemm and cblas_dgemm.
template <class T>
using MatrixProduct = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k, T alpha, const T* a,
                               int lda, const T* b, int ldb, T beta, T* c, int ldc);
struct Products {
  MatrixProduct<float> f32 = nullptr;
  MatrixProduct<double> f64 = nullptr;
};

// As ComputeLocal. Without a product for its type, a dot is the reference's.
Tensor ComputeFast(const Operation& operation, TensorSpan operands, const Products& products);

// Families of these.
Tensor FastElements(const Operation& operation, TensorSpan operands);
Tensor FastMove(const Operation& operation, TensorSpan operands);
Tensor FastReduce(const Operation& operation, TensorSpan operands);
Tensor FastDot(const Operation& operation, TensorSpan operands, const Products& products);

// Elements of a shape that are copied from one place to another. Strides are in elements.
struct StridedCopy {
  Ints dims;
  const uint8_t* from;
  Ints from_strides;
  uint8_t* to;
  Ints to_strides;
};
void CopyStrided(StridedCopy copy, size_t element_size);

}  // namespace axccl::program
