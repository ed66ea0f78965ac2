#include "perf/common/collective_rules.h"

namespace axccl::perf {

Counts WholeCounts(size_t elements, size_t, int) { return {elements, elements, elements, 0, 0}; }

size_t PartCount(size_t elements, size_t element_bytes, int ranks) {
  size_t per_16_bytes = 16 / element_bytes;
  return elements / static_cast<size_t>(ranks) / per_16_bytes * per_16_bytes;
}

double WholeBytes(size_t argument, size_t element_bytes, int) {
  return static_cast<double>(argument) * static_cast<double>(element_bytes);
}

double PartBytes(size_t argument, size_t element_bytes, int ranks) {
  return WholeBytes(argument, element_bytes, ranks) * ranks;
}

double FactorOne(int) { return 1; }

double FactorPart(int ranks) { return static_cast<double>(ranks - 1) / ranks; }

double FactorAllReduce(int ranks) { return 2 * FactorPart(ranks); }

namespace {

const Rule kRules[] = {
    {"all_reduce", false, FactorAllReduce}, {"all_gather", true, FactorPart}, {"reduce_scatter", true, FactorPart},
    {"alltoall", true, FactorPart},         {"broadcast", false, FactorOne},  {"reduce", false, FactorOne},
    {"gather", true, FactorPart},           {"scatter", true, FactorPart},    {"sendrecv", false, FactorOne},
};

}  // namespace

const Rule* FindRule(const std::string& name) {
  for (const Rule& rule : kRules) {
    if (name == rule.name) return &rule;
  }
  return nullptr;
}

std::string RuleNames() {
  std::string names;
  for (const Rule& rule : kRules) names += (names.empty() ? "" : ", ") + std::string(rule.name);
  return names;
}

}  // namespace axccl::perf
