// Calls on views, from their arguments to work on a channel: what the functions of axccl/views.h are made of.
#pragma once

#include <initializer_list>

#include "axccl/views.h"
#include "src/api/operands.h"
#include "src/base/status.h"

namespace axccl::api {

// A call whose blocks have equal sizes. `op`: kNoReduction if it only moves data.
Status OnEven(const ViewRequest& r, ncclRedOp_t op, axcclChannel_t channel, cudaStream_t stream);
// A call whose blocks are found when it starts. `arrays`: the arguments that are read then.
Status OnLate(const ViewRequest& r, const exec::LatePieces& late, std::initializer_list<const void*> arrays,
              ncclRedOp_t op, axcclChannel_t channel, cudaStream_t stream);
// A message to a rank, or from one.
Status Message(const char* name, int count, const axcclView_t* view, bool sending, int peer, axcclChannel_t channel,
               const axcclOptions_t* options, cudaStream_t stream);

}  // namespace axccl::api
