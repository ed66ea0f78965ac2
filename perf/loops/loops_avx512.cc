#define AXCCL_LOOPS_ISA Avx512
#include "perf/loops/loops_isa.inc"
