// The model of time of a program on given machines, and the default of axccl-program.
//
// A local operation takes the time of a launch and the longer one of its arithmetic, at the device's rate for such
// elements, and of its traffic, at the rate of the device's memory: a roofline, which real kernels stay above. Between
// ranks, it takes a launch and what src/sim finds for the plan that src/tune picks for that kind, group, placement and
// size; operands of one call count as one of their total size. In groups of more than 256 ranks, for which the tuner
// takes long, it is the fastest of those plans that can be simulated in seconds. Every different call is simulated
// once. What the machines' file has measured takes that time instead.
#pragma once

#include <map>
#include <memory>
#include <tuple>

#include "src/plan/contract.h"
#include "src/plan/placement.h"
#include "src/program/simulate.h"
#include "src/program/simulate/machines.h"
#include "src/tune/tune.h"

namespace axccl::program {

class MachinesModel : public Model {
 public:
  explicit MachinesModel(const Machines& machines) : machines_(machines) {}
  double LocalSeconds(const Operation& operation, const std::vector<const TensorType*>& operands) const override;
  // kInvalidUsage, which names the operation, if no plan for the group can be simulated.
  Result<double> Seconds(const Transfer& transfer) override;
  bool overlaps() const override { return !machines_.measured.one_stream; }
  bool send_waits() const override { return false; }
  // How many different calls have been simulated.
  size_t num_calls() const { return calls_.size(); }

 private:
  using Call = std::tuple<plan::Kind, int, uint64_t, plan::Placement>;  // kind, ranks, bytes, placement

  Result<double> CallSeconds(const Call& call);
  Result<double> TunedSeconds(const Call& call);
  Result<double> FastestSeconds(const Call& call) const;
  Result<double> PairsSeconds(const Groups& pairs, double bytes);
  plan::Placement PlacementOf(const Ints& ranks) const;
  const tune::Chooser& ChooserFor(int ranks_of_machine);

  const Machines machines_;
  std::map<Call, double> calls_;
  std::map<int, std::unique_ptr<tune::Chooser>> choosers_;  // by the group's ranks on a machine
};

}  // namespace axccl::program
