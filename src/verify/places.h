// Numbers of the places that can hold data, for one lane: parts of input and output blocks, then scratch slots.
//
// An input block and an output block that coincide when their rank runs in place share their numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "src/plan/schedule.h"

namespace axccl::verify {

class Places {
 public:
  explicit Places(const plan::Schedule& s)
      : parts_(s.parts),
        slots_(s.slots),
        input_(s.contract.ranks),
        output_(s.contract.ranks),
        alias_(s.contract.ranks) {
    uint32_t next = 0;
    for (int r = 0; r < s.contract.ranks; ++r) {
      Alias& a = alias_[r];
      a.exists = plan::InPlaceBlocks(s.contract, r, &a.input_block, &a.output_block);
      input_[r] = next;
      next += static_cast<uint32_t>(plan::InputBlocks(s.contract, r)) * parts_;
      output_[r] = next;
      next += static_cast<uint32_t>(plan::OutputBlocks(s.contract, r)) * parts_;
    }
    scratch_ = next;
    size_ = next + static_cast<uint32_t>(s.contract.ranks) * slots_;
  }

  uint32_t size() const { return size_; }
  uint32_t slots() const { return size_ - scratch_; }  // of all ranks

  // Whether the operand is an input block that is also an output block when its rank runs in place.
  bool IsAliasedInput(const plan::Operand& o) const {
    const Alias& a = alias_[o.rank];
    return o.buffer == plan::Buffer::kInput && a.exists && o.block == a.input_block;
  }

  // The number of the operand's first part; the other parts follow. Of multicast slots, that of rank 0.
  uint32_t Of(const plan::Operand& o) const {
    if (plan::IsSlot(o)) return scratch_ + o.rank * slots_ + o.part;
    if (o.buffer == plan::Buffer::kOutput) return output_[o.rank] + o.block * parts_ + o.part;
    if (IsAliasedInput(o))
      return output_[o.rank] + static_cast<uint32_t>(alias_[o.rank].output_block) * parts_ + o.part;
    return input_[o.rank] + o.block * parts_ + o.part;
  }
  // The number of part 0 of an output block.
  uint32_t Output(int rank, int block) const { return output_[rank] + static_cast<uint32_t>(block) * parts_; }

 private:
  struct Alias {
    bool exists = false;
    int input_block = 0;
    int output_block = 0;
  };

  uint32_t parts_;
  uint32_t slots_;
  std::vector<uint32_t> input_;
  std::vector<uint32_t> output_;
  std::vector<Alias> alias_;
  uint32_t scratch_ = 0;
  uint32_t size_ = 0;
};

}  // namespace axccl::verify
