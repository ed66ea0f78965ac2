/* A user of the CUDA driver, which needs no header of it. */
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL) return 1;
  int (*const init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*const count)(int*) = (int (*)(int*))dlsym(driver, "cuDeviceGetCount");
  int gpus = 0;
  if (init == NULL || count == NULL || init(0) != 0 || count(&gpus) != 0) return 2;
  printf("%d GPUs\n", gpus);
  return 0;
}
