// Conversions and arithmetic of f16, bf16 and fp8, through CUDA's own headers.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

extern "C" __global__ void narrow(const float* in, unsigned short* half, unsigned short* bfloat, unsigned char* e4m3,
                                  unsigned char* e5m2, float* back, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  half[i] = __half_as_ushort(__float2half(in[i]));
  bfloat[i] = __bfloat16_as_ushort(__float2bfloat16(in[i]));
  e4m3[i] = __nv_cvt_float_to_fp8(in[i], __NV_SATFINITE, __NV_E4M3);
  e5m2[i] = __nv_cvt_float_to_fp8(in[i], __NV_SATFINITE, __NV_E5M2);
  back[4 * i] = __half2float(__ushort_as_half(half[i]));
  back[4 * i + 1] = __bfloat162float(__ushort_as_bfloat16(bfloat[i]));
  back[4 * i + 2] = __half2float(__half(__nv_cvt_fp8_to_halfraw(e4m3[i], __NV_E4M3)));
  back[4 * i + 3] = __half2float(__half(__nv_cvt_fp8_to_halfraw(e5m2[i], __NV_E5M2)));
}

extern "C" __global__ void arithmetic(const __half2* a, const __half2* b, __half2* sums, __half2* products,
                                      const __nv_bfloat162* c, const __nv_bfloat162* d, __nv_bfloat162* most, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  sums[i] = __hadd2(a[i], b[i]);
  products[i] = __hmul2(a[i], b[i]);
  most[i] = __hmax2(c[i], d[i]);
}
