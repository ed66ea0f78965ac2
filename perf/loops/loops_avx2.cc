#define AXCCL_LOOPS_ISA Avx2
#include "perf/loops/loops_isa.inc"
