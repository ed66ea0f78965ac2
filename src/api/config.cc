#include "src/api/config.h"

#include <strings.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>

#include "src/base/log.h"
#include "src/base/param.h"

namespace axccl::api {
namespace {

constexpr int kUndefined = NCCL_CONFIG_UNDEF_INT;
constexpr int kMaxCtas = 64;

// The version in which each int field was added. Fields were put into the padding of older structs, so the size alone
// does not show whether a struct has them.
struct IntField {
  const char* name;
  size_t offset;
  unsigned version;
  int least, most;
};

constexpr int kAny = std::numeric_limits<int>::max(), kAnyNegative = std::numeric_limits<int>::min();
constexpr int kMixedGraphs = 2;  // graphUsageMode

constexpr IntField kFields[] = {
    {"blocking", offsetof(ncclConfig_t, blocking), NCCL_VERSION(2, 14, 0), 0, 1},
    {"cgaClusterSize", offsetof(ncclConfig_t, cgaClusterSize), NCCL_VERSION(2, 17, 0), 0, kAny},
    {"minCTAs", offsetof(ncclConfig_t, minCTAs), NCCL_VERSION(2, 17, 0), 1, kAny},
    {"maxCTAs", offsetof(ncclConfig_t, maxCTAs), NCCL_VERSION(2, 17, 0), 1, kAny},
    {"splitShare", offsetof(ncclConfig_t, splitShare), NCCL_VERSION(2, 18, 0), 0, 1},
    {"trafficClass", offsetof(ncclConfig_t, trafficClass), NCCL_VERSION(2, 26, 0), kAnyNegative, kAny},
    {"collnetEnable", offsetof(ncclConfig_t, collnetEnable), NCCL_VERSION(2, 27, 0), 0, 1},
    {"CTAPolicy", offsetof(ncclConfig_t, CTAPolicy), NCCL_VERSION(2, 27, 0), 0, 3},
    {"shrinkShare", offsetof(ncclConfig_t, shrinkShare), NCCL_VERSION(2, 27, 0), 0, 1},
    {"nvlsCTAs", offsetof(ncclConfig_t, nvlsCTAs), NCCL_VERSION(2, 27, 0), 1, kAny},
    {"nChannelsPerNetPeer", offsetof(ncclConfig_t, nChannelsPerNetPeer), NCCL_VERSION(2, 28, 0), 1, kMaxCtas},
    {"nvlinkCentricSched", offsetof(ncclConfig_t, nvlinkCentricSched), NCCL_VERSION(2, 28, 0), 0, 1},
    {"graphUsageMode", offsetof(ncclConfig_t, graphUsageMode), NCCL_VERSION(2, 29, 0), 0, 2},
    {"numRmaCtx", offsetof(ncclConfig_t, numRmaCtx), NCCL_VERSION(2, 29, 0), 0, kAny},
    {"maxP2pPeers", offsetof(ncclConfig_t, maxP2pPeers), NCCL_VERSION(2, 30, 3), 1, kAny},
    {"graphStreamOrdering", offsetof(ncclConfig_t, graphStreamOrdering), NCCL_VERSION(2, 30, 5), 0, 1},
    {"launchOrderImplicit", offsetof(ncclConfig_t, launchOrderImplicit), NCCL_VERSION(2, 31, 0), 0, 1},
    {"numRmaSig", offsetof(ncclConfig_t, numRmaSig), NCCL_VERSION(2, 31, 0), 1, kAny},
    {"rmaEagerInit", offsetof(ncclConfig_t, rmaEagerInit), NCCL_VERSION(2, 31, 0), 0, 1},
    {"hostCftMode", offsetof(ncclConfig_t, hostCftMode), NCCL_VERSION(2, 31, 0), 1, 3},
};

Status CheckHeader(const char* call, const ncclConfig_t* config) {
  constexpr size_t kHeader = offsetof(ncclConfig_t, blocking);
  if (config->size < kHeader || config->size > 4096)
    return MakeStatus(Code::kInvalidArgument, "%s: argument config has size %zu; start from NCCL_CONFIG_INITIALIZER",
                      call, config->size);
  if (config->magic != NCCL_API_MAGIC)
    return MakeStatus(Code::kInvalidArgument,
                      "%s: argument config has magic 0x%x, expected 0x%x; start from "
                      "NCCL_CONFIG_INITIALIZER",
                      call, config->magic, NCCL_API_MAGIC);
  if (config->version < NCCL_VERSION(2, 14, 0))
    return MakeStatus(Code::kInvalidArgument,
                      "%s: argument config has version %u, older than configs are; start from "
                      "NCCL_CONFIG_INITIALIZER",
                      call, config->version);
  return Status();
}

// Ranks of a process have one network, which its environment chooses.
void ReportNetName(const char* call, const char* name) {
  if (name == nullptr || strcasecmp(name, param::Get("NCCL_NET").c_str()) == 0) return;
  AXCCL_INFO(kEnv, "%s: netName \"%s\" in argument config has no effect; set NCCL_NET to choose the network", call,
             name);
}

void Override(int* value, const char* parameter) {
  param::Source source;
  if (param::Get(parameter, &source); source != param::Source::kDefault)
    *value = static_cast<int>(param::GetInt(parameter));
}

// The environment has precedence over the program's values.
void ApplyEnvironment(int* blocking, int* least, int* most, int* policy, int* graphs) {
  Override(blocking, "NCCL_COMM_BLOCKING");
  Override(least, "NCCL_MIN_NCHANNELS");  // the older name
  Override(least, "NCCL_MIN_CTAS");
  Override(most, "NCCL_MAX_NCHANNELS");
  Override(most, "NCCL_MAX_CTAS");
  Override(policy, "NCCL_CTA_POLICY");
  param::Source source;
  if (param::Get("NCCL_GRAPH_MIXING_SUPPORT", &source); source != param::Source::kDefault)
    *graphs = param::GetInt("NCCL_GRAPH_MIXING_SUPPORT") != 0 ? kMixedGraphs : 0;
  if (*least == kUndefined || *most == kUndefined || *least <= *most) return;
  AXCCL_INFO(kEnv, "minCTAs %d is larger than maxCTAs %d, so both are %d", *least, *most, *most);
  *least = *most;
}

}  // namespace

Result<comm::Config> ReadConfig(const char* call, const ncclConfig_t* config, const comm::Config& fallback) {
  comm::Config out = fallback;
  int blocking = out.blocking, least = kUndefined, most = kUndefined, policy = kUndefined, graphs = kUndefined;
  if (config != nullptr) {
    AXCCL_RETURN_IF_ERROR(CheckHeader(call, config));
    ncclConfig_t known = NCCL_CONFIG_INITIALIZER;
    std::memcpy(&known, config, std::min(config->size, sizeof(known)));
    const unsigned version = known.version;
    auto read = [&](const IntField& field) {
      int value = kUndefined;
      if (version >= field.version && field.offset + sizeof(int) <= config->size)
        std::memcpy(&value, reinterpret_cast<const char*>(&known) + field.offset, sizeof(value));
      return value;
    };
    for (const IntField& field : kFields) {
      const int value = read(field);
      if (value != kUndefined && (value < field.least || value > field.most))
        return MakeStatus(Code::kInvalidArgument, "%s: argument config has %s %d; pass %d..%d or leave it undefined",
                          call, field.name, value, field.least, field.most);
    }
    if (const int value = read(kFields[0]); value != kUndefined) blocking = value;
    least = read(kFields[2]);
    most = read(kFields[3]);
    if (const int value = read(kFields[4]); value != kUndefined) out.split_share = value != 0;
    policy = read(kFields[7]);
    graphs = read(kFields[12]);
    if (version >= NCCL_VERSION(2, 17, 0) && offsetof(ncclConfig_t, netName) + sizeof(char*) <= config->size)
      ReportNetName(call, known.netName);
    const bool has_name =
        version >= NCCL_VERSION(2, 27, 0) && offsetof(ncclConfig_t, commName) + sizeof(char*) <= config->size;
    if (has_name && known.commName != nullptr) out.name = known.commName;
  }
  if (least != kUndefined && most != kUndefined && least > most)
    return MakeStatus(
        Code::kInvalidArgument,
        "%s: argument config has minCTAs %d and maxCTAs %d; pass a minimum up to the maximum, or leave one "
        "undefined",
        call, least, most);
  ApplyEnvironment(&blocking, &least, &most, &policy, &graphs);
  if (policy != kUndefined) out.spares_blocks = (policy & NCCL_CTA_POLICY_ZERO) != 0;
  if (graphs != kUndefined) out.mixes_graphs = graphs == kMixedGraphs;
  out.blocking = blocking != 0;
  if (most != kUndefined) out.lanes.most = std::clamp(most, 1, kMaxCtas);
  if (least != kUndefined) out.lanes.least = std::clamp(least, 1, kMaxCtas);
  // The one that was given has precedence over the parent's other one.
  if (least == kUndefined) out.lanes.least = std::min(out.lanes.least, out.lanes.most);
  if (most == kUndefined) out.lanes.most = std::max(out.lanes.least, out.lanes.most);
  return out;
}

}  // namespace axccl::api
