// The oracle: the inputs and expected outputs of every rank in a test case, element by element, in closed form.
//
// Inputs are pure functions of (case, rank, index), so every rank computes its expectation alone, without communication
// and without the library's code. Reduction inputs are chosen so that every order of combination gives the same exact
// result (small integers times a power of two for floats, wrapping arithmetic for integers), and results are compared
// bit for bit. The exception is the average of floats, compared within a few units in the last place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "nccl.h"

namespace axccl::harness {

enum class Call : uint8_t {
  kAllReduce,
  kReduce,
  kReduceScatter,
  kBroadcast,
  kBcast,
  kAllGather,
  kAllToAll,
  kGather,
  kScatter,
};
inline constexpr int kNumCalls = 9;

// The last five are for integers.
enum class Fold : uint8_t { kSum, kProd, kMax, kMin, kAvg, kPreMulSum, kAnd, kOr, kXor, kLogicalAnd, kLogicalOr };
inline constexpr int kNumFolds = 11;

const char* CallName(Call call);
const char* FoldName(Fold fold);
bool Folds(Call call);
bool HasRoot(Call call);
// Whether NCCL defines an in-place form of the call. (kBcast has only that form.)
bool HasInPlace(Call call);

// One collective of one communicator.
struct Case {
  Call call = Call::kAllReduce;
  ncclDataType_t type = ncclFloat32;
  Fold fold = Fold::kSum;
  size_t count = 0;  // the count argument of the call
  int root = 0;
  uint64_t seed = 0;

  std::string Text() const;
};

// Elements of the rank's send and receive buffers; 0 where the call ignores them.
size_t SendElements(const Case& c, int nranks, int rank);
size_t RecvElements(const Case& c, int nranks, int rank);
// In place: where the smaller of the two buffers starts inside the larger one, in elements.
size_t InPlaceOffset(const Case& c, int nranks, int rank);

// Writes the rank's send buffer.
void FillSend(const Case& c, int nranks, int rank, void* send);
// The element the rank must find at `index` of its receive buffer.
uint64_t ExpectedElement(const Case& c, int nranks, int rank, size_t index);
// Compares the whole receive buffer. Returns an empty text when it is right, else the first few wrong elements and
// their number.
std::string CheckRecv(const Case& c, int nranks, int rank, const void* recv);
// As CheckRecv for the send buffer, which must be as FillSend left it outside elements [skip_begin, skip_end).
std::string CheckSend(const Case& c, int nranks, int rank, const void* send, size_t skip_begin = 0,
                      size_t skip_end = 0);

// PreMulSum: the rank's scalar, as an element.
uint64_t PreMulScalar(const Case& c, int nranks, int rank);

}  // namespace axccl::harness
