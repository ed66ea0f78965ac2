// Ranks as processes that live on hosts by turns.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/run_ranks.h"
#include "tests/harness/test_hosts.h"

namespace axccl::tests {

// `environment`: as RunOptions has it.
inline void RunOnHosts(int number, int ranks,
                       const std::function<void(const harness::TestHosts&, harness::RankContext&)>& body,
                       std::vector<std::pair<std::string, std::string>> environment = {}) {
  const auto hosts = harness::TestHosts::Create(number);
  ASSERT_NE(hosts, nullptr);
  harness::RunOptions options;
  options.hosts = hosts.get();
  options.environment = std::move(environment);
  harness::RunRanks(harness::Processes(ranks), [&](harness::RankContext& context) { body(*hosts, context); }, options);
}

}  // namespace axccl::tests
