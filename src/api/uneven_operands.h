// Operands of calls whose blocks are pieces of different numbers of rows: the calls that end in V, and those that get
// the positions of their pieces when they start.
#pragma once

#include "src/api/operands.h"

namespace axccl::api {

// Numbers of rows, one for each rank and operand ([operand * ranks + rank]). An all-to-all has them for each side, the
// others have `input` alone.
struct Extents {
  const int64_t* input = nullptr;
  const int64_t* output = nullptr;
};

// As FindOperands. Operands may have more rows than their pieces.
Status FindUnevenOperands(const ViewRequest& request, const Extents& extents, int group_size, int position,
                          exec::ViewList* list);

// As above, for pieces that `late` describes: the rows of an all-to-all, the roots of an all-gather or reduce-scatter.
Status FindLateOperands(const ViewRequest& request, const exec::LatePieces& late, int group_size, int position,
                        exec::ViewList* list);

}  // namespace axccl::api
