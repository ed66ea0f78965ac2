// The two kinds of session, and what they share.
#pragma once

#include <memory>
#include <vector>

#include "src/boot/boot.h"
#include "src/boot/dial.h"
#include "src/boot/hub.h"

namespace axccl::boot {

// Meets the others at the hub of `id`, through which everything goes.
Result<std::unique_ptr<Session>> JoinStar(const IdFields& id, int rank, int nranks, const Patience& patience);
// Checks in at the hub of one of `ids`, all different, and meets the others in a tree.
Result<std::unique_ptr<Session>> JoinTree(const std::vector<IdFields>& ids, int rank, int nranks,
                                          const Patience& patience);

// For the rank that serves an id of NCCL_COMM_ID: null for all other ranks and ids.
Result<std::unique_ptr<Hub::Lease>> ServeWhereDue(const IdFields& id, int rank, int nranks, const Patience& patience);

}  // namespace axccl::boot
