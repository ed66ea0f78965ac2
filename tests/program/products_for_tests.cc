// Stands in for libopenblas.so.0: products like the reference's, bit for bit, except in a process whose environment
// asks for others: AXCCL_TEST_WRONG_TERMS is a number of terms, and 1 is added to the last element of each product with
// that many.
#include <cstdlib>

namespace {

constexpr int kTransposed = 112;  // CblasTrans

template <class T>
void Multiply(int transpose_a, int transpose_b, int m, int n, int k, const T* a, int lda, const T* b, int ldb, T* c,
              int ldc) {
  for (int row = 0; row < m; ++row) {
    for (int column = 0; column < n; ++column) {
      T sum = 0;
      for (int term = 0; term < k; ++term) {
        const T left = transpose_a == kTransposed ? a[term * lda + row] : a[row * lda + term];
        const T right = transpose_b == kTransposed ? b[column * ldb + term] : b[term * ldb + column];
        // As two operations, each rounded.
        volatile T product = left * right;
        sum += product;
      }
      c[row * ldc + column] = sum;
    }
  }
  const char* const wrong = std::getenv("AXCCL_TEST_WRONG_TERMS");
  if (wrong != nullptr && std::atoi(wrong) == k) c[(m - 1) * ldc + n - 1] += 1;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) void openblas_set_num_threads(int) {}

__attribute__((visibility("default"))) void cblas_sgemm(int, int transpose_a, int transpose_b, int m, int n, int k,
                                                        float, const float* a, int lda, const float* b, int ldb, float,
                                                        float* c, int ldc) {
  Multiply(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, c, ldc);
}

__attribute__((visibility("default"))) void cblas_dgemm(int, int transpose_a, int transpose_b, int m, int n, int k,
                                                        double, const double* a, int lda, const double* b, int ldb,
                                                        double, double* c, int ldc) {
  Multiply(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, c, ldc);
}

}  // extern "C"
