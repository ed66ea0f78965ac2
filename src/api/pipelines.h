// The object behind an axcclPipeline_t: what the calls of pipelines.h check, and where its chunks are.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "axccl/pipelines.h"
#include "src/api/context.h"
#include "src/comm/pipeline.h"
#include "src/tensor/view.h"

namespace axccl::api {

// The chunks of one side, in the caller's memory.
struct ChunkPlaces {
  ncclDataType_t datatype = ncclFloat32;
  tensor::View view;         // all blocks
  bool empty = false;        // blocks have no elements
  int64_t block_stride = 0;  // elements
  int blocks = 0;
  int slice_dim = 0;
  int64_t rows = 0, slices = 1;        // of a block along slice_dim
  std::vector<int64_t> sizes[2] = {};  // of a slice of the usual size, and of one with a row more

  int64_t chunks() const { return blocks * slices; }
};

struct PipelineObject {
  enum Phase : uint8_t { kNew, kStarted, kFinished };

  ncclComm_t comm = nullptr;
  std::shared_ptr<comm::Pipeline> pipeline;
  axcclPipelineKind_t kind{};
  bool produced = false;
  ChunkPlaces places[2];
  std::mutex mutex;  // of starts and finishes
  std::atomic<Phase> phase{kNew};
  std::atomic<bool> deferred{false};  // the last start waits for the end of a group
  std::atomic<uint64_t> starts{0};
  std::unique_ptr<std::atomic<bool>[]> declared;  // input chunks, since the start
};

}  // namespace axccl::api
