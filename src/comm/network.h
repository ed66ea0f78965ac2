// How this process is reached by those it shares no memory with, as the environment has it.
#pragma once

#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/boot/interfaces.h"
#include "src/comm/placement.h"
#include "transports/ucx/connect.h"

namespace axccl::comm {

struct LocalNetwork {
  std::vector<std::string> devices;  // as UCX names them, that data may go over
  boot::Address address;             // where this process listens for those who ask whether it is still there
  ucx::SelfOptions self;             // all of that for UCX, but for the process's id
};
// `local`: of the interfaces that will do, those near this rank are taken. kInvalidUsage where no device answers what is
// asked for.
Result<LocalNetwork> FindNetwork(const LocalRanks& local);

}  // namespace axccl::comm
