// CUDA's driver API as its header declares it, with every declaration visible: the functions defined here are exported.
#pragma once

#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop
