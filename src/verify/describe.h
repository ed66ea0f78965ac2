// The words of the verifier's messages for operations and places.
#pragma once

#include <cstdint>
#include <string>

#include "src/plan/schedule.h"

namespace axccl::verify {

// "rank 2 lane 0 op 17", with the id of operation `index` of that lane.
std::string Where(const plan::Schedule& schedule, int rank, int lane, size_t index);

// "scratch[1].slot 3", "input[0].block 2.part 1": the part with offset `part` of an operand.
std::string Place(const plan::Operand& operand, int part);

}  // namespace axccl::verify
