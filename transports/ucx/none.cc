// Replaces UCX in a library that was built without it.
#include "transports/ucx/connect.h"

namespace axccl::ucx {
namespace {

Status None() {
  return MakeStatus(Code::kInvalidUsage,
                    "this library was built without UCX: build it where libucx-dev is installed, or unset AXCCL_NET");
}

}  // namespace

Result<remote::NetworkAddress> SelfAddress(const remote::SelfOptions&) { return None(); }
Result<std::shared_ptr<transport::Reach>> Connect(remote::ConnectOptions) { return None(); }

}  // namespace axccl::ucx
