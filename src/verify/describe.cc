#include "src/verify/describe.h"

namespace axccl::verify {

std::string Where(const plan::Schedule& schedule, int rank, int lane, size_t index) {
  return "rank " + std::to_string(rank) + " lane " + std::to_string(lane) + " op " +
         std::to_string(schedule.program[rank][lane].ops[index].id);
}

std::string Place(const plan::Operand& operand, int part) {
  const std::string rank = "[" + std::to_string(operand.rank) + "].";
  const std::string at = std::to_string(operand.part + part);
  if (operand.buffer == plan::Buffer::kMulticast) return "scratch of all ranks, slot " + at;
  if (operand.buffer == plan::Buffer::kScratch) return "scratch" + rank + "slot " + at;
  return (operand.buffer == plan::Buffer::kInput ? "input" : "output") + rank + "block " +
         std::to_string(operand.block) + ".part " + at;
}

}  // namespace axccl::verify
