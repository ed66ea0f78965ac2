#include "transports/ucx/connect.h"

#include <utility>

#include "transports/ucx/lifeline.h"
#include "transports/ucx/pairing.h"
#include "transports/ucx/reach.h"
#include "transports/ucx/worker.h"

namespace axccl::ucx {

Result<NetworkAddress> SelfAddress(const SelfOptions& options) {
  AXCCL_ASSIGN_OR_RETURN(Worker * worker, Worker::Get(options));
  const Lifelines::Calls calls{
      [worker](const Lifelines::ProcessId& process, const std::string& why) { worker->Fail(process, why); },
      [worker] { return worker->in_use(); }, [worker](uint8_t rail) { return worker->NameOf(rail); }};
  NetworkAddress address;
  address.rails = worker->addresses();
  std::vector<sockaddr_storage> local;
  for (const RailAddress& rail : address.rails) local.push_back(rail.lifeline);
  AXCCL_ASSIGN_OR_RETURN(const Lifelines* lines, Lifelines::Get(options.process, local, calls));
  for (size_t i = 0; i < address.rails.size(); ++i) address.rails[i].lifeline = lines->address(i);
  address.key = lines->public_key();
  return address;
}

Result<std::shared_ptr<transport::Reach>> Connect(ConnectOptions options) {
  AXCCL_ASSIGN_OR_RETURN(Worker * worker, Worker::Get({}));
  const auto process = options.process;
  const NetworkAddress address = options.address;
  AXCCL_ASSIGN_OR_RETURN(std::shared_ptr<Reach> reach, Reach::Create(worker, std::move(options)));
  for (const RailPair& pair : PairRails(worker->addresses(), address.rails))
    AXCCL_RETURN_IF_ERROR(Lifelines::Made()->Hold({process, pair.own}, address.rails[pair.peer].lifeline, address.key));
  return std::shared_ptr<transport::Reach>(std::move(reach));
}

}  // namespace axccl::ucx
