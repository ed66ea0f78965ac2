// One collective call as the executor sees it: arguments already checked, ranks as positions in the channel's group.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "src/base/types.h"
#include "src/plan/contract.h"
#include "src/plan/view.h"

namespace axccl::exec {

enum class Scaling : uint8_t {
  kNone,
  kAverage,      // by 1/n: floats before the sum, integers after it
  kPreMultiply,  // each rank's input by that rank's scalar
};

// What ranks must agree on, besides, when they call a collective on views.
struct BlockForm {
  plan::Shape shape;  // of a block
  int split = -1;     // dimension along which the blocks of an input follow each other; -1: an input is one block
  int concat = -1;    // likewise for outputs

  // Dimensions and their number. Unpack takes any bits (false: not from Packed); sizes are set apart.
  uint64_t Packed() const {
    return uint64_t(uint8_t(shape.dims)) | uint64_t(uint8_t(split)) << 8 | uint64_t(uint8_t(concat)) << 16;
  }
  bool Unpack(uint64_t packed);
  // The shape of an operand of `blocks` blocks that follow each other along `dim`.
  plan::Shape OperandShape(int dim, int blocks) const;
  uint32_t Hash() const;  // never 0

  friend bool operator==(const BlockForm&, const BlockForm&) = default;
};

// How the operands of a call on views lie in this rank's memory; see plan::Blocks.
struct ViewLayout {
  BlockForm form;
  int64_t input_strides[plan::kMaxDims] = {};  // elements
  int64_t output_strides[plan::kMaxDims] = {};
};

// A reduction of the application's own: accumulator[i] = accumulator[i] op operand[i], i < count. `operand` is not written.
struct Callback {
  void (*function)(void* accumulator, const void* operand, size_t count, void* context) = nullptr;
  void* context = nullptr;
  uint16_t number = 0;  // counts the callbacks of a communicator: the same on all ranks for what belongs together
};

struct Call {
  plan::Kind kind = plan::Kind::kBarrier;
  int root = 0;
  uint64_t count = 0;  // elements of one block
  DataType type = DataType::kInt8;
  Combine combine = Combine::kSum;
  Scaling scaling = Scaling::kNone;
  const void* input = nullptr;
  void* output = nullptr;
  // kPreMultiply: the scalar, an element of `type`: behind the pointer, read when the operation starts, or the bytes here.
  const void* scalar_pointer = nullptr;
  uint64_t scalar_bytes = 0;
  // Null: blocks are dense and follow each other. A pointer, so that calls without one stay small.
  std::shared_ptr<const ViewLayout> view;
  std::shared_ptr<const Callback> callback;  // where `combine` is kCallback

  // What all ranks must agree on, packed: kind, type, combine, scaling, root, the callback's number, and whether on
  // views. Count and the form of the blocks are compared besides.
  static constexpr uint64_t kOnViews = 1u << 31;
  uint64_t Packed() const {
    return uint64_t(kind) | uint64_t(type) << 8 | uint64_t(combine) << 16 | uint64_t(scaling) << 24 |
           (view != nullptr ? kOnViews : 0) | uint64_t(uint16_t(root)) << 32 |
           (callback != nullptr ? uint64_t(callback->number) << 48 : 0);
  }
};

// "AllReduce count 1024 float sum" from packed words; used on words a peer wrote, so any bits are legal.
std::string DescribeCall(uint64_t packed, uint64_t count);
// Likewise: "AllGather of blocks [2, 4] float concatenated along dimension 1".
std::string DescribeCall(uint64_t packed, const BlockForm& form);

// `scalar` (an element of `type`) in the type the movers compute in.
Factor LoadFactor(DataType type, const void* scalar);

}  // namespace axccl::exec
