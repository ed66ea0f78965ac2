#define AXCCL_FLOOR_ISA Avx2
#include "perf/floor/movement_isa.inc"
