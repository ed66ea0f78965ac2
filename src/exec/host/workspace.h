// The working memory of a channel's operations: where the members' operands are, and lists and buffers that are kept
// from one operation to the next. So a call allocates nothing once the channel has seen one like it.
//
// Each channel has one. Only its running operation uses it, and so one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/host/box.h"
#include "src/exec/call/operands.h"
#include "src/exec/host/fold.h"
#include "src/tensor/view.h"
#include "transports/transport.h"

namespace axccl::exec {

// The addresses of a member's buffers, in a call without views.
struct MemberBuffers {
  std::byte* input = nullptr;  // addresses in this process, or in the peer's if by_call
  std::byte* output = nullptr;
  bool input_by_call = false;
  bool output_by_call = false;
  Factor factor{};  // for any call in which each rank has its own
};

// The addresses of a member's operand of a call on views.
struct MemberView {
  std::byte* input = nullptr;
  std::byte* output = nullptr;
  int64_t input_strides[tensor::kMaxDims], output_strides[tensor::kMaxDims];
  int64_t input_step = 0, output_step = 0;               // bytes from one block to the next, or from one row
  bool input_is_dense = false, output_is_dense = false;  // blocks are known to have no gaps, inside
  Pieces pieces;
};

class Workspace {
 public:
  using Stretches = std::vector<transport::Reach::Stretch>;

  explicit Workspace(size_t members) : buffers_(members) {}

  // By position. Their addresses do not change, because prepared calls point to them.
  MemberBuffers& BuffersOf(int position) { return buffers_[static_cast<size_t>(position)]; }
  const MemberBuffers& BuffersOf(int position) const { return buffers_[static_cast<size_t>(position)]; }

  // Makes room for calls on that many operands.
  void MakeRoomForViews(size_t operands) {
    num_views_ = operands;
    views_.resize(buffers_.size() * operands);
  }
  MemberView& ViewOf(int position, size_t operand) {
    return views_[static_cast<size_t>(position) * num_views_ + operand];
  }

  // The words that this rank announces.
  std::vector<uint64_t>& announcement() { return announcement_; }

  // If some members are remote: 1 + the operation whose record was last sent to the member, and the stretches of this
  // rank's memory in a message.
  void MakeRoomForMessages() { sent_.resize(buffers_.size()); }
  uint64_t& SentTo(int position) { return sent_[static_cast<size_t>(position)]; }
  Stretches& stretches() { return stretches_; }

  // Makes room for the operands of one call of a mover, for steps of that many.
  void MakeRoom(size_t operands) {
    if (operands <= sources_.size()) return;
    destinations_.resize(operands);
    sources_.resize(operands);
    factors_.resize(operands);
  }
  size_t room() const { return sources_.size(); }
  void** destinations() { return destinations_.data(); }
  const void** sources() { return sources_.data(); }
  Factor* factors() { return factors_.data(); }
  kernels::BoxOperand* Boxes(size_t num) {
    if (boxes_.size() < num) boxes_.resize(num + 8);
    return boxes_.data();
  }

  // Space for data that is read by system call.
  std::byte* Bounce(size_t bytes) {
    if (bounce_.size() < bytes) bounce_.resize(bytes);
    return bounce_.data();
  }
  // Made by the first reduction by a callback.
  FoldSpace& fold_space() {
    if (fold_space_ == nullptr) fold_space_ = std::make_unique_for_overwrite<FoldSpace>();
    return *fold_space_;
  }

 private:
  std::vector<MemberBuffers> buffers_;
  size_t num_views_ = 0;
  std::vector<MemberView> views_;  // [position, operand]
  std::vector<uint64_t> announcement_;
  std::vector<uint64_t> sent_;
  Stretches stretches_;
  std::vector<void*> destinations_;
  std::vector<const void*> sources_;
  std::vector<Factor> factors_;
  std::vector<kernels::BoxOperand> boxes_;
  std::vector<std::byte> bounce_;
  std::unique_ptr<FoldSpace> fold_space_;
};

}  // namespace axccl::exec
