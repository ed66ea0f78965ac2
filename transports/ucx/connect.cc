#include "transports/ucx/connect.h"

#include <string>
#include <utility>
#include <vector>

#include "transports/remote/lines.h"
#include "transports/remote/pairing.h"
#include "transports/ucx/reach.h"
#include "transports/ucx/worker.h"

namespace axccl::ucx {

Result<remote::NetworkAddress> SelfAddress(const remote::SelfOptions& options) {
  AXCCL_ASSIGN_OR_RETURN(Worker * worker, Worker::Get(options));
  remote::NetworkAddress address;
  address.rails = worker->addresses();
  std::vector<sockaddr_storage> local;
  std::vector<std::string> names;
  for (const remote::RailAddress& rail : address.rails) {
    names.push_back(worker->NameOf(names.size()));
    local.push_back(rail.lifeline);
  }
  AXCCL_ASSIGN_OR_RETURN(remote::Lines * lines, remote::Lines::Get(options.process, local, names));
  static const Status* const added = new Status(lines->Add(
      {[worker](const auto& process, const std::string& why) { worker->Fail(process, why); },
       [worker] { return worker->in_use(); }, [worker](const auto&) { return worker->ReceiveSoon(), true; }}));
  AXCCL_RETURN_IF_ERROR(*added);
  for (size_t i = 0; i < address.rails.size(); ++i) address.rails[i].lifeline = lines->address(i);
  address.key = lines->public_key();
  return address;
}

Result<std::shared_ptr<transport::Reach>> Connect(remote::ConnectOptions options) {
  AXCCL_ASSIGN_OR_RETURN(Worker * worker, Worker::Get({}));
  const auto process = options.process;
  const uint64_t machine = options.machine;
  AXCCL_RETURN_IF_ERROR(remote::Lines::Made()->Settle(process));
  const remote::NetworkAddress address = options.address;
  const std::vector<remote::RailPair> pairs = remote::PairRails(worker->addresses(), address.rails);
  for (const remote::RailPair& pair : pairs) options.doors.push_back(address.rails[pair.peer].lifeline);
  AXCCL_ASSIGN_OR_RETURN(std::shared_ptr<Reach> reach, Reach::Create(worker, std::move(options)));
  for (const remote::RailPair& pair : pairs)
    AXCCL_RETURN_IF_ERROR(remote::Lines::Made()->Meet(
        {process, machine, pair.own, address.rails[pair.peer].lifeline, address.key}, true));
  return std::shared_ptr<transport::Reach>(std::move(reach));
}

}  // namespace axccl::ucx
