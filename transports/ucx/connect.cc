#include "transports/ucx/connect.h"

#include <utility>

#include "transports/remote/lifeline.h"
#include "transports/remote/pairing.h"
#include "transports/ucx/reach.h"
#include "transports/ucx/worker.h"

namespace axccl::ucx {

Result<remote::NetworkAddress> SelfAddress(const remote::SelfOptions& options) {
  AXCCL_ASSIGN_OR_RETURN(Worker * worker, Worker::Get(options));
  const remote::Lifelines::Calls calls{
      [worker](const remote::Lifelines::ProcessId& process, const std::string& why) { worker->Fail(process, why); },
      [worker] { return worker->in_use(); }, [worker](uint8_t rail) { return worker->NameOf(rail); }};
  remote::NetworkAddress address;
  address.rails = worker->addresses();
  std::vector<sockaddr_storage> local;
  for (const remote::RailAddress& rail : address.rails) local.push_back(rail.lifeline);
  AXCCL_ASSIGN_OR_RETURN(const remote::Lifelines* lines, remote::Lifelines::Get(options.process, local, calls));
  for (size_t i = 0; i < address.rails.size(); ++i) address.rails[i].lifeline = lines->address(i);
  address.key = lines->public_key();
  return address;
}

Result<std::shared_ptr<transport::Reach>> Connect(remote::ConnectOptions options) {
  AXCCL_ASSIGN_OR_RETURN(Worker * worker, Worker::Get({}));
  const auto process = options.process;
  const remote::NetworkAddress address = options.address;
  AXCCL_ASSIGN_OR_RETURN(std::shared_ptr<Reach> reach, Reach::Create(worker, std::move(options)));
  for (const remote::RailPair& pair : remote::PairRails(worker->addresses(), address.rails))
    AXCCL_RETURN_IF_ERROR(
        remote::Lifelines::Made()->Hold({process, pair.own}, address.rails[pair.peer].lifeline, address.key));
  return std::shared_ptr<transport::Reach>(std::move(reach));
}

}  // namespace axccl::ucx
