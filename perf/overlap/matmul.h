// The product of two matrices on one core: OpenBLAS where the build found it, plain loops otherwise.
//
// Stateless. UseOneThread must be called first in every process, before threads exist.
#pragma once

#include <cstdint>

namespace axccl::perf {

// "OpenBLAS" or "plain loops".
const char* MatmulName();
void UseOneThread();

// c[rows][n] = a[rows][k] * b[k][n], all row-major without gaps.
void Matmul(const float* a, const float* b, float* c, int64_t rows, int64_t n, int64_t k);

}  // namespace axccl::perf
