/* A profiler as it is preloaded: takes the nccl names, counts, and passes on to the pnccl names. */
#include <nccl.h>

int interposer_calls = 0;

ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  ++interposer_calls;
  return pncclAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream);
}

ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  ++interposer_calls;
  return pncclBroadcast(sendbuff, recvbuff, count, datatype, root, comm, stream);
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  ++interposer_calls;
  return pncclCommInitRank(comm, nranks, commId, rank);
}

ncclResult_t ncclGroupStart(void) {
  ++interposer_calls;
  return pncclGroupStart();
}

ncclResult_t ncclGroupEnd(void) {
  ++interposer_calls;
  return pncclGroupEnd();
}
