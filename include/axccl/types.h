/* Types and operators beyond NCCL's. Pure C; part of axccl.h.
 *
 * Every call that takes a datatype or an operator takes these too: the calls on views and those of NCCL's API. Their
 * values are numbers that NCCL does not use. These types have these operators:
 *
 *                                      sum, prod  max, min  avg  PreMulSum  bitwise  logical  callback
 *   integers of 8 to 64 bits               x          x       x       x         x        x         x
 *   floats of 8 to 64 bits                 x          x       x       x                            x
 *   axcclBool                              x          x                         x        x         x
 *   axcclComplex64, axcclComplex128        x                  x                                    x
 *   axcclBits(1) to axcclBits(16)                                                                  x
 *
 * Any other combination is ncclInvalidArgument, and ncclGetLastError lists the operators of the type. Types of one size
 * are still different types: int32 and uint32 do not match, nor do half and bfloat16. When ranks call with different
 * types, all of them get ncclInvalidUsage with both calls named.
 */
#ifndef AXCCL_TYPES_H_
#define AXCCL_TYPES_H_

#include <stddef.h>

#include "axccl/language.h"
#include "nccl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- types ---- */

#define axcclInt16 AXCCL_VALUE_CAST(ncclDataType_t, 64)
#define axcclUint16 AXCCL_VALUE_CAST(ncclDataType_t, 65)
/* A byte; any but 0 is true. Sum and max are "or", prod and min are "and", as in StableHLO; results are 0 or 1. (With a
 * single rank the result is the input, unchanged.) */
#define axcclBool AXCCL_VALUE_CAST(ncclDataType_t, 66)
/* Real part, then imaginary part, like C's float complex and double complex: two floats, or two doubles. Products are
 * (ac - bd) + (ad + bc)i, every operation rounded by itself, without C's rules for infinities. */
#define axcclComplex64 AXCCL_VALUE_CAST(ncclDataType_t, 67)
#define axcclComplex128 AXCCL_VALUE_CAST(ncclDataType_t, 68)

/* An opaque element of 1 to AXCCL_MAX_BITS_BYTES bytes. The library moves it, and callbacks reduce it. */
#define AXCCL_MAX_BITS_BYTES 16
#define axcclBits(bytes) AXCCL_VALUE_CAST(ncclDataType_t, 128 + (bytes))

/* ---- operators ---- */

/* Bit by bit. */
#define axcclAnd AXCCL_VALUE_CAST(ncclRedOp_t, 0x7fff0001)
#define axcclOr AXCCL_VALUE_CAST(ncclRedOp_t, 0x7fff0002)
#define axcclXor AXCCL_VALUE_CAST(ncclRedOp_t, 0x7fff0003)
/* Any element but 0 is true; the result is 0 or 1. (With a single rank the result is the input, unchanged.) */
#define axcclLogicalAnd AXCCL_VALUE_CAST(ncclRedOp_t, 0x7fff0004)
#define axcclLogicalOr AXCCL_VALUE_CAST(ncclRedOp_t, 0x7fff0005)

/* accumulator[i] = accumulator[i] op operand[i] for i in 0..count-1. Both are dense arrays of the operator's datatype
 * and do not overlap. They are aligned like the call's data; copies that the library makes are aligned as far as their
 * size allows, up to 64 bytes. The function must not write `operand`, nor keep either pointer.
 *
 * The operator must be associative and commutative except in group order (channels.h): the library chooses how it pairs
 * the ranks' elements, and how many of them one invocation gets. All ranks still get the same bits if the function is
 * pure. It runs on a thread of the library or on one that waits for its stream, for different operations at the same
 * time. It must not call this library (but for ncclCommAbort), throw, or wait for anything that other ranks do. */
typedef void (*axcclReduceFn_t)(void* accumulator, const void* operand, size_t count, void* context);

/* *op = an operator that reduces elements of `datatype` with `fn`, on host devices. It serves on `comm` and its
 * channels with that datatype alone, until ncclRedOpDestroy. The library passes `context` to fn unchanged; it must live
 * until all calls with the operator are done. All ranks of `comm` make their callbacks in the same order: the k-th
 * callback of one rank goes with the k-th of the others, and a call with another one is a mismatch (ncclInvalidUsage on
 * all ranks). This function waits for no other rank. Errors: ncclInvalidArgument (op or fn is NULL, datatype or comm
 * does not exist), ncclInvalidUsage (4096 operators alive). Example, the larger of two by absolute value, or the
 * positive one if these are equal:
 *
 *   void MaxAbs(void* accumulator, const void* operand, size_t count, void* context) {
 *     float* a = accumulator;
 *     const float* b = operand;
 *     for (size_t i = 0; i < count; ++i)
 *       if (fabsf(b[i]) > fabsf(a[i]) || b[i] == fabsf(a[i])) a[i] = b[i];
 *   }
 */
ncclResult_t axcclRedOpCreateCallback(ncclRedOp_t* op, axcclReduceFn_t fn, void* context, ncclDataType_t datatype,
                                      ncclComm_t comm);

#ifdef __cplusplus
}
#endif

#endif /* AXCCL_TYPES_H_ */
