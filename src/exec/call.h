// One collective call as the executor sees it: arguments already checked, ranks as positions in the channel's group.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "src/base/types.h"
#include "src/exec/operands.h"
#include "src/plan/contract.h"

namespace axccl::exec {

enum class Scaling : uint8_t {
  kNone,
  kAverage,      // by 1/n: floats before the sum, integers after it
  kPreMultiply,  // each rank's input by that rank's scalar
};

// A reduction of the application's own: accumulator[i] = accumulator[i] op operand[i], i < count. `operand` is not
// written.
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
  bool group_order = false;  // the fold's order is that of the group, and contributions are rounded as if stored
  bool permutes = false;     // kSendRecv: a message of a collective permute
  bool second_name = false;  // the program said ncclBcast for ncclBroadcast, or kSendRecv: it receives. Texts only
  const void* input = nullptr;
  void* output = nullptr;
  // kPreMultiply: the scalar, an element of `type`: behind the pointer, read when the operation starts, or the bytes
  // here.
  const void* scalar_pointer = nullptr;
  uint64_t scalar_bytes = 0;
  // Null: one operand, whose blocks are dense and follow each other. Else `count` and `type` are the list's BlockCount
  // (0 where blocks differ) and CommonType. A pointer, so that calls without views stay small.
  std::shared_ptr<const ViewList> views;
  std::shared_ptr<const Callback> callback;  // where `combine` is kCallback

  bool uneven() const { return views != nullptr && views->uneven; }

  // Whether another order of the ranks could give other bits. Integers wrap, and of floats max and min do not care.
  bool OrderMatters() const {
    const bool rounds = IsFloat(ScalarType(type)) && (combine == Combine::kSum || combine == Combine::kProd);
    return plan::Reduces(kind) && (rounds || combine == Combine::kCallback);
  }

  // Calls of the API that do the same kind of thing and are not the same call.
  enum class Form : uint8_t { kUsual, kRagged, kRooted, kPermute };
  Form form() const {
    if (permutes) return Form::kPermute;
    if (!uneven()) return Form::kUsual;
    return views->late.input_extents != nullptr ? Form::kRagged
           : views->late.roots != nullptr       ? Form::kRooted
                                                : Form::kUsual;
  }

  // What all ranks must agree on, packed: kind, type, combine, scaling, root, the callback's number, whether on views,
  // even or not, the form, and the order. Count and the form of the blocks are compared besides.
  static constexpr uint64_t kOnViews = 1u << 31, kUneven = 1u << 30, kGroupOrder = 1u << 29;
  static constexpr int kFormShift = 26;
  uint64_t Packed() const {
    return uint64_t(kind) | uint64_t(type) << 8 | uint64_t(combine) << 16 | uint64_t(scaling) << 24 |
           uint64_t(form()) << kFormShift | (views != nullptr ? kOnViews : 0) | (uneven() ? kUneven : 0) |
           (group_order ? kGroupOrder : 0) | uint64_t(uint16_t(root)) << 32 |
           (callback != nullptr ? uint64_t(callback->number) << 48 : 0);
  }
  // That and the name that the program used, for records.
  static constexpr uint64_t kSecondName = 1u << 28;
  uint64_t Named() const { return Packed() | (second_name ? kSecondName : 0); }
};

// "ncclAllReduce count 1024 float sum" from packed words; used on words a peer wrote, so any bits are legal.
std::string DescribeCall(uint64_t packed, uint64_t count);
// Likewise of a call on views, from their number and the form of the first: "axcclAllGather of blocks [2, 4]
// float concatenated along dimension 1", "axcclAllGather of 3 operands, first of blocks [2, 4] float ...".
std::string DescribeCall(uint64_t packed, uint64_t operands, const BlockForm& first, DataType type, double scale = 0);
std::string DescribeCall(const Call& call);

// `scalar` (an element of `type`) in the type the movers compute in.
Factor LoadFactor(DataType type, const void* scalar);
// `value` in that type.
Factor FactorOf(DataType type, double value);

}  // namespace axccl::exec
