// Operands of calls whose blocks are pieces of different numbers of rows: the calls that end in V, and those told where
// their pieces are when they start.
#pragma once

#include "src/api/operands.h"

namespace axccl::api {

// Numbers of rows, one for each rank and operand ([operand * ranks + rank]); of all-to-all for each side, of the others
// `input` alone.
struct Extents {
  const int64_t* input = nullptr;
  const int64_t* output = nullptr;
};

// As FindOperands. Operands may have more rows than their pieces.
Status FindUnevenOperands(const ViewRequest& request, const Extents& extents, int group_size, int position,
                          exec::ViewList* list);

// As above, where pieces are told by `late`: of an all-to-all its rows, of an all-gather or reduce-scatter its roots.
Status FindLateOperands(const ViewRequest& request, const exec::LatePieces& late, int group_size, int position,
                        exec::ViewList* list);

}  // namespace axccl::api
