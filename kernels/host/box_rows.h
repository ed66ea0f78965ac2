// Several copies or reductions row by row, for rows that are long runs, contiguous in all operands. Memory that the
// sources share, such as the blocks of one input, is then read in its order, because prefetchers do not follow a move
// that skips pages. Internal to the box movers. No allocation. The functions return false, and do nothing, if the rows
// are not of this kind.
#pragma once

#include "kernels/host/box.h"
#include "kernels/host/box_weave.h"
#include "kernels/host/isa.h"

namespace axccl::kernels {

bool CopyRows(const IsaTable& isa, const BoxRange& range, const BoxCopies& copies, bool non_temporal);

// Takes the requests of ReduceBoxes, except those that are copies.
bool ReduceRows(const IsaTable& isa, const BoxReduceRequest& requests);

}  // namespace axccl::kernels
