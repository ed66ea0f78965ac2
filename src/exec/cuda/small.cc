#include "src/exec/cuda/small.h"

#include <bitset>
#include <span>
#include <utility>

namespace axccl::exec {
namespace {

using kernels::cuda::Small;
using plan::Buffer;
using plan::Operand;
using plan::OpKind;

constexpr uint16_t kMostRanks = 512;

// Goes through the steps of a program in order. Each function returns whether the short way can do that.
class Lowering {
 public:
  explicit Lowering(const Program& program)
      : program_(program),
        ranks_(static_cast<uint16_t>(program.plan->schedule.contract.ranks)),
        self_(static_cast<uint16_t>(program.rank)) {}

  // `does` is 0 if the short way cannot. `scales`: what is read of the input is scaled.
  Small Lower(bool scales) {
    Small small;
    if (program_.lanes.size() != 1 || ranks_ > kMostRanks) return small;
    for (const Step& step : program_.lanes[0]) {
      if (!Take(step)) return small;
    }
    if (!HasSignalled() || waited_.count() + 1 != ranks_) return small;
    if (!Decide(&small) || (scales && !DecideScaling(&small))) return Small();
    small.ranks = ranks_;
    small.self = self_;
    small.does |= Small::kIsSmall | (publishes_ ? Small::kPublishes : 0) | (ForEach() ? Small::kForEach : 0);
    return small;
  }

 private:
  bool Take(const Step& step) {
    switch (step.kind) {
      case OpKind::kSignal:
        return TakeSignal(step);
      case OpKind::kWait:
        return TakeWait(step);
      case OpKind::kCopy:
      case OpKind::kReduce:
        return TakeMove(step);
      default:
        return false;
    }
  }
  // One signal for all, or one for each other rank, each right after its block.
  bool TakeSignal(const Step& step) {
    if (signals_all_ || step.endpoint != signals_ || step.value != 1) return false;
    const bool published = std::exchange(published_, false);
    if (step.peer == plan::kAllPeers) {
      signals_all_ = true;
      return signals_++ == 0 && (!published || block_ == 0);
    }
    ++signals_;
    return published && step.peer == (self_ + signals_) % ranks_ && step.peer == block_;
  }
  bool HasSignalled() const { return !published_ && (signals_all_ || (ForEach() && signals_ + 1 == ranks_)); }
  bool ForEach() const { return !signals_all_ && signals_ != 0; }
  bool TakeWait(const Step& step) {
    if (!HasSignalled() || step.peer == self_ || step.from_lane != 0 || step.value != 1) return false;
    if (step.endpoint != EndpointOf(static_cast<uint16_t>(step.peer))) return false;
    waited_.set(static_cast<size_t>(step.peer));
    return true;
  }
  // By which comes here what a rank publishes.
  uint32_t EndpointOf(uint16_t owner) const { return ForEach() ? Small::Between(ranks_, owner, self_) : 0; }

  bool TakeMove(const Step& step) {
    const Operand* const dst = program_.operands.data() + step.operands;
    const std::span<const Operand> src(dst + step.num_dst, step.num_src);
    if (step.num_dst != 1 || step.parts != 1 || dst->rank != self_) return false;
    if (src.size() == ranks_ && step.kind == OpKind::kReduce) return TakeReduce(*dst, src);
    if (src.size() != 1) return false;
    if (dst->buffer == Buffer::kScratch) return TakePublish(*dst, src[0]);
    return IsInput(src[0]) ? TakeOwn(*dst) : TakeBlock(*dst, src[0]);
  }
  bool TakePublish(const Operand& dst, const Operand& src) {
    if (signals_all_ || published_ || src.buffer != Buffer::kInput || src.rank != self_) return false;
    publishes_ = published_ = true;
    block_ = src.block;
    return IsSlot(dst, self_, signals_);
  }
  bool TakeOwn(const Operand& dst) {
    if (dst.buffer != Buffer::kOutput || own_block_ >= 0 || reduces_) return false;
    own_block_ = dst.block;
    return true;
  }
  bool TakeBlock(const Operand& dst, const Operand& src) {
    if (dst.buffer != Buffer::kOutput || reduces_ || src.rank == self_ || !Came(src, src.rank)) return false;
    in_place_ &= dst.block == src.rank;
    to_first_ &= dst.block == 0;
    source_ = src.rank;
    ++taken_;
    return true;
  }
  // The sources must be those of all ranks in order.
  bool TakeReduce(const Operand& dst, std::span<const Operand> src) {
    if (!IsOutput(dst) || reduces_ || taken_ != 0) return false;
    reduces_ = true;
    for (uint16_t rank = 0; rank < ranks_; ++rank) {
      const bool own = IsInput(src[rank]) || (own_block_ == 0 && IsOutput(src[rank]));
      if (rank == self_ ? !own : !Came(src[rank], rank)) return false;
    }
    folds_input_ = IsInput(src[self_]);
    return true;
  }

  bool IsInput(const Operand& operand) const {
    return operand.buffer == Buffer::kInput && operand.rank == self_ && operand.block == (ForEach() ? self_ : 0);
  }
  bool IsOutput(const Operand& operand) const {
    return operand.buffer == Buffer::kOutput && operand.rank == self_ && operand.block == 0;
  }
  bool IsSlot(const Operand& operand, uint16_t rank, uint32_t endpoint) const {
    return operand.buffer == Buffer::kScratch && operand.rank == rank &&
           program_.inline_endpoint[operand.part] == static_cast<int>(endpoint);
  }
  bool Came(const Operand& slot, uint16_t rank) const { return waited_[rank] && IsSlot(slot, rank, EndpointOf(rank)); }

  // What the moves to the output are together.
  bool Decide(Small* small) const {
    if (reduces_) {
      small->does = Small::kReduces | Small::kKeepsOwn;
    } else if (in_place_ && taken_ + 1 == ranks_ && own_block_ == self_) {
      small->does = Small::kGathers | Small::kKeepsOwn;
    } else if (taken_ == 1 && to_first_ && own_block_ < 0) {
      small->does = Small::kTakes;
      small->source = source_;
    } else if (taken_ == 0 && own_block_ <= 0) {
      small->does = own_block_ == 0 ? Small::kKeepsOwn : 0;
    } else {
      return false;
    }
    return true;
  }

  // Only reductions scale. Of its own block, they read what the rank publishes, or, if it publishes no copy of that,
  // the input itself.
  bool DecideScaling(Small* small) const {
    const bool publishes_own = publishes_ && !ForEach();
    if (folds_input_ == publishes_own || (!reduces_ && (taken_ != 0 || own_block_ >= 0))) return false;
    small->does |= (publishes_ ? Small::kScales : 0) | (folds_input_ ? Small::kScalesOwn : 0);
    return true;
  }

  const Program& program_;
  const uint16_t ranks_, self_;
  bool publishes_ = false, reduces_ = false;
  bool published_ = false;  // a block that no signal has published yet
  uint16_t block_ = 0;      // of the input, the last one
  bool signals_all_ = false;
  uint16_t signals_ = 0;      // so far
  bool folds_input_ = false;  // the own source of the reduction is the input itself
  std::bitset<kMostRanks> waited_;
  int own_block_ = -1;  // of the output, to which the input is copied
  uint16_t taken_ = 0;  // blocks that are copied from slots to the output
  bool in_place_ = true, to_first_ = true;
  uint16_t source_ = 0;
};

bool Scales(const kernels::cuda::Task& task) {
  return task.scaling == Scaling::kPreMultiply || (task.scaling == Scaling::kAverage && IsFloat(ScalarType(task.type)));
}

bool MayBeSmall(const kernels::cuda::Task& task) {
  return task.cut.packing != kernels::cuda::Packing::kNone && task.views == nullptr && task.sliced == nullptr &&
         task.staged == nullptr;
}

// Whether a kernel has room for what it needs of all.
bool Fits(const Small& small) {
  if (small.InRows()) return small.ranks + 1u <= kernels::cuda::kMaxOperands;
  return small.KeptBytes() <= kernels::cuda::kMostKeptBytes;
}

}  // namespace

LoweredProgram LowerProgram(const Program& program) {
  return {Lowering(program).Lower(false), Lowering(program).Lower(true)};
}

Small LowerTask(const LoweredProgram& program, const kernels::cuda::Task& task) {
  if (!MayBeSmall(task)) return {};
  Small small = Scales(task) ? program.scaled : program.plain;
  if (small.does == 0) return {};
  small.bytes = static_cast<uint16_t>(task.cut.partition.count * ElementSize(task.type));
  if (task.cut.packing == kernels::cuda::Packing::kRows) small.does |= Small::kInRows;
  return Fits(small) ? small : Small{};
}

}  // namespace axccl::exec
