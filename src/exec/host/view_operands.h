// Operands that are views. Their blocks are the same on all ranks, or uneven (uneven_operands.h).
//
// A rank announces the addresses and strides of its operands. The forms of the blocks are the same on all ranks, so a
// peer's operand is bound in the form of this rank's own call.
//
// For every operand of d dimensions, an announcement has these words: address and reach of the input, address and reach
// of the output, d strides of the input, d strides of the output, and its pieces (uneven_operands.h). It is in the op
// record, or in the channel's memory if it is too long for that.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/exec/host/move.h"

namespace axccl::exec {

class ViewOperands : public Operands {
 public:
  Status Start(Binding* binding) const override;
  // They go through scratch instead, because a system call would need a list of every run in them.
  bool may_read_by_call() const override { return false; }
  Status Announce(Binding* binding, OpRecord* record) const override;
  Status Bind(Binding* binding, int position) const override;
  Moved Move(const Binding& binding, const Step& step, uint32_t lane, uint64_t turn, uint32_t together,
             MoveProgress* progress, int64_t* budget, Status* status) const override;
  void End(const Binding& binding) const override;
  size_t NumOutputs(const Binding& binding) const override { return binding.call.views->operands.size(); }
  Memory OutputOf(const Binding& binding, size_t index) const override;

  // For one operand's part of a step's block: its begin in what `operand` names, in steps of the member's view; its
  // bytes; its shape.
  virtual int64_t BeginOf(const Binding& binding, const plan::Operand& operand, size_t index) const = 0;
  virtual uint64_t BlockBytes(const Binding& binding, const Step& step, size_t index) const = 0;
  virtual tensor::Shape BlockShape(const Binding& binding, const Step& step, size_t index) const = 0;

 protected:
  enum class Side : uint8_t { kInput, kOutput };
  // Reads a peer's announcement word by word, each word once.
  struct AnnouncedReader {
    const std::atomic<uint64_t>* at;
    uint64_t Next() { return at++->load(std::memory_order_relaxed); }
    int64_t NextSigned() { return static_cast<int64_t>(Next()); }
  };

  constexpr ViewOperands() = default;
  ~ViewOperands() = default;

  // The shape of all `blocks` > 0 of an operand.
  virtual tensor::Shape OperandShape(const Binding& binding, Side side, int position, size_t index,
                                     int blocks) const = 0;
  // Converts the member's strides to its steps.
  virtual void SetSteps(const Binding& binding, int position, size_t index) const = 0;
  // The part of an announcement about the blocks of an operand: its number of words, writing it, and reading a
  // member's.
  virtual size_t PieceWords(const Binding& binding, int position) const = 0;
  virtual void AnnouncePieces(const Binding& binding, const ViewOperand& operand) const = 0;
  virtual void ReadPieces(const Binding& binding, int position, size_t index, AnnouncedReader* words) const = 0;
  // The part of a block's range that the step's block has.
  virtual plan::Range Clip(const Binding& binding, const Step& step, const plan::Range& range) const = 0;
  // Whether this rank, which has a block, gets it from this operand.
  virtual bool GetsBlock(const ViewOperand& operand) const = 0;

 private:
  tensor::View ViewOf(const Binding& binding, Side side, int position, size_t index) const;
  Memory MemoryOf(const Binding& binding, Side side, size_t index) const;
  AnnouncedBuffer Find(const Binding& binding, Side side, size_t index) const;
  size_t AnnouncedWords(const Binding& binding, int position) const;
  static Status Publish(Binding* binding, OpRecord* record);
  Status ReachView(const Binding& binding, Side side, int position, size_t index,
                   const AnnouncedBuffer& announced) const;
};

// Operands whose blocks are the same on all ranks.
class EvenOperands final : public ViewOperands {
 public:
  constexpr EvenOperands() = default;

  bool sizes_known() const override { return true; }
  Status Settle(Binding*) const override { return Status(); }
  int64_t BeginOf(const Binding&, const plan::Operand& operand, size_t) const override { return operand.block; }
  uint64_t BlockBytes(const Binding& binding, const Step&, size_t index) const override {
    return binding.call.views->operands[index].block_bytes;
  }
  tensor::Shape BlockShape(const Binding& binding, const Step&, size_t index) const override {
    return binding.call.views->operands[index].form.shape;
  }

 protected:
  tensor::Shape OperandShape(const Binding& binding, Side side, int position, size_t index, int blocks) const override;
  void SetSteps(const Binding& binding, int position, size_t index) const override;
  size_t PieceWords(const Binding&, int) const override { return 0; }
  void AnnouncePieces(const Binding&, const ViewOperand&) const override {}
  void ReadPieces(const Binding&, int, size_t, AnnouncedReader*) const override {}
  plan::Range Clip(const Binding&, const Step&, const plan::Range& range) const override { return range; }
  bool GetsBlock(const ViewOperand&) const override { return true; }
};

}  // namespace axccl::exec
