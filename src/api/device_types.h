// Types of the host side of NVIDIA's nccl_device.h, which programs are compiled with. Members have NCCL's names without
// "out"; what is for networks that kernels reach by themselves (GIN) is left out where it comes last.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {
// So many ranks, `stride` apart; the caller is number `rank` of them.
struct ncclTeam {
  int ranks, rank, stride;
};
struct ncclMultimemHandle {
  void* base;
};

// A buffer in the memory of a device communicator, and where its place there goes (in units of 128 bytes), if anywhere.
struct ncclDevResourceRequirements {
  ncclDevResourceRequirements* next;
  size_t bufferSize, bufferAlign;
  uint32_t* bufferHandle;
  int ginSignalCount, ginCounterCount;
  uint32_t *ginSignalStart, *ginCounterStart;
};
struct ncclTeamRequirements {
  ncclTeamRequirements* next;
  ncclTeam team;
  bool multimem;
  ncclMultimemHandle* multimemHandle;
};
struct ncclLsaBarrierHandle {
  uint32_t bufferHandle;
  int barriers;
};
struct ncclLLA2AHandle {
  uint32_t bufferHandle, slots;
};

// As programs compiled with NCCL 2.28 pass it. Newer ones have ncclVersionedDevCommRequirements in its place.
struct ncclDevCommRequirements {
  ncclDevResourceRequirements* resources;
  ncclTeamRequirements* teams;
  bool lsaMultimem;
  int barrierCount, lsaBarrierCount, railGinBarrierCount;
  int lsaLLA2ABlockCount, lsaLLA2ASlotCount;  // without effect, as in NCCL
  bool ginForceEnable;
  int ginContextCount, ginSignalCount, ginCounterCount;
};
struct ncclVersionedDevCommRequirements {
  size_t size;
  unsigned int magic, version;
  ncclDevCommRequirements wanted;
  int ginConnectionType;  // this and what follows: since 2.29.5
  bool ginExclusiveContexts;
  int ginQueueDepth, ginTrafficClass;
  int worldGinBarrierCount;  // since 2.30
  bool ginStrongSignalsRequired, ginVaSignalsRequired;
  int ginCustomStride, ginType;  // this and what follows: since 2.31
  bool useRuntimeVersion;
  int cftCaps, cftBarrierCount;
};

// How a device communicator begins, from 2.30 on behind a magic number and the version of the program. A copy of the
// window follows, whose length depends on the version, the address of multicast, and ncclLsaBarrierHandle.
struct ncclDevComm {
  int rank, nRanks;
  uint32_t nRanks_rcp32;
  int lsaRank, lsaSize;
  uint32_t lsaSize_rcp32;
  uint64_t windowTable;
  uint64_t resourceWindow;
};

struct ncclCommProperties {
  size_t size;
  unsigned int magic, version;
  int rank, nRanks, cudaDev, nvmlDev;
  bool deviceApiSupport, multimemSupport;
  int ginType;
  int nLsaTeams;  // this and what follows: since 2.29.5
  bool hostRmaSupport;
  int railedGinType;
};
}

static_assert(sizeof(ncclDevResourceRequirements) == 56);
static_assert(sizeof(ncclDevCommRequirements) == 56);
static_assert(offsetof(ncclVersionedDevCommRequirements, ginConnectionType) == 72);
static_assert(offsetof(ncclVersionedDevCommRequirements, worldGinBarrierCount) == 88);
static_assert(sizeof(ncclVersionedDevCommRequirements) == 120);
static_assert(sizeof(ncclDevComm) == 40);
static_assert(offsetof(ncclCommProperties, nLsaTeams) == 40);
