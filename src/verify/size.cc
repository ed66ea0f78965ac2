#include "src/verify/size.h"

namespace axccl::verify {

Status TooLarge() {
  return MakeStatus(
      Code::kInvalidArgument,
      "structure: too large to be verified; use fewer ranks, lanes, parts, slots, endpoints or operations");
}

}  // namespace axccl::verify
