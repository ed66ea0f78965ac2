#include "transports/tcp/connect.h"

#include <algorithm>
#include <string>
#include <utility>

#include "transports/remote/lines.h"
#include "transports/remote/pairing.h"
#include "transports/tcp/reach.h"
#include "transports/tcp/seal.h"
#include "transports/tcp/worker.h"

namespace axccl::tcp {
namespace {

const char* TextOf(remote::Sealing sealing) {
  switch (sealing) {
    case remote::Sealing::kNone:
      return "0";
    case remote::Sealing::kAuth:
      return "auth";
    case remote::Sealing::kAll:
      return "1";
  }
  return "";
}

remote::Sealing own_sealing = remote::Sealing::kNone;  // set once, before there are connections

}  // namespace

Result<remote::NetworkAddress> SelfAddress(const remote::SelfOptions& options) {
  std::vector<sockaddr_storage> local;
  std::vector<std::string> names;
  remote::NetworkAddress address;
  for (const remote::RailOptions& rail : options.rails) {
    local.push_back(rail.local);
    names.push_back(rail.devices);
    address.rails.push_back({rail.network, rail.megabits, {}, {}});
  }
  AXCCL_ASSIGN_OR_RETURN(const remote::Lines* lines, remote::Lines::Get(options.process, local, names));
  for (size_t i = 0; i < address.rails.size(); ++i) address.rails[i].lifeline = lines->address(i);
  address.key = lines->public_key();
  AXCCL_RETURN_IF_ERROR(Serve(options.sealing, &address));
  return address;
}

Status Serve(remote::Sealing sealing, remote::NetworkAddress* address) {
  static const remote::Sealing first = own_sealing = sealing;
  AXCCL_ASSIGN_OR_RETURN(const Worker* worker, Worker::Get(address->rails));
  (void)worker;
  address->sealing = first;
  address->cipher = CipherOfProcess();
  return Status();
}

Result<std::shared_ptr<transport::Reach>> Connect(remote::ConnectOptions options) {
  AXCCL_ASSIGN_OR_RETURN(Worker * worker, Worker::Get({}));
  const remote::NetworkAddress address = options.address;
  if (address.sealing != own_sealing)
    return MakeStatus(Code::kInvalidUsage,
                      "AXCCL_ENCRYPT is %s on rank %u and %s on rank %u (pid %u on host %s): set it alike on all ranks",
                      TextOf(own_sealing), options.self, TextOf(address.sealing), options.peer, options.pid,
                      options.host.c_str());
  const std::vector<remote::RailPair> pairs = remote::PairRails(worker->rails(), address.rails);
  for (const remote::RailPair& pair : pairs) options.doors.push_back(address.rails[pair.peer].lifeline);
  // Null also if the sibling is reached over UCX.
  if (const auto* const sibling = dynamic_cast<const Reach*>(options.sibling); sibling != nullptr) {
    // The lines to that process are held already.
    AXCCL_ASSIGN_OR_RETURN(std::shared_ptr<Reach> reach, Reach::Create(worker, sibling->peer(), std::move(options)));
    return std::shared_ptr<transport::Reach>(std::move(reach));
  }
  const Protection protection{own_sealing, std::min(address.cipher, CipherOfProcess())};
  std::vector<uint8_t> rails;
  for (const remote::RailPair& pair : pairs) rails.push_back(pair.own);
  const auto process = options.process;
  const bool watch = options.watch;
  const uint64_t machine = options.machine;
  AXCCL_RETURN_IF_ERROR(remote::Lines::Made()->Settle(process));
  AXCCL_ASSIGN_OR_RETURN(std::shared_ptr<Reach> reach,
                         Reach::Create(worker, worker->PeerOf(process, rails, protection), std::move(options)));
  for (const remote::RailPair& pair : pairs)
    AXCCL_RETURN_IF_ERROR(remote::Lines::Made()->Meet(
        {process, machine, pair.own, address.rails[pair.peer].lifeline, address.key}, watch));
  return std::shared_ptr<transport::Reach>(std::move(reach));
}

}  // namespace axccl::tcp
