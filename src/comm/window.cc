#include "src/comm/window.h"

#include "src/comm/child_setup.h"
#include "src/comm/communicator.h"
#include "src/exec/platform/rank_device.h"

namespace axccl::comm {

Result<std::unique_ptr<exec::Window>> MakeWindow(MakingCall* call, const exec::OwnShare& share,
                                                 const std::atomic<bool>* abort) {
  call->SetLimits(SetupDeadline(), abort);
  const Communicator& comm = *call->comm();
  bool agreed = false;  // otherwise it has thrown, or the exchange has failed, which has ended the call
  auto made = CatchAll("making a window", [&] {
    auto window = comm.device().MakeWindow(call, comm.members(), share);
    agreed = true;
    return window;
  });
  agreed ? call->Finish() : call->Fail(made.status());
  return made;
}

}  // namespace axccl::comm
