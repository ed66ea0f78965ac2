// CommExchange of exchange.h: the only one that needs the library.

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "axccl/axccl.h"
#include "perf/common/calls.h"
#include "perf/common/exchange.h"

namespace axccl::perf {

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
