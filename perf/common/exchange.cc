#include "perf/common/exchange.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "axccl/axccl.h"
#include "perf/common/calls.h"

namespace axccl::perf {

void Exchange::Barrier() { AllGather(nullptr, 0, nullptr); }

double Exchange::Combine(double mine, Average how) {
  std::vector<double> all(static_cast<size_t>(size()));
  AllGather(&mine, sizeof(mine), all.data());
  switch (how) {
    case Average::kRank0: return all[0];
    case Average::kMin: return *std::min_element(all.begin(), all.end());
    case Average::kMax: return *std::max_element(all.begin(), all.end());
    default: break;
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

struct CommExchange::Lane {
  ncclComm_t comm;
  axcclStream_t stream;
  char* send;
  char* all;  // one record of every rank
};

CommExchange::CommExchange(const std::vector<ncclComm_t>& comms, int first_device) {
  int ranks = 0;
  int rank = 0;
  PERF_CALL(ncclCommCount(comms[0], &ranks));
  PERF_CALL(ncclCommUserRank(comms[0], &rank));
  size_ = ranks / static_cast<int>(comms.size());
  self_ = rank / static_cast<int>(comms.size());
  int device = first_device;
  for (ncclComm_t comm : comms) {
    Lane lane{comm, nullptr, nullptr, nullptr};
    PERF_CALL(axcclHostSetDevice(device++));
    PERF_CALL(axcclStreamCreate(&lane.stream, axcclStreamNonBlocking));
    lane.send = static_cast<char*>(std::calloc(1, SharedPage::kRecordBytes));
    lane.all = static_cast<char*>(std::calloc(static_cast<size_t>(ranks), SharedPage::kRecordBytes));
    lanes_.push_back(lane);
  }
}

CommExchange::~CommExchange() {
  for (Lane& lane : lanes_) {
    axcclStreamDestroy(lane.stream);
    std::free(lane.send);
    std::free(lane.all);
  }
}

void CommExchange::AllGather(const void* mine, size_t bytes, void* all) {
  size_t sent = std::max<size_t>(bytes, 1);  // a barrier has to move something
  PERF_CALL(ncclGroupStart());
  for (Lane& lane : lanes_) {
    if (bytes > 0) std::memcpy(lane.send, mine, bytes);
    PERF_CALL(ncclAllGather(lane.send, lane.all, sent, ncclInt8, lane.comm, axcclStreamToCuda(lane.stream)));
  }
  PERF_CALL(ncclGroupEnd());
  for (Lane& lane : lanes_) PERF_CALL(axcclStreamSynchronize(lane.stream));
  if (all == nullptr) return;
  for (int thread = 0; thread < size_; ++thread) {
    const char* record = lanes_[0].all + static_cast<size_t>(thread) * lanes_.size() * sent;
    std::memcpy(static_cast<char*>(all) + static_cast<size_t>(thread) * bytes, record, bytes);
  }
}

}  // namespace axccl::perf
