// From an exchange to a communicator: ranks exchange their addresses, attach to each other's memory, test it, find out
// about the network between their machines (net/survey.h), and agree on rank 0's settings.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>

#include "src/base/status.h"
#include "src/comm/communicator.h"
#include "src/comm/exchange.h"

namespace axccl::comm {

struct SetupOptions {
  Identity identity;
  exec::LaneBounds lanes;                      // from the configuration; rank 0's values are used
  bool spares_blocks = false;                  // from the configuration, of this rank
  bool mixes_graphs = true;                    // likewise
  const Settings* inherit = nullptr;           // settings of a parent communicator; null: read and measured by rank 0
  std::optional<double> timeout_seconds = {};  // set for the parent (Communicator::SetTimeout)
  std::chrono::steady_clock::time_point deadline;
  const std::atomic<bool>* abort = nullptr;
};

// Collective over the ranks of the exchange. On an error every rank gets one, and nothing is left behind.
Result<std::shared_ptr<Communicator>> Setup(Exchange* exchange, const SetupOptions& options);

}  // namespace axccl::comm
