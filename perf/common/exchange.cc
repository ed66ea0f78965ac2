#include "perf/common/exchange.h"

#include <algorithm>

namespace axccl::perf {

void Exchange::Barrier() { AllGather(nullptr, 0, nullptr); }

double Exchange::Combine(double mine, Average how) {
  std::vector<double> all(static_cast<size_t>(size()));
  AllGather(&mine, sizeof(mine), all.data());
  switch (how) {
    case Average::kRank0:
      return all[0];
    case Average::kMin:
      return *std::min_element(all.begin(), all.end());
    case Average::kMax:
      return *std::max_element(all.begin(), all.end());
    default:
      break;
  }
  double sum = 0;
  for (double x : all) sum += x;
  return sum / size();
}

uint64_t Exchange::Sum(uint64_t mine) {
  std::vector<uint64_t> all(static_cast<size_t>(size()));
  AllGather(&mine, sizeof(mine), all.data());
  uint64_t sum = 0;
  for (uint64_t x : all) sum += x;
  return sum;
}

std::vector<std::vector<double>> Exchange::AllGatherRows(const std::vector<double>& mine) {
  constexpr size_t kChunk = SharedPage::kRecordBytes / sizeof(double);
  std::vector<std::vector<double>> rows(static_cast<size_t>(size()));
  std::vector<double> all;
  for (size_t done = 0; done < mine.size(); done += kChunk) {
    size_t here = std::min(kChunk, mine.size() - done);
    all.resize(rows.size() * here);
    AllGather(mine.data() + done, here * sizeof(double), all.data());
    for (size_t t = 0; t < rows.size(); ++t) {
      rows[t].insert(rows[t].end(), all.begin() + t * here, all.begin() + (t + 1) * here);
    }
  }
  return rows;
}

void PageExchange::AllGather(const void* mine, size_t bytes, void* all) {
  page_->Meet(Room::kThreads, self_, mine, bytes, all);
}

}  // namespace axccl::perf
