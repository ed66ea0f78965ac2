// What the ranks of a communicator that is being made find out about the network between their machines.
//
// Rank 0 recalls the stored figures of each class of pairs of machines (pair_class.h). Classes without figures are
// measured with the first rank of the class (probe.h). All ranks get one set of figures, those of the slowest class, by
// which every rank chooses the same plans. AXCCL_NET_MEASURE says whether to measure at all. A communicator that is
// made from another one inherits its figures, unless they are the fixed ones.
//
// Each rank has one object. Its functions are called in the order in which they are declared; up to Measure, exchanges
// that all ranks take part in separate the calls. Used by one thread.
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
  // Sent by rank 0: the known figures, and which classes remain to be measured, one bit each. Plain data.
  struct News {
    cost::Network figures;
    NetworkSource source;
    uint32_t to_measure;
  };
  using ReachOf = std::function<std::shared_ptr<transport::Reach>(int rank)>;

  explicit NetworkSurvey(int self) : self_(self) {}

  // All ranks hold the same texts; machine_of as in plan::Placement. If it is not called, there is nothing to find out.
  void FindClasses(std::span<const int> machine_of, std::span<const NetworkText> networks);
  // On rank 0, for all: `figures` are those to use if nothing is known.
  News Recall(const cost::Network& figures, NetworkSource source);
  // Uses rank 0's news, once this rank can reach the others.
  Status Prepare(const News& news, exec::BlockHeader* own, const ReachOf& reach_of);
  // Must follow Prepare on all ranks. Rank 0's result holds for all ranks.
  Result<News> Measure(device::host::Queue* queue, const NetworkProbe::Patience& patience);
  // Instead of Measure, or after it has failed: notifies a rank that may wait for this one.
  void GiveUp();
  // Ends the probes. Returns memory of the heap that may still be sent, which the caller must free once nothing is
  // being sent any more.
  std::vector<void*> TakeMemory();

 private:
  void SetFigures(NetworkSource source, News* news) const;
  void Log(size_t i, const std::string& source) const;

  const int self_;
  std::vector<PairClass> classes_;
  std::vector<cost::Network> known_;                                      // by class, on rank 0
  std::vector<std::pair<size_t, std::unique_ptr<NetworkProbe>>> probes_;  // with their classes
  News news_{};
};

}  // namespace axccl::comm
