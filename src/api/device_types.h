// Types of the host side of NVIDIA's nccl_device.h, as far as the calling convention needs them.
#pragma once

extern "C" {
// So many ranks, `stride` apart; the caller is number `rank` of them.
struct ncclTeam {
  int ranks, rank, stride;
};
struct ncclMultimemHandle {
  void* base;
};
}
