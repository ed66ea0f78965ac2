// The device code, as cuModuleLoadData and its like take it. Its one kernel is `axccl_run`, see launch.h.
#pragma once

#include <cstddef>

extern "C" {
__attribute__((visibility("hidden"))) extern const unsigned char axccl_cuda_fatbin[];
__attribute__((visibility("hidden"))) extern const size_t axccl_cuda_fatbin_bytes;
}
