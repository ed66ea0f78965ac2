// Kernels of the host for operators that PyTorch has for CUDA alone, made of its other operators; and what to do
// instead of the rest.
#pragma once

#include <torch/library.h>

#include <string>

namespace softgpu::aten {

void RegisterSubstitutes();
void RegisterAttention(torch::Library* library);  // a part of it

// The end of a sentence.
std::string RemedyFor(const std::string& operator_name);

}  // namespace softgpu::aten
