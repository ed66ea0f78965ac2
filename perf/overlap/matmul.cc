#include "perf/overlap/matmul.h"

#include <algorithm>

#ifdef AXCCL_PERF_OPENBLAS
#include <cblas.h>
#endif

namespace axccl::perf {

#ifdef AXCCL_PERF_OPENBLAS

const char* MatmulName() { return "OpenBLAS"; }

void UseOneThread() { openblas_set_num_threads(1); }

void Matmul(const float* a, const float* b, float* c, int64_t rows, int64_t n, int64_t k) {
  const auto blas_rows = static_cast<blasint>(rows), blas_n = static_cast<blasint>(n), blas_k = static_cast<blasint>(k);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, blas_rows, blas_n, blas_k, 1.0f, a, blas_k, b, blas_n, 0.0f, c,
              blas_n);
}

#else

const char* MatmulName() { return "plain loops"; }

void UseOneThread() {}

void Matmul(const float* a, const float* b, float* c, int64_t rows, int64_t n, int64_t k) {
  for (int64_t i = 0; i < rows; ++i) {
    float* const row = c + i * n;
    std::fill(row, row + n, 0.0f);
    for (int64_t l = 0; l < k; ++l) {
      const float factor = a[i * k + l];
      const float* const other = b + l * n;
      for (int64_t j = 0; j < n; ++j) row[j] += factor * other[j];
    }
  }
}

#endif

}  // namespace axccl::perf
