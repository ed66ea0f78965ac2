#include "src/verify/size.h"

namespace axccl::verify {

bool Fits(const plan::Schedule& s, int lanes, int proved) {
  const auto ranks = static_cast<uint64_t>(s.contract.ranks);
  uint64_t parts = 0;
  for (int r = 0; r < s.contract.ranks; ++r)
    parts += uint64_t(plan::InputBlocks(s.contract, r) + plan::OutputBlocks(s.contract, r)) * s.parts;
  // With slices, all lanes have the same blocks.
  const uint64_t places = parts * (s.slices == 0 ? proved : 1) + ranks * s.slots * proved;
  return places <= kMaxPlaces && ranks * proved <= kMaxStrands && ranks * lanes * s.endpoints <= kMaxEndpoints;
}

Status TooLarge() {
  return MakeStatus(
      Code::kInvalidArgument,
      "structure: too large to be verified; use fewer ranks, lanes, parts, slots, endpoints or operations");
}

}  // namespace axccl::verify
