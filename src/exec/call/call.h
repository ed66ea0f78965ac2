// One collective call for the executor: arguments are checked, ranks are positions in the channel's group.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "src/base/types.h"
#include "src/exec/call/operands.h"
#include "src/plan/contract.h"

namespace axccl::exec {

// A reduction of the application: accumulator[i] = accumulator[i] op operand[i], i < count. `operand` is not written.
struct Callback {
  void (*function)(void* accumulator, const void* operand, size_t count, void* context) = nullptr;
  void* context = nullptr;
  uint16_t number = 0;  // counts the callbacks of a communicator; matching callbacks have the same number on all ranks
};

struct Call {
  plan::Kind kind = plan::Kind::kBarrier;
  int root = 0;
  uint64_t count = 0;  // elements of one block
  DataType type = DataType::kInt8;
  Combine combine = Combine::kSum;
  Scaling scaling = Scaling::kNone;
  bool group_order = false;  // the fold is in group order, and contributions are rounded as if they were stored
  bool permutes = false;     // kSendRecv: a message of a collective permute
  // The program called ncclBcast for ncclBroadcast; or for kSendRecv: it receives. Only for texts.
  bool second_name = false;
  const void* input = nullptr;
  void* output = nullptr;
  // kPreMultiply: the scalar, an element of `type`: at the pointer, which is read when the operation starts, or its
  // bytes here.
  const void* scalar_pointer = nullptr;
  uint64_t scalar_bytes = 0;
  // Null: one operand, whose blocks are dense and consecutive. Otherwise `count` and `type` are the list's BlockCount
  // (0 if blocks differ) and CommonType. A pointer, so that calls without views stay small.
  std::shared_ptr<const ViewList> views;
  std::shared_ptr<const Callback> callback;  // if `combine` is kCallback

  bool uneven() const { return views != nullptr && views->uneven; }

  // Whether another order of the ranks could give other bits. Integers wrap, and max and min of floats are independent
  // of the order.
  bool OrderMatters() const {
    const bool rounds = IsFloat(ScalarType(type)) && (combine == Combine::kSum || combine == Combine::kProd);
    return plan::Reduces(kind) && (rounds || combine == Combine::kCallback);
  }

  // Different calls of the API that do the same kind of thing.
  enum class Form : uint8_t { kUsual, kRagged, kRooted, kPermute };
  Form form() const {
    if (permutes) return Form::kPermute;
    if (!uneven()) return Form::kUsual;
    return views->late.input_extents != nullptr ? Form::kRagged
           : views->late.roots != nullptr       ? Form::kRooted
                                                : Form::kUsual;
  }

  // What all ranks must agree on, packed: kind, type, combine, scaling, root, the callback's number, whether on views,
  // even or not, the form, and the order. Count and the form of the blocks are compared in addition.
  static constexpr uint64_t kOnViews = 1u << 31, kUneven = 1u << 30, kGroupOrder = 1u << 29;
  static constexpr int kFormShift = 26;
  uint64_t Packed() const {
    return uint64_t(kind) | uint64_t(type) << 8 | uint64_t(combine) << 16 | uint64_t(scaling) << 24 |
           uint64_t(form()) << kFormShift | (views != nullptr ? kOnViews : 0) | (uneven() ? kUneven : 0) |
           (group_order ? kGroupOrder : 0) | uint64_t(uint16_t(root)) << 32 |
           (callback != nullptr ? uint64_t(callback->number) << 48 : 0);
  }
  // The same of a call that neither is on views nor folds by a callback nor permutes.
  uint64_t PackedFlat() const {
    return uint64_t(kind) | uint64_t(type) << 8 | uint64_t(combine) << 16 | uint64_t(scaling) << 24 |
           (group_order ? kGroupOrder : 0) | uint64_t(uint16_t(root)) << 32;
  }
  // The same with the name that the program used, for records.
  static constexpr uint64_t kSecondName = 1u << 28;
  uint64_t Named() const { return NamedAs(Packed()); }
  // `packed`: its Packed().
  uint64_t NamedAs(uint64_t packed) const { return packed | (second_name ? kSecondName : 0); }
};

// Describes packed words, as "ncclAllReduce count 1024 float sum". A peer may have written the words, so any bits are
// legal.
std::string DescribeCall(uint64_t packed, uint64_t count);
// Describes a call on views, from the number of operands and the form of the first: "axcclAllGather of blocks [2, 4]
// float concatenated along dimension 1", "axcclAllGather of 3 operands, first of blocks [2, 4] float ...".
// Of a pipeline, "a pipeline of axcclAllGather of blocks ..., in 8 slices along dimension 0, own first".
std::string DescribeCall(uint64_t packed, uint64_t operands, const BlockForm& first, DataType type, double scale = 0,
                         const Slices& slices = {});
std::string DescribeCall(const Call& call);

// Converts `scalar` (an element of `type`) to the type in which the movers compute.
Factor LoadFactor(DataType type, const void* scalar);
// Converts `value` / `divisor` to that type: computed in double and rounded to nearest even, whatever the thread's
// mode.
Factor FactorOf(DataType type, double value, double divisor = 1);

}  // namespace axccl::exec
