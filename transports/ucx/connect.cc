#include "transports/ucx/connect.h"

#include <utility>

#include "transports/ucx/remote.h"
#include "transports/ucx/worker.h"

namespace axccl::ucx {

Result<std::vector<std::byte>> SelfAddress(const std::string& devices) {
  AXCCL_ASSIGN_OR_RETURN(const Worker* worker, Worker::Get(devices));
  return worker->address();
}

Result<std::shared_ptr<transport::RemoteRank>> Connect(RemoteOptions options) {
  AXCCL_ASSIGN_OR_RETURN(Worker * worker, Worker::Get(""));
  AXCCL_ASSIGN_OR_RETURN(std::shared_ptr<Remote> remote, Remote::Create(worker, std::move(options)));
  return std::shared_ptr<transport::RemoteRank>(std::move(remote));
}

}  // namespace axccl::ucx
