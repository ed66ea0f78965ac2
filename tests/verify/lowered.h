// What multicast operations do, in operations that name the slots of each rank: a second reading of schedule.h, which
// shares no code with the verifier. Two things are lost, and kept beside it: that the order of a fold is not defined,
// and which slots an operation stores to all ranks.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "src/plan/schedule.h"

namespace axccl::verify {

struct Lowered {
  explicit Lowered(const plan::Schedule& of) : schedule(of) {
    for (auto& lanes : schedule.program) {
      for (plan::Lane& lane : lanes) {
        for (plan::Op& op : lane.ops) {
          if (Replace(&op.src)) in_any_order.insert(op.id);
          for (const plan::Operand& o : op.dst) {
            if (o.buffer != plan::Buffer::kMulticast) continue;
            for (int slot = o.part; slot < o.part + o.parts; ++slot) stored_to_all.insert({op.id, slot});
          }
          Replace(&op.dst);
        }
      }
    }
  }

  plan::Schedule schedule;
  std::set<uint32_t> in_any_order;  // the reductions, by id, whose order is not defined: of slots of all ranks
  std::set<std::pair<uint32_t, int>> stored_to_all;  // operations, by id, and slots

 private:
  bool Replace(std::vector<plan::Operand>* operands) const {
    std::vector<plan::Operand> plain;
    bool any = false;
    for (const plan::Operand& o : *operands) {
      const bool multicast = o.buffer == plan::Buffer::kMulticast;
      any |= multicast;
      if (!multicast) plain.push_back(o);
      for (int rank = 0; multicast && rank < schedule.contract.ranks; ++rank)
        plain.push_back({plan::Buffer::kScratch, static_cast<uint16_t>(rank), 0, o.part, o.parts});
    }
    if (any) *operands = plain;
    return any;
  }
};

}  // namespace axccl::verify
