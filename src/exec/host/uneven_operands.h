// Views whose blocks are pieces of different numbers of rows.
//
// A rank knows its own pieces and announces them all. After the first exchange of the operation, every rank knows all
// pieces of all ranks, and all reach the same conclusion before a byte has moved: that they fit each other, or which
// ranks' pieces do not.
//
// The words of an announcement are, for every operand: rows of input and output, (offset, extent) of every block,
// targets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/exec/host/view_operands.h"

namespace axccl::exec {

class UnevenOperands final : public ViewOperands {
 public:
  constexpr UnevenOperands() = default;

  Status Start(Binding* binding) const override;
  bool sizes_known() const override { return false; }
  Status Settle(Binding* binding) const override;
  int64_t BeginOf(const Binding& binding, const plan::Operand& operand, size_t index) const override;
  uint64_t BlockBytes(const Binding& binding, const Step& step, size_t index) const override;
  tensor::Shape BlockShape(const Binding& binding, const Step& step, size_t index) const override;

 protected:
  tensor::Shape OperandShape(const Binding& binding, Side side, int position, size_t index, int blocks) const override;
  void SetSteps(const Binding& binding, int position, size_t index) const override;
  size_t PieceWords(const Binding& binding, int position) const override;
  void AnnouncePieces(const Binding& binding, const ViewOperand& operand) const override;
  void ReadPieces(const Binding& binding, int position, size_t index, AnnouncedReader* words) const override;
  plan::Range Clip(const Binding& binding, const Step& step, const plan::Range& range) const override;
  bool GetsBlock(const ViewOperand& operand) const override { return operand.pieces.output[0].extent != 0; }

 private:
  static const Piece& PieceOf(const Binding& binding, const plan::Operand& operand, size_t index);
};

}  // namespace axccl::exec
