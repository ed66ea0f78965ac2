// The kernels of an application that a suite brings (tests/cuda/CMakeLists.txt), as text of PTX: in the program,
// because gpu-check runs it on machines that have nothing of this build.
#pragma once

extern "C" const char axccl_test_kernels[];  // ends with a zero
