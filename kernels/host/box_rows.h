// Several copies or reductions row by row, where rows are long runs that are contiguous in all operands: what is read
// from memory that the sources share, such as the blocks of one input, is read in its order. Prefetchers do not follow
// a move that skips pages. Internal to the box movers. No allocation. False: rows are not of this kind, and nothing is
// done.
#pragma once

#include "kernels/host/box.h"
#include "kernels/host/box_weave.h"
#include "kernels/host/isa.h"

namespace axccl::kernels {

bool CopyRows(const IsaTable& isa, const BoxRange& range, const BoxCopies& copies, bool non_temporal);

// Of requests as of ReduceBoxes; not for those that are copies.
bool ReduceRows(const IsaTable& isa, const BoxReduceRequest& requests);

}  // namespace axccl::kernels
