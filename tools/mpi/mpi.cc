// libaxccl_mpi.so: the MPI functions that XLA calls on the CPU, on AxCCL. With MPITRAMPOLINE_LIB naming this library,
// JAX's jax_cpu_collectives_implementation=mpi runs lax.psum and its siblings on it.
//
// It is no MPI library. It serves the 15 functions of XLA's MpiCollectives and MpiCommunicator
// (xla/backends/cpu/collectives), and Get_library_version, in the ABI of MPItrampoline, which jaxlib contains. Handles
// are numbers: a communicator is its index here, a datatype and an operator the library's. The rank and the number of
// ranks come from a launcher's variables (docs/clients.md).
//
// Thread-safe, but for Init_thread and Finalize.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "axccl/axccl.h"
#include "src/base/launcher.h"
#include "tools/python/axccl/csrc/large_pages.h"

#define AXCCL_MPI_API extern "C" __attribute__((visibility("default")))

namespace axccl::mpi {
namespace {

using Handle = intptr_t;

constexpr int kSuccess = 0;
constexpr int kError = 1;
constexpr int kUndefined = -32766;
constexpr int kFunneled = 1;
constexpr Handle kTypes = 0x100;  // + ncclDataType_t
constexpr Handle kOps = 0x1000;   // + ncclRedOp_t
constexpr Handle kInPlace = -1;
constexpr int kTag = 1;  // of messages, so that each waits for nothing but its own
// The host device of this rank. The Python package takes those from 1023 and from 767 down, the library from 0 up.
constexpr int kDevice = 703;

struct Comm {
  ncclComm_t comm = nullptr;
  int rank = 0;
  int size = 1;
};

std::mutex g_mutex;
std::vector<std::unique_ptr<Comm>> g_comms;  // by handle - 1; the first one is MPI_COMM_WORLD
std::vector<axcclStream_t> g_streams;        // that no call uses
std::string g_error;                         // the text of the last error of any thread

int Fail(const char* call, const std::string& text) {
  const std::lock_guard lock(g_mutex);
  g_error = std::string("libaxccl_mpi: ") + call + ": " + text;
  return kError;
}

// The text of the library's last error on this thread.
int FailOf(const char* call) { return Fail(call, ncclGetLastError(nullptr)); }

// Runs `work` on a thread whose host device is this rank's.
template <class Work>
int OnDevice(const char* call, Work&& work) {
  int result = kSuccess;
  std::thread([&] {
    if (axcclHostSetDevice(kDevice) != ncclSuccess || work() != ncclSuccess) result = FailOf(call);
  }).join();
  return result;
}

Comm* Find(Handle handle) {
  const std::lock_guard lock(g_mutex);
  const auto index = static_cast<size_t>(handle - 1);
  return index < g_comms.size() ? g_comms[index].get() : nullptr;
}

size_t SizeOf(Handle type) {
  switch (static_cast<int>(type - kTypes)) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case static_cast<int>(axcclInt16):
    case static_cast<int>(axcclUint16):
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case static_cast<int>(axcclComplex128):
      return 16;
    default:
      return 8;
  }
}

ncclDataType_t TypeOf(Handle type) { return static_cast<ncclDataType_t>(type - kTypes); }

void AdviseLargePages(void* result, int64_t count, Handle type) {
  python::AdviseLargePages(result, static_cast<size_t>(count) * SizeOf(type));
}

axcclStream_t TakeStream() {
  {
    const std::lock_guard lock(g_mutex);
    if (!g_streams.empty()) {
      const axcclStream_t stream = g_streams.back();
      g_streams.pop_back();
      return stream;
    }
  }
  axcclStream_t stream = nullptr;
  (void)OnDevice("a stream", [&] { return axcclStreamCreate(&stream, axcclStreamNonBlocking); });
  return stream;
}

// Waits for the call on a stream, and gives the stream back.
int Finish(const char* call, axcclStream_t stream) {
  const int result = axcclStreamSynchronize(stream) == ncclSuccess ? kSuccess : FailOf(call);
  const std::lock_guard lock(g_mutex);
  g_streams.push_back(stream);
  return result;
}

// enqueue(communicator, stream) on a stream of its own, which is stored in *pending, or waited for if that is null.
template <class Enqueue>
int Run(const char* call, Handle handle, Handle* pending, Enqueue&& enqueue) {
  Comm* const comm = Find(handle);
  if (comm == nullptr) return Fail(call, "no such communicator");
  const axcclStream_t stream = TakeStream();
  if (stream == nullptr) return kError;
  if (enqueue(*comm, axcclStreamToCuda(stream)) != ncclSuccess) {
    const int failed = FailOf(call);
    (void)Finish(call, stream);
    return failed;
  }
  if (pending == nullptr) return Finish(call, stream);
  *pending = reinterpret_cast<Handle>(stream);
  return kSuccess;
}

int Message(const char* call, void* data, int count, Handle type, int peer, Handle handle, bool sends,
            Handle* request) {
  axcclView_t view = AXCCL_VIEW_INITIALIZER;
  const int64_t size = count;
  view.data = data, view.datatype = TypeOf(type), view.num_dims = 1, view.sizes = &size;
  axcclOptions_t options = AXCCL_OPTIONS_INITIALIZER;
  options.tag = kTag;
  return Run(call, handle, request, [&](const Comm& comm, cudaStream_t stream) {
    const axcclChannel_t channel = axcclDefaultChannel(comm.comm);
    return sends ? axcclSend(1, &view, peer, channel, &options, stream)
                 : axcclRecv(1, &view, peer, channel, &options, stream);
  });
}

const char* Variable(const char* name) { return std::getenv(name); }

// Where ranks meet, if NCCL_COMM_ID does not say so: as axccl.Communicator.from_env().
Status FindMeeting() {
  const char* const host = std::getenv("MASTER_ADDR");
  if (std::getenv("NCCL_COMM_ID") != nullptr || host == nullptr || std::getenv("MASTER_PORT") == nullptr)
    return Status();
  AXCCL_ASSIGN_OR_RETURN(const int port, PortFrom(Variable, "MASTER_PORT"));
  const char* const agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  const int next = agent != nullptr && std::strcmp(agent, "True") == 0 ? 1 : 0;
  (void)setenv("NCCL_COMM_ID", (std::string(host) + ":" + std::to_string(port + next)).c_str(), 1);
  return Status();
}

Handle Add(std::unique_ptr<Comm> comm) {
  const std::lock_guard lock(g_mutex);
  g_comms.push_back(std::move(comm));
  return static_cast<Handle>(g_comms.size());
}

int Join() {
  auto world = std::make_unique<Comm>();
  Result<std::optional<Launched>> place = DetectPlace(Variable);
  if (!place.ok()) return Fail("MPI_Init_thread", std::string(place.status().message()));
  if (!place->has_value())
    return Fail("MPI_Init_thread", "no rank; set RANK, WORLD_SIZE and NCCL_COMM_ID=host:port, or use a launcher");
  world->rank = (*place)->rank, world->size = (*place)->size;
  if (const Status met = FindMeeting(); !met.ok()) return Fail("MPI_Init_thread", std::string(met.message()));
  if (world->size > 1 && std::getenv("NCCL_COMM_ID") == nullptr)
    return Fail("MPI_Init_thread", "no place to meet; set NCCL_COMM_ID=<host of rank 0>:<a free port> on all ranks");
  ncclUniqueId id;
  if (ncclGetUniqueId(&id) != ncclSuccess) return FailOf("MPI_Init_thread");
  const int result =
      OnDevice("MPI_Init_thread", [&] { return ncclCommInitRank(&world->comm, world->size, id, world->rank); });
  if (result == kSuccess) (void)Add(std::move(world));
  return result;
}

}  // namespace
}  // namespace axccl::mpi

namespace mpi = axccl::mpi;
using mpi::Handle;

AXCCL_MPI_API int MPIABI_Init_thread(int*, char***, int, int* provided) {
  *provided = mpi::kFunneled;
  return mpi::Join();
}

AXCCL_MPI_API int MPIABI_Finalize() {
  std::vector<std::unique_ptr<mpi::Comm>> comms;
  {
    const std::lock_guard lock(mpi::g_mutex);
    comms.swap(mpi::g_comms);
  }
  for (const auto& comm : comms) {
    if (comm != nullptr) (void)ncclCommDestroy(comm->comm);
  }
  return mpi::kSuccess;
}

AXCCL_MPI_API int MPIABI_Get_library_version(char* text, int* length) {
  constexpr size_t kLeast = 256;  // of MPI_MAX_LIBRARY_VERSION_STRING in any implementation
  std::snprintf(text, kLeast, "AxCCL %d, the MPI functions that XLA calls", AXCCL_VERSION_CODE);
  *length = static_cast<int>(std::strlen(text));
  return mpi::kSuccess;
}

// Any thread may call.
AXCCL_MPI_API int MPIABI_Is_thread_main(int* flag) {
  *flag = 1;
  return mpi::kSuccess;
}

AXCCL_MPI_API int MPIABI_Error_string(int, char* text, int* length) {
  const std::lock_guard lock(mpi::g_mutex);
  constexpr size_t kMost = 1024;  // MPI_MAX_ERROR_STRING of MPItrampoline's ABI
  std::snprintf(text, kMost, "%s", mpi::g_error.c_str());
  *length = static_cast<int>(std::strlen(text));
  return mpi::kSuccess;
}

AXCCL_MPI_API int MPIABI_Comm_rank(Handle handle, int* rank) {
  const mpi::Comm* const comm = mpi::Find(handle);
  if (comm == nullptr) return mpi::Fail("MPI_Comm_rank", "no such communicator");
  *rank = comm->rank;
  return mpi::kSuccess;
}

AXCCL_MPI_API int MPIABI_Comm_size(Handle handle, int* size) {
  const mpi::Comm* const comm = mpi::Find(handle);
  if (comm == nullptr) return mpi::Fail("MPI_Comm_size", "no such communicator");
  *size = comm->size;
  return mpi::kSuccess;
}

AXCCL_MPI_API int MPIABI_Comm_split(Handle handle, int color, int key, Handle* made) {
  mpi::Comm* const comm = mpi::Find(handle);
  if (comm == nullptr) return mpi::Fail("MPI_Comm_split", "no such communicator");
  auto part = std::make_unique<mpi::Comm>();
  const int group = color == mpi::kUndefined ? NCCL_SPLIT_NOCOLOR : color;
  const int result = mpi::OnDevice("MPI_Comm_split", [&] {
    ncclResult_t split = ncclCommSplit(comm->comm, group, key, &part->comm, nullptr);
    if (split != ncclSuccess || part->comm == nullptr) return split;
    split = ncclCommUserRank(part->comm, &part->rank);
    return split == ncclSuccess ? ncclCommCount(part->comm, &part->size) : split;
  });
  *made = 0;
  if (result == mpi::kSuccess && part->comm != nullptr) *made = mpi::Add(std::move(part));
  return result;
}

AXCCL_MPI_API int MPIABI_Comm_free(Handle* handle) {
  std::unique_ptr<mpi::Comm> comm;
  {
    const std::lock_guard lock(mpi::g_mutex);
    const auto index = static_cast<size_t>(*handle - 1);
    if (index < mpi::g_comms.size()) comm = std::move(mpi::g_comms[index]);
  }
  *handle = 0;
  if (comm != nullptr) (void)ncclCommDestroy(comm->comm);
  return mpi::kSuccess;
}

AXCCL_MPI_API int MPIABI_Isend(const void* data, int count, Handle type, int peer, int, Handle comm, Handle* request) {
  return mpi::Message("MPI_Isend", const_cast<void*>(data), count, type, peer, comm, true, request);
}

AXCCL_MPI_API int MPIABI_Irecv(void* data, int count, Handle type, int peer, int, Handle comm, Handle* request) {
  mpi::AdviseLargePages(data, count, type);
  return mpi::Message("MPI_Irecv", data, count, type, peer, comm, false, request);
}

AXCCL_MPI_API int MPIABI_Wait(Handle* request, void*) {
  if (*request == 0) return mpi::kSuccess;
  return mpi::Finish("MPI_Wait", reinterpret_cast<axcclStream_t>(std::exchange(*request, 0)));
}

AXCCL_MPI_API int MPIABI_Sendrecv(const void* sent, int sent_count, Handle sent_type, int destination, int,
                                  void* received, int count, Handle type, int source, int, Handle comm, void*) {
  Handle sending = 0, receiving = 0;
  int result = mpi::Message("MPI_Sendrecv", received, count, type, source, comm, false, &receiving);
  if (result == mpi::kSuccess)
    result =
        mpi::Message("MPI_Sendrecv", const_cast<void*>(sent), sent_count, sent_type, destination, comm, true, &sending);
  const int send_result = MPIABI_Wait(&sending, nullptr), receive_result = MPIABI_Wait(&receiving, nullptr);
  if (result == mpi::kSuccess) result = send_result;
  return result == mpi::kSuccess ? receive_result : result;
}

AXCCL_MPI_API int MPIABI_Allreduce(const void* sent, void* received, int count, Handle type, Handle op, Handle handle) {
  const void* const from = reinterpret_cast<Handle>(sent) == mpi::kInPlace ? received : sent;
  mpi::AdviseLargePages(received, count, type);
  return mpi::Run("MPI_Allreduce", handle, nullptr, [&](const mpi::Comm& comm, cudaStream_t stream) {
    return ncclAllReduce(from, received, static_cast<size_t>(count), mpi::TypeOf(type),
                         static_cast<ncclRedOp_t>(op - mpi::kOps), comm.comm, stream);
  });
}

AXCCL_MPI_API int MPIABI_Allgather(const void* sent, int count, Handle type, void* received, int, Handle,
                                   Handle handle) {
  if (reinterpret_cast<Handle>(sent) == mpi::kInPlace)
    return mpi::Fail("MPI_Allgather", "MPI_IN_PLACE is not served; XLA does not pass it");
  const mpi::Comm* const all = mpi::Find(handle);
  if (all != nullptr) mpi::AdviseLargePages(received, int64_t{count} * all->size, type);
  return mpi::Run("MPI_Allgather", handle, nullptr, [&](const mpi::Comm& comm, cudaStream_t stream) {
    return ncclAllGather(sent, received, static_cast<size_t>(count), mpi::TypeOf(type), comm.comm, stream);
  });
}

AXCCL_MPI_API int MPIABI_Reduce_scatter(const void* sent, void* received, const int* counts, Handle type, Handle op,
                                        Handle handle) {
  const mpi::Comm* const comm = mpi::Find(handle);
  if (comm == nullptr) return mpi::Fail("MPI_Reduce_scatter", "no such communicator");
  const std::vector<int64_t> extents(counts, counts + comm->size);
  int64_t total = 0;
  for (const int64_t extent : extents) total += extent;
  axcclView_t in = AXCCL_VIEW_INITIALIZER, out = AXCCL_VIEW_INITIALIZER;
  const int64_t mine = extents[static_cast<size_t>(comm->rank)];
  mpi::AdviseLargePages(received, counts[comm->rank], type);
  in.data = const_cast<void*>(sent), in.datatype = mpi::TypeOf(type), in.num_dims = 1, in.sizes = &total;
  out.data = received, out.datatype = in.datatype, out.num_dims = 1, out.sizes = &mine;
  return mpi::Run("MPI_Reduce_scatter", handle, nullptr, [&](const mpi::Comm& of, cudaStream_t stream) {
    return axcclReduceScatterV(1, &in, &out, 0, static_cast<ncclRedOp_t>(op - mpi::kOps), extents.data(),
                               axcclDefaultChannel(of.comm), nullptr, stream);
  });
}

// ---- values, and what XLA does not use ----

#define AXCCL_MPI_VALUE(name, value) AXCCL_MPI_API const Handle MPIABI_##name = value;
#define AXCCL_MPI_TYPE(name, type) AXCCL_MPI_VALUE(name, mpi::kTypes + type)
AXCCL_MPI_VALUE(COMM_WORLD, 1)
AXCCL_MPI_VALUE(SUCCESS, mpi::kSuccess)
AXCCL_MPI_VALUE(UNDEFINED, mpi::kUndefined)
AXCCL_MPI_VALUE(THREAD_FUNNELED, mpi::kFunneled)
AXCCL_MPI_VALUE(STATUS_IGNORE, 0)
AXCCL_MPI_VALUE(IN_PLACE, mpi::kInPlace)
AXCCL_MPI_VALUE(SUM, mpi::kOps + ncclSum)
AXCCL_MPI_VALUE(PROD, mpi::kOps + ncclProd)
AXCCL_MPI_VALUE(MAX, mpi::kOps + ncclMax)
AXCCL_MPI_VALUE(MIN, mpi::kOps + ncclMin)
AXCCL_MPI_TYPE(BYTE, ncclUint8)
AXCCL_MPI_TYPE(INT8_T, ncclInt8)
AXCCL_MPI_TYPE(UINT8_T, ncclUint8)
AXCCL_MPI_TYPE(INT16_T, axcclInt16)
AXCCL_MPI_TYPE(UINT16_T, axcclUint16)
AXCCL_MPI_TYPE(INT32_T, ncclInt32)
AXCCL_MPI_TYPE(UINT32_T, ncclUint32)
AXCCL_MPI_TYPE(INT64_T, ncclInt64)
AXCCL_MPI_TYPE(UINT64_T, ncclUint64)
AXCCL_MPI_TYPE(FLOAT, ncclFloat32)
AXCCL_MPI_TYPE(DOUBLE, ncclFloat64)
AXCCL_MPI_TYPE(C_COMPLEX, axcclComplex64)
AXCCL_MPI_TYPE(C_DOUBLE_COMPLEX, axcclComplex128)

// Not by AXCCL_MPI_VALUE, which would expand SEEK_SET and others.
#define AXCCL_MPI_CONSTANT(name) AXCCL_MPI_API const Handle MPIABI_##name = 0;
#define AXCCL_MPI_FUNCTION(name)                                                                                \
  AXCCL_MPI_API int MPIABI_##name() {                                                                           \
    return mpi::Fail("MPI_" #name, "not served; libaxccl_mpi has the functions that XLA calls, and no others"); \
  }
#include "tools/mpi/symbols.inc"

#define AXCCL_MPI_VERSION(name, value) AXCCL_MPI_API const int name = value;
AXCCL_MPI_VERSION(mpiabi_version_major, 2)
AXCCL_MPI_VERSION(mpiabi_version_minor, 9)
AXCCL_MPI_VERSION(mpiabi_version_patch, 0)
AXCCL_MPI_VERSION(mpiwrapper_version_major, 2)
AXCCL_MPI_VERSION(mpiwrapper_version_minor, 9)
AXCCL_MPI_VERSION(mpiwrapper_version_patch, 0)
AXCCL_MPI_API int MPIXABI_Query_cuda_support() { return 0; }
AXCCL_MPI_API int MPIXABI_Query_hip_support() { return 0; }
AXCCL_MPI_API int MPIXABI_Query_ze_support() { return 0; }
AXCCL_MPI_API void mpiwrapper_export_fortran_constants_() {}
