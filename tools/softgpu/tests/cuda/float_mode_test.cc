// Kernels compute as on a GPU, whatever the floating-point mode of the thread whose call is the first of the process.
#include <cfenv>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "tools/softgpu/tests/cuda/child.h"
#include "tools/softgpu/tests/cuda/fixture.h"

namespace softgpu::test {
namespace {

// Twice the smallest float if subnormal numbers stay and rounding is to nearest.
fake::Step DoubleSmallest(fake::Launch* launch) {
  const volatile float smallest = 0x1p-149f, one = 1;
  *Argument<float*>(*launch, 0) = one + smallest == one ? smallest + smallest : 0;
  return fake::Step::kDone;
}

int LaunchInOtherMode(const std::string&, int) {
  MUST(std::fesetround(FE_UPWARD) == 0);
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040);  // flushes subnormal operands and results to zero, as -ffast-math does
#endif
  softgpu_fake_kernel("add", DoubleSmallest);
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUdeviceptr address = 0;
  MUST(cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
  MUST(cuCtxSetCurrent(context) == CUDA_SUCCESS && cuModuleLoadData(&module, kPtx) == CUDA_SUCCESS);
  MUST(cuModuleGetFunction(&function, module, "add") == CUDA_SUCCESS && cuMemAlloc(&address, 4) == CUDA_SUCCESS);
  uint32_t value = 0, bits = 0;
  void* arguments[] = {&address, &value};
  MUST(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr) == CUDA_SUCCESS);
  MUST(cuMemcpyDtoH(&bits, address, sizeof bits) == CUDA_SUCCESS);
  MUST(bits == 2);
  MUST(std::fegetround() == FE_UPWARD);
  return 0;
}
const RegisterChild g_launch_in_other_mode("launch in other mode", LaunchInOtherMode);

TEST(FloatMode, OfTheCallerIsNotThatOfKernels) { EXPECT_EQ(Child("launch in other mode", "").Wait(), 0); }

}  // namespace
}  // namespace softgpu::test
