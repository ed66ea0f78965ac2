#define AXCCL_FLOOR_ISA Baseline
#include "perf/floor/movement_isa.inc"
