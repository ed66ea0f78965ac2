// Tensor views, and how the blocks of a collective lie in them.
//
// A view is a pointer, an element size, sizes and strides in elements; strides may be negative, and 0 on inputs.
// Element i of a view is the i-th in row-major order of its *logical* shape, whatever the strides are. A view without
// dimensions has one element, a view with a size 0 none. The strides of dimensions of size 1, and all strides of an
// empty view, have no meaning.
//
// The structs are plain values of at most kMaxDims dimensions. Views do not own what they point to, and nothing here
// reads or writes it. Functions are pure and thread-safe; they allocate only to build an error message.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "src/base/status.h"
#include "src/plan/contract.h"

namespace axccl::tensor {

inline constexpr int kMaxDims = 8;

// "Rank" means a process here, so a tensor of rank 3 is one of 3 dimensions.
struct Shape {
  int dims = 0;
  int64_t sizes[kMaxDims] = {};

  friend bool operator==(const Shape& a, const Shape& b);
};

// The product of the sizes; precondition: it is below 2^63, as in a checked view.
int64_t Elements(const Shape& shape);
std::string Text(const Shape& shape);  // "[2, 4]"

struct View {
  void* data = nullptr;  // the element with index (0, ..., 0); an input's data is not written
  uint32_t element_size = 1;
  Shape shape;
  int64_t strides[kMaxDims] = {};
};

// The row-major view without gaps. `shape` has at most kMaxDims dimensions and need not have been checked. A stride
// that would overflow is INT64_MAX: then either CheckView refuses the view, or the view is empty and its strides have
// no meaning.
View DenseView(void* data, uint32_t element_size, const Shape& shape);

// How messages name an operand: "axcclAllGather: output 1 ...".
struct OperandName {
  const char* call = "";
  const char* name = "";
  int index = -1;  // -1: the call has only one
};

enum class Role : uint8_t { kInput, kOutput };

// Refuses: more than kMaxDims dimensions, negative sizes, elements without data, more than 2^63 - 1 bytes of elements
// or from the lowest byte to the end, an end outside the address space, and outputs in which two indices reach one
// element. That last test is exact for every view of a dense allocation in any dimension order, sliced, reversed or
// split, and for most others. If a few thousand steps prove nothing, it refuses the view; only sizes and strides that
// interlock without a pattern take so many.
Status CheckView(const OperandName& operand, Role role, const View& view);

// The bytes that a view touches, relative to its data: begin <= 0 < end, or both 0 when it is empty.
struct Extent {
  int64_t begin = 0;
  int64_t end = 0;
};

// For views that have not been checked; does not read the data. Returns false when the view spans more than 2^63 - 1
// bytes.
bool FindByteExtent(const View& view, Extent* extent);

// The functions from here on expect views that passed CheckView.
Extent ByteExtent(const View& view);

// Whether some byte belongs to an element of both views. Exact, except that it returns true when a few thousand steps
// prove nothing.
bool Overlap(const View& a, const View& b);

// Drops dimensions of size 1 and merges neighbours that are contiguous in every operand; the elements keep their order.
// `strides` holds one array of kMaxDims strides for each operand. An empty shape becomes [0].
void Collapse(Shape* shape, std::span<int64_t* const> strides);

enum class NegativeDims : uint8_t { kFromEnd, kRefuse };

// Returns the dimension in 0..dims-1 that `dim` stands for. `argument` is its name ("all_gather_dim"), `constraint` a
// citation such as " [StableHLO all_gather (C1)]" or empty.
Result<int> NormaliseDim(const OperandName& operand, const char* argument, int64_t dim, int dims, NegativeDims negative,
                         const char* constraint = "");

// Cites the constraints that give an output the datatype of its input, as " [StableHLO all_gather (C6)]", or returns an
// empty string.
std::string CiteDatatypes(plan::Kind kind);

// What the shapes of a collective depend on.
struct Collective {
  const char* call = nullptr;  // named in messages; null = the kind's name
  int operand = -1;            // named in messages; -1 = the call has only one
  plan::Kind kind = plan::Kind::kAllReduce;
  int group_size = 1;
  int64_t dim = 0;         // kAllGather, kGather: concatenated; kReduceScatter, kScatter: split; kAllToAll: split
  int64_t concat_dim = 0;  // kAllToAll: concatenated
  NegativeDims negative_dims = NegativeDims::kFromEnd;
};

// With n = group size, the output has the sizes of the input, except (StableHLO specification, the operation's
// constraints on its result):
//   kAllGather, kGather           x n along dim
//   kReduceScatter, kScatter      / n along dim
//   kAllToAll                     / n along dim, then x n along concat_dim
// Transfers of collective_permute, send and recv are kSendRecv. Sizes may be 0.
Status OutputShape(const Collective& collective, const Shape& input, Shape* output);

// The blocks of contract.h in the views of one rank. Block b of an operand starts b * stride elements after its data
// and has the operand's strides. All blocks of a collective have the same logical shape, on all ranks, in inputs and in
// outputs, so element i of an input block is element i of the output block that holds it.
struct Blocks {
  Shape shape;
  int64_t elements = 0;  // of a block
  int input_blocks = 0;  // 0: no input on this rank
  int output_blocks = 0;
  int split = -1;            // the input dimension along which its blocks follow each other; -1: there is one block
  int concat = -1;           // the same of the output
  int64_t input_stride = 0;  // 0 where there is at most one block, or no element
  int64_t output_stride = 0;
};

// Checks one rank's views against each other and finds the blocks. A null operand is one that this rank does not have:
// kBroadcast and kSendRecv need one of the two, kReduce and kGather need the input, kScatter the output, the other
// kinds both. For kinds that only move data, the element sizes must agree. `blocks` is undefined on error.
Status FindBlocks(const Collective& collective, const View* input, const View* output, Blocks* blocks);

// Block `index` of a view, as a view.
View BlockView(const View& view, const Shape& block, int64_t block_stride, int index);

}  // namespace axccl::tensor
