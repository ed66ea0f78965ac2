// The device code in the form that cuModuleLoadData and similar functions accept. Its kernels are `axccl_run` and
// `axccl_run_one`, see launch.h.
#pragma once

#include <cstddef>

extern "C" {
__attribute__((visibility("hidden"))) extern const unsigned char axccl_cuda_fatbin[];
__attribute__((visibility("hidden"))) extern const size_t axccl_cuda_fatbin_bytes;
}
