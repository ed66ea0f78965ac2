#define AXCCL_FLOOR_ISA Avx512
#include "perf/floor/movement_isa.inc"
