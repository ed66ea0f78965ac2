// What the ranks of a communicator that is being made learn of the network between their machines.
//
// Rank 0 recalls what it has kept of each class of pairs of machines (pair_class.h), measures what it has not, with the
// first rank of the class (probe.h), and has one set of figures for all ranks, those of the slowest class, by which
// every rank chooses the same plans. AXCCL_NET_MEASURE says whether it measures at all. A communicator that is
// made from another has the figures of that, if they are more than fixed ones.
//
// One object on each rank; its functions are called in the order in which they stand here, up to Measure on all ranks
// with exchanges between them that all ranks take part in. Used by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/comm/net/network_source.h"
#include "src/comm/net/pair_class.h"
#include "src/comm/net/probe.h"
#include "src/cost/network.h"

namespace axccl::comm {

class NetworkSurvey {
 public:
  // From rank 0: what is known, and which classes are yet to be measured, a bit each. Plain data.
  struct News {
    cost::Network figures;
    NetworkSource source;
    uint32_t to_measure;
  };
  using ReachOf = std::function<std::shared_ptr<transport::Reach>(int rank)>;

  explicit NetworkSurvey(int self) : self_(self) {}

  // All ranks hold the same texts; machine_of as of plan::Placement. Not called: there is nothing to be learned.
  void FindClasses(std::span<const int> machine_of, std::span<const NetworkText> networks);
  // On rank 0, for all: `figures` are what it would use if nothing were known.
  News Recall(const cost::Network& figures, NetworkSource source);
  // With rank 0's news, once this rank can reach the others.
  Status Prepare(const News& news, exec::BlockHeader* own, const ReachOf& reach_of);
  // Once all ranks have prepared. Rank 0's result holds for all ranks.
  Result<News> Measure(device::host::Queue* queue, const NetworkProbe::Patience& patience);
  // Instead of Measure, or after it has failed: tells a rank that may wait for this one.
  void GiveUp();
  // Ends the probes. Memory of the heap that may still be sent: to be freed once nothing is being sent any more.
  std::vector<void*> TakeMemory();

 private:
  void SetFigures(NetworkSource source, News* news) const;
  void Log(size_t i, const std::string& source) const;

  const int self_;
  std::vector<PairClass> classes_;
  std::vector<cost::Network> known_;                                      // by class; rank 0's
  std::vector<std::pair<size_t, std::unique_ptr<NetworkProbe>>> probes_;  // and their classes
  News news_{};
};

}  // namespace axccl::comm
