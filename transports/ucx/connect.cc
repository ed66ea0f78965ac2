#include "transports/ucx/connect.h"

#include <utility>

#include "transports/ucx/lifeline.h"
#include "transports/ucx/remote.h"
#include "transports/ucx/worker.h"

namespace axccl::ucx {

Result<NetworkAddress> SelfAddress(const SelfOptions& options) {
  AXCCL_ASSIGN_OR_RETURN(Worker * worker, Worker::Get(options.devices, options.families));
  const Lifelines::Calls calls{
      [worker](const Lifelines::ProcessId& process, const std::string& why) { worker->Fail(process, why); },
      [worker] { return worker->in_use(); }};
  AXCCL_ASSIGN_OR_RETURN(const Lifelines* lines, Lifelines::Get(options.process, options.local, calls));
  return NetworkAddress{worker->address(), lines->address()};
}

Result<std::shared_ptr<transport::RemoteRank>> Connect(RemoteOptions options) {
  AXCCL_ASSIGN_OR_RETURN(Worker * worker, Worker::Get(""));
  const auto process = options.process;
  const LifelineAddress lifeline = options.address.lifeline;
  AXCCL_ASSIGN_OR_RETURN(std::shared_ptr<Remote> remote, Remote::Create(worker, std::move(options)));
  AXCCL_RETURN_IF_ERROR(Lifelines::Made()->Hold(process, lifeline));
  return std::shared_ptr<transport::RemoteRank>(std::move(remote));
}

}  // namespace axccl::ucx
