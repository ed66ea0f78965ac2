// axccl.h: introspection.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "axccl/axccl.h"
#include "src/api/context.h"
#include "src/api/export.h"
#include "src/base/param.h"
#include "src/comm/programs.h"

using namespace axccl;       // NOLINT: the C entry points
using namespace axccl::api;  // NOLINT

AXCCL_API ncclResult_t axcclCommGetInfo(ncclComm_t handle, axcclCommInfo_t* info) try {
  ncclResult_t result = ncclSuccess;
  const CommPin comm = PinComm(handle, "axcclCommGetInfo", &result);
  if (!comm) return result;
  if (info == nullptr || info->size < sizeof(size_t))
    return InvalidArgument("axcclCommGetInfo: argument info is %s; set info->size = sizeof(axcclCommInfo_t)",
                           info == nullptr ? "NULL" : "without its size");
  if (!comm->ready()) return Report(comm->Ready("axcclCommGetInfo").status());
  comm::Communicator* core = comm->core().get();
  axcclCommInfo_t all{};
  all.size = std::min(info->size, sizeof(all));
  all.nranks = core->identity().ranks;
  all.rank = core->identity().rank;
  all.device = core->identity().device.ordinal;
  all.local_processes = core->local_processes();
  all.memory_bytes = core->block().resident_bytes() + core->channels().resident_bytes();
  all.operations = core->operations();
  all.plans = core->channel()->plans().size();
  all.verify_seconds = comm::Programs::Process().usage().verify_seconds;
  if (core->gpu() != nullptr) {
    all.mapped = core->gpu()->mapped_operations();
    const exec::PackedOperations packed = core->gpu()->packed_operations();
    all.ll = packed.ll;
    all.ll128 = packed.ll128;
  }
  std::memcpy(info, &all, all.size);
  return ncclSuccess;
}
AXCCL_CATCH(axcclCommGetInfo)

AXCCL_API ncclResult_t axcclCommGetLink(ncclComm_t handle, int peer, const char** link) try {
  ncclResult_t result = ncclSuccess;
  const CommPin comm = PinComm(handle, "axcclCommGetLink", &result);
  if (!comm) return result;
  if (link == nullptr) return InvalidArgument("axcclCommGetLink: argument link is NULL");
  if (!comm->ready()) return Report(comm->Ready("axcclCommGetLink").status());
  if (peer < 0 || peer >= comm->core()->identity().ranks)
    return InvalidArgument("axcclCommGetLink: argument peer is %d; pass 0..%d", peer,
                           comm->core()->identity().ranks - 1);
  *link = comm->core()->LinkName(peer);
  return ncclSuccess;
}
AXCCL_CATCH(axcclCommGetLink)

AXCCL_API ncclResult_t axcclCommGetLastAlgorithm(ncclComm_t handle, const char** algorithm) try {
  ncclResult_t result = ncclSuccess;
  const CommPin comm = PinComm(handle, "axcclCommGetLastAlgorithm", &result);
  if (!comm) return result;
  if (algorithm == nullptr) return InvalidArgument("axcclCommGetLastAlgorithm: argument algorithm is NULL");
  if (!comm->ready()) return Report(comm->Ready("axcclCommGetLastAlgorithm").status());
  *algorithm = comm->core()->last_algorithm();
  return ncclSuccess;
}
AXCCL_CATCH(axcclCommGetLastAlgorithm)

AXCCL_API ncclResult_t axcclParamGetByIndex(int index, const char** name, const char** value, const char** source,
                                            const char** meaning) try {
  struct Row {
    std::string value;
    std::string source;
  };
  // Values never change once read.
  static const auto* rows = [] {
    auto* all = new std::vector<Row>;
    for (const param::Info& info : param::Table()) {
      param::Source from = param::Source::kDefault;
      (void)param::Get(info.name, &from);
      all->push_back(Row{param::GetShown(info.name), param::SourceName(from)});
    }
    return all;
  }();
  if (index < 0 || static_cast<size_t>(index) >= rows->size())
    return InvalidArgument("axcclParamGetByIndex: argument index is %d; there are %zu parameters", index, rows->size());
  if (name == nullptr || value == nullptr || source == nullptr || meaning == nullptr)
    return InvalidArgument("axcclParamGetByIndex: argument name, value, source or meaning is NULL");
  const param::Info& info = param::Table()[static_cast<size_t>(index)];
  const Row& row = (*rows)[static_cast<size_t>(index)];
  *name = info.name;
  *value = row.value.c_str();
  *source = row.source.c_str();
  *meaning = info.meaning;
  return ncclSuccess;
}
AXCCL_CATCH(axcclParamGetByIndex)
