// Links to ranks that share no memory with this process, over TCP: the interface for the rest of the library.
#pragma once

#include <memory>
#include <vector>

#include "src/base/status.h"
#include "transports/remote/address.h"
#include "transports/transport.h"

namespace axccl::tcp {

// Returns what others need to reach this process, if its address is not another transport's. The options of the
// process's first call count.
Result<remote::NetworkAddress> SelfAddress(const remote::SelfOptions& options);
// Lets this process be reached at its address, whoever made it; `sealing` goes into it.
Status Serve(remote::Sealing sealing, remote::NetworkAddress* address);

// Must follow one of these. From then on, messages may arrive. kInvalidUsage if the two sides differ in what they seal.
Result<std::shared_ptr<transport::Reach>> Connect(remote::ConnectOptions options);

}  // namespace axccl::tcp
