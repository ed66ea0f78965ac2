// axccl.h: introspection.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "axccl/axccl.h"
#include "src/api/context.h"
#include "src/api/export.h"
#include "src/base/param.h"
#include "src/comm/programs.h"

using namespace axccl;       // NOLINT: the C entry points
using namespace axccl::api;  // NOLINT

namespace {

axcclCommInfo_t Describe(comm::Communicator* core) {
  axcclCommInfo_t all{};
  all.nranks = core->identity().ranks;
  all.rank = core->identity().rank;
  all.device = core->identity().device.ordinal;
  all.local_processes = comm::CountLocalProcesses(*core);
  all.memory_bytes = core->block().resident_bytes() + core->channels().resident_bytes();
  all.operations = core->operations();
  all.plans = core->device().PreparedCalls(*core->channel());
  all.verify_seconds = comm::Programs::Process().usage().verify_seconds;
  const exec::DeviceStatistics statistics = core->device().statistics();
  all.mapped = statistics.mapped;
  all.grown = statistics.grown;
  all.gpudirect = statistics.gpudirect;
  all.ll = statistics.ll;
  all.ll128 = statistics.ll128;
  all.timeout = core->deadline().seconds;
  return all;
}

struct ShownParameter {
  std::string value;
  std::string source;
  std::string meaning;  // with the accepted words
};

// In the order of the table. Values never change once they are read.
const std::vector<ShownParameter>& ShownParameters() {
  static const auto* rows = [] {
    auto all = std::make_unique<std::vector<ShownParameter>>();
    for (const param::Info& info : param::Table()) {
      param::Source from = param::Source::kDefault;
      (void)param::Get(info.name, &from);
      const std::string words = *info.words != '\0' ? " (" + std::string(info.words) + ")" : "";
      all->push_back({param::GetShown(info.name), param::SourceName(from), info.meaning + words});
    }
    return all.release();
  }();
  return *rows;
}

}  // namespace

AXCCL_API ncclResult_t axcclCommGetInfo(ncclComm_t handle, axcclCommInfo_t* info) {
  return Entry("axcclCommGetInfo", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const CommPin comm, PinComm(handle, call));
    if (info == nullptr || info->size < sizeof(size_t))
      return InvalidArgument("%s: argument info is %s; set info->size = sizeof(axcclCommInfo_t)", call,
                             info == nullptr ? "NULL" : "without its size");
    if (!comm->ready()) return comm->Ready(call).status();
    axcclCommInfo_t all = Describe(comm->core().get());
    all.size = std::min(info->size, sizeof(all));
    std::memcpy(info, &all, all.size);
    return Status();
  });
}

AXCCL_API ncclResult_t axcclCommSetTimeout(ncclComm_t handle, double seconds) {
  return Entry("axcclCommSetTimeout", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const CommPin comm, PinComm(handle, call));
    if (!(seconds >= 0))
      return InvalidArgument("%s: argument seconds is %g; pass a positive number, or 0 to wait forever", call, seconds);
    if (!comm->ready()) return comm->Ready(call).status();
    comm->core()->SetTimeout(seconds);
    return Status();
  });
}

AXCCL_API ncclResult_t axcclCommGetLink(ncclComm_t handle, int peer, const char** link) {
  return Entry("axcclCommGetLink", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const CommPin comm, PinComm(handle, call));
    if (link == nullptr) return InvalidArgument("%s: argument link is NULL", call);
    if (!comm->ready()) return comm->Ready(call).status();
    const int ranks = comm->core()->identity().ranks;
    if (peer < 0 || peer >= ranks) return InvalidArgument("%s: argument peer is %d; pass 0..%d", call, peer, ranks - 1);
    *link = LinkName(*comm->core(), peer);
    return Status();
  });
}

AXCCL_API ncclResult_t axcclCommGetLastAlgorithm(ncclComm_t handle, const char** algorithm) {
  return Entry("axcclCommGetLastAlgorithm", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const CommPin comm, PinComm(handle, call));
    if (algorithm == nullptr) return InvalidArgument("%s: argument algorithm is NULL", call);
    if (!comm->ready()) return comm->Ready(call).status();
    *algorithm = comm->core()->last_algorithm();
    return Status();
  });
}

AXCCL_API ncclResult_t axcclParamGetByIndex(int index, const char** name, const char** value, const char** source,
                                            const char** meaning) {
  return EntryInAnyProcess("axcclParamGetByIndex", [&](const char* call) -> Status {
    const std::vector<ShownParameter>& rows = ShownParameters();
    if (index < 0 || static_cast<size_t>(index) >= rows.size())
      return InvalidArgument("%s: argument index is %d; there are %zu parameters", call, index, rows.size());
    if (name == nullptr || value == nullptr || source == nullptr || meaning == nullptr)
      return InvalidArgument("%s: argument name, value, source or meaning is NULL", call);
    const param::Info& info = param::Table()[static_cast<size_t>(index)];
    const ShownParameter& row = rows[static_cast<size_t>(index)];
    *name = info.name;
    *value = row.value.c_str();
    *source = row.source.c_str();
    *meaning = row.meaning.c_str();
    return Status();
  });
}
