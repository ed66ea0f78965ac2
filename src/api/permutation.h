// The arguments of a collective permute: its pairs, and its operands.
#pragma once

#include <cstdint>

#include "src/api/channels.h"
#include "src/api/operands.h"

namespace axccl::api {

// A rank's part in a permutation, as positions in the group; -1: none.
struct Neighbours {
  int target = -1, source = -1;
};

Status FindNeighbours(const char* name, const int64_t* pairs, int num_pairs, const GroupPlace& place,
                      Neighbours* neighbours);
// A hash of the pairs, on which ranks must agree: all of them, in any order.
uint64_t HashOfPairs(const int64_t* pairs, int num_pairs);

// Finds the operands of a permutation: input and output have one shape and do not overlap. Without `sends`, reads only
// the outputs.
Status FindPermuted(const ViewRequest& request, bool sends, exec::ViewList* list);
// The part of a message, or of zeros, that is sent from the inputs or arrives in the outputs.
exec::ViewList OneSide(exec::ViewList list, bool inputs);

}  // namespace axccl::api
