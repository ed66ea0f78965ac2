// The device's copies in bulk, compiled for fibers.
#include "kernels/cuda/bulk_copy.h"
