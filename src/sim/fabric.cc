#include "src/sim/fabric.h"

#include <cmath>

namespace axccl::sim {

Status Check(const Fabric& f) {
  const struct {
    const char* name;
    double value;
    bool may_be_zero;
  } figures[] = {
      {"time of an operation", f.op_seconds, true},
      {"memory bandwidth", f.memory_bytes_per_second, false},
      {"link bandwidth", f.link_bytes_per_second, false},
      {"multicast bandwidth", f.multicast_bytes_per_second, false},
      {"memory bandwidth of a lane", f.lane_memory_bytes_per_second, true},
      {"link bandwidth of a lane", f.lane_link_bytes_per_second, true},
      {"time of a signal", f.signal_seconds, true},
      {"NIC bandwidth", f.nic_bytes_per_second, false},
      {"time of a message", f.message_seconds, true},
      {"network latency", f.network_seconds, false},
  };
  for (const auto& figure : figures) {
    if (std::isfinite(figure.value) && (figure.value > 0 || (figure.may_be_zero && figure.value == 0))) continue;
    return MakeStatus(Code::kInvalidArgument, "Simulate: %s %g; must be finite and %s 0", figure.name, figure.value,
                      figure.may_be_zero ? "at least" : "more than");
  }
  return Status();
}

}  // namespace axccl::sim
