// How functions leave the library.
//
//   AXCCL_API ncclResult_t pncclSend(...) { ... }
//   AXCCL_TWIN(Send)
//
// defines the strong symbol pncclSend and the weak symbol ncclSend at the same address. A preloaded profiler can
// therefore define its own ncclSend and call pncclSend. Code of the library calls pnccl names only: nccl names may
// belong to somebody else. What is not marked stays inside, by -fvisibility=hidden and once more by the version script
// axccl.map.
#pragma once

#define AXCCL_API extern "C" __attribute__((visibility("default")))

// After the definition of pnccl<name>, in the same file.
#define AXCCL_TWIN(name) \
  extern "C" __attribute__((visibility("default"), weak, alias("pnccl" #name))) decltype(pnccl##name) nccl##name;
