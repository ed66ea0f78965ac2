// Ranks as processes, placed on the hosts in turn.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/run_ranks.h"
#include "tests/harness/test_hosts.h"

namespace axccl::tests {

// `environment`: as in RunOptions. With several NICs all are used, unless it sets others.
inline void RunOnHosts(int number, int ranks,
                       const std::function<void(const harness::TestHosts&, harness::RankContext&)>& body,
                       std::vector<std::pair<std::string, std::string>> environment = {}, int nics = 1,
                       std::chrono::milliseconds deadline = harness::RunOptions().deadline) {
  const auto hosts = harness::TestHosts::Create(number, nics);
  ASSERT_NE(hosts, nullptr);
  harness::RunOptions options;
  options.hosts = hosts.get();
  options.deadline = deadline;
  options.environment = std::move(environment);
  if (nics > 1) options.environment.insert(options.environment.begin(), {"NCCL_SOCKET_IFNAME", "eth"});
  harness::RunRanks(
      harness::Processes(ranks), [&](harness::RankContext& context) { body(*hosts, context); }, options);
}

}  // namespace axccl::tests
