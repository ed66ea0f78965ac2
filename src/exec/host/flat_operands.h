// One operand whose blocks are dense and consecutive in a buffer: the calls of NCCL.
#pragma once

#include "src/exec/host/move.h"

namespace axccl::exec {

class FlatOperands final : public Operands {
 public:
  constexpr FlatOperands() = default;

  Status Start(Binding* binding) const override;
  bool sizes_known() const override { return true; }
  bool may_read_by_call() const override { return true; }
  Status Announce(Binding* binding, OpRecord* record) const override;
  Status Bind(Binding* binding, int position) const override;
  Status Settle(Binding*) const override { return Status(); }
  Moved Move(const Binding& binding, const Step& step, uint32_t lane, uint64_t turn, uint32_t together,
             MoveProgress* progress, int64_t* budget, Status* status) const override;
  void End(const Binding&) const override {}
  size_t NumOutputs(const Binding&) const override { return 1; }
  Memory OutputOf(const Binding& binding, size_t index) const override;

  // Moves all of a step of a prepared call that is plain.
  static void MovePlain(const Binding& binding, const Step& step, uint64_t turn);

 private:
  static uint64_t BlockBytes(const Binding& binding) { return binding.call.count * ElementSize(binding.call.type); }
  static bool IsByCall(const Binding& binding, uint32_t operand);
  static bool AnyByCall(const Binding& binding, const Step& step);
  static Gathered Gather(const Binding& binding, const Step& step, const Chunk& chunk);
  static void MoveGathered(const Binding& binding, const Step& step, const Gathered& gathered, uint64_t count);
  static Status Fetch(const Binding& binding, uint32_t operand, uint64_t from, std::byte* to, uint64_t bytes);
  static Status MoveByCall(const Binding& binding, const Step& step, const Chunk& chunk);
};

}  // namespace axccl::exec
