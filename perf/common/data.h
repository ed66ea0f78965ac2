// The content of the buffers before and after an operation, and the number of elements that differ from it.
//
// Independent of the library: values come from a hash of (rep, source rank, index), and results from this code's own
// arithmetic. Inputs of reductions are small whole numbers times a power of two, so few that every partial sum or
// product is exact in the element type whatever the order; integers use all bits and wrap. Only avg of floats may
// round: 2 ulp are allowed there. Data that is only moved is random bits and compared as bits.
//
// Values repeat after kPeriod elements. The period is prime, so data in a wrong place is still noticed, and long
// buffers are filled and compared at the speed of memcpy and memcmp.
//
// Stateless, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace axccl::perf {

inline constexpr size_t kPeriod = 65521;

// Marks data that is not reduced.
inline constexpr int kMove = -1;
// As `source`: the result of the reduction over all ranks.
inline constexpr int kReduced = -1;

// One sequence of values; element i is a function of the fields and of i.
struct Sequence {
  int type = 0;      // ncclDataType_t
  int op = kMove;    // Op, or kMove
  uint64_t rep = 0;  // another rep gives other values
  int ranks = 1;     // of the communicator
  int source = 0;    // the rank whose data it is, or kReduced
};

// Writes elements first .. first + count - 1 of the sequence to dst (any alignment).
void FillSequence(const Sequence& sequence, size_t first, size_t count, void* dst);

// Returns how many of the `count` elements at `data` differ from elements first .. first + count - 1 of the sequence.
size_t CountWrong(const Sequence& sequence, size_t first, size_t count, const void* data);

}  // namespace axccl::perf
