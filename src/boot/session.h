// The two kinds of session, and what they share.
#pragma once

#include <memory>
#include <vector>

#include "src/boot/boot.h"
#include "src/boot/dial.h"
#include "src/boot/hub.h"

namespace axccl::boot {

// Joins the others at the hub of `id`, which forwards everything.
Result<std::unique_ptr<Session>> JoinStar(const IdFields& id, int rank, int nranks, const Patience& patience);
// Checks in at the hub of one of `ids`, all different, and joins the others in a tree.
Result<std::unique_ptr<Session>> JoinTree(const std::vector<IdFields>& ids, int rank, int nranks,
                                          const Patience& patience);

// Serves an id of NCCL_COMM_ID if this is the rank that has to; returns null for all other ranks and ids.
Result<std::unique_ptr<Hub::Lease>> ServeWhereDue(const IdFields& id, int rank, int nranks, const Patience& patience);

}  // namespace axccl::boot
