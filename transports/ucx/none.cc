// Replaces UCX in a library that was built without it.
#include "transports/ucx/connect.h"

namespace axccl::ucx {
namespace {

Status None() {
  return MakeStatus(Code::kInvalidUsage,
                    "ranks on several machines (or with different NCCL_HOSTID) meet over UCX, and this "
                    "library was built without it: build it where libucx-dev is installed");
}

}  // namespace

Result<remote::NetworkAddress> SelfAddress(const remote::SelfOptions&) { return None(); }
Result<std::shared_ptr<transport::Reach>> Connect(remote::ConnectOptions) { return None(); }

}  // namespace axccl::ucx
