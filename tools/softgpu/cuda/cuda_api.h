// CUDA's driver API as its header declares it, with every declaration visible: what we define of it is exported.
#pragma once

#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop
