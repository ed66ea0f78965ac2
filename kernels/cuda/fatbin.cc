#include "kernels/cuda/fatbin.h"

// .incbin embeds a file; AXCCL_CUDA_FATBIN is its name.
asm(R"(
.pushsection .rodata
.global axccl_cuda_fatbin
.hidden axccl_cuda_fatbin
.global axccl_cuda_fatbin_bytes
.hidden axccl_cuda_fatbin_bytes
.balign 64
axccl_cuda_fatbin:
.incbin ")" AXCCL_CUDA_FATBIN R"("
axccl_cuda_fatbin_end:
.balign 8
axccl_cuda_fatbin_bytes:
.quad axccl_cuda_fatbin_end - axccl_cuda_fatbin
.popsection
)");
