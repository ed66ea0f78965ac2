#include "perf/common/collective.h"

namespace axccl::perf {

int OneStep(int) { return 1; }

std::string AnyRanks(int) { return ""; }

std::vector<Segment> AllParts(const Counts& counts) {
  std::vector<Segment> segments;
  for (size_t r = 0; r * counts.argument < counts.recv; ++r) {
    segments.push_back({r * counts.argument, counts.argument, static_cast<int>(r), 0});
  }
  return segments;
}

ncclResult_t SendAndReceive(const Call& c, const char* send, int to, char* recv, int from, size_t count) {
  ncclResult_t started = ncclGroupStart();
  if (started != ncclSuccess) return started;
  ncclResult_t sent = ncclSend(send, count, c.type, to, c.comm, c.stream);
  ncclResult_t received = ncclRecv(recv, count, c.type, from, c.comm, c.stream);
  ncclResult_t ended = ncclGroupEnd();  // must be called even if the two failed
  return sent != ncclSuccess ? sent : received != ncclSuccess ? received : ended;
}

}  // namespace axccl::perf
