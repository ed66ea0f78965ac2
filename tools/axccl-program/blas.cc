#include "tools/axccl-program/blas.h"

#include <dlfcn.h>
#include <stdlib.h>

namespace axccl::tools {

Result<program::Products> LoadBlas() {
  // It starts its threads as it is loaded.
  (void)setenv("OPENBLAS_NUM_THREADS", "1", 1);
  void* const library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return MakeStatus(Code::kSystemError, "--blas: %s; install OpenBLAS (Debian: libopenblas-dev), or run without",
                      dlerror());
  program::Products products;
  products.f32 = reinterpret_cast<program::MatrixProduct<float>>(dlsym(library, "cblas_sgemm"));
  products.f64 = reinterpret_cast<program::MatrixProduct<double>>(dlsym(library, "cblas_dgemm"));
  const auto set_threads = reinterpret_cast<void (*)(int)>(dlsym(library, "openblas_set_num_threads"));
  if (products.f32 == nullptr || products.f64 == nullptr || set_threads == nullptr)
    return MakeStatus(Code::kSystemError,
                      "--blas: libopenblas.so.0 has no cblas_sgemm, cblas_dgemm or openblas_set_num_threads; install "
                      "OpenBLAS (Debian: libopenblas-dev), or run without");
  set_threads(1);
  return products;
}

}  // namespace axccl::tools
