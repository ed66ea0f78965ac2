// Where the ranks of a communicator on GPUs have the memory through which they meet: on their devices, where every rank
// reaches that of all others and data arrive; else in pinned memory of the host. In the first case ranks of several
// processes tell each other of their buffers, too, from then on. And which protocols they use there (exec::Protocols).
#pragma once

#include <memory>
#include <vector>

#include "src/base/status.h"
#include "src/comm/block.h"
#include "src/comm/exchange.h"
#include "src/exec/gpu.h"
#include "transports/transport.h"

namespace axccl::comm {

// Collective over the ranks of the exchange. All of them agree, and each logs why where it is the host. What is taken
// of the heap is kept by `block`. `processes` and `members` of all ranks, in their order.
Status ShareGpuBlocks(Exchange* exchange, int rank, exec::GpuRank* gpu, Block* block,
                      const std::vector<exec::Member>& members,
                      const std::vector<std::shared_ptr<transport::PeerProcess>>& processes);

}  // namespace axccl::comm
