// Links to ranks that share no memory with this process, over UCX: the interface for the rest of the library.
#pragma once

#include <memory>

#include "src/base/status.h"
#include "transports/remote/address.h"
#include "transports/transport.h"

namespace axccl::ucx {

// Returns what others need to send to this process. The options of the process's first call count. kInvalidUsage if UCX
// is not available.
Result<remote::NetworkAddress> SelfAddress(const remote::SelfOptions& options);

// Must follow SelfAddress. From then on, messages may arrive.
Result<std::shared_ptr<transport::Reach>> Connect(remote::ConnectOptions options);

}  // namespace axccl::ucx
