#define AXCCL_LOOPS_ISA Baseline
#include "perf/loops/loops_isa.inc"
