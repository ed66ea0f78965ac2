#include "transports/shm/connect.h"

#include <utility>

#include "transports/shm/reach.h"

namespace axccl::shm {

Result<std::shared_ptr<transport::Reach>> Connect(const ConnectOptions& options) {
  AXCCL_ASSIGN_OR_RETURN(auto process, Attach(options.address, options.deadline, options.abort));
  const Result<std::byte*> block = process->At(options.block, options.block_bytes);
  if (block.status().code() == Code::kRemoteError || options.block % transport::kPageBytes != 0)
    return MakeStatus(Code::kRemoteError, "rank %d announced a block outside its heap", options.rank);
  AXCCL_RETURN_IF_ERROR(block.status());
  return std::shared_ptr<transport::Reach>(std::make_shared<Reach>(std::move(process), block.value()));
}

}  // namespace axccl::shm
