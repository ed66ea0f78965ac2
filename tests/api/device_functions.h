// The host side of NCCL's device API, as NVIDIA's nccl_device.h declares it, with the pointers it passes made void*.
#pragma once

#include "nccl.h"

extern "C" {
struct ncclTeam {
  int ranks, rank, stride;
};
ncclResult_t ncclDevCommCreate(ncclComm_t, const void*, void*);
ncclResult_t ncclDevCommDestroy(ncclComm_t, const void*);
ncclResult_t ncclCommQueryProperties(ncclComm_t, void*);
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t, size_t, int, void**);
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t, size_t, void**);
ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t, size_t, void*, void**);
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t, size_t, int, void**);
ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam, int, void*, void*);
ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t, ncclTeam, int, void*, void*);
ncclResult_t ncclLLA2ACreateRequirement(int, int, void*, void*);
ncclResult_t ncclGinOutboxCreateRequirement(int, int, void*, void*);
ncclResult_t ncclGinInboxA2ACreateRequirement(ncclTeam, int, int, void*, void*);
ncclTeam ncclTeamWorld(ncclComm_t);
ncclTeam ncclTeamLsa(ncclComm_t);
ncclTeam ncclTeamRail(ncclComm_t);
int ncclTeamRankToWorld(ncclComm_t, ncclTeam, int);
int ncclTeamRankToLsa(ncclComm_t, ncclTeam, int);
int ncclLLA2ACalcSlots(int, int);
}
